import { expect, inject } from "vitest";
import { sleep } from "../../src/common/async.ts";
import { OpenShellError } from "../../src/common/errors.ts";
import { kubeconfigAccess } from "../../src/kube/index.ts";
import { kubectl } from "../cluster/clients.ts";
import type { ClusterFaults } from "../cluster/faults.ts";
import { selectProvider } from "../cluster/select.ts";
import { ApiProxy, type SeenRequest } from "./api-proxy.ts";
import { Conformance, type Settings } from "./conformance.ts";
import { releaseNamed, removeRelease } from "./release.ts";
import { SandboxWrites } from "./sandbox-writes.ts";

/** Whether this cluster's own programs can be broken. */
export const canBreak = (await selectProvider(inject("providerName"))).faults !== undefined;

const release = releaseNamed("openshell-faults");

/** Takes the gateway away, and what a test that failed left of sandboxes: nobody else would, and the next test counts them. */
async function removed(kubeconfig: string): Promise<void> {
  await removeRelease(kubeconfig, release);
  const all = ["delete", "sandboxes.agents.x-k8s.io", "--all", "--timeout=60s"];
  await kubectl(kubeconfig, ["-n", release.sandboxNamespace, ...all], { timeoutMs: 90_000 });
}

/** A gateway of its own whose way to the API server leads through a proxy that breaks what it is told to. */
export class FaultSuite implements AsyncDisposable {
  readonly suite: Conformance;
  readonly proxy: ApiProxy;
  readonly faults: ClusterFaults;
  readonly writes = new SandboxWrites();

  private constructor(suite: Conformance, proxy: ApiProxy, faults: ClusterFaults) {
    this.suite = suite;
    this.proxy = proxy;
    this.faults = faults;
    // Whose an object is, is known from the write that made it.
    proxy.onRequest = (request) => void this.writes.sandboxOf(request);
  }

  /** @param env more variables of the gateway's container */
  static async open(settings: Settings = {}, env: Readonly<Record<string, string>> = {}): Promise<FaultSuite> {
    const kubeconfig = inject("kubeconfig");
    const { faults } = await selectProvider(inject("providerName"));
    if (faults === undefined) throw new OpenShellError("failed-precondition", "this provider can break nothing");
    await using undo = new AsyncDisposableStack();
    const access = await kubeconfigAccess(kubeconfig);
    const { ca } = (await access.credentials(false)).tls;
    const proxy = undo.use(await ApiProxy.open({ server: access.server, ca, ...(await faults.apiServerFront()) }));
    // One that a run left behind asks a proxy that is gone.
    await removed(kubeconfig);
    undo.defer(() => removed(kubeconfig));
    const { address } = await faults.apiServerFront();
    const all = { KUBERNETES_SERVICE_HOST: address, KUBERNETES_SERVICE_PORT: String(proxy.port), ...env };
    const extraEnv = Object.entries(all).map(([name, value]) => ({ name, value }));
    const suite = undo.use(await Conformance.open(settings, { release, values: { extraEnv } }));
    const opened = new FaultSuite(suite, proxy, faults);
    opened.#undo = undo.move();
    return opened;
  }

  #undo: AsyncDisposableStack | undefined;

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo?.disposeAsync();
  }

  /** Kills the gateway's process, takes its Pod away, and returns when the next one answers. Nothing it wrote after this call arrives. */
  async crash(): Promise<void> {
    const { suite, proxy, faults } = this;
    const where = ["-n", suite.release.namespace, "pod", suite.gateway.podName];
    const { metadata, status } = JSON.parse(await suite.kubectl(["get", ...where, "-o", "json"]));
    proxy.refuse(status.podIP);
    await faults.signalPod(metadata.uid, "SIGKILL");
    // The kubelet would start the container again where it is, later at each time.
    await suite.kubectl(["delete", "--force", "--grace-period=0", ...where]);
    await suite.gateway.reconnect();
  }

  /** What is asked of the API server whatever happens: that the driver leads, who a supervisor is, and what a watch goes on with. */
  static #isRoutine({ path, query }: SeenRequest): boolean {
    return query.has("watch") || path.includes("/leases/") || path.endsWith("/tokenreviews");
  }

  /** Requests since `at` that are more than routine. */
  since(at: number): SeenRequest[] {
    return this.proxy.requests.filter((request) => request.at >= at && !FaultSuite.#isRoutine(request));
  }

  /** Requests since `at` that are about one sandbox, by its resource's name. */
  writesSince(at: number): ReadonlyMap<string, readonly string[]> {
    const found = new Map<string, string[]>();
    for (const request of this.proxy.requests) {
      const sandbox = this.writes.sandboxOf(request);
      if (sandbox === undefined || request.at < at) continue;
      found.set(sandbox, [...(found.get(sandbox) ?? []), `${request.method} ${request.path}`]);
    }
    return found;
  }

  /** Waits until nothing is asked of the API server for four seconds: what goes on asking is a loop. */
  async quiet(withinMs = 60_000): Promise<void> {
    const until = performance.now() + withinMs;
    for (;;) {
      const now = performance.now();
      const recent = this.since(now - 4_000);
      if (recent.length === 0) return;
      const shown = recent.map(({ method, path }) => `${method} ${path}`);
      if (now > until) expect.fail(`the gateway goes on asking:\n${shown.join("\n")}`);
      await sleep(500);
    }
  }
}
