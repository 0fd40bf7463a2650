import fc from "fast-check";
import { parse, stringify } from "smol-toml";
import { describe, expect, it } from "vitest";
import { locateTomlKeys, type TomlPath } from "./toml-lines.ts";

const document = `# a comment with a = sign
title = "x # no comment"  # a comment

[a.b]
key = """
[not.a.table]
fake = 1 \\""" still
""""
after = '''
x = [
'''
dotted.key = 1
"quoted.key" = 'literal \\'
list = [
  1, # first
  { inner = 2, deep.er = [3] },
]

[[a.items]]
name = "one"

[[a.items]]
name = "two"
[a.items.sub]
value = 1
`;

describe("lines of TOML keys", () => {
  it("reads the example at all", () => {
    expect(() => parse(document)).not.toThrow();
  });

  it.each<[TomlPath, number]>([
    [["title"], 2],
    [["a", "b"], 4],
    [["a", "b", "key"], 5],
    [["a", "b", "after"], 9],
    [["a", "b", "dotted", "key"], 12],
    [["a", "b", "quoted.key"], 13],
    [["a", "b", "list"], 14],
    [["a", "b", "list", 0], 15],
    [["a", "b", "list", 1, "inner"], 16],
    [["a", "b", "list", 1, "deep", "er"], 16],
    [["a", "items", 0, "name"], 20],
    [["a", "items", 1, "name"], 23],
    [["a", "items", 1, "sub", "value"], 25],
  ])("finds %j", (path, line) => {
    expect(locateTomlKeys(document).lineOf(path)).toBe(line);
  });

  it("answers for a missing key with the table around it", () => {
    expect(locateTomlKeys(document).lineOf(["a", "b", "missing", "more"])).toBe(4);
    expect(locateTomlKeys(document).lineOf(["nowhere"])).toBeUndefined();
  });

  it("reads Windows line ends", () => {
    expect(locateTomlKeys("[a]\r\nb = 1\r\nc = 2\r\n").lineOf(["a", "c"])).toBe(3);
  });

  it("finds every key of every document, on a line that has its name", () => {
    const text = fc.string({ unit: "grapheme", maxLength: 8 });
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { depthSize: "small" },
        text,
        fc.integer(),
        fc.boolean(),
        fc.array(text, { maxLength: 3 }),
        tie("table"),
        fc.array(tie("table"), { maxLength: 3 }),
      ),
      table: fc.dictionary(fc.stringMatching(/^k[a-z0-9_-]{0,5}$/), tie("any"), { maxKeys: 4 }),
    }));
    fc.assert(
      fc.property(value.table, (table) => {
        const toml = stringify(table as Record<string, unknown>);
        const lines = locateTomlKeys(toml);
        for (const path of keyPaths(parse(toml))) {
          const line = lines.lineOf(path);
          expect(toml.split("\n")[(line ?? 0) - 1]).toContain(String(path.at(-1)));
        }
      }),
    );
  });

  it("never hangs or throws, whatever the text is", () => {
    const text = fc.oneof(fc.string(), fc.stringMatching(/^[ab=.,"'#\n[\]{}]{0,12}$/));
    fc.assert(fc.property(text, (toml) => void locateTomlKeys(toml)));
    locateTomlKeys("a=[}");
  });
});

/** Paths that end in a key; a table that only stands inside the header of another one has no key of its own. */
function keyPaths(value: unknown, path: TomlPath = []): TomlPath[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const step = Array.isArray(value) ? Number(key) : key;
    const here: TomlPath = [...path, step];
    return [...(typeof step === "string" ? [here] : []), ...keyPaths(inner, here)];
  });
}
