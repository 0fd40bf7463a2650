/** What an upgrade would do, seen from what is rendered: release.cluster.test.ts does it. */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv } from "ajv";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { JsonSchema } from "../config/index.ts";
import { chartDirectory, helmPrograms, objectsOf, type Rendered, render, template } from "./_helm.ts";
import { immutablePart, mutableKinds } from "./_immutable.ts";
import { leaves } from "./_leaves.ts";
import { type Documents, renderMany } from "./_many.ts";
import { ownSettings, settingsOf } from "./chart-settings.ts";
import { restartingChanges, silentChanges } from "./fixtures/changes.ts";
import { defaultValues } from "./values-schema.ts";
import { valuesDescription, valuesJsonSchema } from "./values-yaml.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);

/** Values that are in no object, and why. */
const inNoObject: Readonly<Record<string, string>> = {
  enabled: "a parent chart reads it",
  "preflight.enabled": "it only refuses",
  "pkiInitJob.enabled": "off is refused as long as the Job has something to make",
};

/** Settings that the chart decides by itself; the reference says so. */
const ofTheChart = new Set(settingsOf(ownSettings).map(({ table, key }) => `gatewayConfig.${table}.${key}`));

/** Each value rendered once, with everything that is rendered for others. */
const rendered = new Map<string, Documents | Error>();

function renderEach(values: readonly object[]): void {
  for (const [index, result] of renderMany(program, values).entries())
    rendered.set(JSON.stringify(values[index]), result);
}

function documentsWith(values: object): Documents {
  if (!rendered.has(JSON.stringify(values))) renderEach([values]);
  const documents = rendered.get(JSON.stringify(values));
  if (documents instanceof Map) return documents;
  throw documents;
}

const objects = new Map<string, Rendered>();

/** An object of a rendering; most are the same in many. */
function object(text = ""): Rendered {
  const known = objects.get(text) ?? (objectsOf(text)[0] as Rendered);
  objects.set(text, known);
  return known;
}

const documentOf = (documents: Documents, kind: string) =>
  [...documents].find(([name]) => name.split(" ")[1] === kind)?.[1];
const podTemplateOf = (documents: Documents) => object(documentOf(documents, "StatefulSet")).spec.template;
const checksumOf = (documents: Documents) =>
  /checksum\/gateway-config"?: (.+)/.exec(documentOf(documents, "StatefulSet") ?? "")?.[1];

describeWithHelm("an upgrade with another", () => {
  const all = leaves();
  beforeAll(() => renderEach(all.flatMap((leaf) => [leaf.before, leaf.after])));
  const isValid = new Ajv({ strict: false, formats: { ipv4: true, ipv6: true } }).compile(valuesJsonSchema());

  it.each(all.map((leaf) => [leaf.name, leaf] as const))("%s", (name, { isSetting, description, before, after }) => {
    const [old, now] = [documentsWith(before), documentsWith(after)];
    for (const values of [before, after]) expect(isValid(values) || isValid.errors).toBe(true);
    const changed = [...new Set([...old.keys(), ...now.keys()])].filter((key) => old.get(key) !== now.get(key));

    const isSilent = name in inNoObject || ofTheChart.has(name);
    if (isSilent) expect(changed, "in no object").toEqual([]);
    else
      expect(changed, "in some object, or it has no effect: see _leaves.ts for what it needs beside it").not.toEqual(
        [],
      );

    const configs = [old, now].map((documents) => documentOf(documents, "ConfigMap"));
    if (isSetting && !isSilent) expect(configs[0], "gateway.toml").not.toBe(configs[1]);
    // One template of the Pod for one configuration: the gateway is started anew once, and only where it has to read another one.
    if (!/Override$|^commonLabels$/.test(name))
      expect(checksumOf(old) === checksumOf(now), "the checksum").toBe(configs[0] === configs[1]);

    const both = changed.filter((key) => old.has(key) && now.has(key) && !mutableKinds.test(key));
    const broken = both.filter((key) => {
      const [left, right] = [old, now].map((documents) => immutablePart(object(documents.get(key))));
      return left !== undefined && right !== undefined && JSON.stringify(left) !== JSON.stringify(right);
    });
    if (description.includes("cannot be changed later")) expect(broken, "as its help says").not.toEqual([]);
    else expect(broken, "immutable").toEqual([]);
  });
});

describeWithHelm("an upgrade", () => {
  // As release.cluster.test.ts does it.
  const changes = silentChanges.map((change) => [Object.keys(change).join(), change] as const);
  beforeAll(() =>
    renderEach([{}, ...silentChanges, ...Object.entries(restartingChanges).map(([key, value]) => ({ [key]: value }))]),
  );

  it.each(changes)("with another %s leaves the gateway's Pod as it is", (_, change) => {
    expect(podTemplateOf(documentsWith(change))).toEqual(podTemplateOf(documentsWith({})));
  });

  it.each(Object.entries(restartingChanges))("with another %s makes it a new one", (key, change) => {
    expect(podTemplateOf(documentsWith({ [key]: change }))).not.toEqual(podTemplateOf(documentsWith({})));
  });

  it("to a newer chart keeps every name and selector, whatever the version is", () => {
    const selectors = render(program, { presets: ["conformance"] })
      .flatMap(({ spec }) => [spec?.selector, spec?.podSelector])
      .filter((one) => one !== undefined);
    expect(JSON.stringify(selectors)).not.toContain("helm.sh/chart");
    expect(JSON.stringify(selectors)).not.toContain("app.kubernetes.io/version");
  });

  it("renders many at once as it renders one", () => {
    const values = { podLabels: { a: "b" }, gatewayConfig: { "openshell.gateway": { log_level: "debug" } } };
    const one = new Set(
      template(program, { values })
        .split(/^---\n# Source: .*\n/m)
        .map((text) => text.trim()),
    );
    const many = [...documentsWith(values).values()].map((text) => text.trim());
    expect(many.filter((text) => !one.has(text))).toEqual([]);
    expect(many).toHaveLength(one.size - 1);
  });
});

describeWithHelm("values of the previous release, used again", () => {
  const folder = mkdtempSync(join(tmpdir(), "openshell-values-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(helmPrograms)("render as if they were this release's own, with %s", (each) => {
    // --reuse-values gives the new templates the old values.yaml in place of their own.
    const reused = join(folder, each.replaceAll("/", "-"));
    cpSync(chartDirectory, reused, { recursive: true });
    cpSync(join(import.meta.dirname, "fixtures", "values-0.1.yaml"), join(reused, "values.yaml"));
    const values = { presets: ["production"] };
    expect(template(each, { ...values, chart: reused })).toBe(template(each, values));
  });

  it("render so without any of the values that came later: whatever a release did not know has its default", () => {
    // As an older values.yaml than any: it knows nothing.
    const reused = join(folder, "knows-nothing");
    cpSync(chartDirectory, reused, { recursive: true });
    writeFileSync(join(reused, "values.yaml"), "{}\n");
    expect(template(program, { presets: ["production"], chart: reused })).toBe(
      template(program, { presets: ["production"] }),
    );
    // All but the one that values.yaml has no default for.
    const nothing = ({ properties = {} }: JsonSchema): object =>
      Object.fromEntries(
        Object.entries(properties)
          .filter(([key]) => key !== "enabled" || properties.enabled?.default !== undefined)
          .map(([key, inner]) => [key, inner.properties === undefined ? null : nothing(inner)]),
      );
    expect(template(program, { values: nothing(valuesDescription()) })).toBe(template(program));
    expect(documentsWith(defaultValues)).toEqual(documentsWith({}));
  });
});
