import { OpenShellError } from "../common/errors.ts";
import type { Implementation, openshell } from "../wire/index.ts";
import type { Address } from "./address.ts";
import { type Core, type CoreOptions, openCore } from "./core.ts";
import { DriverLink, type GatewayDriver } from "./driver-link.ts";
import { execService } from "./exec/service.ts";
import { Authenticator } from "./identity/authenticator.ts";
import type { Principal } from "./identity/principal.ts";
import { infoService } from "./info.ts";
import { type HttpOptions, listenGrpc, listenHttp } from "./listeners.ts";
import { gatewayReadings } from "./metrics/gateway-readings.ts";
import { Lives } from "./metrics/lives.ts";
import type { Readings } from "./metrics/print.ts";
import type { MetricsOf } from "./metrics/table.ts";
import { sandboxService } from "./sandbox/service.ts";
import { supervisorService } from "./sessions/supervisor-service.ts";
import type { GatewayTls } from "./tls.ts";
import { workspaceService } from "./workspaces.ts";

export type { GatewayDriver } from "./driver-link.ts";

export interface GatewayOptions extends CoreOptions, HttpOptions {
  readonly version: string;
  /** gRPC; port 0 takes a free one. */
  readonly bind: Address;
  readonly allowUnauthenticatedUsers: boolean;
  readonly driver: GatewayDriver;
  /** As configured. */
  readonly driverName: string;
  readonly allowDriverConfig: boolean;
  /** What the driver measures, shown beside the gateway's own. @default nothing */
  readonly driverReadings?: Readings<MetricsOf<"driver">>;
}

/** A gateway that serves. */
export interface Gateway {
  readonly port: number;
  readonly healthPort: number | undefined;
  readonly metricsPort: number | undefined;
  /** Undefined in plain text. */
  readonly tls: GatewayTls | undefined;
  /** Why it is not ready; undefined when it is. */
  unready(): string | undefined;
  /** Rejects when the gateway cannot go on; resolves once it was stopped. */
  readonly closed: Promise<void>;
  /** Accepts nothing more, ends sessions, closes the store. */
  stop(): Promise<void>;
}

/**
 * Starts a gateway. It serves as soon as its port is bound; the driver starts beside it, and readiness says when it has.
 * @throws failed-precondition when nobody could authenticate, unavailable when an address or the store cannot be had
 */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { log, driver, version } = options;
  requireAuthentication(options);
  await using undo = new AsyncDisposableStack();
  const stop = new AbortController();
  const core = await openCore(options, undo);
  const { store, sandboxes, supervisors, exits, tls, oidc } = core;
  const link = new DriverLink({ store, sandboxes, exits, driver, version, log, signal: stop.signal });
  const lives = new Lives(sandboxes.all());
  sandboxes.onChange((record) => {
    lives.changed(record);
    link.kick(record);
    supervisors.review(record.id);
    exits.review(record);
  });
  sandboxes.onRemoved((id) => {
    lives.removed(id);
    supervisors.forget(id);
    exits.forget(id);
  });
  const unready = () => {
    if (stop.signal.aborted) return "the gateway is shutting down";
    return store.isOpen ? link.unready() : "the store is closed";
  };
  const degraded = () => unready() ?? link.degraded();

  undo.defer(() => driver.stop());
  const own = gatewayReadings({ supervisors, lives, tls, oidc, streamRestarts: () => link.streamRestarts });
  const http = await listenHttp(options, unready, { ...own, ...options.driverReadings }, undo);
  const implementation = services(options, core, link, degraded);
  const authenticator = authenticatorOf(options, core, link);
  const port = await listenGrpc({ address: options.bind, tls, implementation, authenticator, log }, undo);
  undo.defer(() => {
    stop.abort(new OpenShellError("unavailable", "the gateway is shutting down"));
    supervisors.close();
    sandboxes.hub.close();
  });
  log.info({ address: `${options.bind.host}:${port}`, tls: tls !== undefined, version }, "the gateway serves");

  const closed = Promise.withResolvers<void>();
  closed.promise.catch(() => {});
  // In its own time: a provider that is away keeps users away, and no supervisor.
  void oidc?.keys.run(stop.signal);
  link.run().catch((error: unknown) => {
    if (!stop.signal.aborted) closed.reject(error);
  });
  const resources = undo.move();
  return {
    port,
    ...http,
    tls,
    unready,
    closed: closed.promise,
    async stop() {
      await resources.disposeAsync();
      closed.resolve();
    },
  };
}

/** Every RPC this gateway serves. */
function services(
  { version, driverName, allowDriverConfig, log }: GatewayOptions,
  { store, sandboxes, supervisors, replays, tokens }: Core,
  link: DriverLink,
  degraded: () => string | undefined,
): Implementation<typeof openshell.OpenShell, Principal> {
  const { client: driver, convergence, workspaceDeletions: deletions } = link;
  return {
    ...infoService({ version, driverName, degraded, capabilities: () => link.capabilities() }),
    ...sandboxService({ store, sandboxes, convergence, driver, replays, allowDriverConfig }),
    ...workspaceService({ store, driver, replays, deletions }),
    ...supervisorService({ store, sandboxes, supervisors, tokens, log }),
    ...execService({ sandboxes, relays: supervisors.relays }),
  };
}

function authenticatorOf(
  { allowUnauthenticatedUsers }: GatewayOptions,
  { store, certificates, oidc, tokens }: Core,
  { client: driver }: DriverLink,
): Authenticator {
  return new Authenticator({
    store,
    driver,
    allowUnauthenticatedUsers,
    ...(certificates === undefined ? {} : { certificates }),
    ...(oidc === undefined ? {} : { oidc }),
    ...(tokens === undefined ? {} : { tokens }),
  });
}

function requireAuthentication(options: GatewayOptions): void {
  if (options.mtlsUsers && options.tls?.clientCa === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      "mtls_auth needs TLS and a client CA: set tls.client_ca_path and leave disable_tls off",
    );
  }
  if (options.mtlsUsers || options.oidc !== undefined || options.allowUnauthenticatedUsers) return;
  throw new OpenShellError(
    "failed-precondition",
    "nobody could authenticate: set mtls_auth.enabled with tls.client_ca_path, oidc.issuer, or auth.allow_unauthenticated_users for development",
  );
}
