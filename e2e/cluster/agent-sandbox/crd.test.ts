import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv, type ValidateFunction } from "ajv";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { agentSandboxVersions, type CustomResourceDefinition } from "../../../src/kube/index.ts";
import { sandboxDefinition } from "./crd.ts";

type Version = (typeof agentSandboxVersions)[number];
type Schema = { properties?: Record<string, Schema>; items?: Schema; additionalProperties?: Schema } & Record<
  string,
  unknown
>;

const path =
  process.env.OPENSHELL_PUBLISHED_CRD ??
  join(import.meta.dirname, "../../../../shared/crds/agents.x-k8s.io_sandboxes.yaml");
const title = existsSync(path)
  ? "compared with the published definition in ../shared"
  : "compared with the published definition (skipped: OPENSHELL_PUBLISHED_CRD names no file)";

const podSpec = { containers: [{ name: "agent", image: "i" }] };

/** What a driver sends, and a full example of every part. */
const accepted: Record<string, (version: Version) => object> = {
  "the least": () => ({ podTemplate: { spec: podSpec } }),
  "a suspended one": (version) => ({ podTemplate: { spec: podSpec }, ...suspended(version) }),
  "all that a driver sends": (version) => ({
    ...suspended(version),
    service: false,
    shutdownPolicy: "Retain",
    podTemplate: {
      metadata: { labels: { a: "1" }, annotations: { b: "2" } },
      spec: {
        ...podSpec,
        runtimeClassName: "r",
        schedulingGates: [{ name: "g" }],
        affinity: {
          podAntiAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: [
              { labelSelector: { matchLabels: { a: "1" } }, topologyKey: "kubernetes.io/hostname" },
            ],
          },
        },
        tolerations: [{ key: "k", operator: "Exists", tolerationSeconds: 15 }],
        volumes: [
          { name: "m", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
          { name: "p", projected: { sources: [{ serviceAccountToken: { path: "token", audience: "a" } }] } },
          { name: "s", secret: { secretName: "s", defaultMode: 288 } },
        ],
        securityContext: { runAsNonRoot: true, runAsUser: 10001, seccompProfile: { type: "RuntimeDefault" } },
        initContainers: [{ name: "stage", image: "i", resources: { requests: { cpu: "10m", memory: 1048576 } } }],
      },
    },
    volumeClaimTemplates: [
      {
        metadata: { name: "workspace", labels: { a: "1" }, annotations: { b: "2" } },
        spec: {
          accessModes: ["ReadWriteOnce"],
          storageClassName: "",
          volumeMode: "Filesystem",
          resources: { requests: { storage: "1Gi" }, limits: { storage: 2 } },
          selector: { matchLabels: { a: "1" }, matchExpressions: [{ key: "k", operator: "In", values: ["v"] }] },
          dataSource: { kind: "PersistentVolumeClaim", name: "n" },
        },
      },
    ],
  }),
};

/** What neither takes. */
const refused: Record<string, object> = {
  "no template": {},
  "a template without a Pod": { podTemplate: {} },
  "a Pod without containers": { podTemplate: { spec: {} } },
  "a container without a name": { podTemplate: { spec: { containers: [{ image: "i" }] } } },
  "a label that is a number": { podTemplate: { metadata: { labels: { a: 1 } }, spec: podSpec } },
  "another mode": { podTemplate: { spec: podSpec }, operatingMode: "", replicas: 2 },
  "another policy": { podTemplate: { spec: podSpec }, shutdownPolicy: "Keep" },
  "a service that is a word": { podTemplate: { spec: podSpec }, service: "true" },
  "a claim template without a claim": { podTemplate: { spec: podSpec }, volumeClaimTemplates: [{}] },
};

/** What is dropped without a word. */
const pruned: Record<string, object> = {
  "a field of no version": { podTemplate: { spec: podSpec }, unknown: 1 },
  "metadata of the template": { podTemplate: { metadata: { name: "n", finalizers: ["f"] }, spec: podSpec } },
  "metadata of a claim template": {
    podTemplate: { spec: podSpec },
    volumeClaimTemplates: [{ metadata: { name: "n", finalizers: [] }, spec: {} }],
  },
  "unknown parts of a claim": { podTemplate: { spec: podSpec }, volumeClaimTemplates: [{ spec: { unknown: 1 } }] },
  "metadata of an ephemeral volume's claim": {
    podTemplate: {
      spec: {
        ...podSpec,
        volumes: [{ name: "v", ephemeral: { volumeClaimTemplate: { metadata: { labels: { a: "1" } }, spec: {} } } }],
      },
    },
  },
};

function suspended(version: Version): object {
  return version === "v1beta1" ? { operatingMode: "Suspended" } : { replicas: 0 };
}

function schemaOf(definition: CustomResourceDefinition, version: Version): Schema {
  const found = definition.spec?.versions.find(({ name }) => name === version);
  return found?.schema?.openAPIV3Schema as unknown as Schema;
}

const validators = new WeakMap<Schema, ValidateFunction>();

function accepts(schema: Schema, spec: object): boolean {
  // The published schema takes seconds to compile.
  const validate = validators.get(schema) ?? new Ajv({ strict: false, validateFormats: false }).compile(schema);
  validators.set(schema, validate);
  return validate({ apiVersion: "a", kind: "Sandbox", metadata: { name: "n" }, spec });
}

/** What the API server keeps of an object: fields that the schema does not name go, unless it is open. */
function prune(schema: Schema, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => prune(schema.items ?? {}, item));
  if (typeof value !== "object" || value === null || schema["x-kubernetes-int-or-string"]) return value;
  const isOpen = schema["x-kubernetes-preserve-unknown-fields"] === true;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, part]) => {
      const known = schema.properties?.[key] ?? schema.additionalProperties;
      if (known) return [[key, prune(known, part)]];
      return isOpen ? [[key, part]] : [];
    }),
  );
}

describe.skipIf(!existsSync(path))(title, () => {
  const published = existsSync(path)
    ? (parse(readFileSync(path, "utf8")) as CustomResourceDefinition)
    : { spec: undefined as never };

  describe.each(agentSandboxVersions)("%s", (version) => {
    const theirs = schemaOf(published, version);
    const ours = schemaOf(sandboxDefinition(version), version);
    const specOf = (schema: Schema): Schema => schema.properties?.spec ?? {};

    test.each(Object.keys(accepted))("both take %s, and keep the same of it", (name) => {
      const spec = accepted[name]?.(version) ?? {};
      expect([accepts(theirs, spec), accepts(ours, spec)]).toEqual([true, true]);
      expect(prune(specOf(ours), spec)).toEqual(prune(specOf(theirs), spec));
      expect(prune(specOf(ours), spec)).toEqual(spec);
    });

    test.each(Object.keys(refused))("neither takes %s", (name) => {
      const spec = refused[name] ?? {};
      expect([accepts(theirs, spec), accepts(ours, spec)]).toEqual([false, false]);
    });

    test.each(Object.keys(pruned))("both drop %s", (name) => {
      const spec = pruned[name] ?? {};
      expect(prune(specOf(ours), spec)).toEqual(prune(specOf(theirs), spec));
      expect(prune(specOf(ours), spec)).not.toEqual(spec);
    });

    test("the spec and the status have the same fields and rules", () => {
      const shape = (schema: Schema) => Object.keys(schema.properties ?? {}).sort();
      expect(shape(specOf(ours))).toEqual(shape(specOf(theirs)));
      expect(shape(ours.properties?.status ?? {})).toEqual(shape(theirs.properties?.status ?? {}));
      const message = (schema: Schema) =>
        (schema["x-kubernetes-validations"] as { message: string }[] | undefined)?.map((rule) => rule.message);
      expect(message(specOf(ours))).toEqual(message(specOf(theirs)));
    });
  });
});

describe("our definition", () => {
  test.each(agentSandboxVersions)("serves and stores %s and nothing else, without a webhook", (version) => {
    const { spec } = sandboxDefinition(version);
    expect(spec?.versions.map(({ name, served, storage }) => ({ name, served, storage }))).toEqual([
      { name: version, served: true, storage: true },
    ]);
    expect(spec?.conversion).toEqual({ strategy: "None" });
  });
});
