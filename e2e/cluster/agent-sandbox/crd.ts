import { type AgentSandboxVersion, agentSandboxGroup, type CustomResourceDefinition } from "../../../src/kube/index.ts";
import { testEquipmentLabel } from "./names.ts";

type Versions = NonNullable<CustomResourceDefinition["spec"]>["versions"];
type Schema = NonNullable<NonNullable<Versions[number]["schema"]>["openAPIV3Schema"]>;

const text: Schema = { type: "string" };
const texts: Schema = { type: "object", additionalProperties: text };
const quantities: Schema = {
  type: "object",
  additionalProperties: { "x-kubernetes-int-or-string": true, anyOf: [{ type: "integer" }, { type: "string" }] },
} as Schema;

function object(properties: Record<string, Schema>, required: string[] = []): Schema {
  return { type: "object", properties, ...(required.length > 0 && { required }) };
}

function list(items: Schema): Schema {
  return { type: "array", items };
}

/** Takes fields that are not named here as well. */
function open(schema: Schema): Schema {
  return { ...schema, "x-kubernetes-preserve-unknown-fields": true } as Schema;
}

function choice(byDefault: string, ...others: string[]): Schema {
  return {
    type: "string",
    default: byDefault as unknown as object,
    enum: [byDefault, ...others] as unknown as object[],
  };
}

/**
 * A Pod's spec is open instead of the published 4000 lines. What those lines do is here: a container needs a name, and
 * the metadata of an ephemeral volume's claim is dropped.
 */
const podSpec = open(
  object(
    {
      containers: list(open(object({ name: text }, ["name"]))),
      volumes: list(
        open(
          object({ ephemeral: open(object({ volumeClaimTemplate: open(object({ metadata: { type: "object" } })) })) }),
        ),
      ),
    },
    ["containers"],
  ),
);

/** Spelled out, because the rule below does not see into open objects. */
const claimSpec = object({
  accessModes: list(text),
  dataSource: object({ apiGroup: text, kind: text, name: text }, ["kind", "name"]),
  dataSourceRef: object({ apiGroup: text, kind: text, name: text, namespace: text }, ["kind", "name"]),
  resources: object({ limits: quantities, requests: quantities }),
  selector: object({
    matchExpressions: list(object({ key: text, operator: text, values: list(text) }, ["key", "operator"])),
    matchLabels: texts,
  }),
  storageClassName: text,
  volumeAttributesClassName: text,
  volumeMode: text,
  volumeName: text,
});

const claimTemplates = {
  ...list(object({ metadata: object({ name: text, labels: texts, annotations: texts }), spec: claimSpec }, ["spec"])),
  "x-kubernetes-list-type": "atomic",
} as Schema;

const condition = object(
  {
    type: text,
    status: { type: "string", enum: ["True", "False", "Unknown"] as unknown as object[] },
    reason: { type: "string", minLength: 1, maxLength: 1024 },
    message: { type: "string", maxLength: 32768 },
    lastTransitionTime: { type: "string", format: "date-time" },
    observedGeneration: { type: "integer", format: "int64", minimum: 0 },
  },
  ["type", "status", "reason", "message", "lastTransitionTime"],
);

const immutableClaims = {
  rule:
    "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && " +
    "(!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",
  message: "volumeClaimTemplates is immutable",
};

function specOf(version: AgentSandboxVersion): Schema {
  const replicas = { type: "integer", format: "int32", minimum: 0, maximum: 1, default: 1 as unknown as object };
  const spec = object(
    {
      podTemplate: object({ metadata: object({ labels: texts, annotations: texts }), spec: podSpec }, ["spec"]),
      ...(version === "v1beta1" ? { operatingMode: choice("Running", "Suspended") } : { replicas }),
      service: { type: "boolean" },
      shutdownPolicy: choice("Retain", "Delete"),
      shutdownTime: { type: "string", format: "date-time" },
      volumeClaimTemplates: claimTemplates,
    },
    ["podTemplate"],
  );
  return version === "v1beta1" ? ({ ...spec, "x-kubernetes-validations": [immutableClaims] } as Schema) : spec;
}

function statusOf(version: AgentSandboxVersion): Schema {
  return object({
    conditions: list(condition),
    ...(version === "v1beta1" ? { nodeName: text } : { replicas: { type: "integer", format: "int32", minimum: 0 } }),
    podIPs: list(text),
    selector: text,
    service: text,
    serviceFQDN: text,
  });
}

/**
 * A custom resource definition that serves one version of the Agent Sandbox API. One, because both need a conversion
 * webhook: without it `replicas` and `operatingMode` contradict each other.
 */
export function sandboxDefinition(
  version: AgentSandboxVersion,
): CustomResourceDefinition & { metadata: { name: string } } {
  const scale = {
    specReplicasPath: ".spec.replicas",
    statusReplicasPath: ".status.replicas",
    labelSelectorPath: ".status.selector",
  };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `sandboxes.${agentSandboxGroup}`, labels: { [testEquipmentLabel]: "agent-sandbox" } },
    spec: {
      group: agentSandboxGroup,
      names: {
        kind: "Sandbox",
        listKind: "SandboxList",
        plural: "sandboxes",
        singular: "sandbox",
        shortNames: ["sandbox"],
      },
      scope: "Namespaced",
      conversion: { strategy: "None" },
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          subresources: { status: {}, ...(version === "v1alpha1" && { scale }) },
          additionalPrinterColumns: [
            { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
            { name: "Reason", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
            { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" },
          ],
          schema: {
            openAPIV3Schema: {
              ...object({
                apiVersion: text,
                kind: text,
                metadata: { type: "object" },
                spec: specOf(version),
                status: statusOf(version),
              }),
              required: ["spec"],
            },
          },
        },
      ],
    },
  };
}
