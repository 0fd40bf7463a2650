import { describe, expect, it, vi } from "vitest";
import { find, helmPrograms, render, sentenceOf } from "./_helm.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const enabled = true;
const driver = "openshell.drivers.kubernetes";

describeWithHelm("the sandboxes' namespace", () => {
  it("enforces the Pod Security level that was chosen", () => {
    const values = { sandboxNamespace: { name: "agents", podSecurity: "baseline", labels: { team: "x" } } };
    expect(find(render(program, { values }), "Namespace").metadata).toMatchObject({
      name: "agents",
      labels: {
        team: "x",
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "baseline",
        "pod-security.kubernetes.io/audit": "baseline",
      },
    });
  });

  it("may hold twice as many Pods as sandboxes may run", () => {
    const resourceQuota = { enabled, maxRunningSandboxes: 25, hard: { "requests.memory": "64Gi" } };
    const gatewayConfig = { "openshell.drivers.kubernetes": { workload_resources: { limits: { memory: "1Gi" } } } };
    const quota = find(render(program, { values: { resourceQuota, gatewayConfig } }), "ResourceQuota");
    expect(quota.metadata.namespace).toBe("openshell-sandboxes");
    expect(quota.spec.hard).toEqual({ pods: "50", "requests.memory": "64Gi" });
  });

  it("gives containers the bounds of a LimitRange, and only the ones that were given", () => {
    const limitRange = { enabled, default: { cpu: "2" }, max: { memory: "16Gi" } };
    const { spec } = find(render(program, { values: { limitRange } }), "LimitRange");
    expect(spec.limits).toEqual([{ type: "Container", default: { cpu: "2" }, max: { memory: "16Gi" } }]);
  });

  it.each([{ workspace_mode: "managed" }, { workspace_mode: "operator", operator_namespace_label: "a=b" }])(
    "keeps its bounds and its guard of labels for the sandboxes that are still there in %j",
    (mode) => {
      const values = { limitRange: { enabled, max: { memory: "4Gi" } }, gatewayConfig: { [driver]: mode } };
      const objects = render(program, { presets: ["production"], values });
      for (const kind of ["ResourceQuota", "LimitRange"])
        expect(find(objects, kind).metadata.namespace).toBe("openshell-sandboxes");
      const { spec } = find(objects, "ValidatingAdmissionPolicy", "openshell-labels-openshell");
      expect(Object.values(spec.matchConstraints.namespaceSelector.matchLabels)).toEqual(["openshell-sandboxes"]);
    },
  );

  it("takes a quota on something that every container of a pair says, or that the LimitRange fills in", () => {
    const resourceQuota = { enabled, hard: { "limits.cpu": "40" } };
    const cpu = { limits: { cpu: "1" } };
    const said = { "openshell.drivers.kubernetes": { supervisor_resources: cpu, workload_resources: cpu } };
    for (const values of [
      { resourceQuota, gatewayConfig: said },
      { resourceQuota, limitRange: { enabled, default: { cpu: "1" } } },
    ])
      expect(sentenceOf(program, { values })).toBeUndefined();
  });
});

describeWithHelm("the guard of the sandboxes' labels", () => {
  const values = { admissionPolicy: { enabled, agentSandboxUsers: ["system:serviceaccount:agents:controller"] } };

  it("lets the gateway and the Agent Sandbox controller write them, in the sandboxes' namespace", () => {
    const objects = render(program, { values });
    const { spec, metadata } = find(objects, "ValidatingAdmissionPolicy");
    expect(metadata.name).toBe("openshell-labels-openshell");
    expect(spec.failurePolicy).toBe("Fail");
    expect(spec.matchConstraints.namespaceSelector).toEqual({
      matchLabels: { "kubernetes.io/metadata.name": "openshell-sandboxes" },
    });
    expect(spec.matchConditions[0].expression).toBe(
      '!(request.userInfo.username in ["system:serviceaccount:openshell:openshell","system:serviceaccount:agents:controller"])',
    );
    expect(find(objects, "ValidatingAdmissionPolicyBinding").spec).toEqual({
      policyName: metadata.name,
      validationActions: ["Deny"],
    });
  });
});

const withoutLimits = {
  "openshell.drivers.kubernetes": {
    supervisor_resources: { limits: { memory: "" } },
    workload_resources: { limits: { memory: "" } },
  },
};

describeWithHelm("bounds that contradict each other, or bind nothing", () => {
  it.each([
    ...[{ maxRunningSandboxes: 1 }, { hard: { pods: "3" } }].map((bound): [object, string] => [
      { resourceQuota: bound },
      "resourceQuota.maxRunningSandboxes and resourceQuota.hard have no effect while resourceQuota.enabled is false; set it to true, or remove them",
    ]),
    [
      { resourceQuota: { enabled } },
      "resourceQuota.enabled is true but bounds nothing; give resourceQuota.maxRunningSandboxes or resourceQuota.hard",
    ],
    [
      { resourceQuota: { enabled, maxRunningSandboxes: 2, hard: { pods: "3" } } },
      "resourceQuota.maxRunningSandboxes is the bound on Pods, two for each sandbox; remove pods from resourceQuota.hard, or set resourceQuota.maxRunningSandboxes to 0",
    ],
    [
      { resourceQuota: { enabled, hard: { "limits.cpu": "40" } } },
      "resourceQuota.hard bounds limits.cpu, so the cluster refuses every container without it: set limits.cpu of supervisor_resources and of workload_resources in gatewayConfig, or limitRange.enabled with limitRange.default.cpu",
    ],
    [
      { resourceQuota: { enabled, hard: { "limits.memory": "40Gi" } }, gatewayConfig: withoutLimits },
      "resourceQuota.hard bounds limits.memory, so the cluster refuses every container without it: set limits.memory of supervisor_resources and of workload_resources in gatewayConfig, or limitRange.enabled with limitRange.default.memory",
    ],
    [
      {
        resourceQuota: { enabled, hard: { "requests.cpu": "4" } },
        gatewayConfig: { "openshell.drivers.kubernetes": { workload_resources: { requests: { cpu: "" } } } },
      },
      "resourceQuota.hard bounds requests.cpu, so the cluster refuses every container without it: set requests.cpu of supervisor_resources and of workload_resources in gatewayConfig, or limitRange.enabled with limitRange.defaultRequest.cpu",
    ],
    [
      {
        resourceQuota: { enabled, hard: { "requests.memory": "1Gi" } },
        gatewayConfig: { "openshell.drivers.kubernetes": { workload_resources: { requests: { memory: "" } } } },
      },
      "resourceQuota.hard bounds requests.memory, so the cluster refuses every container without it: set requests.memory of supervisor_resources and of workload_resources in gatewayConfig, or limitRange.enabled with limitRange.defaultRequest.memory",
    ],
    [
      { limitRange: { enabled } },
      "limitRange.enabled is true but bounds nothing; give limitRange.default, limitRange.defaultRequest, limitRange.min or limitRange.max",
    ],
    [
      { admissionPolicy: { enabled, agentSandboxUsers: [] } },
      "admissionPolicy.enabled would refuse every workload Pod: name the Agent Sandbox controller's user in admissionPolicy.agentSandboxUsers",
    ],
  ])("are refused: %j", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });
});
