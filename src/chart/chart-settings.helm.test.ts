/** What the reference says about settings under the chart, against what the chart does. upgrade.helm.test.ts has which of them gatewayConfig can change. */
import { parse } from "smol-toml";
import { describe, expect, it, vi } from "vitest";
import { helmPrograms, objectsOf } from "./_helm.ts";
import { type Leaf, leaves } from "./_leaves.ts";
import { type Documents, renderMany } from "./_many.ts";
import { chartSettingsSay, filledSettings, ownSettings, settingsOf } from "./chart-settings.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
type Table = Readonly<Record<string, unknown>>;

const rows = [ownSettings, filledSettings].flatMap((tables) =>
  settingsOf(tables).map(({ table, key, says }) => ({ key: `${table}.${key}`, says })),
);
const isTable = (value: unknown): value is Table =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const keysIn = (value: unknown, path: string): string[] =>
  isTable(value)
    ? Object.entries(value).flatMap(([key, inner]) => keysIn(inner, path === "" ? key : `${path}.${key}`))
    : [path];

function objectOf(documents: Documents | Error | undefined, kind: string) {
  if (!(documents instanceof Map)) throw documents ?? new Error("nothing was rendered");
  const [, text = ""] = [...documents].find(([name]) => name.split(" ")[1] === kind) ?? [];
  const [object] = objectsOf(text);
  if (object === undefined) throw new Error(`no ${kind} was rendered`);
  return object;
}

const tomlOf = (documents: Documents | Error | undefined) =>
  parse(objectOf(documents, "ConfigMap").data["gateway.toml"]) as Table;

/** What a rendering makes of a setting; of a file, the volume that it is on. */
function decided(documents: Documents | Error | undefined, key: string): unknown {
  const value = key.split(".").reduce<unknown>((at, step) => (isTable(at) ? at[step] : undefined), tomlOf(documents));
  if (typeof value !== "string" || !value.startsWith("/")) return value;
  const { containers, volumes } = objectOf(documents, "StatefulSet").spec.template.spec;
  const mount = containers[0].volumeMounts.find(({ mountPath }: { mountPath: string }) =>
    value.startsWith(`${mountPath}/`),
  );
  return [value, volumes.find(({ name }: { name: string }) => name === mount?.name)];
}

describe.skipIf(helmPrograms.length === 0)("the settings that the chart decides", () => {
  it("are all that are in a gateway.toml whose gatewayConfig says nothing", () => {
    const image = { repository: "agents/base", pullPolicy: "Always" };
    const [documents] = renderMany(program, [{ sandbox: { image } }]);
    expect(keysIn(tomlOf(documents), "").sort()).toEqual(["openshell.version", ...chartSettingsSay.keys()].sort());
  });

  it("follow each value that the reference names", () => {
    const all = leaves();
    const named = rows.flatMap(({ key, says }) =>
      [...says.matchAll(/`([^`]+)`/g)].map(([, value = ""]) => ({ key, value })),
    );
    expect(named.length).toBeGreaterThan(rows.length);
    const ofValue = ({ name }: Leaf, value: string) => name === value || name.startsWith(`${value}.`);
    const changes = named.flatMap(({ key, value }) =>
      all.filter((leaf) => ofValue(leaf, value)).map(({ before, after }) => ({ key, value, before, after })),
    );
    const rendered = renderMany(
      program,
      changes.flatMap(({ before, after }) => [before, after]),
    );
    const followed = changes.filter(({ key }, index) => {
      const [before, after] = [rendered[2 * index], rendered[2 * index + 1]].map((each) => decided(each, key));
      return JSON.stringify(before) !== JSON.stringify(after);
    });
    const pairs = (some: readonly { key: string; value: string }[]) => [
      ...new Set(some.map(({ key, value }) => `${key} follows ${value}`)),
    ];
    expect(pairs(followed).sort()).toEqual(pairs(named).sort());
  });
});
