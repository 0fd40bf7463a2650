import { Ajv } from "ajv";
import { parse } from "smol-toml";
import { describe, expect, it } from "vitest";
import { valueAt } from "./_problems.ts";
import {
  defaultSettings,
  gatewayConfigSchema,
  type JsonSchema,
  jsonSchemaOf,
  settingsReference,
  settingsWithReservedKeys,
  tables,
} from "./index.ts";
import { notHere } from "./not-here.ts";

const validate = new Ajv({ strict: false, allErrors: true }).compile(gatewayConfigSchema());

function errors(config: unknown): string[] {
  validate(config);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

const settings = defaultSettings();
const defaults = { "openshell.gateway": settings.gateway, "openshell.drivers.kubernetes": settings.kubernetes };

const resources = (workload_resources: object) => ({ "openshell.drivers.kubernetes": { workload_resources } });
const expression = (requirement: object) => {
  const nodeSelectorTerms = [{ matchExpressions: [requirement] }];
  const nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } };
  return { "openshell.drivers.kubernetes": { workload_affinity: { nodeAffinity } } };
};

describe("the JSON Schema of gatewayConfig", () => {
  it("accepts every default, in its table or in a table of its own", () => {
    expect(errors(defaults)).toEqual([]);
    expect(errors({ "openshell.drivers.kubernetes.sandbox_runtime": settings.kubernetes.sandbox_runtime })).toEqual([]);
    expect(errors({ "openshell.drivers.kubernetes.supervisor_resources.requests": { cpu: "1" } })).toEqual([]);
  });

  it("accepts null for every setting, and for every table", () => {
    for (const [table, values] of Object.entries(defaults)) {
      for (const key of Object.keys(values)) expect(errors({ [table]: { [key]: null } })).toEqual([]);
      expect(errors({ [table]: null })).toEqual([]);
    }
    expect(errors({ "openshell.drivers.kubernetes": { supervisor_resources: { requests: { cpu: null } } } })).toEqual(
      [],
    );
  });

  it.each([
    [{ "openshell.gatway": {} }, " must NOT have additional properties"],
    [{ "openshell.gateway": { database_url: "x" } }, "/openshell.gateway must NOT have additional properties"],
    [{ "openshell.gateway": { disable_tls: "no" } }, "/openshell.gateway/disable_tls must be boolean,null"],
    [
      { "openshell.drivers.kubernetes.sandbox_runtime": { pod_anti_affinity: "yes" } },
      "/openshell.drivers.kubernetes.sandbox_runtime/pod_anti_affinity must be equal to one of the allowed values",
    ],
    [
      { "openshell.drivers.kubernetes": { workspace_default_storage_size: "2 GB" } },
      expect.stringMatching(/workspace_default_storage_size must match pattern/),
    ],
    [{ "openshell.drivers.kubernetes": { sandbox_uid: 2 ** 60 } }, expect.stringMatching(/sandbox_uid must be <=/)],
    [
      { "openshell.drivers.kubernetes": { image_pull_secrets: [null] } },
      expect.stringMatching(/image_pull_secrets\/0 must be string/),
    ],
    [resources({ limits: { "nvidia.com/gpu": "0.5" } }), /limits\/nvidia.com~1gpu must match pattern/],
    [resources({ requests: { "example.com/nic": "1500m" } }), /requests\/example.com~1nic must match pattern/],
    [expression({ key: "a b", operator: "Exists" }), /matchExpressions\/0\/key must match pattern/],
    [expression({ key: "a", operator: "In" }), /matchExpressions\/0 must have required property 'values'/],
    [expression({ key: "a", operator: "In", values: [] }), /values must NOT have fewer than 1 items/],
    [expression({ key: "a", operator: "In", values: null }), /values must be array/],
    [expression({ key: "a", operator: "Exists", values: ["b"] }), /values must NOT have more than 0 items/],
    [expression({ key: "a", operator: "Gt", values: ["b"] }), /values\/0 must match pattern/],
    [expression({ key: "a", operator: "Lt", values: ["1", "2"] }), /values must NOT have more than 1 items/],
    ...["0s", "999ms"].map((provisioning_timeout): [object, RegExp] => [
      { "openshell.drivers.kubernetes": { provisioning_timeout } },
      /provisioning_timeout must match pattern/,
    ]),
  ])("refuses %j", (config, error) => {
    expect(errors(config)).toEqual(
      expect.arrayContaining([error instanceof RegExp ? expect.stringMatching(error) : error]),
    );
  });

  it.each([
    resources({ requests: { "nvidia.com/gpu": "1" }, limits: { "nvidia.com/gpu": "1", cpu: "0.5", memory: "1.5Gi" } }),
    resources({ limits: { "nvidia.com/gpu": "", "example.com/nic": null, "example.com/fpga": "2k" } }),
    expression({ key: "a", operator: "Exists", values: [] }),
    expression({ key: "a", operator: "DoesNotExist", values: null }),
    expression({ key: "example.com/a", operator: "NotIn", values: ["b", ""] }),
    expression({ key: "cpus", operator: "Gt", values: ["16"] }),
    { "openshell.drivers.kubernetes": { provisioning_timeout: "1000ms" } },
  ])("accepts %j", (config) => {
    expect(errors(config)).toEqual([]);
  });
});

const leaves = Object.entries(tables).flatMap(([name, schema]) => leavesOf(jsonSchemaOf(schema), [name]));

describe("a default", () => {
  const sections = settingsReference().split(/^## `\[/m);
  it.each(leaves)("of %s is the same for an empty file, in the JSON Schema and in the reference", (_, path, schema) => {
    const [table = "", ...keys] = path;
    // A table that is not there unless somebody writes it has nothing to compare with but what is said of it.
    const isThere = valueAt(defaults, path.slice(0, -1)) !== undefined;
    const value = isThere ? valueAt(defaults, path) : schema.default;
    if ("default" in schema) expect(schema.default).toEqual(value);
    const section = sections.find((one) => one.startsWith(`${[table, ...keys.slice(0, -1)].join(".")}]`)) ?? "";
    const written = new RegExp(`^### \`${keys.at(-1)}\`$[^]*?^- Default: (.*)$`, "m").exec(section)?.[1] ?? "";
    const toml = /^`(.*)`$/.exec(written)?.[1];
    if (toml === undefined) expect(["not set", "none; required in this table"]).toContain(written);
    expect(toml === undefined ? undefined : parse(`value = ${toml}`).value).toEqual(value);
  });
});

/** Each setting below a table, with its path and its own schema. */
function leavesOf(schema: JsonSchema, path: string[]): [string, string[], JsonSchema][] {
  return Object.entries(schema.properties ?? {}).flatMap(([key, inner]): [string, string[], JsonSchema][] => {
    const at = [...path, key];
    return isTable(inner) ? leavesOf(inner, at) : [[at.join("."), at, inner]];
  });
}

/** A Kubernetes object inside a setting is a value: nothing in it has a sentence of its own. */
function isTable({ properties }: JsonSchema): boolean {
  return Object.values(properties ?? {}).some(({ description }) => description !== undefined);
}

describe("maps with reserved keys", () => {
  it("are found in the schemas", () => {
    const found = settingsWithReservedKeys().map(({ key, reserved }) => `${key}: ${reserved.length}`);
    expect(found).toEqual(
      [
        "managed_namespaces.labels: 2",
        "managed_namespaces.annotations: 1",
        ...["supervisor", "workload"].flatMap((pod) => [`${pod}_labels: 1`, `${pod}_annotations: 1`]),
      ].map((each) => `openshell.drivers.kubernetes.${each}`),
    );
  });
});

describe("the reference", () => {
  const text = settingsReference();

  it("explains every setting", () => {
    for (const [table, schema] of Object.entries(tables)) {
      expect(text).toContain(`## \`[${table}]\``);
      for (const key of Object.keys(schema.shape))
        expect(text).toMatch(new RegExp(`### \`${key}\`|## \`\\[${table}\\.${key}\\]\``));
    }
  });

  it("says of a setting what the chart makes of it", () => {
    const says = settingsReference(new Map([["openshell.drivers.kubernetes.namespace", "`a.b` of <c>"]]));
    expect(says.match(/^- With the chart: .*$/gm)).toEqual(["- With the chart: `a.b` of \\<c>"]);
    expect(text).not.toContain("- With the chart");
  });

  it("names no setting that is here among those that are not", () => {
    const here = new Set(leaves.map(([name]) => name));
    const missing = [...notHere].flatMap(([table, keys]) => [...keys.keys()].map((key) => `${table}.${key}`));
    expect(missing.filter((name) => here.has(name))).toEqual([]);
    for (const name of missing) expect(text).toContain(`| \`${name}\` |`);
  });

  it("has a sentence for every setting", () => {
    for (const schema of Object.values(tables)) {
      for (const [key, value] of Object.entries(schema.shape))
        expect(value.meta()?.description ?? "", key).not.toBe("");
    }
  });
});
