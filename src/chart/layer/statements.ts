/** Template statements as values: what helpers, guards and NOTES are made of. */
import { and, call, type Expr, expression, type Input, nodeOf, printCondition, printExpression } from "./expression.ts";

export type Statement =
  | { readonly kind: "text"; readonly value: string }
  | { readonly kind: "output"; readonly value: Input<unknown> }
  | { readonly kind: "if"; readonly when: Input<unknown>; readonly then: Block; readonly otherwise: Block }
  | {
      readonly kind: "range";
      readonly over: Input<unknown>;
      readonly body: (item: Expr<unknown>, key: Expr<unknown>) => Block;
    }
  | { readonly kind: "let" | "set"; readonly name: string; readonly value: Input<unknown> };

export type Block = readonly Statement[];

/** Literal output. */
export const write = (value: string): Statement => ({ kind: "text", value });
/** Output of an expression. */
export const output = (value: Input<unknown>): Statement => ({ kind: "output", value });
export const when = (condition: Input<unknown>, then: Block, otherwise: Block = []): Statement => ({
  kind: "if",
  when: condition,
  then,
  otherwise,
});
/** Stops the rendering with a sentence. */
export const fail = (sentence: Input<string>): Statement => output(call("fail", sentence));
/** Refuses to render when the condition holds. */
export const guard = (condition: Input<unknown>, sentence: Input<string>): Statement =>
  when(condition, [fail(sentence)]);

/** A combination that is refused, and why. */
export interface Refusal {
  readonly refusedWhen: Expr<boolean>;
  readonly sentence: string;
}

/** Refuses to render when one of the combinations is there. Neighbours that begin with the same condition ask for it once. */
export function guards(refusals: readonly Refusal[]): Block {
  const groups: { readonly condition: string; readonly first: Expr<unknown>; readonly members: Refusal[] }[] = [];
  for (const { refusedWhen, sentence } of refusals) {
    const of = nodeOf(refusedWhen);
    const parts = of.kind === "call" && of.name === "and" ? of.args.map(expression<unknown>) : [];
    const [first = refusedWhen, ...rest] = parts;
    const condition = printCondition(first);
    const member = { refusedWhen: and(...rest), sentence };
    const last = groups.at(-1);
    if (last?.condition === condition) last.members.push(member);
    else groups.push({ condition, first, members: [member] });
  }
  return groups.flatMap(({ first, members }) =>
    members.length === 1
      ? members.map(({ refusedWhen, sentence }) => guard(and(first, refusedWhen), sentence))
      : [
          when(
            first,
            members.map(({ refusedWhen, sentence }) => guard(refusedWhen, sentence)),
          ),
        ],
  );
}

/** A variable of a template. Its statement declares it; assign changes it, also inside a loop. */
export interface Variable<T> extends Expr<T> {
  readonly declaration: Statement;
  assign(value: Input<T>): Statement;
}

export function variable<T>(name: string, initial: Input<T>): Variable<T> {
  return {
    ...expression<T>({ kind: "variable", name }),
    declaration: { kind: "let", name, value: initial },
    assign: (value) => ({ kind: "set", name, value }),
  };
}

/** Repeats a block for each entry of a list or map; maps come in the order of their keys. */
export function forEach<K, V>(over: Input<unknown>, body: (item: Expr<V>, key: Expr<K>) => Block): Statement {
  return { kind: "range", over, body: (item, key) => body(item as Expr<V>, key as Expr<K>) };
}

/** What the template was called with, the root or the argument of `include`, or a field of it. `$` and not the dot, which a loop moves. */
export const argument = <T>(field?: string): Expr<T> =>
  expression(field === undefined ? { kind: "variable", name: "" } : { kind: "root", path: field });

/** A value whose effect matters and whose result does not: `set`, `unset`, `append`. */
export const run = (value: Expr<unknown>): Statement => ({ kind: "set", name: "_", value });

/** A named template. It is declared by its file and used through `include`. */
export class Helper<T = string> {
  readonly name: string;
  readonly #body: () => Block;

  constructor(name: string, body: () => Block) {
    this.name = name;
    this.#body = body;
  }

  /** Its output, rendered with `context`; without one, with the root of the chart. */
  include(context?: Input<unknown>): Expr<T> {
    return call("include", this.name, context ?? expression({ kind: "variable", name: "" }));
  }

  print(): string {
    return `{{- define ${JSON.stringify(this.name)} }}${printBlock(this.#body(), true)}\n{{- end }}\n`;
  }
}

/**
 * Prints a block. In a helper, `tight`, nothing but texts and outputs is output: every action takes the white space around it away. A
 * text such as NOTES keeps every blank and newline that is written.
 */
export function printBlock(block: Block, tight: boolean, depth = 0): string {
  const action = (content: string) => (tight ? `\n${"  ".repeat(depth)}{{- ${content} -}}` : `{{ ${content} }}`);
  return block
    .map((statement) => {
      switch (statement.kind) {
        case "text":
          return tight ? action(JSON.stringify(statement.value)) : escapeText(statement.value);
        case "output":
          return tight ? action(printExpression(statement.value)) : `{{ ${printExpression(statement.value)} }}`;
        case "let":
          return action(`$${statement.name} := ${printExpression(statement.value)}`);
        case "set":
          return action(
            `$${statement.name} ${statement.name === "_" ? ":=" : "="} ${printExpression(statement.value)}`,
          );
        case "if": {
          const otherwise =
            statement.otherwise.length > 0
              ? `${action("else")}${printBlock(statement.otherwise, tight, depth + 1)}`
              : "";
          return `${action(`if ${printCondition(statement.when)}`)}${printBlock(statement.then, tight, depth + 1)}${otherwise}${action("end")}`;
        }
        case "range": {
          const [key, item] = [`key${depth}`, `item${depth}`];
          const variables = [item, key].map((name) => expression({ kind: "variable", name }));
          const body = printBlock(statement.body(...(variables as [Expr<unknown>, Expr<unknown>])), tight, depth + 1);
          return `${action(`range $${key}, $${item} := ${printExpression(statement.over)}`)}${body}${action("end")}`;
        }
        default:
          return statement satisfies never;
      }
    })
    .join("");
}

/** Literal text that a template engine may read: only `{{` has a meaning. */
export function escapeText(value: string): string {
  return value.replaceAll("{{", '{{ "{{" }}');
}
