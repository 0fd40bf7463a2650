import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { sleep } from "../../../src/common/async.ts";
import { OpenShellError } from "../../../src/common/errors.ts";
import type { ApiServerFront, ClusterFaults } from "../faults.ts";
import { processesIn } from "./cgroups.ts";
import { componentPid } from "./component.ts";
import { type Context, nodesOf } from "./context.ts";
import { controlCgroup } from "./control-plane.ts";
import type { NodeLayout } from "./layout.ts";
import { startKubelet } from "./node.ts";

/** Faults of the local cluster: all its programs, and the containers of its nodes, are processes of this machine. */
export class LocalFaults implements ClusterFaults {
  readonly #context: () => Promise<Context>;

  /** @param context of the cluster, which has to be up */
  constructor(context: () => Promise<Context>) {
    this.#context = context;
  }

  async stallApiServer(): Promise<Disposable> {
    const context = await this.#context();
    return stalled(context, "kube-apiserver", controlCgroup(context.layout));
  }

  async stallAgentSandbox(): Promise<Disposable> {
    const context = await this.#context();
    return stalled(context, "agent-sandbox", controlCgroup(context.layout));
  }

  async stallKubelet(name: string): Promise<Disposable> {
    const context = await this.#context();
    const node = nodeNamed(context, name);
    return stalled(context, `${node.name}/kubelet`, `${node.cgroup}/system`);
  }

  async pressMemory(name: string): Promise<AsyncDisposable> {
    const context = await this.#context();
    const node = nodeNamed(context, name);
    const file = join(node.directory, "config", "kubelet.yaml");
    const before = await readFile(file, "utf8");
    const config = parse(before);
    config.evictionHard["memory.available"] = `${Math.ceil(1.1 * (await availableKib()))}Ki`;
    config.evictionPressureTransitionPeriod = "5s";
    await using undo = new AsyncDisposableStack();
    // Also when the restart fails half way: a node that keeps this threshold evicts for ever.
    undo.defer(() => restartKubelet(context, node, file, before));
    await restartKubelet(context, node, file, stringify(config));
    return undo.move();
  }

  async signalPod(uid: string, signal: NodeJS.Signals): Promise<number> {
    const context = await this.#context();
    const classes = ["", "/burstable", "/besteffort"];
    const paths = nodesOf(context).flatMap(({ cgroup }) =>
      classes.map((name) => `${cgroup}/kubepods${name}/pod${uid}`),
    );
    const found = (await Promise.all(paths.map((path) => processesIn(context.place.hierarchies, path)))).flat();
    let reached = 0;
    for (const pid of found) {
      // The Pod's network ends with this one, and with that its address.
      if ((await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "")).trim() === "pause") continue;
      if (send(pid, signal)) reached += 1;
    }
    return reached;
  }

  async apiServerFront(): Promise<ApiServerFront> {
    const { authority, layout } = await this.#context();
    const [certificate, key] = await Promise.all(
      ["apiserver.crt", "apiserver.key"].map((name) => readFile(authority.file(name), "utf8")),
    );
    return { address: layout.hostAddress, certificate: certificate ?? "", key: key ?? "" };
  }
}

function nodeNamed(context: Context, name: string): NodeLayout {
  const node = nodesOf(context).find((candidate) => candidate.name === name);
  if (node === undefined) throw new OpenShellError("not-found", `there is no node ${name}`);
  return node;
}

async function stalled(context: Context, component: string, cgroup: string): Promise<Disposable> {
  const pid = await componentPid(context.place, component, cgroup);
  if (pid === undefined) throw new OpenShellError("failed-precondition", `${component} does not run`);
  process.kill(pid, "SIGSTOP");
  return { [Symbol.dispose]: () => void send(pid, "SIGCONT") };
}

async function restartKubelet(context: Context, node: NodeLayout, file: string, config: string): Promise<void> {
  await writeFile(file, config);
  const running = () => componentPid(context.place, `${node.name}/kubelet`, `${node.cgroup}/system`);
  const until = performance.now() + 30_000;
  for (let pid = await running(); pid !== undefined; pid = await running()) {
    send(pid, "SIGKILL");
    if (performance.now() > until) throw new OpenShellError("deadline-exceeded", `${node.name}/kubelet does not end`);
    await sleep(20);
  }
  await startKubelet(context, node);
}

/** Memory that the machine could give to a program now. */
async function availableKib(): Promise<number> {
  const found = /^MemAvailable:\s+(\d+) kB$/m.exec(await readFile("/proc/meminfo", "utf8"))?.[1];
  if (found === undefined) throw new OpenShellError("failed-precondition", "/proc/meminfo has no MemAvailable");
  return Number(found);
}

function send(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}
