import { describe, expect, test } from "vitest";
import { foreignOpening, selects } from "./fence.ts";

const workload = { role: "workload", app: "openshell" };
const policy = (spec: object, name = "theirs") =>
  ({ metadata: { name, uid: "1", resourceVersion: "1" }, spec: { podSelector: {}, ...spec } }) as never;
const from = [{ podSelector: {} }];

describe("a policy of somebody else", () => {
  test.each<[string, object, boolean]>([
    ["allows all egress", { policyTypes: ["Egress"], egress: [{}] }, true],
    ["allows DNS only", { egress: [{ ports: [{ protocol: "UDP", port: 53 }] }] }, true],
    ["denies all egress", { policyTypes: ["Egress"], egress: [] }, false],
    ["allows egress, and is one of ingress only", { policyTypes: ["Ingress"], egress: [{}] }, false],
    ["allows ingress, and is one of egress only", { policyTypes: ["Egress"], ingress: [{}] }, false],
    ["allows all ingress", { ingress: [{}] }, true],
    ["allows another port", { ingress: [{ from, ports: [{ port: 22 }] }] }, true],
    ["allows a range over the boundary port", { ingress: [{ from, ports: [{ port: 5500, endPort: 5600 }] }] }, true],
    // Another pair's supervisor is refused in the TLS handshake.
    [
      "allows the boundary port from everywhere",
      { ingress: [{ from, ports: [{ protocol: "TCP", port: 5500 }] }] },
      false,
    ],
    ["selects other Pods", { podSelector: { matchLabels: { app: "web" } }, egress: [{}] }, false],
    [
      "selects by expression",
      { podSelector: { matchExpressions: [{ key: "role", operator: "Exists" }] }, egress: [{}] },
      true,
    ],
  ])("that %s opens the fence: %#", (_what, spec, opens) => {
    expect(foreignOpening([policy(spec)], workload, 5500, []) !== undefined).toBe(opens);
  });

  test("is excused by its name", () => {
    expect(foreignOpening([policy({ egress: [{}] })], workload, 5500, ["theirs"])).toBeUndefined();
    expect(foreignOpening([policy({ egress: [{}] })], workload, 5500, [])).toContain('"theirs"');
  });
});

describe("a label selector", () => {
  const by = (operator: string, values?: string[]) =>
    selects({ matchExpressions: [{ key: "role", operator, ...(values && { values }) }] }, workload);
  test.each<[string, boolean]>([
    ["In", by("In", ["workload"])],
    ["NotIn", by("NotIn", ["supervisor"])],
    ["Exists", by("Exists")],
    ["an unknown operator", by("Future")],
    ["nothing at all", selects({}, workload)],
  ])("with %s selects", (_what, selected) => {
    expect(selected).toBe(true);
  });

  test.each<[string, boolean]>([
    ["In", by("In", ["supervisor"])],
    ["NotIn", by("NotIn", ["workload"])],
    ["DoesNotExist", by("DoesNotExist")],
  ])("with %s does not", (_what, selected) => {
    expect(selected).toBe(false);
  });
});
