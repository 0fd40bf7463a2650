import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type NetworkPolicy, pods, services } from "../../src/kube/index.ts";
import { containers, labels, paths, ports } from "../../src/manifests/names.ts";
import { Conformance, tables } from "../support/conformance.ts";
import { failed } from "../support/outcome.ts";
import { ProbePod, temporaryNamespace } from "../support/probe-pod.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Addresses that answer anyone who may reach them. */
async function reachableAddresses(): Promise<[string, number][]> {
  const kubernetes = await suite.kube.get(services, "default", "kubernetes");
  const gateway = await suite.kube.get(services, suite.release.namespace, suite.release.name);
  return [
    [kubernetes.spec?.clusterIP ?? "", kubernetes.spec?.ports?.[0]?.port ?? 443],
    [gateway.spec?.clusterIP ?? "", ports.gateway],
  ];
}

/** A policy that undoes the fence for the workloads of the namespace, for everything or so far: policies only ever add. */
function openEgress(name: string, egress: object = {}): NetworkPolicy & object {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name, namespace: suite.release.sandboxNamespace },
    spec: {
      podSelector: { matchLabels: { [labels.boundaryRole]: "workload" } },
      policyTypes: ["Egress"],
      egress: [egress],
    },
  };
}

describe("the workload's network", () => {
  it("is closed from the first instant in which agent code runs", async () => {
    const targets = await reachableAddresses();
    await using outside = await temporaryNamespace(suite);
    await using control = await ProbePod.start(suite, outside.name);
    // Without this the test could not fail: the same program, elsewhere, reaches all of them.
    for (const [address, port] of targets) expect(await control.connects(address, port)).toBe(true);

    const words = targets.flatMap(([address, port]) => [address, String(port)]);
    await using sandbox = await suite.create({
      image: "noshell",
      command: ["/bin/probe", "watch", "/sandbox/egress", "120", ...words],
    });
    await sandbox.ready();
    const report = () => sandbox.exec(["/bin/probe", "read", "/sandbox/egress"]);
    let seen = "";
    // A sandbox stops when its program ends, so the report is read while it runs.
    await expect
      .poll(async () => (seen = (await report()).stdout), { timeout: 30_000, interval: 500 })
      .toContain("started\n");
    expect(seen).not.toContain("connected");
    for (const [address, port] of targets) {
      const tried = await sandbox.exec(["/bin/probe", "connect", address, String(port), "1500"]);
      expect(tried.exitCode, `${address}:${port}`).toBe(3);
    }
    expect((await report()).stdout).not.toContain("connected");
  });

  it("lets nobody but supervisors reach the boundary port", async () => {
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload } = await suite.pair(sandbox);
    const address = workload.status?.podIP ?? "";
    await using outside = await temporaryNamespace(suite);
    await using stranger = await ProbePod.start(suite, outside.name);
    await using neighbour = await ProbePod.start(suite, suite.release.sandboxNamespace);
    expect(await stranger.connects(address, ports.boundary)).toBe(false);
    expect(await neighbour.connects(address, ports.boundary)).toBe(false);
    // It listens: a Pod that carries a supervisor's labels gets through the network. The handshake is what refuses it.
    const other = (await suite.pair(sandbox)).supervisor.metadata.labels ?? {};
    const disguise = { ...other, [labels.pairId]: "f".repeat(32) };
    await using disguised = await ProbePod.start(suite, suite.release.sandboxNamespace, { labels: disguise });
    await expect.poll(() => disguised.connects(address, ports.boundary), { timeout: 15_000, interval: 500 }).toBe(true);
  });

  it("is refused in the handshake to another pair's supervisor, which its own pair's passes", async () => {
    await using first = await suite.create();
    await using second = await suite.create();
    await Promise.all([first.ready(), second.ready()]);
    const [mine, theirs] = [await suite.pair(first), await suite.pair(second)];
    const dial = (address: string, generation: string) =>
      suite.kubectlAttempt([
        "-n",
        suite.release.sandboxNamespace,
        "exec",
        mine.supervisor.metadata.name,
        "-c",
        containers.supervisor,
        "--",
        "/usr/bin/node",
        "-e",
        dialScript,
        address,
        `runtime.${generation}.openshell.internal`,
      ]);
    const generation = (pod: typeof mine.workload) => pod.metadata.labels?.[labels.pairId] ?? "";
    const own = await dial(mine.workload.status?.podIP ?? "", generation(mine.workload));
    expect(own.stdout).toMatch(/^spoke/);
    const foreign = await dial(theirs.workload.status?.podIP ?? "", generation(theirs.workload));
    expect(foreign.stdout).toMatch(/^refused .*(alert|ECONNRESET|EPIPE|closed)/i);
  });
});

describe("a namespace that denies everything by default", () => {
  it("keeps no pair from its gateway, and is not taken for one whose fence is open", async () => {
    const closed: NetworkPolicy & object = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "default-deny", namespace: suite.release.sandboxNamespace },
      spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] },
    };
    await using _closed = await suite.applied(closed);
    await using sandbox = await suite.create();
    await using neighbour = await ProbePod.start(suite, suite.release.sandboxNamespace);
    // Without this the test could not fail: who has no policy of his own gets nowhere.
    const [, gateway = ["", 0]] = await reachableAddresses();
    expect(await neighbour.connects(...gateway, 1000)).toBe(false);
    await sandbox.ready();
    expect((await sandbox.exec(["echo", "here"])).stdout).toBe("here\n");
  });
});

describe("a namespace whose fence does not hold", () => {
  it("fails a sandbox by name when a foreign policy opens the workload's egress", async () => {
    await using _open = await suite.applied(openEgress("someone-elses"));
    await using sandbox = await suite.create();
    const ended = await sandbox.until(failed(60_000));
    expect((ended.status?.conditions ?? []).map(({ reason }) => reason)).toContain("ForeignNetworkPolicy");
    expect((ended.status?.conditions ?? []).map(({ message }) => message).join()).toContain("someone-elses");
  });
});

describe("a foreign policy that the operator tolerates", () => {
  beforeAll(() => suite.configure({ [tables.runtime]: { tolerated_network_policies: ["someone-elses"] } }));

  it("opens to an agent what it says, for as long as it is there, and nothing else", async () => {
    const [server] = (await suite.kube.list(pods, "kube-system", { labelSelector: "k8s-app=kube-dns" })).items;
    const [kubernetes = ["", 0]] = await reachableAddresses();
    const narrow = openEgress("someone-elses", {
      to: [
        {
          namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "kube-system" } },
          podSelector: { matchLabels: { "k8s-app": "kube-dns" } },
        },
      ],
      ports: [{ protocol: "TCP", port: 53 }],
    });
    const open = await suite.applied(narrow);
    await using stack = new AsyncDisposableStack();
    stack.use(open);
    const sandbox = stack.use(await suite.create({ image: "noshell" }));
    await sandbox.ready();
    const connects = async (address = "", port = 53) => {
      const { exitCode } = await sandbox.exec(["/bin/probe", "connect", address, String(port), "1500"]);
      expect([0, 3]).toContain(exitCode);
      return exitCode === 0;
    };
    await expect.poll(() => connects(server?.status?.podIP), { timeout: 15_000 }).toBe(true);
    expect(await connects(...kubernetes)).toBe(false);
    await open[Symbol.asyncDispose]();
    await expect.poll(() => connects(server?.status?.podIP), { timeout: 15_000 }).toBe(false);
  });

  it("is noticed by the probe when packets get where none must, before any agent process ran", async () => {
    const open = await suite.applied(openEgress("someone-elses"));
    await using stack = new AsyncDisposableStack();
    stack.use(open);
    const sandbox = stack.use(await suite.create({ command: ["sh", "-c", "echo ran >> /sandbox/ran; sleep 1000"] }));
    const ended = await sandbox.until(failed(90_000));
    expect((ended.status?.conditions ?? []).map(({ reason }) => reason)).toContain("NetworkPolicyNotEnforced");

    // The volume outlives the generation: the first line in the file is that of the run behind the closed fence.
    await open[Symbol.asyncDispose]();
    await sandbox.start();
    await sandbox.ready();
    const lines = async () => (await sandbox.exec(["cat", "/sandbox/ran"])).stdout;
    await expect.poll(lines, { timeout: 10_000 }).toBe("ran\n");
  }, 240_000);
});

/** Dials the boundary with the supervisor's own certificate, whoever answers, and says what came of it. */
const dialScript = `
const { readFileSync } = require("node:fs");
const tls = require("node:tls");
const file = (name) => readFileSync("${paths.supervisorSecret}/" + name);
const [address, servername] = process.argv.slice(1);
const socket = tls.connect({ host: address, port: ${ports.boundary}, servername, ALPNProtocols: ["h2"], minVersion: "TLSv1.3",
  cert: file("tls.crt"), key: file("tls.key"), ca: file("boundary-ca.crt"), rejectUnauthorized: false });
const say = (line) => { console.log(line); process.exit(0); };
socket.once("secureConnect", () => socket.write("PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0"));
socket.once("data", (bytes) => say("spoke " + bytes.length + " bytes, authorized " + socket.authorized));
socket.once("error", (error) => say("refused " + error.code + " " + error.message));
socket.once("close", () => say("refused closed"));
setTimeout(() => say("silent"), 8000);
`;
