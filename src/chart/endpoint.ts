/** Under which name the gateway is reached, and whether its certificate has it. */
import { once, values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import { and, call, not, or, text } from "./layer/index.ts";
import { serviceHost } from "./names.ts";

/** Where supervisors reach it. */
export const grpcEndpoint = effective<string>("openshell.drivers.kubernetes.grpc_endpoint");
/** The name that they verify. */
export const verifiedHost = call<string>("get", call("urlParse", grpcEndpoint), "hostname");
export const isService = call<boolean>("hasPrefix", text`https://${serviceHost}`, grpcEndpoint);

/** A certificate that this chart does not make, or makes without them: then what counts is the name that supervisors verify. */
export const mayLackInternalNames = and(
  not(values.server.disableTls),
  or(values.server.tls.certSecretName, and(values.certManager.enabled, not(values.certManager.internalNames))),
);

/** Its certificate has no name for a port-forward: users come by the name that supervisors verify too. */
export const isElsewhere = once("isElsewhere", and(mayLackInternalNames, not(isService)));
