import tls from "node:tls";
import { ServerCredentials } from "@grpc/grpc-js";
import type { EndSignals } from "../common/end-signals.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { addService, boundary, createServer } from "../wire/index.ts";
import { imageEnvironment } from "./environment.ts";
import type { FenceState } from "./fence.ts";
import { parseTargets, probeFence } from "./fence-probe.ts";
import { takeSpan } from "./fence-span.ts";
import { removeUnfinished } from "./files.ts";
import { type Identity, takeIdentity } from "./identity.ts";
import { loadNative } from "./native/index.ts";
import { Processes } from "./processes.ts";
import { Runtime } from "./runtime.ts";
import { boundaryService, serverOptions } from "./service.ts";

/** Version of this program, in hellos; the image build puts it in. */
const build = process.env.OPENSHELL_BUILD ?? "dev";

interface Settings {
  readonly port: number;
  readonly fenceCheck: boolean;
  readonly targets: ReturnType<typeof parseTargets>;
  readonly identityDirectory: string;
  readonly home: string;
}

function readSettings(environment: NodeJS.ProcessEnv): Settings {
  const port = Number(environment.OPENSHELL_BOUNDARY_PORT ?? "5500");
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new OpenShellError(
      "invalid-argument",
      `OPENSHELL_BOUNDARY_PORT is no port: ${environment.OPENSHELL_BOUNDARY_PORT}`,
    );
  }
  const check = environment.OPENSHELL_FENCE_CHECK || "enforce";
  if (check !== "enforce" && check !== "off") {
    throw new OpenShellError("invalid-argument", `OPENSHELL_FENCE_CHECK is "enforce" or "off", not "${check}"`);
  }
  const targets = parseTargets(environment.OPENSHELL_FENCE_TARGETS ?? "");
  if (check === "enforce" && targets.length === 0) {
    throw new OpenShellError("invalid-argument", "OPENSHELL_FENCE_TARGETS is empty, so the fence cannot be checked");
  }
  return {
    port,
    targets,
    fenceCheck: check === "enforce",
    identityDirectory: environment.OPENSHELL_IDENTITY_DIR ?? "/run/openshell/identity",
    home: environment.OPENSHELL_HOME ?? "/sandbox",
  };
}

/** PID 1 of the agent's container, from start to exit code. */
export async function runAsInit(environment: NodeJS.ProcessEnv, log: Logger, signals: EndSignals): Promise<number> {
  const native = loadNative();
  // Before any secret is read: nobody of our user may look into this process.
  const hidden = native.hide();
  if (hidden < 0)
    throw new OpenShellError("internal", `this process cannot be hidden from the agent: errno ${-hidden}`);
  const settings = readSettings(environment);
  const span = takeSpan(settings.identityDirectory);
  const identity = takeIdentity(settings.identityDirectory);

  void removeUnfinished(settings.home, log);
  const processes = new Processes(native);
  const runtime = new Runtime({
    identity,
    processes,
    log,
    build,
    environment: imageEnvironment(environment, settings.home),
  });
  const stop = new AbortController();
  signals.handledBy((signal) => void runtime.terminate(`received ${signal}`, signal));
  const server = await listen(identity, settings, (host) => {
    addService(
      host,
      boundary.Boundary,
      boundaryService(runtime, processes, settings.home, log),
      () => undefined,
      (error, method) => log.debug({ err: error, method: method.name }, "a call failed"),
    );
  });
  log.info({ port: server.port, sandbox: identity.sandboxId, generation: identity.generationId }, "listening");
  const tell = (fence: FenceState) => runtime.fenceChanged(fence);
  if (settings.fenceCheck) void probeFence(settings.targets, tell, stop.signal, { closedSince: span?.since });
  else tell({ kind: "unchecked" });

  const code = await runtime.ended;
  stop.abort();
  await server.close();
  log.info({ code }, "ended");
  return code;
}

async function listen(
  identity: Identity,
  { port }: Settings,
  add: (server: ReturnType<typeof createServer>) => void,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  tls.DEFAULT_MIN_VERSION = "TLSv1.3";
  const server = createServer(serverOptions);
  add(server);
  const credentials = ServerCredentials.createSsl(
    Buffer.from(identity.authority),
    [{ cert_chain: Buffer.from(identity.certificate), private_key: Buffer.from(identity.key) }],
    true,
  );
  const bind = (address: string) =>
    new Promise<number>((resolve, reject) => {
      server.bindAsync(address, credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)));
    });
  // A node without IPv6 has no [::].
  const bound = await bind(`[::]:${port}`).catch(() => bind(`0.0.0.0:${port}`));
  return {
    port: bound,
    close: () =>
      new Promise((resolve) => {
        const force = setTimeout(() => server.forceShutdown(), 500);
        server.tryShutdown(() => {
          clearTimeout(force);
          resolve();
        });
      }),
  };
}
