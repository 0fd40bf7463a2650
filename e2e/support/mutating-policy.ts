import { randomBytes } from "node:crypto";
import { sleep } from "../../src/common/async.ts";
import type { Live, Pod } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import type { Conformance } from "./conformance.ts";

/** One operation on a Pod, as RFC 6902 says it. */
export interface PodPatch {
  readonly op: "add" | "replace" | "remove";
  readonly path: string;
  readonly value?: unknown;
}

const marker = "conformance.openshell.test/policy";

/**
 * A MutatingAdmissionPolicy of the API server's own that changes Pods of one role while they are made in the sandboxes' namespace, from
 * the moment that this resolves until it is disposed of. Both are seen by what the API server makes of `specimen` without storing it.
 */
export async function mutating(
  suite: Conformance,
  role: "workload" | "supervisor",
  patches: readonly PodPatch[],
  specimen: Live<Pod>,
): Promise<AsyncDisposable> {
  const name = `conformance-${randomBytes(4).toString("hex")}`;
  const applied = await suite.applied(...objects(name, suite.release.sandboxNamespace, role, patches));
  try {
    await seen(suite, specimen, name, true);
  } catch (error) {
    await applied[Symbol.asyncDispose]();
    throw error;
  }
  return {
    [Symbol.asyncDispose]: async () => {
      await applied[Symbol.asyncDispose]();
      await seen(suite, specimen, name, false);
    },
  };
}

function objects(name: string, namespace: string, role: string, patches: readonly PodPatch[]) {
  const operation = ({ op, path, value }: PodPatch) =>
    `JSONPatch{op: "${op}", path: "${path}"${value === undefined ? "" : `, value: ${literal(value)}`}}`;
  const mark = `has(object.metadata.annotations)
    ? [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("${marker}"), value: "${name}"}]
    : [JSONPatch{op: "add", path: "/metadata/annotations", value: {"${marker}": "${name}"}}]`;
  const expression = `[${patches.map(operation).join(", ")}] + (${mark})`;
  const apiVersion = "admissionregistration.k8s.io/v1beta1";
  return [
    {
      apiVersion,
      kind: "MutatingAdmissionPolicy",
      metadata: { name },
      spec: {
        failurePolicy: "Fail",
        reinvocationPolicy: "Never",
        matchConstraints: {
          namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
          resourceRules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"] }],
        },
        matchConditions: [
          { name: "role", expression: `object.metadata.?labels["${labels.boundaryRole}"].orValue("") == "${role}"` },
        ],
        mutations: [{ patchType: "JSONPatch", jsonPatch: { expression } }],
      },
    },
    { apiVersion, kind: "MutatingAdmissionPolicyBinding", metadata: { name }, spec: { policyName: name } },
  ];
}

/** JSON as a literal of CEL, whose maps and lists are of one type unless their members are `dyn`. */
function literal(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => `dyn(${literal(item)})`).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}: dyn(${literal(member)})`);
  return `{${entries.join(", ")}}`;
}

/** The API server reads its policies again every second or so; nothing can be watched for it. */
async function seen(suite: Conformance, specimen: Live<Pod>, policy: string, wanted: boolean): Promise<void> {
  const { metadata, spec } = specimen;
  const { nodeName: _, ...unplaced } = spec ?? {};
  const input = JSON.stringify({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `specimen-${policy}`, namespace: metadata.namespace, labels: metadata.labels },
    spec: unplaced,
  });
  const deadline = performance.now() + 30_000;
  for (;;) {
    const { code, stdout, stderr } = await suite.kubectlAttempt(
      ["create", "--dry-run=server", "-o", "json", "-f", "-"],
      { input },
    );
    // A policy that makes the specimen invalid is in force as well.
    const isMarked = code === 0 ? JSON.parse(stdout).metadata.annotations?.[marker] === policy : true;
    if (isMarked === wanted) return;
    if (performance.now() > deadline)
      throw new Error(`policy ${policy} is ${wanted ? "not in force" : "still in force"}: ${stderr}`);
    await sleep(250);
  }
}
