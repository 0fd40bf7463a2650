import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Live, Pod } from "../../src/kube/index.ts";
import { Conformance, randomName, tables } from "../support/conformance.ts";
import { failureOf } from "../support/outcome.ts";
import { podSecurity } from "../support/pod-security.ts";
import { priorityClass } from "../support/priority-class.ts";
import { workerRelease } from "../support/release.ts";
import { sandboxOf, type Wishes } from "../support/sandbox-of.ts";

const own = "conformance.openshell.test";
const release = workerRelease().name;
const classes = {
  supervisor: `${own}-${release}-supervisor`,
  workload: `${own}-${release}-workload`,
  caller: `${own}-${release}-caller`,
};
const toleration = (whose: string) => ({ key: `${own}/${whose}`, operator: "Exists", effect: "NoSchedule" });
const doNotDisrupt = "karpenter.sh/do-not-disrupt";

/** Every setting by which an operator shapes both Pods of a pair, each with another value for each Pod. */
const settings = {
  supervisor_node_selector: { "kubernetes.io/os": "linux" },
  supervisor_tolerations: [toleration("supervisors")],
  supervisor_priority_class_name: classes.supervisor,
  supervisor_labels: { team: "platform" },
  supervisor_annotations: { "sidecar.istio.io/inject": "false" },
  supervisor_resources: {
    requests: { cpu: "60m", "ephemeral-storage": "64Mi" },
    limits: { memory: "", "ephemeral-storage": "512Mi" },
  },
  workload_node_selector: { "kubernetes.io/os": "linux" },
  workload_tolerations: [toleration("workloads")],
  workload_priority_class_name: classes.workload,
  workload_labels: { team: "agents" },
  workload_annotations: { [doNotDisrupt]: "true" },
  workload_resources: {
    requests: { memory: "160Mi", "ephemeral-storage": "300Mi" },
    limits: { cpu: "1500m", "ephemeral-storage": "2Gi" },
  },
  image_pull_secrets: ["conformance-registry"],
  sandbox_uid: 12345,
  sandbox_gid: 23456,
  app_armor_profile: "Unconfined",
  allowed_runtime_class_names: ["conformance-b"],
  allowed_priority_class_names: [classes.caller],
  allowed_pod_labels: ["team", "task"],
  allowed_pod_annotations: ["karpenter.sh/*", "note", "k8s.v1.cni.cncf.io/*"],
};

const architecture = process.arch === "x64" ? "amd64" : process.arch;

let suite: Conformance;
const stack = new AsyncDisposableStack();
let level: AsyncDisposable | undefined;

beforeAll(async () => {
  suite = stack.use(await Conformance.open({ [tables.driver]: settings }));
  const [supervisor, workload, caller] = [
    priorityClass(classes.supervisor, 30),
    priorityClass(classes.workload, 20),
    priorityClass(classes.caller, 10, false),
  ];
  stack.use(await suite.applied(supervisor, workload, caller));
});

afterAll(async () => {
  await level?.[Symbol.asyncDispose]();
  await stack.disposeAsync();
});

const containersOf = ({ spec }: Live<Pod>) => [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])];
const mainOf = ({ spec }: Live<Pod>) => spec?.containers[0] ?? expect.fail("no container");

/** What of a Pod its operator or its caller decides. */
function shapeOf(pod: Live<Pod>) {
  const { metadata, spec } = pod;
  return {
    labels: metadata.labels,
    annotations: metadata.annotations,
    nodeSelector: spec?.nodeSelector,
    tolerations: spec?.tolerations,
    priorityClassName: spec?.priorityClassName,
    runtimeClassName: spec?.runtimeClassName,
    imagePullSecrets: spec?.imagePullSecrets,
    hostUsers: spec?.hostUsers,
    resources: mainOf(pod).resources,
  };
}

/** As Pod Security `restricted` wants it, in every container, whatever the namespace allows. */
function expectRestricted(pod: Live<Pod>, uid: number, gid: number): void {
  for (const { name, securityContext } of containersOf(pod)) {
    expect(securityContext, name).toMatchObject({
      runAsUser: uid,
      runAsGroup: gid,
      runAsNonRoot: true,
      privileged: false,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      seccompProfile: { type: "RuntimeDefault" },
    });
    expect(securityContext?.capabilities, name).not.toHaveProperty("add");
  }
  expect(pod.spec?.securityContext, "the Pod").toMatchObject({ fsGroup: gid });
}

/** What the operator decides about a supervisor, whoever asked for the sandbox. */
function expectOperatorsSupervisor(pod: Live<Pod>): void {
  expect(shapeOf(pod)).toMatchObject({
    labels: settings.supervisor_labels,
    annotations: settings.supervisor_annotations,
    nodeSelector: settings.supervisor_node_selector,
    priorityClassName: classes.supervisor,
    imagePullSecrets: [{ name: "conformance-registry" }],
    resources: {
      requests: { cpu: "60m", memory: "96Mi", "ephemeral-storage": "64Mi" },
      limits: { "ephemeral-storage": "512Mi" },
    },
  });
  expect(mainOf(pod).resources?.limits, "a default that was removed").not.toHaveProperty("memory");
  const own = (pod.spec?.tolerations ?? []).filter(({ key }) => key?.startsWith("conformance."));
  expect(own).toEqual(settings.supervisor_tolerations);
  expect(Object.keys(pod.metadata.labels ?? {}).filter((key) => !key.includes("/"))).toEqual(["team"]);
  expect(pod.spec).not.toHaveProperty("runtimeClassName");
  expect(pod.spec).not.toHaveProperty("hostUsers");
}

describe("what an operator sets for the Pods of a pair", () => {
  it("is refused in the API server's words where the namespace's Pod Security forbids it (PodSecurityRefused)", async () => {
    const { text, sandbox } = await failureOf(suite.create());
    await using _failed = sandbox;
    expect(text).toMatch(/PodSecurityRefused: .*violates PodSecurity "restricted:\S+": forbidden AppArmor profile/);
    if (sandbox === undefined) return;
    await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
  });

  it("is on each of them: placement, priority, labels, annotations, resources, pull secrets, user, AppArmor", async () => {
    await using _level = await podSecurity(suite, "privileged");
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox);
    expectOperatorsSupervisor(supervisor);
    expect(shapeOf(workload)).toMatchObject({
      labels: settings.workload_labels,
      annotations: settings.workload_annotations,
      nodeSelector: settings.workload_node_selector,
      tolerations: expect.arrayContaining(settings.workload_tolerations),
      priorityClassName: classes.workload,
      imagePullSecrets: [{ name: "conformance-registry" }],
      resources: {
        requests: { cpu: "50m", memory: "160Mi", "ephemeral-storage": "300Mi" },
        limits: { cpu: "1500m", "ephemeral-storage": "2Gi" },
      },
    });
    for (const field of ["runtimeClassName", "hostUsers"]) expect(workload.spec).not.toHaveProperty(field);
    expectRestricted(workload, 12345, 23456);
    expectRestricted(supervisor, 12346, 12346);
    const profiles = [...containersOf(workload), ...containersOf(supervisor)].map(({ name, securityContext }) => [
      name,
      securityContext?.appArmorProfile?.type,
    ]);
    expect(profiles).toEqual([
      ["stage", undefined],
      ["seed", undefined],
      ["agent", "Unconfined"],
      ["supervisor", undefined],
    ]);
    const { stdout } = await sandbox.exec(["sh", "-c", "id -u; id -g; touch mine; stat -c '%u %g' mine"]);
    expect(stdout).toBe("12345\n23456\n12345 23456\n");
  }, 240_000);
});

describe("what a caller asks for beside it", () => {
  beforeAll(async () => {
    level = await podSecurity(suite, "privileged");
  });

  const wishes: Wishes = {
    labels: { team: "mine", task: "review" },
    annotations: { [doNotDisrupt]: "false", note: "mine" },
    resources: { limits: { memory: "320Mi" } },
    user: "2000",
    kubernetes: {
      pod: {
        node_selector: { "kubernetes.io/os": "plan9", "kubernetes.io/arch": architecture },
        tolerations: [
          { key: `${own}/caller`, operator: "Equal", value: "yes", effect: "NoExecute", toleration_seconds: 60 },
        ],
        runtime_class_name: "conformance-b",
        priority_class_name: classes.caller,
      },
      containers: {
        agent: {
          resources: {
            requests: { cpu: "80m", "ephemeral-storage": "310Mi" },
            limits: { cpu: "700m", memory: "400Mi" },
          },
        },
      },
    },
  };

  it("comes from the typed template, then driver_config, then the operator's defaults; none of it reaches the supervisor", async () => {
    await using sandbox = await sandboxOf(suite, wishes);
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox);
    expectOperatorsSupervisor(supervisor);
    expect(shapeOf(workload)).toMatchObject({
      labels: { ...settings.workload_labels, task: "review" },
      annotations: { ...settings.workload_annotations, note: "mine" },
      nodeSelector: { ...settings.workload_node_selector, "kubernetes.io/arch": architecture },
      tolerations: expect.arrayContaining([
        ...settings.workload_tolerations,
        { key: `${own}/caller`, operator: "Equal", value: "yes", effect: "NoExecute", tolerationSeconds: 60 },
      ]),
      priorityClassName: classes.caller,
      runtimeClassName: "conformance-b",
      resources: {
        requests: { cpu: "80m", memory: "160Mi", "ephemeral-storage": "310Mi" },
        limits: { cpu: "700m", memory: "320Mi", "ephemeral-storage": "2Gi" },
      },
    });
    expectRestricted(workload, 2000, 23456);
    expectRestricted(supervisor, 12346, 12346);
    expect(await sandbox.exec(["sh", "-c", "id -u; id -g"])).toMatchObject({ stdout: "2000\n23456\n" });
  }, 240_000);

  it("may be a user namespace for the workload", async () => {
    await using sandbox = await sandboxOf(suite, { userNamespaces: true });
    const { workload, supervisor } = await suite.pair(sandbox);
    expect(workload.spec?.hostUsers).toBe(false);
    expectOperatorsSupervisor(supervisor);
  });

  const ofPod = "template.driver_config.kubernetes.pod";
  const ofAgent = "template.driver_config.kubernetes.containers.agent.resources";
  const inPod = (pod: object): Wishes => ({ kubernetes: { pod } });
  const inAgent = (resources: object): Wishes => ({ kubernetes: { containers: { agent: { resources } } } });
  it.each<[string, Wishes, string]>([
    [
      "a field that is none",
      inPod({ node_selectr: {} }),
      `${ofPod}.node_selectr: unknown field; did you mean node_selector?`,
    ],
    ["affinity, which is the operator's", inPod({ affinity: {} }), `${ofPod}.affinity: unknown field`],
    ["camelCase", inPod({ runtimeClassName: "conformance-b" }), `${ofPod}.runtimeClassName: unknown field`],
    [
      "anything for the supervisor",
      { kubernetes: { containers: { supervisor: {} } } },
      "template.driver_config.kubernetes.containers.supervisor: unknown field",
    ],
    ["no quantity", inAgent({ limits: { memory: "lots" } }), `${ofAgent}.limits.memory: a quantity above zero`],
    [
      "a request above its limit",
      inAgent({ requests: { cpu: "2" }, limits: { cpu: "1" } }),
      `${ofAgent}.requests.cpu: 2 is above the limit 1`,
    ],
    [
      "less memory than the runtime needs",
      inAgent({ limits: { memory: "64Mi" } }),
      `${ofAgent}.limits.memory: 64Mi is below 128Mi`,
    ],
    [
      "a RuntimeClass that is not allowed",
      { runtimeClassName: "conformance-a" },
      'template.runtime_class_name: RuntimeClass "conformance-a" is not one that this gateway\'s operator allows (conformance-b)',
    ],
    [
      "a RuntimeClass that is not allowed, in driver_config",
      inPod({ runtime_class_name: "conformance-a" }),
      `${ofPod}.runtime_class_name: RuntimeClass "conformance-a" is not one`,
    ],
    [
      "a PriorityClass that is not allowed",
      inPod({ priority_class_name: classes.supervisor }),
      `${ofPod}.priority_class_name: PriorityClass "${classes.supervisor}" is not one`,
    ],
    ["a label of ours", { labels: { "openshell.ai/pair-id": "x" } }, "spec.template.labels[openshell.ai/pair-id]"],
    [
      "an annotation of ours",
      { annotations: { "openshell.ai/generation": "x" } },
      "spec.template.annotations[openshell.ai/generation]",
    ],
    ["a label that is not allowed", { labels: { app: "web" } }, "template.labels.app: is not among this gateway's"],
    [
      "an annotation that is not allowed",
      { annotations: { "example.com/owner": "me" } },
      "template.annotations.example.com/owner: is not among this gateway's",
    ],
    [
      "an annotation that a CNI acts on",
      { annotations: { "k8s.v1.cni.cncf.io/networks": "office" } },
      "template.annotations.k8s.v1.cni.cncf.io/networks: changes how a node runs the Pod",
    ],
    ["root", { user: "0" }, "policy.process.run_as_user: 0 is not between 1 and 2147483647"],
  ])("is refused before anything is made, by its path, when it is %s", async (_what, refused, sentence) => {
    const name = randomName();
    const error = await sandboxOf(suite, refused, name).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "invalid-argument", message: expect.stringContaining(sentence) });
    const { resource } = suite.resources;
    const made = await suite.kube.find(resource, suite.release.sandboxNamespace, `${suite.workspace}--${name}`);
    expect(made).toBeUndefined();
  });
});
