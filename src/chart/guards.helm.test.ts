import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { parse } from "yaml";
import { conditionHolds, defaultSettings, keysOf, settingRules } from "../config/index.ts";
import { helmPrograms, template } from "./_helm.ts";
import { settingIn } from "./gateway-toml.ts";
import { conditionOn } from "./guards.ts";
import { choose, expression, printExpression } from "./layer/index.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
type Table = Record<string, unknown>;

/** Every setting that a rule reads, with values that make a difference to it. */
const readSettings = [...new Set(settingRules.flatMap(({ refusedWhen }) => keysOf(refusedWhen)))];
const switches = [undefined, true, false];
const texts = [undefined, "", "a", "http://a", "https://a"];

describe.skipIf(helmPrograms.length === 0)("the rules on settings", () => {
  let chart: string;

  beforeAll(() => {
    chart = mkdtempSync(join(tmpdir(), "openshell-rules-"));
    mkdirSync(join(chart, "templates"));
    writeFileSync(join(chart, "Chart.yaml"), "apiVersion: v2\nname: rules\nversion: 0.0.0\n");
    const config = expression<Table>({ kind: "variable", name: "config" });
    const verdicts = settingRules
      .map(
        ({ refusedWhen }) =>
          `{{ ${printExpression(
            choose(
              conditionOn((key) => settingIn(config, key), refusedWhen),
              "1",
              "0",
            ),
          )} }}`,
      )
      .join("");
    const loop = `{{- range $config := $.Values.cases }}\n- "${verdicts}"\n{{- end }}\n`;
    writeFileSync(join(chart, "templates", "verdicts.yaml"), `verdicts:\n${loop}`);
  });

  afterAll(() => rmSync(chart, { recursive: true, force: true }));

  it("judge a configuration in Helm as they do in the gateway", () => {
    const { gateway, kubernetes } = defaultSettings();
    const defaults = { openshell: { gateway, drivers: { kubernetes } } };
    const settings = fc.record(
      Object.fromEntries(
        readSettings.map((key) => [
          key,
          fc.constantFrom<unknown>(...(typeof at(defaults, key) === "boolean" ? switches : texts)),
        ]),
      ),
    );
    let refused = 0;
    fc.assert(
      fc.property(fc.array(settings, { minLength: 100, maxLength: 150 }), (samples) => {
        const cases = samples.map((sample) => documentOf(sample));
        const verdicts = parse(template(program, { chart, values: { cases } })).verdicts as string[];
        for (const [index, document] of cases.entries()) {
          const lookup = (key: string) => at(document, key) ?? at(defaults, key);
          const expected = settingRules
            .map(({ refusedWhen }) => (conditionHolds(refusedWhen, lookup) ? "1" : "0"))
            .join("");
          refused += Number(expected.includes("1"));
          expect(verdicts[index], JSON.stringify(document)).toBe(expected);
        }
      }),
      // Shrinking a sample of a hundred costs hundreds of renderings and says no more: the message names the case.
      { numRuns: 3, endOnFailure: true },
    );
    expect(refused).toBeGreaterThan(0);
  });
});

/** Settings by TOML path as a document; a table that a rule only asks to be there is left to its own settings. */
function documentOf(sample: Readonly<Record<string, unknown>>): Table {
  const document: Table = {};
  for (const [key, value] of Object.entries(sample)) {
    const isTable = readSettings.some((other) => other.startsWith(`${key}.`));
    if (value === undefined || isTable) continue;
    const path = key.split(".");
    let table = document;
    for (const step of path.slice(0, -1)) {
      table[step] ??= {};
      table = table[step] as Table;
    }
    table[path.at(-1) ?? ""] = value;
  }
  return document;
}

function at(document: Table, key: string): unknown {
  return key
    .split(".")
    .reduce<unknown>(
      (value, step) => (typeof value === "object" && value !== null ? (value as Table)[step] : undefined),
      document,
    );
}
