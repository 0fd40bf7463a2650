import { randomBytes } from "node:crypto";
import { expect } from "vitest";
import { labels } from "../../src/manifests/names.ts";
import type { Conformance } from "./conformance.ts";

/**
 * A ValidatingAdmissionPolicy that refuses Pods of one role in the sandboxes' namespace, in these words, from the moment that this resolves
 * until it is disposed of.
 */
export async function denying(
  suite: Conformance,
  role: "workload" | "supervisor",
  words: string,
): Promise<AsyncDisposable> {
  const name = `conformance-${randomBytes(4).toString("hex")}`;
  const apiVersion = "admissionregistration.k8s.io/v1";
  const namespace = suite.release.sandboxNamespace;
  const isOfRole = `object.metadata.?labels["${labels.boundaryRole}"].orValue("") == "${role}"`;
  const policy = {
    apiVersion,
    kind: "ValidatingAdmissionPolicy",
    metadata: { name },
    spec: {
      failurePolicy: "Fail",
      matchConstraints: {
        namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
        resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"] }],
      },
      validations: [{ expression: `!(${isOfRole})`, message: words }],
    },
  };
  const binding = {
    apiVersion,
    kind: "ValidatingAdmissionPolicyBinding",
    metadata: { name },
    spec: { policyName: name, validationActions: ["Deny"] },
  };
  await using undo = new AsyncDisposableStack();
  // The API server reads its policies again every second or so; nothing can be watched for it.
  const asked = () => expect.poll(() => answerTo(suite, role), { timeout: 30_000, interval: 250 });
  undo.defer(() => asked().not.toContain(words));
  undo.use(await suite.applied(policy, binding));
  await asked().toContain(words);
  return undo.move();
}

/** What the API server would answer to a Pod of this role that breaks no other rule. */
async function answerTo(suite: Conformance, role: string): Promise<string> {
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: "conformance-specimen",
      namespace: suite.release.sandboxNamespace,
      labels: { [labels.boundaryRole]: role },
    },
    spec: {
      securityContext: { runAsNonRoot: true, runAsUser: 10001, seccompProfile: { type: "RuntimeDefault" } },
      containers: [
        {
          name: "specimen",
          image: "specimen",
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
        },
      ],
    },
  };
  const input = JSON.stringify(pod);
  const { stdout, stderr } = await suite.kubectlAttempt(["create", "--dry-run=server", "-f", "-"], { input });
  return stdout + stderr;
}
