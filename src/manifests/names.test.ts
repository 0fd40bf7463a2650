import { describe, expect, test } from "vitest";
import * as names from "./names.ts";

const longest = {
  id: "f".repeat(names.maxSandboxIdLength),
  name: "n".repeat(names.maxPublicNameLength),
  workspace: "w".repeat(names.maxPublicNameLength),
  generation: "a".repeat(names.generationIdLength),
  gateway: "g".repeat(33),
  session: 4_294_967_295,
};
const resource = names.sandboxResourceName(longest.workspace, longest.name);

describe("names of objects", () => {
  test.each([
    ["Sandbox, workload Pod and host", resource],
    ["workspace claim", names.pvcName(resource)],
    ["supervisor Pod", names.supervisorPodName(longest.id, longest.session)],
    ["boundary Service", names.boundaryServiceName(longest.id)],
    ["workload Secret", names.workloadSecretName(longest.generation)],
    ["supervisor Secret", names.supervisorSecretName(longest.generation, longest.session)],
    ["workload policy", names.networkPolicyName("workload", longest.gateway)],
    ["supervisor policy", names.networkPolicyName("supervisor", longest.gateway)],
    ["driver lease", names.driverLeaseName(longest.gateway)],
  ])("%s is a DNS label of at most 63 characters for the longest input", (_what, name) => {
    expect(name).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
  });

  test("a sandbox's first supervisor is found by its id alone, later ones by their session", () => {
    expect(names.supervisorPodName("abc", 1)).toBe("os-supervisor-abc");
    expect(names.supervisorPodName("abc", 12)).toBe("os-supervisor-abc-s12");
  });

  test("the Service's name begins with a letter whatever the id begins with", () => {
    expect(names.boundaryServiceName("0abc")).toMatch(/^[a-z]/);
  });

  test.each([
    ["a--b", false],
    ["-a", false],
    ["a-", false],
    ["A", false],
    ["", false],
    ["a".repeat(20), false],
    ["a", true],
    ["a-b-c", true],
    ["a".repeat(19), true],
  ])("public name %j is accepted: %s", (name, accepted) => {
    expect(names.publicNamePattern.test(name)).toBe(accepted);
  });

  test("two sandboxes never share a resource name, because a public name has no double dash", () => {
    const pairs = ["a", "b", "a-b", "b-a"].flatMap((w) => ["a", "b", "a-b", "b-a"].map((n) => [w, n] as const));
    expect(new Set(pairs.map(([w, n]) => names.sandboxResourceName(w, n))).size).toBe(pairs.length);
  });
});
