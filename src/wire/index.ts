/** The wire: messages and services generated from proto/, and gRPC over them. */

export { grpcClient } from "./client.ts";
export * as boundary from "./gen/boundary_pb.js";
export * as compute from "./gen/compute_driver_pb.js";
export * as datamodel from "./gen/datamodel_pb.js";
export * as extension from "./gen/extension_pb.js";
export * as openshell from "./gen/openshell_pb.js";
export * as options from "./gen/options_pb.js";
export * as sandbox from "./gen/sandbox_pb.js";
export { localClient } from "./local.ts";
export type { CallContext, CallOptions, Client, Handler, Implementation } from "./rpc.ts";
export { addService } from "./server.ts";
export { codeOfStatus, fromServiceError, lastConnectionError, statusNumber, toServiceError } from "./status.ts";
export { createChannel, createServer } from "./transport.ts";
