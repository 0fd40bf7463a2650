import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { compute } from "../wire/index.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { checkStillAllowed, sandboxSpecOf, withSupervisorUid } from "./request.ts";

type Init = MessageInitShape<typeof compute.DriverSandboxSchema>;
type SpecInit = MessageInitShape<typeof compute.DriverSandboxSpecSchema>;

function sandbox(spec: SpecInit = {}, change: Partial<Init> = {}): compute.DriverSandbox {
  const init = { id: testSandboxId, name: "blue", workspace: "default", spec: { template: {}, ...spec }, ...change };
  return create(compute.DriverSandboxSchema, init as Init);
}

function refusalOf(run: () => unknown): OpenShellError {
  try {
    run();
  } catch (error) {
    if (error instanceof OpenShellError) return error;
    throw error;
  }
  return expect.fail("was accepted");
}
const fields = (run: () => unknown) => refusalOf(run).details.violations?.map(({ field }) => field);

describe("a request", () => {
  test("is normalised, and nothing secret or of the user's environment is kept", () => {
    const spec = sandboxSpecOf(
      sandbox({
        template: { image: "x:1", labels: { team: "a" }, environment: { TOKEN: "s3cret" } },
        environment: { KEY: "s3cret" },
        command: ["s3cret"],
        sandboxToken: "s3cret",
      }),
      testSettings({ allowed_pod_labels: ["team"] }),
    );
    expect(spec).toMatchObject({
      image: "x:1",
      labels: { team: "a" },
      uid: 10001,
      gid: 10001,
      logLevel: "info",
      gpus: {},
    });
    expect(JSON.stringify(spec)).not.toContain("s3cret");
  });

  test("says what was expected of a value in the template", () => {
    const platformConfig = { annotations: { note: 5 } } as never;
    const settings = testSettings({ allowed_pod_annotations: ["*"] });
    const error = refusalOf(() => sandboxSpecOf(sandbox({ template: { platformConfig } }), settings));
    expect(error.message).toBe("template.annotations.note: text in quotes");
  });

  test.each(["constructor", "__proto__"])("has no label and no annotation %s, which no Pod could have", (key) => {
    const given = { [key]: "x" };
    const settings = testSettings({ allowed_pod_labels: ["*"], allowed_pod_annotations: ["*"] });
    const template = { labels: given, platformConfig: { annotations: given } };
    expect(fields(() => sandboxSpecOf(sandbox({ template }), settings))).toEqual([
      `template.labels.${key}`,
      `template.annotations.${key}`,
    ]);
  });

  test("names everything that is wrong with it at once", () => {
    const bad = sandbox(
      {
        template: { labels: { "openshell.ai/pair-id": "x" }, resources: { cpuLimit: "lots" } as never },
        logLevel: "loud",
      },
      { id: "A", name: "x--y", workspace: "" },
    );
    expect(fields(() => sandboxSpecOf(bad, testSettings()))).toEqual([
      "id",
      "name",
      "workspace",
      "template.labels.openshell.ai/pair-id",
      "template.resources.limits.cpu",
      "log_level",
    ]);
  });

  test("needs an image when the operator has no default", () => {
    expect(fields(() => sandboxSpecOf(sandbox(), testSettings({ default_image: "" })))).toEqual(["template.image"]);
  });

  test.each<[string, Record<string, string>, string | undefined]>([
    ["a limit too small for runtime and agent", { memoryLimit: "64Mi" }, "template.resources.limits.memory"],
    ["a request above its limit", { cpuRequest: "2", cpuLimit: "1" }, "template.resources.requests.cpu"],
    ["a request above the operator's limit", { memoryRequest: "4Gi" }, "template.resources.requests.memory"],
    ["a limit of zero", { cpuLimit: "0" }, "template.resources.limits.cpu"],
    ["a request of zero in another notation", { memoryRequest: "0.0Gi" }, "template.resources.requests.memory"],
    ["a request below zero", { cpuRequest: "-1" }, "template.resources.requests.cpu"],
    ["a limit alone", { cpuLimit: "2" }, undefined],
    ["a limit alone, below the operator's request", { cpuLimit: "100m" }, undefined],
    ["a request alone", { cpuRequest: "100m" }, undefined],
  ])("%s", (_what, resources, field) => {
    const settings = testSettings({ workload_resources: { requests: { cpu: "500m" }, limits: { memory: "1Gi" } } });
    const run = () => sandboxSpecOf(sandbox({ template: { resources: resources as never } }), settings);
    if (field === undefined) expect(run()).toBeDefined();
    else {
      expect(fields(run)).toEqual([field]);
      expect(refusalOf(run).code).toBe("invalid-argument");
    }
  });
});

test.each([
  "k8s.v1.cni.cncf.io/networks",
  "io.katacontainers.config.hypervisor.kernel",
  "run.oci.handler",
  "module.wasm.image/variant",
  "io.kubernetes.cri.container-type",
  "io.kubernetes.cri-o.userns-mode",
  "userns-mode.crio.io",
  "cpu-shared.crio.io/agent",
  "seccomp-profile.crio.io/POD",
  "seccomp-profile.kubernetes.cri-o.io/POD",
  "io.containers.trace-syscall",
  "org.systemd.property.Delegate",
  "org.criu.config",
  "bundle",
  "cni.projectcalico.org/allowedSourcePrefixes",
  "k8s.ovn.org/routing-namespaces",
  "ovn.kubernetes.io/ip_address",
  "net1.default.ovn.kubernetes.io/ip_address",
  "devices.nri.io",
  "mounts.noderesource.dev/container.agent",
  "ulimits.nri.containerd.io/pod",
])("annotation %s is not a caller's to set: it changes how a node runs the Pod", (key) => {
  const platformConfig = { annotations: { [key]: "x", note: "harmless" } };
  const settings = testSettings({ allowed_pod_annotations: ["*"] });
  expect(fields(() => sandboxSpecOf(sandbox({ template: { platformConfig } }), settings))).toEqual([
    `template.annotations.${key}`,
  ]);
});

test.each([
  [[], ["team", "example.com/cost"]],
  [["team"], ["example.com/cost"]],
  [["example.com/*"], ["team"]],
  [["*"], []],
])("labels and annotations under %j leave %j refused", (allowed, refused) => {
  const settings = testSettings({ allowed_pod_labels: allowed, allowed_pod_annotations: allowed });
  const given = { team: "a", "example.com/cost": "1" };
  const create = () =>
    sandboxSpecOf(sandbox({ template: { labels: given, platformConfig: { annotations: given } } }), settings);
  if (refused.length === 0) return expect(create()).toMatchObject({ labels: given, annotations: given });
  const paths = ["labels", "annotations"].flatMap((kind) => refused.map((key) => `template.${kind}.${key}`));
  expect(fields(create)).toEqual(paths);
  return expect(refusalOf(create).details.violations?.[0]?.description).toContain("allowed_pod_labels");
});

test("a label or annotation of ours is refused once, with the reason", () => {
  const platformConfig = { annotations: { "openshell.ai/generation": "x" } };
  const template = { labels: { "openshell.ai/pair-id": "x" }, platformConfig };
  const { violations } = refusalOf(() => sandboxSpecOf(sandbox({ template }), testSettings())).details;
  expect(violations).toEqual([
    { field: "template.labels.openshell.ai/pair-id", description: expect.stringContaining("openshell.ai/") },
    { field: "template.annotations.openshell.ai/generation", description: expect.stringContaining("openshell.ai/") },
  ]);
});

describe("classes", () => {
  const platformConfig = { runtime_class_name: "typed" };
  const driverConfig = { pod: { runtime_class_name: "loose" } };
  const open = testSettings({ allow_driver_config: true });

  test("the typed template comes before driver_config", () => {
    expect(sandboxSpecOf(sandbox({ template: { platformConfig, driverConfig } }), open).runtimeClassName).toBe("typed");
    expect(sandboxSpecOf(sandbox({ template: { driverConfig } }), open).runtimeClassName).toBe("loose");
    expect(
      sandboxSpecOf(sandbox({ template: { platformConfig: { runtime_class_name: "" } } }), open).runtimeClassName,
    ).toBe("");
  });

  test("the operator's list binds both ways of asking", () => {
    const closed = testSettings({ allow_driver_config: true, allowed_runtime_class_names: ["kata"] });
    for (const [template, field] of [
      [{ platformConfig }, "template.runtime_class_name"],
      [{ driverConfig }, "template.driver_config.kubernetes.pod.runtime_class_name"],
    ] as const) {
      const refusal = refusalOf(() => sandboxSpecOf(sandbox({ template }), closed));
      expect(refusal.message).toContain("not one that this gateway's operator allows (kata)");
      expect(refusal.details.violations?.map((each) => each.field)).toEqual([field]);
    }
  });
});

describe("what was allowed when a sandbox was made", () => {
  const open = testSettings({
    allow_driver_config: true,
    allowed_pod_labels: ["team"],
    allowed_pod_annotations: ["note"],
  });
  const pod = (config: object) => ({ driverConfig: { pod: config } });

  test.each<[string, object, object, string]>([
    [
      "a RuntimeClass",
      { platformConfig: { runtime_class_name: "x" } },
      { allowed_runtime_class_names: ["kata"] },
      "template.runtime_class_name",
    ],
    [
      "a PriorityClass",
      pod({ priority_class_name: "x" }),
      { allowed_priority_class_names: [] },
      "template.driver_config.kubernetes.pod.priority_class_name",
    ],
    ["a label", { labels: { team: "a" } }, { allowed_pod_labels: [] }, "template.labels.team"],
    [
      "an annotation",
      { platformConfig: { annotations: { note: "a" } } },
      { allowed_pod_annotations: [] },
      "template.annotations.note",
    ],
    [
      "a node selector",
      pod({ node_selector: { a: "b" } }),
      { allow_driver_config: false },
      "template.driver_config.kubernetes.pod",
    ],
    [
      "a toleration",
      pod({ tolerations: [{ operator: "Exists" }] }),
      { allow_driver_config: false },
      "template.driver_config.kubernetes.pod",
    ],
    [
      "a resource that only driver_config has",
      { driverConfig: { containers: { agent: { resources: { limits: { "ephemeral-storage": "1Gi" } } } } } },
      { allow_driver_config: false },
      "template.driver_config.kubernetes.containers.agent.resources",
    ],
  ])("is refused once it is not any more: %s", (_what, template, change, field) => {
    const spec = sandboxSpecOf(sandbox({ template }), open);
    expect(() => checkStillAllowed(spec, open)).not.toThrow();
    const refusal = refusalOf(() => checkStillAllowed(spec, { ...open, ...change }));
    expect(refusal).toMatchObject({ code: "failed-precondition", details: { reason: "NoLongerAllowed" } });
    expect(refusal.details.violations?.map((each) => each.field)).toEqual([field]);
  });

  test("leaves what the typed template says alone", () => {
    const spec = sandboxSpecOf(sandbox({ template: { resources: { cpuRequest: "100m", memoryLimit: "1Gi" } } }), open);
    expect(() => checkStillAllowed(spec, testSettings())).not.toThrow();
  });
});

describe("a user namespace", () => {
  const strict = testSettings({ enable_user_namespaces: true });

  test("that the operator asks for cannot be left by the caller", () => {
    const refusal = refusalOf(() => sandboxSpecOf(sandbox({ template: { userNamespaces: false } }), strict));
    expect(refusal.details.violations).toEqual([
      {
        field: "template.user_namespaces",
        description: expect.stringContaining("runs every workload in a user namespace (enable_user_namespaces)"),
      },
    ]);
  });

  test.each([true, undefined])("is the caller's to ask for (%s), or to leave to the operator", (userNamespaces) => {
    const template = userNamespaces === undefined ? {} : { userNamespaces };
    for (const settings of [strict, testSettings()]) {
      expect(sandboxSpecOf(sandbox({ template }), settings).userNamespaces).toBe(userNamespaces);
    }
  });
});

describe("driver_config", () => {
  test("is refused as a whole where the operator does not allow it", () => {
    const error = refusalOf(() => sandboxSpecOf(sandbox({ template: { driverConfig: { pod: {} } } }), testSettings()));
    expect(error).toMatchObject({ code: "failed-precondition", details: { reason: "DriverConfigNotAllowed" } });
    expect(sandboxSpecOf(sandbox({ template: { driverConfig: {} } }), testSettings())).toBeDefined();
  });

  const open = testSettings({ allow_driver_config: true });
  const refusedFields = (driverConfig: object) =>
    fields(() => sandboxSpecOf(sandbox({ template: { driverConfig: driverConfig as never } }), open));

  test("takes the documented keys, alone or in the envelope", () => {
    const own = {
      pod: {
        node_selector: { pool: "gpu" },
        tolerations: [{ key: "gpu", operator: "Exists", effect: "NoExecute", toleration_seconds: 5 }],
        priority_class_name: "high",
      },
      containers: { agent: { resources: { requests: { cpu: 1 }, limits: { memory: "2Gi" } } } },
    };
    for (const driverConfig of [own, { kubernetes: own }]) {
      expect(sandboxSpecOf(sandbox({ template: { driverConfig } }), open)).toMatchObject({
        nodeSelector: { pool: "gpu" },
        tolerations: [{ key: "gpu", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 }],
        priorityClassName: "high",
        resources: { requests: { cpu: "1" }, limits: { memory: "2Gi" } },
      });
    }
  });

  const root = "template.driver_config.kubernetes";
  test.each<[object, string]>([
    [{ pod: { affinity: {} } }, `${root}.pod.affinity`],
    [{ pod: { runtimeClassName: "x" } }, `${root}.pod.runtimeClassName`],
    [{ pod: { tolerations: [{ key: "a", tolerationSeconds: 1 }] } }, `${root}.pod.tolerations.0.tolerationSeconds`],
    [{ pod: { tolerations: [{ key: "a", operator: "Exists", value: "b" }] } }, `${root}.pod.tolerations.0.value`],
    [{ pod: { tolerations: [{ operator: "Equal" }] } }, `${root}.pod.tolerations.0`],
    [{ pod: { tolerations: [{ key: "a", toleration_seconds: 5 }] } }, `${root}.pod.tolerations.0.toleration_seconds`],
    [{ supervisor: {} }, `${root}.supervisor`],
    [{ containers: { supervisor: {} } }, `${root}.containers.supervisor`],
    [
      { containers: { agent: { resources: { limits: { memory: "lots" } } } } },
      `${root}.containers.agent.resources.limits.memory`,
    ],
    [{ containers: { agent: { resources: { limits: { cpu: 0 } } } } }, `${root}.containers.agent.resources.limits.cpu`],
    [
      { containers: { agent: { resources: { requests: { memory: "-1Gi" } } } } },
      `${root}.containers.agent.resources.requests.memory`,
    ],
    [
      { containers: { agent: { resources: { limits: { memory: "64Mi" } } } } },
      `${root}.containers.agent.resources.limits.memory`,
    ],
    [
      { containers: { agent: { resources: { requests: { "nvidia.com/gpu": "1" } } } } },
      `${root}.containers.agent.resources.requests.nvidia.com/gpu`,
    ],
    [
      { containers: { agent: { resources: { requests: { cpu: "2" }, limits: { cpu: "1" } } } } },
      `${root}.containers.agent.resources.requests.cpu`,
    ],
    [
      { containers: { agent: { resources: { limits: { "nvidia.com/gpu": "0.5" } } } } },
      `${root}.containers.agent.resources.limits.nvidia.com/gpu`,
    ],
    [{ pod: { runtime_class_name: "Not A Name" } }, `${root}.pod.runtime_class_name`],
    [{ pod: [] }, `${root}.pod`],
  ])("refuses %j by its path", (driverConfig, field) => {
    expect(refusedFields(driverConfig)).toEqual([field]);
  });

  test.each<[object, string]>([
    [{ pod: [] }, "pod: an object"],
    [{ pod: { node_selector: "gpu" } }, "pod.node_selector: an object"],
    [{ pod: { node_selector: { pool: 1 } } }, "pod.node_selector.pool: text in quotes"],
    [{ pod: { tolerations: {} } }, "pod.tolerations: an array"],
    [{ pod: { tolerations: [{ operator: "Exist" }] } }, 'pod.tolerations.0.operator: one of "Exists", "Equal"'],
    [
      { pod: { tolerations: [{ operator: "Exists", effect: "NoExecute", toleration_seconds: 1.5 }] } },
      "pod.tolerations.0.toleration_seconds: a whole number",
    ],
    [
      { containers: { agent: { resources: { limits: { cpu: true } } } } },
      "containers.agent.resources.limits.cpu: text in quotes, or a number",
    ],
    [
      { containers: { agent: { resources: { limits: { Cores: "1" } } } } },
      'containers.agent.resources.limits.Cores: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or an extended resource such as "nvidia.com/gpu"',
    ],
    [{ pod: { node_selector: { "": "x" } } }, "pod.node_selector.: text that is not empty"],
    ...["constructor", "__proto__"].map((key): [object, string] => [
      { pod: { node_selector: { [key]: "x", zone: "a" } } },
      `pod.node_selector.${key}: a key other than "constructor" and "__proto__"`,
    ]),
    [
      { containers: { agent: { resources: { limits: { ["__proto__"]: "1" } } } } },
      'containers.agent.resources.limits.__proto__: a key other than "constructor" and "__proto__"',
    ],
  ])("says of %j what was expected", (driverConfig, sentence) => {
    const error = refusalOf(() => sandboxSpecOf(sandbox({ template: { driverConfig: driverConfig as never } }), open));
    expect(error.message).toBe(`${root}.${sentence}`);
  });

  test("says what was probably meant", () => {
    const error = refusalOf(() =>
      sandboxSpecOf(sandbox({ template: { driverConfig: { pod: { node_selectr: {} } } } }), open),
    );
    expect(error.message).toContain("did you mean node_selector?");
  });
});

describe("the user", () => {
  const uidOf = (spec: SpecInit, settings = testSettings(), firstUid?: number) => {
    const { uid, gid } = sandboxSpecOf(sandbox(spec), settings, firstUid === undefined ? {} : { firstUid });
    return [uid, gid];
  };

  test.each<[string, number[], number[]]>([
    ["the policy's numbers", uidOf({ policy: { process: { runAsUser: "2000", runAsGroup: "3000" } } }), [2000, 3000]],
    ["the operator's", uidOf({}, testSettings({ sandbox_uid: 5000 })), [5000, 5000]],
    ["the namespace's range", uidOf({}, testSettings(), 1_000_650_000), [1_000_650_000, 1_000_650_000]],
    ["10001", uidOf({ policy: { process: { runAsUser: "sandbox" } } }), [10001, 10001]],
  ])("is %s", (_what, actual, expected) => {
    expect(actual).toEqual(expected);
  });

  test.each<[string, SpecInit, ReturnType<typeof testSettings>, number | undefined, number]>([
    ["10002", { policy: { process: { runAsUser: "2000" } } }, testSettings(), undefined, 10002],
    ["one beside the operator's", {}, testSettings({ sandbox_uid: 5000 }), undefined, 5001],
    ["the second of the namespace's range", {}, testSettings(), 1_000_650_000, 1_000_650_001],
    ["below the greatest", {}, testSettings({ sandbox_uid: 2_147_483_647 }), undefined, 2_147_483_646],
  ])("of the supervisor is %s, whatever the caller asks for", (_what, spec, settings, firstUid, expected) => {
    const facts = firstUid === undefined ? {} : { firstUid };
    expect(sandboxSpecOf(sandbox(spec), settings, facts).supervisorUid).toBe(expected);
    const same = { policy: { process: { runAsUser: String(expected) } } };
    expect(fields(() => sandboxSpecOf(sandbox(same), settings, facts))).toEqual(["policy.process.run_as_user"]);
  });

  test("of the supervisor is today's at each start; who had that number before keeps what there was", () => {
    const made = sandboxSpecOf(sandbox({ policy: { process: { runAsUser: "5001" } } }), testSettings());
    const facts = {};
    expect(withSupervisorUid(made, testSettings({ sandbox_uid: 7000 }), facts)).toEqual({
      ...made,
      supervisorUid: 7001,
    });
    expect(withSupervisorUid(made, testSettings({ sandbox_uid: 5000 }), facts)).toEqual(made);
  });

  test("that is refused is named where it was asked for", () => {
    const identity = { workloadIdentity: { user: "0", group: "0" } };
    expect(fields(() => sandboxSpecOf(sandbox(identity), testSettings()))).toEqual([
      "workload_identity.user",
      "workload_identity.group",
    ]);
    const overruled = { ...identity, policy: { process: { runAsUser: "0", runAsGroup: "7" } } };
    expect(fields(() => sandboxSpecOf(sandbox(overruled), testSettings()))).toEqual(["policy.process.run_as_user"]);
  });

  test("is never root", () => {
    expect(fields(() => sandboxSpecOf(sandbox({ policy: { process: { runAsUser: "0" } } }), testSettings()))).toContain(
      "policy.process.run_as_user",
    );
  });
});

test("GPUs are counted by the extended resource; one when no number is given", () => {
  const gpus = (count?: number) =>
    sandboxSpecOf(sandbox({ resourceRequirements: { gpu: count === undefined ? {} : { count } } }), testSettings())
      .gpus;
  expect(gpus()).toEqual({ "nvidia.com/gpu": 1 });
  expect(gpus(4)).toEqual({ "nvidia.com/gpu": 4 });
  const others = testSettings({ gpu_resource_name: "amd.com/gpu" });
  expect(sandboxSpecOf(sandbox({ resourceRequirements: { gpu: { count: 2 } } }), others).gpus).toEqual({
    "amd.com/gpu": 2,
  });
  expect(fields(() => gpus(0))).toEqual(["resource_requirements.gpu.count"]);
});
