import { randomUUID } from "node:crypto";
import * as grpc from "@grpc/grpc-js";
import { isForeign, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { addService, createServer, type Implementation, openshell } from "../wire/index.ts";
import type { Address } from "./address.ts";
import { HttpListener, healthPaths, metricsPaths } from "./http.ts";
import type { Authenticator } from "./identity/authenticator.ts";
import type { Principal } from "./identity/principal.ts";
import { listenError } from "./listen-error.ts";
import type { Readings } from "./metrics/print.ts";
import { storeUnwritable } from "./store/revision.ts";
import type { GatewayTls } from "./tls.ts";

/** How long calls that are under way may go on at the end, in milliseconds. */
const drainMs = 3_000;

export interface HttpOptions {
  readonly health?: Address;
  readonly metrics?: Address;
}

/** Ports of the HTTP listeners that were asked for. */
export async function listenHttp(
  { health, metrics }: HttpOptions,
  unready: () => string | undefined,
  measured: Partial<Readings>,
  undo: AsyncDisposableStack,
): Promise<{ readonly healthPort: number | undefined; readonly metricsPort: number | undefined }> {
  const listen = async (
    what: string,
    address: Address | undefined,
    paths: Parameters<typeof HttpListener.listen>[2],
  ) =>
    address === undefined
      ? undefined
      : undo.adopt(await HttpListener.listen(what, address, paths), (one) => one.close()).port;
  return {
    healthPort: await listen("health_bind_address", health, healthPaths(unready)),
    metricsPort: await listen("metrics_bind_address", metrics, metricsPaths(measured)),
  };
}

export interface GrpcOptions {
  readonly address: Address;
  readonly tls: GatewayTls | undefined;
  readonly implementation: Implementation<typeof openshell.OpenShell, Principal>;
  readonly authenticator: Authenticator;
  readonly log: Logger;
}

/**
 * Serves openshell.v1; the port that was bound.
 * @throws unavailable when the address cannot be had
 */
export async function listenGrpc(options: GrpcOptions, undo: AsyncDisposableStack): Promise<number> {
  const { address, tls, implementation, authenticator, log } = options;
  const server = undo.adopt(createServer(), shutDown);
  addService(
    server,
    openshell.OpenShell,
    implementation,
    (context) => authenticator.authenticate(context),
    (error, method) => {
      const isOurs = error.code === "internal" || error.code === "unknown" || error.details.reason === storeUnwritable;
      const level = isOurs ? "error" : "debug";
      // Where a plain refusal was thrown says nothing; what is behind another one is told nowhere else.
      const more = isOurs || error.cause !== undefined ? { err: error } : { details: error.details };
      log[level]({ ...more, rpc: method.name, code: error.code }, error.message);
    },
    concealed,
  );
  return bind(server, address, tls ?? grpc.ServerCredentials.createInsecure());
}

/** An error that nobody wrote for a caller may tell of files, addresses and other callers: its text is in the log alone. */
function concealed(error: OpenShellError): OpenShellError {
  if (!isForeign(error)) return error;
  const message = `internal error; the gateway's log has it with the id ${randomUUID()}`;
  return new OpenShellError("internal", message, { cause: error.cause });
}

function bind(server: grpc.Server, address: Address, credentials: grpc.ServerCredentials): Promise<number> {
  const { host, port } = address;
  const where = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  // gRPC's library would say on standard error, in words of its own, what the rejection says.
  if (process.env.GRPC_VERBOSITY === undefined) grpc.setLogVerbosity(grpc.logVerbosity.NONE);
  return new Promise((resolve, reject) => {
    server.bindAsync(where, credentials, (cause, bound) => {
      if (cause === null) resolve(bound);
      else reject(listenError("bind_address", address, cause));
    });
  });
}

/** Lets calls that are under way end, but not for long. */
async function shutDown(server: grpc.Server): Promise<void> {
  const forced = setTimeout(() => server.forceShutdown(), drainMs);
  await new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
  clearTimeout(forced);
}
