/** Manifests with Helm expressions in them, and their printing as template text. */
import { ApiObject } from "cdk8s";
import type { Construct } from "constructs";
import { call, type Expr, expression, type Input, printCondition, printExpression, toJson } from "./expression.ts";
import { escapeText } from "./statements.ts";

const slots: Slot[] = [];
const mark = "\u0001";

type Slot =
  | { readonly kind: "expression"; readonly value: Input<unknown> }
  | { readonly kind: "lines"; readonly value: Input<string> }
  | { readonly kind: "part"; readonly text: Input<string> }
  | { readonly kind: "optional"; readonly when: Input<unknown>; readonly value: unknown }
  | { readonly kind: "choice"; readonly when: Input<unknown>; readonly yes: unknown; readonly no: unknown }
  | { readonly kind: "entries"; readonly of: Input<unknown> }
  | { readonly kind: "loop"; readonly over: Input<unknown>; readonly body: (item: Expr<unknown>) => unknown };

/** A place in a manifest that is filled when the chart is rendered: a short string that passes through cdk8s as it is. */
function place(slot: Slot): string {
  slots.push(slot);
  return `${mark}${slots.length - 1}`;
}

function slotOf(value: unknown): Slot | undefined {
  return typeof value === "string" && value.startsWith(mark) ? slots[Number(value.slice(1))] : undefined;
}

/** An expression as a value of a manifest, with the type the field asks for. It is printed through `toJson`, which quotes what needs it. */
export function render<T>(value: Expr<T>): T {
  return place({ kind: "expression", value }) as T;
}

/** A text of printable lines, the last one ended, as a literal block: for what people read in `helm get manifest` and in a diff. */
export function renderLines(value: Expr<string>): string {
  return place({ kind: "lines", value });
}

/** A map or list that a `Part` printed: as a whole value, or `inserted` among the fields of another map. */
export function renderPart<T extends object>(text: Expr<string>): T {
  return place({ kind: "part", text }) as unknown as T;
}

/** Spread into a map: the fields that a `Part` printed. */
export function inserted(text: Expr<string>): Record<string, never> {
  return { [place({ kind: "part", text })]: undefined as never };
}

/** A field or list entry that is there only when a condition holds. */
export function optional<T>(condition: Input<unknown>, value: T): T {
  return place({ kind: "optional", when: condition, value }) as T;
}

/** One of two whole values of a field or list entry, by a condition. */
export function either<T>(condition: Input<unknown>, yes: T, no: T): T {
  return place({ kind: "choice", when: condition, yes, no }) as T;
}

/** Spread into a map: all entries of a map value. `{ team: "x", ...entries(values.podLabels) }` */
export function entries<T>(of: Expr<Readonly<Record<string, T>>>): Record<string, T> {
  return { [place({ kind: "entries", of })]: undefined as T };
}

/** Put into a list: one entry for each entry of a list value. */
export function each<T, R>(over: Expr<readonly T[]>, body: (item: Expr<T>) => R): R {
  return place({ kind: "loop", over, body: (item) => body(item as Expr<T>) }) as R;
}

/** What makes a template's object: its Kubernetes manifest, typed by cdk8s-plus' L1 types, and when it is rendered. */
export interface HelmObjectProps<Manifest> {
  readonly apiVersion: string;
  readonly kind: string;
  readonly manifest: Manifest;
  /** @default - always */
  readonly when?: Input<unknown>;
}

/** Fields or entries that many manifests have, as a named template: what they are is worked out once, and each manifest indents them. */
export class Part {
  readonly name: string;
  readonly #content: object;

  constructor(name: string, content: object) {
    this.name = name;
    this.#content = content;
  }

  /** Its lines, not indented, the last one not ended. */
  get lines(): Expr<string> {
    return call("trim", call("include", this.name, expression({ kind: "variable", name: "" })));
  }

  print(): string {
    const body = Array.isArray(this.#content) ? printList(this.#content, 0) : printMap(this.#content, 0);
    return `{{- define ${JSON.stringify(this.name)} }}\n${body}{{- end }}\n`;
  }
}

/** The least that a manifest has: what kinds without an L1 type extend. */
export interface Manifest {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
}

/** An object of the chart. The type parameter is the L1 type of the kind, e.g. `k8s.KubeServiceProps`. */
export class HelmObject<Manifest extends { readonly metadata?: { readonly name?: string } }> extends ApiObject {
  readonly #props: HelmObjectProps<Manifest>;

  constructor(scope: Construct, id: string, props: HelmObjectProps<Manifest>) {
    super(scope, id, {
      apiVersion: props.apiVersion,
      kind: props.kind,
      metadata: { name: props.manifest.metadata?.name ?? id },
    });
    this.#props = props;
  }

  /** When it is rendered, as it stands after `if`; undefined: always. */
  get condition(): string | undefined {
    return this.#props.when === undefined ? undefined : printCondition(this.#props.when);
  }

  /** The object as template text, whatever its condition. */
  print(): string {
    const { apiVersion, kind, manifest } = this.#props;
    return `---\n${printMap({ apiVersion, kind, ...manifest }, 0)}`;
  }
}

/** The objects of one file. Neighbours that are rendered under the same condition share it. */
export function printObjects(objects: readonly HelmObject<object>[]): string {
  return objects
    .map((object, index) => {
      const { condition } = object;
      const [before, after] = [objects[index - 1], objects[index + 1]];
      if (condition === undefined) return object.print();
      const start = before?.condition === condition ? "" : `{{- if ${condition} }}\n`;
      return `${start}${object.print()}${after?.condition === condition ? "" : "{{- end }}\n"}`;
    })
    .join("");
}

/** cdk8s answers `instanceof` for every ApiObject, whatever its class: so this asks for what makes an object ours. */
export function isHelmObject(of: unknown): of is HelmObject<{ readonly metadata?: { readonly name?: string } }> {
  return ApiObject.isApiObject(of) && "print" in of;
}

/** A map, each line indented by `depth` steps. */
function printMap(map: object, depth: number): string {
  return Object.entries(map)
    .filter(([key, value]) => value !== undefined || key.startsWith(mark))
    .map(([key, value]) => {
      const spread = slotOf(key);
      return spread === undefined
        ? printEntry(`${indent(depth)}${printScalar(key)}:`, value, depth)
        : printSpread(spread, depth);
    })
    .join("");
}

function printSpread(slot: Slot, depth: number): string {
  if (slot.kind === "part") return printPart(slot.text, depth);
  if (slot.kind !== "entries") throw new Error("only entries() and inserted() can be spread into a map");
  const [key, value] = [
    expression<string>({ kind: "variable", name: "key" }),
    expression({ kind: "variable", name: "value" }),
  ];
  return `{{- range $key, $value := ${printExpression(slot.of)} }}\n${indent(depth)}${printOutput(key)}: ${printOutput(value)}\n{{- end }}\n`;
}

/** `prefix` is what stands before the value on its line: `key:` or `-`, indented. */
function printEntry(prefix: string, value: unknown, depth: number): string {
  const slot = slotOf(value);
  switch (slot?.kind) {
    case undefined:
      return printPlain(prefix, value, depth);
    case "expression":
      return `${prefix} ${printOutput(slot.value)}\n`;
    case "lines":
      return `${prefix} |\n${printPart(slot.value, depth + 1)}`;
    case "part":
      return `${prefix}\n${printPart(slot.text, depth + 1)}`;
    case "optional":
      return `{{- if ${printCondition(slot.when)} }}\n${printEntry(prefix, slot.value, depth)}{{- end }}\n`;
    case "choice":
      return `{{- if ${printCondition(slot.when)} }}\n${printEntry(prefix, slot.yes, depth)}{{- else }}\n${printEntry(prefix, slot.no, depth)}{{- end }}\n`;
    case "loop":
      return printLoop(prefix, slot, depth);
    case "entries":
      throw new Error("entries() belongs into a map: { ...entries(values.labels) }");
  }
}

function printPart(text: Input<string>, depth: number): string {
  return `{{ ${printExpression(depth === 0 ? text : call("indent", indent(depth).length, text))} }}\n`;
}

function printList(list: readonly unknown[], depth: number): string {
  return list.map((entry) => printEntry(`${indent(depth)}-`, entry, depth)).join("");
}

function printLoop(prefix: string, slot: Slot & { kind: "loop" }, depth: number): string {
  const name = `item${depth}`;
  const body = printEntry(prefix, slot.body(expression({ kind: "variable", name })), depth);
  return `{{- range $${name} := ${printExpression(slot.over)} }}\n${body}{{- end }}\n`;
}

function printPlain(prefix: string, value: unknown, depth: number): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return `${prefix} []\n`;
    return `${prefix}\n${printList(value, depth + 1)}`;
  }
  if (typeof value === "object" && value !== null) {
    if (Object.keys(value).length === 0) return `${prefix} {}\n`;
    const body = printMap(value, depth + 1);
    // A list entry begins beside its dash, unless its first field may be missing.
    const first = prefix.endsWith("-") && !body.startsWith("{{-") ? body.slice(indent(depth + 1).length) : undefined;
    return first === undefined ? `${prefix}\n${body}` : `${prefix} ${first}`;
  }
  return `${prefix} ${printScalar(value)}\n`;
}

const indent = (depth: number) => "  ".repeat(depth);
const printOutput = (value: Input<unknown>) => `{{ ${printExpression(toJson(value))} }}`;

const plain = /^[A-Za-z/][-A-Za-z0-9_./]*$/;
const reserved = /^(y|n|yes|no|on|off|true|false|null|~)$/i;

function printScalar(value: unknown): string {
  if (typeof value !== "string") return String(value);
  return plain.test(value) && !reserved.test(value) ? value : escapeText(JSON.stringify(value));
}
