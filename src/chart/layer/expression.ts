/**
 * Helm expressions as values. A construct never writes template text: it combines typed expressions, and this file is the only place that
 * knows how one is printed.
 */

/** What an expression is made of. */
export type Node =
  | { readonly kind: "literal"; readonly value: unknown }
  /** The text of a JSON object, as a raw string of Go. */
  | { readonly kind: "json"; readonly value: object }
  | { readonly kind: "call"; readonly name: string; readonly args: readonly Node[] }
  /** A value of values.yaml or its default, under which the layer keeps it at the template's root: `$.v.service.port`. */
  | { readonly kind: "value"; readonly path: readonly string[]; readonly fallback: unknown }
  /** A field chain on the template's root, e.g. `$.Release.Name`. */
  | { readonly kind: "root"; readonly path: string }
  | { readonly kind: "variable"; readonly name: string };

const node = Symbol("node");

/** A Helm expression that yields a `T` when the chart is rendered. */
export interface Expr<out T> {
  readonly [node]: Node;
  /** Never there: it only carries the type. */
  readonly type?: T;
}

/** Something that is known now, or when the chart is rendered. */
export type Input<T> = T | Expr<T>;

/** Wraps a node. Only the layer calls it; a construct gets its expressions from `values`, `helm` and the functions below. */
export function expression<T>(of: Node): Expr<T> {
  return { [node]: of };
}

export function isExpression(value: unknown): value is Expr<unknown> {
  return (typeof value === "object" || typeof value === "function") && value !== null && node in value;
}

/** A field of what is kept at the template's root. */
export function fieldOf<T>(of: Expr<unknown>, name: string): Expr<T> {
  const inner = of[node];
  if (inner.kind !== "root") throw new Error(`${name}: only what is kept at the root has fields`);
  return expression({ kind: "root", path: `${inner.path}.${name}` });
}

/** The node behind an expression or a plain value. */
export function nodeOf(value: Input<unknown>): Node {
  return isExpression(value) ? value[node] : { kind: "literal", value };
}

/** A call of a template function. */
export function call<T>(name: string, ...args: readonly Input<unknown>[]): Expr<T> {
  return expression({ kind: "call", name, args: args.map(nodeOf) });
}

/** The symbol under which `values` hands out the node of a reference. */
export const nodeSymbol: typeof node = node;

/** Text with expressions in it: text`${fullname}-config`. What is known now, and a text in it, become part of its one format. */
export function text(strings: TemplateStringsArray, ...parts: readonly Input<string | number>[]): Expr<string> {
  let format = formatOf(strings[0]);
  const args: Expr<unknown>[] = [];
  for (const [index, part] of parts.entries()) {
    const of = nodeOf(part);
    const [inner, ...rest] = of.kind === "call" && of.name === "printf" ? of.args : [];
    if (of.kind === "literal") format += formatOf(of.value);
    else if (inner?.kind === "literal") {
      format += inner.value;
      args.push(...rest.map(expression));
    } else {
      format += "%v";
      args.push(wholeNumber(part as Expr<string | number>));
    }
    format += formatOf(strings[index + 1]);
  }
  return args.length === 0
    ? expression({ kind: "literal", value: format.replaceAll("%%", "%") })
    : call("printf", format, ...args);
}

const formatOf = (literal: unknown) => String(literal).replaceAll("%", "%%");

/** Values files give numbers as floats: without this, printf would write 8e+06 for a large one. Strings pass unchanged. */
function wholeNumber(part: Expr<string | number>): Expr<string> {
  const inner = part[node];
  return inner.kind === "value" && typeof inner.fallback === "number" ? toJson(part) : (part as Expr<string>);
}

export const toJson = (value: Input<unknown>) => call<string>("toJson", value);
export const fromJson = <T>(value: Input<string>) => call<T>("fromJson", value);
/** A whole object that is known now: parsed as JSON, it takes a fraction of what `dict` of all its parts does. */
export const json = <T extends object>(value: T) => fromJson<T>(expression<string>({ kind: "json", value }));
export const not = (value: Input<unknown>) => call<boolean>("not", value);
export const and = (...parts: readonly Input<unknown>[]) => join("and", parts);
export const or = (...parts: readonly Input<unknown>[]) => join("or", parts);
export const equal = <T>(left: Input<T>, right: Input<T>) => call<boolean>("eq", left, right);
export const notEqual = <T>(left: Input<T>, right: Input<T>) => call<boolean>("ne", left, right);
export const more = (left: Input<number>, right: number) => call<boolean>("gt", call("int64", left), right);
/** `value`, or `fallback` when it is empty (false, 0, "" and empty collections are empty). */
export const orElse = <T>(value: Input<T>, fallback: Input<T>) => call<T>("default", fallback, value);
/** One of two values, by a condition. */
export const choose = <T>(condition: Input<unknown>, yes: Input<T>, no: Input<T>) =>
  call<T>("ternary", yes, no, isBoolean(nodeOf(condition)) ? condition : not(call("empty", condition)));
/** At most `length` characters. A longer text ends in a hash of all of it, so that two which differ at their end stay two. */
export const shorten = (value: Input<string>, length: number): Expr<string> => {
  const start = call<string>("trimAll", "-.", call("trunc", length - 9, value));
  const whole = call<string>("trimAll", "-.", value);
  const isLonger = call<boolean>("gt", call("len", value), length);
  return choose(isLonger, text`${start}-${call<string>("trunc", 8, call("sha256sum", value))}`, whole);
};

/** `and` or `or` of parts: one in another is the same as all in one, and what decides nothing is left out. */
function join(name: "and" | "or", parts: readonly Input<unknown>[]): Expr<boolean> {
  const args = parts
    .map(nodeOf)
    .flatMap((part) => (part.kind === "call" && part.name === name ? part.args : [part]))
    .filter((part) => part.kind !== "literal" || part.value !== (name === "and"));
  const [first = { kind: "literal", value: name === "and" } as const, ...rest] = args;
  return expression(rest.length === 0 ? first : { kind: "call", name, args });
}

const booleanFunctions =
  /^(and|or|not|empty|eq|ne|gt|lt|contains|has|hasKey|hasPrefix|hasSuffix|kindIs|regexMatch|\$\.Capabilities\.APIVersions\.Has)$/;

/** Whether an expression can be nothing but true or false: `ternary` takes nothing else. */
function isBoolean(of: Node): boolean {
  if (of.kind === "literal") return typeof of.value === "boolean";
  if (of.kind !== "call" || !booleanFunctions.test(of.name)) return false;
  return (of.name !== "and" && of.name !== "or") || of.args.every(isBoolean);
}

/** What Helm knows besides the values. */
export const helm = {
  releaseName: expression<string>({ kind: "root", path: "Release.Name" }),
  releaseNamespace: expression<string>({ kind: "root", path: "Release.Namespace" }),
  releaseService: expression<string>({ kind: "root", path: "Release.Service" }),
  chartName: expression<string>({ kind: "root", path: "Chart.Name" }),
  chartVersion: expression<string>({ kind: "root", path: "Chart.Version" }),
  appVersion: expression<string>({ kind: "root", path: "Chart.AppVersion" }),
  values: expression<Readonly<Record<string, unknown>>>({ kind: "root", path: "Values" }),
} as const;

/** Whether the cluster serves a kind. A rendering that knows no cluster answers no, unless it was told with --api-versions. */
export const serves = (apiVersion: Input<string>, kind: string) =>
  call<boolean>("$.Capabilities.APIVersions.Has", text`${apiVersion}/${kind}`);

/** Prints an expression as it stands between `{{` and `}}`. */
export function printExpression(value: Input<unknown>): string {
  return printNode(nodeOf(value), false);
}

/** Prints an expression of which only the truth counts: there, what is not empty is true. */
export function printCondition(value: Input<unknown>): string {
  return printNode(truthOf(nodeOf(value)), false);
}

function truthOf(of: Node): Node {
  if (of.kind !== "call") return of;
  const [inner] = of.args;
  switch (of.name) {
    case "and":
    case "or":
      return { ...of, args: of.args.map(truthOf) };
    case "not":
      if (inner?.kind !== "call") return of;
      return inner.name === "empty" && inner.args[0] !== undefined
        ? truthOf(inner.args[0])
        : { ...of, args: [truthOf(inner)] };
    default:
      return of;
  }
}

function printNode(of: Node, nested: boolean): string {
  switch (of.kind) {
    case "literal":
      return printLiteral(of.value, nested);
    case "json":
      return printJson(of.value);
    case "value":
      return `$.v.${of.path.join(".")}`;
    case "root":
      return `$.${of.path}`;
    case "variable":
      return `$${of.name}`;
    case "call": {
      const printed = [of.name, ...of.args.map((arg) => printNode(arg, true))].join(" ");
      return nested ? `(${printed})` : printed;
    }
  }
}

function printLiteral(value: unknown, nested: boolean): string {
  if (value === null || value === undefined) return nested ? "nil" : "(toJson nil)";
  if (typeof value === "string") return quote(value);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const parts = Array.isArray(value)
    ? ["list", ...value.map((entry) => printNode(nodeOf(entry), true))]
    : ["dict", ...Object.entries(value).flatMap(([key, entry]) => [quote(key), printNode(nodeOf(entry), true)])];
  return nested ? `(${parts.join(" ")})` : parts.join(" ");
}

/** A line for each field. */
function printJson(value: object): string {
  const fields = Object.entries(value).map(([key, field]) => `    ${JSON.stringify(key)}: ${JSON.stringify(field)}`);
  return `\`{${fields.length === 0 ? "" : `\n${fields.join(",\n").replaceAll("`", "\\u0060")}\n  `}}\``;
}

/** A Go string literal: JSON's escapes are Go's. What an editor would not show is escaped too. */
function quote(value: string): string {
  return JSON.stringify(value).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
