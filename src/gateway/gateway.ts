import * as grpc from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { addService, compute, createServer, type Implementation, localClient, openshell } from "../wire/index.ts";
import { Convergence } from "./convergence.ts";
import { DriverWatch } from "./driver-watch.ts";
import { execService } from "./exec/service.ts";
import { gatewayMetrics } from "./gateway-metrics.ts";
import { type Address, HttpListener, healthPaths, metricsPaths } from "./http.ts";
import { Authenticator } from "./identity/authenticator.ts";
import { ClientCertificates } from "./identity/client-certificates.ts";
import type { Principal } from "./identity/principal.ts";
import { type SessionTokenKeys, SessionTokens } from "./identity/session-tokens.ts";
import { type DriverCapabilities, handshake, infoService } from "./info.ts";
import type { ClassifyReason } from "./sandbox/driver-state.ts";
import { Replays } from "./sandbox/replay.ts";
import { Sandboxes } from "./sandbox/sandboxes.ts";
import { sandboxService } from "./sandbox/service.ts";
import { Exits } from "./sessions/exits.ts";
import { supervisorService } from "./sessions/supervisor-service.ts";
import { Supervisors } from "./sessions/supervisors.ts";
import { Store } from "./store/store.ts";
import { GatewayTls, type TlsFiles } from "./tls.ts";
import { workspaceService } from "./workspaces.ts";

/** What runs the sandboxes; src/driver has one. */
export interface GatewayDriver {
  readonly implementation: Implementation<typeof compute.ComputeDriver>;
  /** Resolves when it can be asked; rejects when it never can. */
  start(signal: AbortSignal): Promise<void>;
  ready(): boolean;
  stop(): Promise<void>;
}

export interface GatewayOptions {
  readonly version: string;
  /** Issuer of session tokens is `openshell-gateway:<gatewayId>`. */
  readonly gatewayId: string;
  /** gRPC; port 0 takes a free one. */
  readonly bind: Address;
  readonly health?: Address;
  readonly metrics?: Address;
  /** Undefined: plain text. */
  readonly tls?: TlsFiles;
  /** Whether client certificates identify users; needs tls.clientCa. */
  readonly mtlsUsers: boolean;
  readonly allowUnauthenticatedUsers: boolean;
  /** Undefined: supervisors cannot identify themselves. */
  readonly tokenKeys?: SessionTokenKeys;
  readonly tokenTtlSeconds?: number;
  /** File of the store, or ":memory:". */
  readonly databasePath: string;
  readonly driver: GatewayDriver;
  /** As configured. */
  readonly driverName: string;
  readonly allowDriverConfig: boolean;
  readonly classify: ClassifyReason;
  readonly log: Logger;
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
  const { log, driver: engine, version } = options;
  requireAuthentication(options);
  await using undo = new AsyncDisposableStack();
  const stop = new AbortController();
  const store = undo.adopt(new Store(options.databasePath), (one) => one.close());
  const certificates = options.mtlsUsers ? new ClientCertificates() : undefined;
  const tls =
    options.tls === undefined
      ? undefined
      : undo.adopt(
          GatewayTls.load(options.tls, log, (bundle) => certificates?.trust(bundle)),
          (one) => one.close(),
        );
  const tokens =
    options.tokenKeys === undefined ? undefined : await SessionTokens.create(tokenOptions(options, options.tokenKeys));

  const driver = localClient(compute.ComputeDriver, engine.implementation, undefined);
  const sandboxes = new Sandboxes({ store, classify: options.classify });
  const supervisors = new Supervisors({ store, sandboxes, log });
  const convergence = new Convergence({ sandboxes, driver, log, signal: stop.signal });
  const exits = undo.adopt(new Exits(sandboxes), (one) => one.close());
  let watchRestarts = 0;
  const watch = new DriverWatch({ sandboxes, driver, log, signal: stop.signal, onRestart: () => watchRestarts++ });
  let capabilities: DriverCapabilities | undefined;
  sandboxes.onChange((record) => {
    if (capabilities !== undefined) convergence.kick(record);
    supervisors.review(record.id);
    exits.review(record);
  });

  const unready = () => {
    if (stop.signal.aborted) return "the gateway is shutting down";
    if (!store.isOpen) return "the store is closed";
    if (capabilities === undefined || !engine.ready()) return "the compute driver is not ready";
    return watch.synced ? undefined : "the driver's sandboxes are not compared with the store yet";
  };

  const replays = new Replays(store.replays);
  const authenticator = new Authenticator({
    store,
    driver,
    allowUnauthenticatedUsers: options.allowUnauthenticatedUsers,
    ...(certificates === undefined ? {} : { certificates }),
    ...(tokens === undefined ? {} : { tokens }),
  });
  const implementation: Implementation<typeof openshell.OpenShell, Principal> = {
    ...infoService({
      version,
      driverName: options.driverName,
      unready,
      capabilities: () => {
        if (capabilities !== undefined) return capabilities;
        throw new OpenShellError("unavailable", "the compute driver is not ready", { retryAfterMs: 2_000 });
      },
    }),
    ...sandboxService({ store, sandboxes, convergence, driver, replays, allowDriverConfig: options.allowDriverConfig }),
    ...workspaceService({ store, driver, replays }),
    ...supervisorService({ store, sandboxes, supervisors, tokens, log }),
    ...execService({ sandboxes, relays: supervisors.relays }),
  };

  const metrics = gatewayMetrics({ store, supervisors, tls, watchRestarts: () => watchRestarts });
  undo.defer(() => engine.stop());
  const health =
    options.health === undefined
      ? undefined
      : undo.adopt(await HttpListener.listen("health_bind_address", options.health, healthPaths(unready)), (one) =>
          one.close(),
        );
  const metering =
    options.metrics === undefined
      ? undefined
      : undo.adopt(await HttpListener.listen("metrics_bind_address", options.metrics, metricsPaths(metrics)), (one) =>
          one.close(),
        );

  const server = undo.adopt(createServer(), shutDown);
  addService(
    server,
    openshell.OpenShell,
    implementation,
    (context) => authenticator.authenticate(context),
    (error, method) => {
      const level = error.code === "internal" || error.code === "unknown" ? "error" : "debug";
      log[level]({ err: error, rpc: method.name, code: error.code }, error.message);
    },
  );
  const port = await bind(server, options.bind, tls ?? grpc.ServerCredentials.createInsecure());
  undo.defer(() => {
    stop.abort(new OpenShellError("unavailable", "the gateway is shutting down"));
    supervisors.close();
    sandboxes.hub.close();
  });
  log.info({ address: `${options.bind.host}:${port}`, tls: tls !== undefined, version }, "the gateway serves");

  const closed = Promise.withResolvers<void>();
  closed.promise.catch(() => {});
  const work = async () => {
    await engine.start(stop.signal);
    capabilities = await handshake(driver, version);
    for (const record of sandboxes.all()) {
      convergence.kick(record);
      exits.review(record);
    }
    await watch.run();
  };
  work().catch((error: unknown) => {
    if (!stop.signal.aborted) closed.reject(error);
  });

  const resources = undo.move();
  return {
    port,
    healthPort: health?.port,
    metricsPort: metering?.port,
    tls,
    unready,
    closed: closed.promise,
    async stop() {
      await resources.disposeAsync();
      closed.resolve();
    },
  };
}

function requireAuthentication(options: GatewayOptions): void {
  if (options.mtlsUsers && options.tls?.clientCa === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      "mtls_auth needs TLS and a client CA: set tls.client_ca_path and leave disable_tls off",
    );
  }
  if (options.mtlsUsers || options.allowUnauthenticatedUsers) return;
  throw new OpenShellError(
    "failed-precondition",
    "nobody could authenticate: set mtls_auth.enabled with tls.client_ca_path, or auth.allow_unauthenticated_users for development",
  );
}

function tokenOptions({ gatewayId, tokenTtlSeconds }: GatewayOptions, keys: SessionTokenKeys) {
  return { keys, gatewayId, ...(tokenTtlSeconds === undefined ? {} : { ttlSeconds: tokenTtlSeconds }) };
}

function bind(server: grpc.Server, { host, port }: Address, credentials: grpc.ServerCredentials): Promise<number> {
  const where = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  return new Promise((resolve, reject) => {
    server.bindAsync(where, credentials, (cause, bound) => {
      if (cause === null) resolve(bound);
      else reject(new OpenShellError("unavailable", `cannot listen on ${where}: ${cause.message}`, { cause }));
    });
  });
}

/** Lets calls that are under way end, but not for long. */
async function shutDown(server: grpc.Server): Promise<void> {
  const forced = setTimeout(() => server.forceShutdown(), 3_000);
  await new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
  clearTimeout(forced);
}
