import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { parse } from "yaml";
import { clients } from "../clients.ts";
import type { Shell } from "../exec.ts";
import { silent } from "../progress.ts";
import { k3dConfig } from "./config.ts";
import { K3dProvider, k3dAnswers } from "./index.ts";

let state: string;
beforeEach(async () => {
  state = await mkdtemp(join(tmpdir(), "k3d-"));
  vi.stubEnv("OPENSHELL_AGENT_SANDBOX_MANIFEST", undefined);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(state, { recursive: true, force: true });
});

/** Stands in for k3d, docker and kubectl: remembers what it was asked, and has nodes that come and go. */
class FakeShell implements Shell {
  readonly calls: string[] = [];
  nodes: string[] = [];
  exists = false;
  servers = 1;
  failing: string | undefined;

  async run(command: string, args: readonly string[]): Promise<string> {
    const line = [command === clients.kubectl ? "kubectl" : command, ...args].join(" ").replaceAll(state, "STATE");
    this.calls.push(line);
    if (this.failing !== undefined && line.startsWith(this.failing)) throw new Error(`refused: ${line}`);
    if (line.startsWith("k3d cluster list"))
      return JSON.stringify(this.exists ? [{ name: "openshell", agentsCount: 2, serversRunning: this.servers }] : []);
    if (line.startsWith("k3d cluster create")) {
      this.exists = true;
      this.nodes = ["k3d-openshell-agent-0", "k3d-openshell-agent-1"];
    }
    if (line.startsWith("k3d cluster delete")) this.exists = false;
    if (line.startsWith("k3d node create")) this.nodes.push(`k3d-${args[2]}-0`);
    if (line.startsWith("k3d node delete")) this.nodes = this.nodes.filter((name) => name !== args[2]);
    if (line.includes("get nodes -o json")) return JSON.stringify({ items: [server, ...this.nodes.map(agent)] });
    return "";
  }

  async attempt(command: string, args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    return { code: 0, stdout: await this.run(command, args), stderr: "" };
  }

  /** What changes something, in order. */
  get changes(): readonly string[] {
    return this.calls.filter((call) => !/cluster list|get nodes/.test(call));
  }
}

const status = {
  addresses: [{ type: "InternalIP", address: "172.18.0.3" }],
  conditions: [{ type: "Ready", status: "True" }],
};
const agent = (name: string) => ({ metadata: { name }, spec: {}, status });
const server = {
  metadata: { name: "k3d-openshell-server-0" },
  spec: { taints: [{ key: "node-role.kubernetes.io/control-plane", effect: "NoSchedule" }] },
  status,
};

const release = "https://github.com/kubernetes-sigs/agent-sandbox/releases/download/v0.5.6/sandbox.yaml";

function providerOn(shell: FakeShell, manifest?: string): K3dProvider {
  const given = manifest === undefined ? {} : { agentSandboxManifest: manifest };
  return new K3dProvider({ shell, stateDirectory: state, checkEnforcement: false, ...given });
}

describe("the k3d provider", () => {
  test("makes a cluster by k3d's documented commands", async () => {
    const shell = new FakeShell();
    await providerOn(shell).up({ nodes: 2, progress: silent });
    expect(shell.calls[0]).toBe("k3d cluster list --output json");
    expect(shell.changes).toEqual([
      "k3d cluster create --config STATE/k3d.yaml",
      "k3d kubeconfig write openshell --output STATE/kubeconfig.yaml",
      `kubectl --kubeconfig=STATE/kubeconfig.yaml apply --server-side --force-conflicts -f ${release}`,
      "kubectl --kubeconfig=STATE/kubeconfig.yaml wait crd/sandboxes.agents.x-k8s.io --for=condition=Established --timeout=60s",
      "kubectl --kubeconfig=STATE/kubeconfig.yaml rollout status -n kube-system deployment/coredns --timeout=180s",
      "kubectl --kubeconfig=STATE/kubeconfig.yaml rollout status -n agent-sandbox-system deployment/agent-sandbox-controller --timeout=180s",
    ]);
    expect(parse(await readFile(join(state, "k3d.yaml"), "utf8"))).toEqual(k3dConfig(2));
  });

  test("makes no second cluster where one runs", async () => {
    const shell = new FakeShell();
    await providerOn(shell).up({ nodes: 2, progress: silent });
    shell.calls.length = 0;
    await providerOn(shell).up({ nodes: 2, progress: silent });
    expect(shell.changes.filter((call) => call.startsWith("k3d"))).toEqual([
      "k3d kubeconfig write openshell --output STATE/kubeconfig.yaml",
    ]);
  });

  test("applies the Agent Sandbox release once for a cluster, and another one that it is given", async () => {
    const shell = new FakeShell();
    const applied = () => shell.calls.filter((call) => call.includes(" apply ")).map((call) => call.split(" ").at(-1));
    for (const _ of ["first", "again"]) await providerOn(shell).up({ nodes: 2, progress: silent });
    expect(applied()).toEqual([release]);
    await providerOn(shell, "/own/sandbox.yaml").up({ nodes: 2, progress: silent });
    expect(applied()).toEqual([release, "/own/sandbox.yaml"]);
    // Deleted by hand: what was known of it holds no longer.
    shell.exists = false;
    await providerOn(shell, "/own/sandbox.yaml").up({ nodes: 2, progress: silent });
    expect(applied()).toHaveLength(3);
  });

  test("is there while it is stopped, too, and is not known to be away when k3d does not answer", async () => {
    const shell = new FakeShell();
    const provider = providerOn(shell);
    expect(await provider.exists()).toBe(false);
    shell.exists = true;
    shell.servers = 0;
    expect(await provider.exists()).toBe(true);
    shell.failing = "k3d cluster list";
    await expect(provider.exists()).rejects.toThrow("refused");
  });

  test("deletes what it made when a later step fails", async () => {
    const shell = new FakeShell();
    shell.failing = "kubectl --kubeconfig=STATE/kubeconfig.yaml apply";
    await expect(providerOn(shell).up({ nodes: 2, progress: silent })).rejects.toThrow("refused");
    expect(shell.changes.at(-1)).toBe("k3d cluster delete openshell");
    await expect(readdir(state)).rejects.toThrow("ENOENT");
  });

  test("keeps a cluster that was there before when a later step fails", async () => {
    const shell = new FakeShell();
    await providerOn(shell).up({ nodes: 2, progress: silent });
    shell.failing = "kubectl --kubeconfig=STATE/kubeconfig.yaml rollout";
    await expect(providerOn(shell).up({ nodes: 2, progress: silent })).rejects.toThrow("refused");
    expect(shell.changes).not.toContain("k3d cluster delete openshell");
  });

  test("imports an archive, and again after a node was added", async () => {
    const shell = new FakeShell();
    const provider = providerOn(shell);
    await provider.up({ nodes: 2, progress: silent });
    const archive = join(state, "..", `archive-${process.pid}.tar`);
    await writeFile(archive, "bytes");
    await provider.loadImage(archive, "openshell.local/gateway:dev");
    shell.calls.length = 0;
    const added = await provider.addNode();
    await rm(archive);
    const imported = "k3d image import STATE/images/openshell.local_gateway_dev.tar --cluster openshell --mode direct";
    expect(added).toEqual({ name: "k3d-openshell-extra-0-0", address: "172.18.0.3", ready: true, schedulable: true });
    expect(shell.changes).toEqual([
      "k3d node create openshell-extra-0 --cluster openshell --role agent --wait",
      "kubectl --kubeconfig=STATE/kubeconfig.yaml wait node/k3d-openshell-extra-0-0 --for=create --timeout=60s",
      "kubectl --kubeconfig=STATE/kubeconfig.yaml wait node/k3d-openshell-extra-0-0 --for=condition=Ready --timeout=120s",
      imported,
    ]);
  });

  test("removes a node from k3d and from Kubernetes, and refuses a name it does not know", async () => {
    const shell = new FakeShell();
    const provider = providerOn(shell);
    await provider.up({ nodes: 2, progress: silent });
    shell.calls.length = 0;
    await provider.removeNode("k3d-openshell-agent-1");
    expect(shell.changes.slice(0, 2)).toEqual([
      "k3d node delete k3d-openshell-agent-1",
      "kubectl --kubeconfig=STATE/kubeconfig.yaml delete node k3d-openshell-agent-1 --ignore-not-found",
    ]);
    await expect(provider.removeNode("node-9")).rejects.toThrow(
      "there is no node node-9: the cluster has k3d-openshell-agent-0",
    );
  });

  test("does not count the server that takes no Pods", async () => {
    const shell = new FakeShell();
    const provider = providerOn(shell);
    await provider.up({ nodes: 2, progress: silent });
    expect((await provider.nodes()).map(({ name }) => name)).toEqual([
      "k3d-openshell-agent-0",
      "k3d-openshell-agent-1",
    ]);
  });
});

test("the config is k3d's Simple schema v1alpha5, with the admission gate and an untouched user kubeconfig", () => {
  expect(k3dConfig(3)).toMatchObject({
    apiVersion: "k3d.io/v1alpha5",
    kind: "Simple",
    metadata: { name: "openshell" },
    servers: 1,
    agents: 3,
    options: {
      k3d: { wait: true, timeout: "300s" },
      k3s: {
        extraArgs: expect.arrayContaining([
          { arg: "--kube-apiserver-arg=feature-gates=MutatingAdmissionPolicy=true", nodeFilters: ["server:*"] },
          {
            arg: "--kube-apiserver-arg=runtime-config=admissionregistration.k8s.io/v1beta1=true",
            nodeFilters: ["server:*"],
          },
        ]),
      },
      kubeconfig: { updateDefaultKubeconfig: false, switchCurrentContext: false },
    },
  });
});

describe("k3d answers", () => {
  const answering = (docker: number, version: string): Shell => ({
    run: async () => "",
    attempt: async (command) => ({ code: command === "docker" ? docker : 0, stdout: version, stderr: "" }),
  });

  test.each([
    [0, "k3d version v5.8.3\nk3s version v1.31.5-k3s1 (default)", true],
    [1, "k3d version v5.8.3", false],
    [0, "k3d version v4.4.8", false],
  ])("with docker's exit %i and %j: %s", async (docker, version, expected) => {
    expect(await k3dAnswers(answering(docker, version))).toBe(expected);
  });

  test("not where neither is installed", async () => {
    const missing = async () => {
      throw new Error("docker is not installed");
    };
    expect(await k3dAnswers({ run: missing, attempt: missing })).toBe(false);
  });
});
