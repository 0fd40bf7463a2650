import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { Readers } from "./_readers.ts";
import { type JsonSchema, jsonSchemaOf, keysOf, settingRules, tables } from "./index.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

/** Settings that no line of the gateway reads by their name, and why that is right. */
const others: Readonly<Record<string, { readonly why: string; readonly rule?: true; readonly idle?: true }>> = {
  "openshell.gateway.name": { why: "files of other gateways have it", idle: true },
  "openshell.gateway.credential_storage": { why: "files of other gateways have it", idle: true },
  "openshell.gateway.credential_storage.key_encryption_key_path": {
    why: "files of other gateways have it",
    idle: true,
  },
  "openshell.gateway.server_sans": { why: "the chart puts them into the certificates (src/chart/pki.ts)" },
  "openshell.gateway.disable_tls": {
    why: "the gateway has TLS where the table tls is there, and both never are",
    rule: true,
  },
  "openshell.gateway.gateway_jwt.gateway_id": { why: "it is the same as the driver's, which is read", rule: true },
  "openshell.drivers.kubernetes.allowed_pod_labels": { why: "by a variable in src/driver/request.ts" },
  "openshell.drivers.kubernetes.allowed_pod_annotations": { why: "by a variable in src/driver/request.ts" },
};

interface Found {
  readonly path: string;
  readonly name: string;
  readonly siblings: readonly string[];
  readonly description: string;
}

/** Every setting and every table below a table. */
function settingsOf(table: string, { properties = {} }: JsonSchema): Found[] {
  const siblings = Object.keys(properties);
  return Object.entries(properties).flatMap(([name, inner]) => {
    const path = `${table}.${name}`;
    const own = { path, name, siblings, description: inner.description ?? "" };
    return isTable(inner) ? [own, ...settingsOf(path, inner)] : [own];
  });
}

/** A Kubernetes object inside a setting is a value. */
function isTable({ properties = {} }: JsonSchema): boolean {
  return Object.values(properties).some(({ description }) => description !== undefined);
}

const settings = Object.entries(tables).flatMap(([name, schema]) => settingsOf(name, jsonSchemaOf(schema)));

describe("a setting", () => {
  let readers: ReadonlyMap<string, readonly string[]>;
  beforeAll(() => {
    using program = new Readers("gateway/main.ts");
    readers = new Map(settings.map(({ path, name, siblings }) => [path, program.readersOf(name, siblings)]));
  });

  it("is read by the gateway, or it is said here why not", () => {
    expect(settings.length).toBeGreaterThan(90);
    const unread = settings.map(({ path }) => path).filter((path) => readers.get(path)?.length === 0);
    expect(unread.sort()).toEqual(Object.keys(others).sort());
  });

  it("that nothing reads says so in the reference; one that is read in another way is held by a rule", () => {
    const ruled = new Set(settingRules.flatMap(({ refusedWhen }) => keysOf(refusedWhen)));
    for (const { path, description } of settings) {
      const isIdle = others[path]?.idle === true;
      expect(/not read/.test(description), path).toBe(isIdle);
      if (others[path]?.rule) expect(ruled, path).toContain(path);
    }
  });
});

describe("the look for readers", () => {
  const probe = `
    import { defaultSettings } from "./config/index.ts";
    const { kubernetes, gateway: { auth: { allow_unauthenticated_users: everyone } } } = defaultSettings();
    // kubernetes.sandbox_gid, kubernetes["workload_labels"]
    const other = { sandbox_gid: 1, workspace_storage_class: "kubernetes.sandbox_gid" };
    const copy = { ...kubernetes, provisioning_timeout: "1h" };
    export const read = [kubernetes["sandbox_uid"], kubernetes.supervisor_labels, other.sandbox_gid, everyone, copy];
    kubernetes.namespace = "written";
  `;
  let program: Readers;
  beforeAll(() => {
    program = new Readers("probe.ts", { "probe.ts": probe });
  });
  afterAll(() => program[Symbol.dispose]());

  it.each([
    ["sandbox_uid", true],
    ["allow_unauthenticated_users", true],
    ["supervisor_labels", true],
    ["sandbox_gid", false],
    ["workload_labels", false],
    ["workspace_storage_class", false],
    ["provisioning_timeout", false],
    ["namespace", false],
  ])("says of %s, which is read or only named: %s", (name, isRead) => {
    const { siblings = [] } = settings.find((one) => one.name === name) ?? {};
    expect(program.readersOf(name, siblings)).toEqual(isRead ? ["probe.ts"] : []);
  });
});
