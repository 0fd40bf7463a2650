import { readdirSync, readFileSync } from "node:fs";
import { isIPv4, isIPv6 } from "node:net";
import { join } from "node:path";
import { Ajv } from "ajv";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import packageJson from "../../package.json" with { type: "json" };
import type { JsonSchema } from "../config/index.ts";
import { chartDirectory, repository } from "./_helm.ts";
import { leaves as samples } from "./_leaves.ts";
import { usedValues } from "./_values.ts";
import { synthesize } from "./chart.ts";
import { guardSentences } from "./guards.ts";
import { valuesReference } from "./values-reference.ts";
import { defaultValues } from "./values-schema.ts";
import { valuesDescription, valuesJsonSchema } from "./values-yaml.ts";

const files = synthesize();

describe("the chart", () => {
  it("is committed as it is generated", () => {
    const committed = readdirSync(chartDirectory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
    expect(committed.sort()).toEqual([...files.keys()].map((path) => join(chartDirectory, path)).sort());
    for (const [path, content] of files)
      expect(readFileSync(join(chartDirectory, path), "utf8"), `${path}: run npm run synth`).toBe(content);
  });

  it("is the same twice in one process", () => {
    expect([...synthesize()]).toEqual([...files]);
  });

  it("reads every value", () => {
    const used = usedValues();
    const isUsed = (path: readonly string[]) => path.some((_, index) => used.has(path.slice(0, index + 1).join(".")));
    const unused = leaves(defaultValues).filter((path) => !isUsed(path));
    expect(unused.map((path) => path.join("."))).toEqual([]);
  });

  it("reads no part of a map whose keys are the operator's: one that was nulled would have its default back", () => {
    const maps = openMaps(valuesJsonSchema() as Schema);
    expect(maps).toEqual(expect.arrayContaining(["resources.limits", "podLabels"]));
    const parts = [...usedValues()].filter((path) => maps.some((map) => path.startsWith(`${map}.`)));
    expect(parts).toEqual([]);
  });

  it("looks nothing up and has nothing random in it", () => {
    for (const [path, content] of files) {
      if (!path.startsWith("templates/")) continue;
      const code = [...content.matchAll(/\{\{.*?\}\}/gs)]
        .map(([action]) => action.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""'))
        .join();
      expect(code, path).not.toMatch(
        /\b(lookup|rand\w+|uuidv4|now|genCA|genSigned\w*|genSelfSigned\w*|genPrivateKey|htpasswd|bcrypt|getHostByName)\b/,
      );
    }
  });

  it("takes its version from package.json", () => {
    expect(parse(files.get("Chart.yaml") ?? "")).toMatchObject({
      name: "openshell",
      version: packageJson.version,
      appVersion: packageJson.version,
    });
  });

  it("has a values.yaml that says the defaults, each under a sentence", () => {
    const text = files.get("values.yaml") ?? "";
    expect(parse(text)).toEqual(defaultValues);
    const lines = text.split("\n");
    for (const [index, line] of lines.entries()) {
      if (
        /^\s*[A-Za-z]+:/.test(line) &&
        /^ {0,6}[a-z][A-Za-z]*:/.test(line) &&
        !line.includes("cpu:") &&
        !line.includes("memory:")
      ) {
        expect(lines[index - 1], line).toMatch(/^\s*# /);
      }
    }
  });
});

describe("values.schema.json", () => {
  const validate = new Ajv({ strict: false, formats: { ipv4: isIPv4, ipv6: isIPv6 }, allErrors: true }).compile(
    valuesJsonSchema(),
  );
  const errors = (values: unknown) => {
    validate(values);
    return (validate.errors ?? []).map(
      ({ instancePath, message, params }) =>
        `${instancePath} ${message}${"additionalProperty" in params ? `: ${params.additionalProperty}` : ""}`,
    );
  };

  it("accepts the defaults, nothing at all, and every preset", () => {
    expect(errors(defaultValues)).toEqual([]);
    expect(errors({})).toEqual([]);
    for (const name of readdirSync(join(repository, "values"))) {
      expect(errors(parse(readFileSync(join(repository, "values", name), "utf8"))), name).toEqual([]);
    }
  });

  it("lets a parent chart have its global values and a condition", () => {
    expect(errors({ enabled: true, global: { storageClass: "x" } })).toEqual([]);
  });

  it.each([
    [{ replicas: 1 }, " must NOT have additional properties: replicas"],
    [{ service: { port: "8080" } }, "/service/port must be integer"],
    [{ service: { port: 70_000 } }, "/service/port must be <= 65535"],
    [{ gateway: { image: { tagg: "x" } } }, "/gateway/image must NOT have additional properties: tagg"],
    [
      { sandboxNamespace: { podSecurity: "none" } },
      "/sandboxNamespace/podSecurity must be equal to one of the allowed values",
    ],
    [
      { gatewayConfig: { "openshell.drivers.kubernetes": { namespce: "x" } } },
      "/gatewayConfig/openshell.drivers.kubernetes must NOT have additional properties: namespce",
    ],
  ])("refuses %j with the path", (values, error) => {
    expect(errors(values)).toContain(error);
  });
});

describe("a text", () => {
  /** What has no form that the schema could hold it to. */
  const free = [
    // Users of the API server may have any name.
    "admissionPolicy.agentSandboxUsers.0",
    // A guard looks at it, and says how a schedule is written.
    "pkiInitJob.renewalSchedule",
  ];
  const validate = new Ajv({ strict: false, formats: { ipv4: isIPv4, ipv6: isIPv6 } }).compile(valuesJsonSchema());
  const isTaken = (path: string, text: string) =>
    validate(path.split(".").reduceRight<unknown>((inner, key) => (key === "0" ? [inner] : { [key]: inner }), text));

  it("that means nothing is refused, wherever one may stand", () => {
    const texts = textsOf(valuesDescription());
    expect(texts.length).toBeGreaterThan(50);
    expect(texts.filter((path) => isTaken(path, "No such value!"))).toEqual(free);
  });

  it.each([
    ["server.jwtSecretName", ["", "a", "a.b-c"], ["A", "-a", "a..b", "a_b", "a".repeat(254)]],
    ["tlsRoute.gateway.namespace", ["", "a-b"], ["a.b", "a".repeat(64)]],
    ["imagePullSecrets.0.name", ["a"], [""]],
    ["ingress.host", ["", "gw", "gw.example.com"], ["*.example.com", "a.1", "1.2.3.4", "a:1", `${"a".repeat(64)}.b`]],
    ["tlsRoute.hostnames.0", ["gw.example.com", "*.example.com"], ["", "*", "a.*.com", "*a.com"]],
    ["pkiInitJob.serverIpAddresses.0", ["192.0.2.1", "::1", "2001:db8::1"], ["", "1.2.3", "[::1]", "::1/64", "gw"]],
    [
      "service.loadBalancerSourceRanges.0",
      ["0.0.0.0/0", "192.0.2.0/24", "::/0"],
      ["", "192.0.2.1", "1.2.3.4/33", "::/129"],
    ],
    ["service.loadBalancerClass", ["", "internal", "service.k8s.aws/nlb"], ["a b", "/a", "a/b/c"]],
    ["certManager.serverIssuerRef.kind", ["", "Issuer"], ["issuer", "A b"]],
    ["global.image.registry", ["", "localhost:5000", "r.example.com/team/"], ["https://r.example.com", "a b"]],
    ["gateway.image.repository", ["", "a/b_c", "r.example.com:5000/a"], ["a:1", "a@sha256:b", "A"]],
    ["gateway.image.tag", ["", "1.2.3-rc.1"], [":1", "a/b", "a".repeat(129)]],
  ])("of %s has the form that the cluster takes", (path, right, wrong) => {
    expect(right.filter((text) => !isTaken(path, text))).toEqual([]);
    expect(wrong.filter((text) => isTaken(path, text))).toEqual([]);
  });
});

describe("the samples of other tests", () => {
  it("have another value for everything that may have one", () => {
    const names = new Set(samples().map(({ name }) => name));
    const without = leaves(defaultValues)
      .map((path) => path.join("."))
      .filter((path) => ![...names].some((name) => name === path || path.startsWith(`${name}.`)));
    expect(without).toEqual(["replicaCount", "gatewayConfig"]);
  });
});

describe("a guard", () => {
  it("has a test with its words", () => {
    const tests = readdirSync(import.meta.dirname)
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => readFileSync(join(import.meta.dirname, name), "utf8"))
      .join();
    expect(guardSentences.filter((sentence) => !tests.includes(sentence))).toEqual([]);
  });
});

describe("the reference of the values", () => {
  const text = valuesReference();

  it("is committed as it is generated", () => {
    expect(readFileSync(join(repository, "docs", "reference", "values.md"), "utf8")).toBe(text);
  });

  it("has every value with its default, and every refusal", () => {
    for (const path of leaves(defaultValues).map((steps) => steps.join(".")))
      expect(text.includes(`| \`${path}\` |`) || text.includes(`| \`${path.replace(/\.[^.]*$/, "")}\` |`), path).toBe(
        true,
      );
    expect(text).toContain("| `service.port` | whole number | `8080` |");
    for (const sentence of guardSentences) expect(text).toContain(`- ${sentence.slice(0, 40)}`);
  });
});

function leaves(value: unknown, path: readonly string[] = []): string[][] {
  if (typeof value !== "object" || value === null || Array.isArray(value) || Object.keys(value).length === 0)
    return [[...path]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, [...path, key]));
}

/** Dotted paths of what takes a text that is no choice among some. */
function textsOf({ properties, items, anyOf = [], ...schema }: JsonSchema, path: readonly string[] = []): string[] {
  if (properties !== undefined)
    return Object.entries(properties).flatMap(([key, inner]) => textsOf(inner, [...path, key]));
  if (items !== undefined) return textsOf(items, [...path, "0"]);
  const isText = [schema, ...anyOf].some(({ type, enum: choices }) => type === "string" && choices === undefined);
  return isText ? [path.join(".")] : [];
}

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
}

/** Dotted paths of what takes keys that the schema does not name. */
function openMaps(schema: Schema, path: readonly string[] = []): string[] {
  const { properties = {}, patternProperties, additionalProperties } = schema;
  if (path.length > 0 && (patternProperties ?? typeof additionalProperties === "object")) return [path.join(".")];
  return Object.entries(properties).flatMap(([key, inner]) => openMaps(inner, [...path, key]));
}
