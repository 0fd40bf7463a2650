import { describe, expect, test } from "vitest";
import { generationId, pairWith } from "./_testing.ts";
import { labelRules } from "./labels.ts";
import { labels } from "./names.ts";
import { redacted, renderGeneration } from "./render.ts";

const render = (change?: Parameters<typeof pairWith>[0], api: "v1beta1" | "v1alpha1" = "v1beta1") =>
  renderGeneration(pairWith(change), { api, record: '{"version":1}' });
const byKind = (kind: string, change?: Parameters<typeof pairWith>[0]) =>
  render(change).filter((object) => object.kind === kind);

describe("a rendered generation", () => {
  test("is in the order in which it is applied", () => {
    expect(render().map(({ kind }) => kind)).toEqual([
      "NetworkPolicy",
      "NetworkPolicy",
      "Sandbox",
      "Service",
      "Pod",
      "Secret",
      "Secret",
    ]);
  });

  test("is the same at every call", () => {
    expect(JSON.stringify(render())).toBe(JSON.stringify(render()));
  });

  test("shows no secret", () => {
    for (const secret of byKind("Secret")) {
      expect(new Set(Object.values(secret.stringData as object))).toEqual(new Set([redacted]));
      expect(secret.immutable).toBe(true);
      expect(secret.metadata.name).toContain(generationId);
    }
  });

  test("owns the supervisor and the Service by the CR, without controller and blockOwnerDeletion; the Secrets by their Pods", () => {
    for (const object of [...byKind("Pod"), ...byKind("Service")]) {
      expect(object.metadata.ownerReferences).toEqual([
        { apiVersion: "agents.x-k8s.io/v1beta1", kind: "Sandbox", name: "default--blue", uid: expect.any(String) },
      ]);
    }
    expect(byKind("Secret").map(({ metadata }) => metadata.ownerReferences?.[0]?.kind)).toEqual(["Pod", "Pod"]);
  });

  test("every object carries the gateway's label, by which informers and sweeps select", () => {
    for (const object of render()) expect(object.metadata.labels).toMatchObject({ [labels.gatewayId]: "openshell" });
  });

  test("objects that outlive a generation do not carry its id", () => {
    for (const kind of ["Sandbox", "Service", "NetworkPolicy"]) {
      for (const object of byKind(kind)) expect(object.metadata.labels).not.toHaveProperty(labels.pairId);
    }
    expect(labelRules.find(({ key }) => key === labels.pairId)?.selects).toBe(true);
  });
});

describe("the Sandbox", () => {
  test("v1beta1 begins suspended, asks for no Service, and claims one volume of a fixed name", () => {
    const [sandbox] = byKind("Sandbox", {
      settings: { workspace_storage_class: "fast", workspace_default_storage_size: "5Gi" },
    });
    expect(sandbox).toMatchObject({
      apiVersion: "agents.x-k8s.io/v1beta1",
      metadata: { name: "default--blue", annotations: { "openshell.ai/generation": '{"version":1}' } },
      spec: {
        operatingMode: "Suspended",
        service: false,
        volumeClaimTemplates: [
          {
            metadata: { name: "workspace" },
            spec: {
              accessModes: ["ReadWriteOnce"],
              storageClassName: "fast",
              resources: { requests: { storage: "5Gi" } },
            },
          },
        ],
      },
    });
    expect(sandbox?.spec).not.toHaveProperty("replicas");
  });

  test("v1alpha1 says the same with replicas", () => {
    const sandbox = render({}, "v1alpha1").find(({ kind }) => kind === "Sandbox");
    expect(sandbox).toMatchObject({ apiVersion: "agents.x-k8s.io/v1alpha1", spec: { replicas: 0, service: false } });
    expect(sandbox?.spec).not.toHaveProperty("operatingMode");
  });
});

describe("the network", () => {
  test("a workload is reached by its gateway's supervisors on the boundary port only, and reaches nothing", () => {
    const [workload] = byKind("NetworkPolicy", { runtime: { boundary_port: 6000 } });
    expect(workload).toMatchObject({
      metadata: { name: "openshell-workload-openshell" },
      spec: {
        podSelector: { matchLabels: { [labels.gatewayId]: "openshell", [labels.boundaryRole]: "workload" } },
        policyTypes: ["Ingress", "Egress"],
        ingress: [
          {
            from: [
              {
                podSelector: { matchLabels: { [labels.gatewayId]: "openshell", [labels.boundaryRole]: "supervisor" } },
              },
            ],
            ports: [{ protocol: "TCP", port: 6000 }],
          },
        ],
        egress: [],
      },
    });
  });

  test("a supervisor is reached by nobody, and reaches everything by an explicit rule", () => {
    expect(byKind("NetworkPolicy")[1]).toMatchObject({
      spec: { policyTypes: ["Ingress", "Egress"], ingress: [], egress: [{}] },
    });
  });

  test("the boundary Service points at one generation's workload, ready or not, on both address families", () => {
    expect(byKind("Service")[0]?.spec).toEqual({
      type: "ClusterIP",
      ipFamilyPolicy: "PreferDualStack",
      publishNotReadyAddresses: true,
      selector: { [labels.pairId]: generationId, [labels.boundaryRole]: "workload" },
      ports: [{ name: "boundary", protocol: "TCP", port: 5500, targetPort: 5500 }],
    });
  });
});
