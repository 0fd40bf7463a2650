import { App, Chart } from "cdk8s";
import { describe, expect, it } from "vitest";
import {
  and,
  call,
  choose,
  type Expr,
  each,
  either,
  entries,
  equal,
  expression,
  forEach,
  guard,
  guards,
  HelmObject,
  Helper,
  helm,
  inserted,
  more,
  not,
  optional,
  or,
  orElse,
  output,
  Part,
  printBlock,
  printCondition,
  printExpression,
  printObjects,
  render,
  renderLines,
  renderPart,
  text,
  valueReferences,
  variable,
  when,
  write,
} from "./index.ts";

const { values, used } = valueReferences("test", {
  gateway: { replicas: 1, name: "x", flag: false },
  list: [] as string[],
  labels: {} as Record<string, string>,
});

function print(manifest: Record<string, unknown>, condition?: Expr<unknown>): string {
  const chart = new Chart(new App(), "test");
  const object = new HelmObject(chart, "object", {
    apiVersion: "v1",
    kind: "Test",
    manifest: { metadata: { name: "test" }, ...manifest },
    ...(condition === undefined ? {} : { when: condition }),
  });
  return printObjects([object]);
}

const body = (manifest: Record<string, unknown>) => print(manifest).split("  name: test\n")[1];

describe("a reference to a value", () => {
  it("prints where it is kept", () => {
    expect(printExpression(values.gateway.replicas)).toBe("$.v.gateway.replicas");
    expect(printExpression(values.list)).toBe("$.v.list");
  });

  it("to a value that does not exist does not compile, and throws", () => {
    // @ts-expect-error there is no such value
    expect(() => values.gateway.replica).toThrow("values.gateway.replica is not in the values schema");
    // @ts-expect-error the entries of a map have no names of their own
    expect(() => values.labels.team).toThrow("is not in the values schema");
  });

  it("of the wrong type does not compile", () => {
    // @ts-expect-error a number is no condition on text
    equal<string>(values.gateway.replicas, "1");
  });

  it("is remembered once it is printed", () => {
    printExpression(values.gateway.name);
    expect(used()).toContain("gateway.name");
  });
});

describe("an expression", () => {
  it("nests in parentheses and quotes what Go reads", () => {
    expect(printExpression(orElse(values.gateway.name, 'a "b" \n\u007f'))).toBe(
      'default "a \\"b\\" \\n\\u007f" $.v.gateway.name',
    );
    expect(printExpression(text`${helm.releaseName}-100%`)).toBe('printf "%v-100%%" $.Release.Name');
    expect(printExpression(choose(values.gateway.flag, "a", "b"))).toBe(
      'ternary "a" "b" (not (empty $.v.gateway.flag))',
    );
    expect(printExpression(more(values.gateway.replicas, 1))).toBe("gt (int64 $.v.gateway.replicas) 1");
  });

  it("in a text has what is known now, and a text, in one format", () => {
    const name = text`${helm.releaseName}-${"50%"}`;
    expect(printExpression(text`${name}.${helm.releaseNamespace}:${80}`)).toBe(
      'printf "%v-50%%.%v:80" $.Release.Name $.Release.Namespace',
    );
    expect(printExpression(text`${"a"}-${1}%`)).toBe('"a-1%"');
  });

  it("is no longer than what it decides", () => {
    const [flag, list] = [values.gateway.flag, values.list];
    expect(printExpression(and(true, flag, and(list, or(false, helm.releaseName))))).toBe(
      "and $.v.gateway.flag $.v.list $.Release.Name",
    );
    expect(printExpression(choose(and(equal(list, list), not(flag)), "a", "b"))).toBe(
      'ternary "a" "b" (and (eq $.v.list $.v.list) (not $.v.gateway.flag))',
    );
    const isSaid = not(call("empty", list));
    expect(printExpression(and(flag, isSaid))).toBe("and $.v.gateway.flag (not (empty $.v.list))");
    expect(printCondition(and(flag, isSaid))).toBe("and $.v.gateway.flag $.v.list");
    expect(printCondition(not(or(isSaid, flag)))).toBe("not (or $.v.list $.v.gateway.flag)");
  });

  it("prints a whole number in a text through toJson, never as 8e+06", () => {
    expect(printExpression(text`port ${values.gateway.replicas}`)).toBe(
      'printf "port %v" (toJson $.v.gateway.replicas)',
    );
  });
});

describe("a manifest", () => {
  it("prints plain fields as YAML that needs no template", () => {
    expect(body({ a: [1, { b: "c", d: true }], e: {}, f: [], g: "yes", h: "x: y", i: undefined })).toBe(
      'a:\n  - 1\n  - b: c\n    d: true\ne: {}\nf: []\ng: "yes"\nh: "x: y"\n',
    );
  });

  it("prints braces of its own so that the engine leaves them alone", () => {
    expect(body({ a: "{{ .Values }}" })).toBe('a: "{{ "{{" }} .Values }}"\n');
  });

  it("prints an expression through toJson, wherever it is", () => {
    expect(body({ a: render(values.gateway.name), b: [render(values.list)] })).toBe(
      "a: {{ toJson $.v.gateway.name }}\nb:\n  - {{ toJson $.v.list }}\n",
    );
  });

  it("prints optional fields and entries, choices, loops and spreads", () => {
    const flag = values.gateway.flag;
    const condition = "$.v.gateway.flag";
    expect(body({ a: optional(flag, { b: 1 }) })).toBe(`{{- if ${condition} }}\na:\n  b: 1\n{{- end }}\n`);
    expect(body({ a: [optional(flag, "x")] })).toBe(`a:\n{{- if ${condition} }}\n  - x\n{{- end }}\n`);
    expect(body({ a: either(flag, 1, 2) })).toBe(`{{- if ${condition} }}\na: 1\n{{- else }}\na: 2\n{{- end }}\n`);
    expect(body({ a: [each(values.list, (item) => ({ name: render(item) }))] })).toBe(
      "a:\n{{- range $item1 := $.v.list }}\n  - name: {{ toJson $item1 }}\n{{- end }}\n",
    );
    expect(body({ a: { ...entries(values.labels), b: 1 } })).toBe(
      "a:\n{{- range $key, $value := $.v.labels }}\n  {{ toJson $key }}: {{ toJson $value }}\n{{- end }}\n  b: 1\n",
    );
    expect(body({ a: renderPart(values.gateway.name), b: { ...inserted(values.gateway.name), c: 1 } })).toBe(
      "a:\n{{ indent 2 $.v.gateway.name }}\nb:\n{{ indent 2 $.v.gateway.name }}\n  c: 1\n",
    );
    expect(body({ a: renderLines(values.gateway.name) })).toBe("a: |\n{{ indent 2 $.v.gateway.name }}\n");
  });

  it("may have parts that many have, printed without indent", () => {
    const part = new Part("part", { ...entries(values.labels), a: { b: 1 } });
    expect(part.print()).toBe(
      '{{- define "part" }}\n{{- range $key, $value := $.v.labels }}\n{{ toJson $key }}: {{ toJson $value }}\n{{- end }}\na:\n  b: 1\n{{- end }}\n',
    );
    expect(new Part("list", ["a", optional(values.gateway.flag, "b")]).print()).toBe(
      '{{- define "list" }}\n- a\n{{- if $.v.gateway.flag }}\n- b\n{{- end }}\n{{- end }}\n',
    );
    expect(printExpression(part.lines)).toBe('trim (include "part" $)');
  });

  it("shares its condition with its neighbours", () => {
    const chart = new Chart(new App(), "test");
    const conditions = [values.gateway.flag, values.gateway.flag, undefined, values.gateway.flag];
    const objects = conditions.map((condition, index) => {
      const props = { apiVersion: "v1", kind: "Test", manifest: { metadata: { name: "a" } } };
      return new HelmObject(chart, String(index), condition === undefined ? props : { ...props, when: condition });
    });
    const one = "---\napiVersion: v1\nkind: Test\nmetadata:\n  name: a\n";
    const start = "{{- if $.v.gateway.flag }}\n";
    expect(printObjects(objects)).toBe(`${start}${one}${one}{{- end }}\n${one}${start}${one}{{- end }}\n`);
  });

  it("is wrapped as a whole when it is conditional", () => {
    expect(print({}, not(values.gateway.flag))).toBe(
      "{{- if not $.v.gateway.flag }}\n---\napiVersion: v1\nkind: Test\nmetadata:\n  name: test\n{{- end }}\n",
    );
  });
});

describe("statements", () => {
  it("of a helper take the white space around them away", () => {
    const parts = variable<number>("n", 0);
    const helper = new Helper("x", () => [
      parts.declaration,
      forEach(values.list, (item) => [when(item, [parts.assign(1)], [write("no")])]),
      output(parts),
    ]);
    expect(helper.print()).toBe(
      '{{- define "x" }}\n{{- $n := 0 -}}\n{{- range $key0, $item0 := $.v.list -}}\n  {{- if $item0 -}}\n    {{- $n = 1 -}}\n  {{- else -}}\n    {{- "no" -}}\n  {{- end -}}\n{{- end -}}\n{{- $n -}}\n{{- end }}\n',
    );
    expect(printExpression(helper.include())).toBe('include "x" $');
    expect(printExpression(helper.include(expression({ kind: "variable", name: "item0" })))).toBe('include "x" $item0');
  });

  it("of a text keep every blank", () => {
    expect(
      printBlock([write("a\n"), when(values.gateway.flag, [write("{{b}}\n")]), output(helm.releaseName)], false),
    ).toBe('a\n{{ if $.v.gateway.flag }}{{ "{{" }}b}}\n{{ end }}{{ $.Release.Name }}');
  });

  it("refuse what begins alike under one condition", () => {
    const [flag, list, name] = [values.gateway.flag, values.list, values.gateway.name];
    const refusals = [and(flag, list), and(flag, name), flag, name].map((refusedWhen, index) => ({
      refusedWhen: refusedWhen as Expr<boolean>,
      sentence: String(index),
    }));
    expect(printBlock(guards(refusals), true).replaceAll(/\n */g, "")).toBe(
      [
        "{{- if $.v.gateway.flag -}}",
        ...['{{- if $.v.list -}}{{- fail "0" -}}{{- end -}}', '{{- if $.v.gateway.name -}}{{- fail "1" -}}{{- end -}}'],
        ...['{{- if true -}}{{- fail "2" -}}{{- end -}}', "{{- end -}}"],
        '{{- if $.v.gateway.name -}}{{- fail "3" -}}{{- end -}}',
      ].join(""),
    );
  });

  it("refuse with a sentence", () => {
    expect(printBlock([guard(values.gateway.flag, "no")], true).trim()).toBe(
      '{{- if $.v.gateway.flag -}}\n  {{- fail "no" -}}\n{{- end -}}',
    );
  });
});

describe("what all templates share", () => {
  it("is worked out by the first of them: the values over their defaults, and what is made of them", () => {
    const other = valueReferences("other", { gateway: { replicas: 1, name: "`" }, labels: {} }, ["sum"]);
    const sum = variable<number>("sum", 0);
    const shared = other.once("sum", sum, () => [sum.declaration, sum.assign(other.values.gateway.replicas)]);
    printExpression(other.values.labels);
    expect(other.helpers.map((helper) => helper.print()).join("")).toBe(`{{- define "other.overlay" }}
{{- $onto := $.onto -}}
{{- $tables := $.tables -}}
{{- range $key0, $item0 := $.given -}}
  {{- if hasKey $tables $key0 -}}
    {{- include "other.overlay" (dict "onto" (get $onto $key0) "given" $item0 "tables" (get $tables $key0)) -}}
  {{- else -}}
    {{- if not (kindIs "invalid" $item0) -}}
      {{- $_ := set $onto $key0 $item0 -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
{{- define "other.prepare" }}
{{- if not (hasKey $ "v") -}}
  {{- $_ := set $ "v" (fromJson \`{
    "gateway": {"replicas":1,"name":"\\u0060"},
    "labels": {}
  }\`) -}}
  {{- include "other.overlay" (dict "onto" $.v "given" $.Values.AsMap "tables" (fromJson \`{
    "gateway": {}
  }\`)) -}}
  {{- $sum := 0 -}}
  {{- $sum = $.v.gateway.replicas -}}
  {{- $_ := set $ "sum" $sum -}}
{{- end -}}
{{- end }}
`);
    expect(printExpression(shared)).toBe("$.sum");
    expect(printBlock([other.prepare], true)).toBe('\n{{- include "other.prepare" $ -}}');
  });

  it("is printed alike, whichever module of a chart was loaded first", () => {
    const printed = [false, true].map((isReversed) => {
      const defaults = { service: { port: 1 }, gateway: { name: "", tls: { secret: "" } } };
      const chart = valueReferences("other", defaults, ["name", "address"]);
      const modules = [
        () => chart.once("name", orElse(chart.values.gateway.name, chart.values.gateway.tls.secret)),
        () => chart.once("address", text`${expression({ kind: "root", path: "name" })}:${chart.values.service.port}`),
      ];
      const loaded = (isReversed ? modules.toReversed() : modules).map((load) => load());
      for (const each of loaded) printExpression(each);
      return chart.helpers.map((helper) => helper.print()).join("");
    });
    expect(printed[1]).toBe(printed[0]);
    expect(printed[0]).toMatch(/"gateway": \{"tls":\{\}\},\s+"service": \{\}.*\$ "name".*\$ "address"/s);
  });
});
