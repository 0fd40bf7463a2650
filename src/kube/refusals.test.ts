import { describe, expect, test } from "vitest";
import { type RefusalKind, refusalOf } from "./refusals.ts";

const texts: [RefusalKind, string][] = [
  ["quota", 'pods "qa" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'],
  ["quota", 'pods "qa" is forbidden: failed quota: q: must specify requests.cpu for: c'],
  [
    "pod-security",
    'pods "pa" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
  ],
  ["runtime-class", 'pods "rca" is forbidden: pod rejected: RuntimeClass "nope" not found'],
  ["priority-class", 'pods "pc" is forbidden: no PriorityClass with name nope was found'],
  [
    "service-account",
    'pods "s" is forbidden: error looking up service account ns/nope: serviceaccount "nope" not found',
  ],
  ["limit-range", 'pods "l" is forbidden: maximum memory usage per Container is 128Mi, but limit is 1Gi'],
  ["admission-policy", "pods \"v\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"],
  ["webhook", 'admission webhook "deny.example.com" denied the request: no'],
  [
    "webhook-unreachable",
    'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: connect: connection refused',
  ],
  [
    "namespace-terminating",
    'pods "x" is forbidden: unable to create new content in namespace a because it is being terminated',
  ],
  ["foreign-object", 'pod "same" is owned by Sandbox/same (UID: 1), not by sandbox "same"'],
  ["permission", 'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""'],
  ["invalid", 'Pod "v5" is invalid: spec.containers[0].image: Required value'],
];

describe("refusalOf", () => {
  test.each(texts)("calls it %s when the API server says: %s", (kind, message) => {
    expect(refusalOf(message)).toEqual({ kind, message });
  });

  test("looks behind the words that the Agent Sandbox controller puts before the text", () => {
    const message = 'Pod "v5" is invalid: spec.containers[0].image: Required value';
    expect(refusalOf(`Error seen: ${message}`)).toEqual({ kind: "invalid", message });
  });

  test("does not take a timeout for a refusal", () => {
    expect(refusalOf("Error seen: Timeout: request did not complete within requested timeout")).toBeUndefined();
  });
});
