import { App, Chart } from "cdk8s";
import { describe, expect, it } from "vitest";
import {
  choose,
  type Expr,
  each,
  either,
  entries,
  equal,
  expression,
  forEach,
  guard,
  HelmObject,
  Helper,
  helm,
  more,
  not,
  Once,
  optional,
  orElse,
  output,
  printBlock,
  printExpression,
  render,
  renderLines,
  text,
  valueReferences,
  variable,
  when,
  write,
} from "./index.ts";

const { values, used } = valueReferences({
  gateway: { replicas: 1, name: "x", flag: false },
  list: [] as string[],
  labels: {} as Record<string, string>,
});

function print(manifest: Record<string, unknown>, condition?: Expr<unknown>): string {
  const chart = new Chart(new App(), "test");
  return new HelmObject(chart, "object", {
    apiVersion: "v1",
    kind: "Test",
    manifest: { metadata: { name: "test" }, ...manifest },
    ...(condition === undefined ? {} : { when: condition }),
  }).print();
}

const body = (manifest: Record<string, unknown>) => print(manifest).split("  name: test\n")[1];

describe("a reference to a value", () => {
  it("prints its path and its default, which survive absent and null parents", () => {
    expect(printExpression(values.gateway.replicas)).toBe('dig "gateway" "replicas" 1 $.Values.AsMap');
    expect(printExpression(values.gateway.flag)).toBe('dig "gateway" "flag" false $.Values.AsMap');
    expect(printExpression(values.list)).toBe('dig "list" (list) $.Values.AsMap');
    expect(printExpression(values.labels)).toBe('dig "labels" (dict) $.Values.AsMap');
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
      'default "a \\"b\\" \\n\\u007f" (dig "gateway" "name" "x" $.Values.AsMap)',
    );
    expect(printExpression(text`${helm.releaseName}-100%`)).toBe('printf "%v-100%%" $.Release.Name');
    expect(printExpression(choose(values.gateway.flag, "a", "b"))).toBe(
      'ternary "a" "b" (not (empty (dig "gateway" "flag" false $.Values.AsMap)))',
    );
    expect(printExpression(more(values.gateway.replicas, 1))).toBe(
      'gt (int64 (dig "gateway" "replicas" 1 $.Values.AsMap)) 1',
    );
  });

  it("prints a whole number in a text through toJson, never as 8e+06", () => {
    expect(printExpression(text`port ${values.gateway.replicas}`)).toBe(
      'printf "port %v" (toJson (dig "gateway" "replicas" 1 $.Values.AsMap))',
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
      'a: {{ toJson (dig "gateway" "name" "x" $.Values.AsMap) }}\nb:\n  - {{ toJson (dig "list" (list) $.Values.AsMap) }}\n',
    );
  });

  it("prints optional fields and entries, choices, loops and spreads", () => {
    const flag = values.gateway.flag;
    const condition = 'dig "gateway" "flag" false $.Values.AsMap';
    expect(body({ a: optional(flag, { b: 1 }) })).toBe(`{{- if ${condition} }}\na:\n  b: 1\n{{- end }}\n`);
    expect(body({ a: [optional(flag, "x")] })).toBe(`a:\n{{- if ${condition} }}\n  - x\n{{- end }}\n`);
    expect(body({ a: either(flag, 1, 2) })).toBe(`{{- if ${condition} }}\na: 1\n{{- else }}\na: 2\n{{- end }}\n`);
    expect(body({ a: [each(values.list, (item) => ({ name: render(item) }))] })).toBe(
      'a:\n{{- range $item1 := dig "list" (list) $.Values.AsMap }}\n  - name: {{ toJson $item1 }}\n{{- end }}\n',
    );
    expect(body({ a: { ...entries(values.labels), b: 1 } })).toBe(
      'a:\n{{- range $key, $value := dig "labels" (dict) $.Values.AsMap }}\n  {{ toJson $key }}: {{ toJson $value }}\n{{- end }}\n  b: 1\n',
    );
    expect(body({ a: renderLines(values.gateway.name) })).toBe(
      'a: |\n{{ indent 2 (dig "gateway" "name" "x" $.Values.AsMap) }}\n',
    );
  });

  it("is wrapped as a whole when it is conditional", () => {
    expect(print({}, not(values.gateway.flag))).toBe(
      '{{- if not (dig "gateway" "flag" false $.Values.AsMap) }}\n---\napiVersion: v1\nkind: Test\nmetadata:\n  name: test\n{{- end }}\n',
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
      '{{- define "x" }}\n{{- $n := 0 -}}\n{{- range $key0, $item0 := dig "list" (list) $.Values.AsMap -}}\n  {{- if $item0 -}}\n    {{- $n = 1 -}}\n  {{- else -}}\n    {{- "no" -}}\n  {{- end -}}\n{{- end -}}\n{{- $n -}}\n{{- end }}\n',
    );
    expect(printExpression(helper.include())).toBe('include "x" $');
    expect(printExpression(helper.include(expression({ kind: "variable", name: "item0" })))).toBe('include "x" $item0');
  });

  it("of a text keep every blank", () => {
    expect(
      printBlock([write("a\n"), when(values.gateway.flag, [write("{{b}}\n")]), output(helm.releaseName)], false),
    ).toBe('a\n{{ if dig "gateway" "flag" false $.Values.AsMap }}{{ "{{" }}b}}\n{{ end }}{{ $.Release.Name }}');
  });

  it("refuse with a sentence", () => {
    expect(printBlock([guard(values.gateway.flag, "no")], true).trim()).toBe(
      '{{- if dig "gateway" "flag" false $.Values.AsMap -}}\n  {{- fail "no" -}}\n{{- end -}}',
    );
  });
});

describe("a value that is worked out once", () => {
  const sum = variable<number>("sum", 0);
  const once = new Once("test.sum", [sum.declaration, sum.assign(7)], sum);

  it("keeps what it worked out at the chart's root, and does it only where nothing is kept", () => {
    expect(once.helper.print()).toBe(
      `{{- define "test.sum" }}
{{- if not (hasKey $ "test.sum") -}}
  {{- $sum := 0 -}}
  {{- $sum = 7 -}}
  {{- $_ := set $ "test.sum" $sum -}}
{{- end -}}
{{- end }}
`,
    );
    expect(printExpression(once.value)).toBe('last (list (include "test.sum" $) (get $ "test.sum"))');
  });
});
