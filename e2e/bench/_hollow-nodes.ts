import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ClusterAccess, Informer, type KubeClient, type Node, nodes } from "../../src/kube/index.ts";
import { buildProgram } from "../cluster/local/programs.ts";
import type { Progress } from "../cluster/progress.ts";
import { KwokDoor } from "./_kwok-door.ts";

/** Every hollow node has it; what is to run there selects it. */
export const hollowLabel = "openshell.test/hollow";

/** Keeps everybody else away. Nodes with a taint of a role do not count as capacity for ordinary Pods. */
const taint = { key: "node-role.kubernetes.io/hollow", effect: "NoSchedule" } as const;

/** Settings of a gateway whose sandboxes are to run on hollow nodes. */
export const hollowPlacement = {
  supervisor_node_selector: { [hollowLabel]: "true" },
  workload_node_selector: { [hollowLabel]: "true" },
  supervisor_tolerations: [{ ...taint, operator: "Exists" }],
  workload_tolerations: [{ ...taint, operator: "Exists" }],
};

export interface HollowNodesOptions {
  readonly access: ClusterAccess;
  readonly kube: KubeClient;
  readonly count: number;
  /** For kwok's configuration and its log. */
  readonly directory: string;
  readonly progress: Progress;
}

/**
 * Nodes without a kubelet: kwok says for each that it is well, and of each Pod there that it runs as soon as it is bound. Nothing is pulled,
 * started or connected, so that what is measured on them is the control plane alone.
 */
export class HollowNodes implements AsyncDisposable {
  readonly #kube: KubeClient;
  readonly #kwok: ChildProcess;
  readonly #door: KwokDoor;
  readonly #names: readonly string[];

  private constructor(kube: KubeClient, kwok: ChildProcess, door: KwokDoor, names: readonly string[]) {
    this.#kube = kube;
    this.#kwok = kwok;
    this.#door = door;
    this.#names = names;
  }

  /** Resolves when all are Ready. */
  static async start({ access, kube, count, directory, progress }: HollowNodesOptions): Promise<HollowNodes> {
    const program = await buildProgram("kwok", progress);
    const stages = join(directory, "stages.yaml");
    writeFileSync(stages, podStages.map((stage) => JSON.stringify(stage)).join("\n---\n"));
    const door = await KwokDoor.open(access);
    const kubeconfig = join(directory, "kubeconfig.json");
    writeFileSync(kubeconfig, JSON.stringify(door.kubeconfig));
    const log = openSync(join(directory, "kwok.log"), "a");
    const args = [
      `--kubeconfig=${kubeconfig}`,
      `--config=${stages}`,
      "--manage-all-nodes=false",
      `--manage-nodes-with-label-selector=${hollowLabel}=true`,
      // Of the block for benchmarks, which no cluster gives to Pods.
      "--cidr=198.18.0.1/15",
      "--node-ip=198.18.0.1",
      "--node-lease-duration-seconds=40",
      "--v=WARN",
    ];
    const kwok = spawn(program, args, { stdio: ["ignore", log, log] });
    // Also when this process does not come to its end: nodes that nobody keeps alive are at least not kept.
    process.once("exit", () => kwok.kill());
    const names = Array.from({ length: count }, (_, index) => `hollow-${String(index + 1).padStart(3, "0")}`);
    const hollow = new HollowNodes(kube, kwok, door, names);
    try {
      for (const name of names) {
        await kube.create(nodes, undefined, nodeNamed(name)).catch(async (error: unknown) => {
          if ((await kube.find(nodes, undefined, name)) === undefined) throw error;
        });
      }
      await using known = new Informer({ client: kube, resource: nodes, labelSelector: `${hollowLabel}=true` });
      const areReady = () => known.list().filter(isReady).length >= count;
      await known.until(`${count} hollow nodes to be Ready`, areReady, { deadlineMs: 60_000 });
      return hollow;
    } catch (error) {
      await hollow[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const name of this.#names) await this.#kube.delete(nodes, undefined, name).catch(() => undefined);
    if (this.#kwok.exitCode === null && this.#kwok.signalCode === null) {
      const ended = once(this.#kwok, "exit");
      this.#kwok.kill();
      await ended;
    }
    await this.#door[Symbol.asyncDispose]();
  }
}

function isReady({ status }: Node): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
}

function nodeNamed(name: string): Node {
  const room = { cpu: "64", memory: "256Gi", "ephemeral-storage": "1Ti", pods: "110" };
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: { [hollowLabel]: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" },
      annotations: { "kwok.x-k8s.io/node": "fake" },
    },
    spec: { taints: [taint] },
    status: { allocatable: room, capacity: room },
  };
}

/** What kwok does to Pods, instead of what it would do by itself, which leaves out that containers have started. */
const podStages = [
  stage("pod-runs", [{ key: ".metadata.deletionTimestamp", operator: "DoesNotExist" }, unanswered()], {
    statusTemplate: runningStatus(),
  }),
  stage("pod-ends", [{ key: ".metadata.deletionTimestamp", operator: "Exists" }], {
    finalizers: { empty: true },
    delete: true,
  }),
];

function unanswered() {
  return { key: ".status.podIP", operator: "DoesNotExist" };
}

function stage(name: string, matchExpressions: readonly object[], next: object) {
  const resourceRef = { apiGroup: "v1", kind: "Pod" };
  const spec = { resourceRef, selector: { matchExpressions }, next };
  return { apiVersion: "kwok.x-k8s.io/v1alpha1", kind: "Stage", metadata: { name }, spec };
}

function runningStatus(): string {
  const condition = (type: string) => `- {type: ${type}, status: "True", lastTransitionTime: {{ $now | Quote }}}`;
  return [
    "{{ $now := Now }}",
    "phase: Running",
    "startTime: {{ $now | Quote }}",
    "hostIP: {{ NodeIPWith .spec.nodeName | Quote }}",
    "podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}",
    "conditions:",
    ...["Initialized", "ContainersReady", "Ready"].map(condition),
    "initContainerStatuses:",
    "{{ range .spec.initContainers }}",
    '- name: {{ .name | Quote }}\n  image: {{ .image | Quote }}\n  imageID: ""\n  ready: true\n  restartCount: 0',
    "  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}",
    "{{ end }}",
    "containerStatuses:",
    "{{ range .spec.containers }}",
    '- name: {{ .name | Quote }}\n  image: {{ .image | Quote }}\n  imageID: ""\n  ready: true\n  started: true\n  restartCount: 0',
    "  state: {running: {startedAt: {{ $now | Quote }}}}",
    "{{ end }}",
    "",
  ].join("\n");
}
