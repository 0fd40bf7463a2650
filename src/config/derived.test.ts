import { Ajv } from "ajv";
import { describe, expect, it } from "vitest";
import {
  defaultSettings,
  gatewayConfigSchema,
  kubernetesSchema,
  settingsReference,
  settingsWithReservedKeys,
  tables,
} from "./index.ts";

const validate = new Ajv({ strict: false, allErrors: true }).compile(gatewayConfigSchema());

function errors(config: unknown): string[] {
  validate(config);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

const settings = defaultSettings();
const defaults = { "openshell.gateway": settings.gateway, "openshell.drivers.kubernetes": settings.kubernetes };

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
  ])("refuses %j", (config, error) => {
    expect(errors(config)).toEqual(expect.arrayContaining([error]));
  });
});

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

  it("takes its defaults from the schema", () => {
    expect(text).toContain(
      `- Default: \`"${kubernetesSchema.shape.workspace_default_storage_size.parse(undefined)}"\``,
    );
  });

  it("says of a setting what the chart makes of it", () => {
    const says = settingsReference(new Map([["openshell.drivers.kubernetes.namespace", "`a.b` of <c>"]]));
    expect(says.match(/^- With the chart: .*$/gm)).toEqual(["- With the chart: `a.b` of \\<c>"]);
    expect(text).not.toContain("- With the chart");
  });

  it("has a sentence for every setting", () => {
    for (const schema of Object.values(tables)) {
      for (const [key, value] of Object.entries(schema.shape))
        expect(value.meta()?.description ?? "", key).not.toBe("");
    }
  });
});
