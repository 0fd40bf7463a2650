import { call, type Expr, expression, isExpression, type Node, nodeSymbol, not } from "./expression.ts";
import { argument, type Block, Helper, output, printBlock, run, type Statement, when } from "./statements.ts";

/** A reference to a value of values.yaml, and, below it, to the values inside. What is not in the schema does not compile. */
export type Ref<T> = Expr<T> &
  (NonNullable<T> extends readonly unknown[]
    ? unknown
    : NonNullable<T> extends object
      ? string extends keyof NonNullable<T>
        ? unknown
        : { readonly [Key in keyof NonNullable<T>]-?: Ref<NonNullable<NonNullable<T>[Key]>> }
      : unknown);

/** References into a tree of defaults, and what else all templates of a chart share. */
export interface Values<T> {
  readonly values: Ref<T>;
  /** Dotted paths that some template reads. */
  used(): ReadonlySet<string>;
  /**
   * Something that many templates read and that is worked out once in a rendering, before all of them: Helm gives the templates of a chart
   * one root, and it is kept there as `$.<name>`. What it needs is declared before it.
   */
  once<V>(name: string, value: Expr<V>, block?: Block): Expr<V>;
  /** Stands at the head of every file that refers to any of it. */
  readonly prepare: Statement;
  /** Declares what `prepare` does. It is printed last: it reads what the others were seen to refer to. */
  readonly helper: Helper;
}

/**
 * References to every value. Each is read from the release once in a rendering, as `dig "a" "b" <default> $.Values.AsMap`: absent, null and
 * reused values give the default, and false, 0 and "" survive (`.Values.a.b` fails on a missing parent, and `default` would turn false into
 * true). From then on it is `$.v.a.b`.
 */
export function valueReferences<T extends object>(name: string, defaults: T): Values<T> {
  const used = new Map<string, Use>();
  const shared: Statement[] = [];
  const root = argument<Record<string, unknown>>();
  const reference = (path: readonly string[], fallback: unknown): unknown => {
    const target = {
      get [nodeSymbol](): Node {
        used.set(path.join("."), { path, fallback });
        return { kind: "value", path, fallback };
      },
    };
    return new Proxy(target, {
      get(of, key) {
        if (typeof key === "symbol") return Reflect.get(of, key);
        const inner =
          typeof fallback === "object" && fallback !== null ? (fallback as Record<string, unknown>)[key] : undefined;
        if (inner === undefined) throw new Error(`values.${[...path, key].join(".")} is not in the values schema`);
        return reference([...path, key], inner);
      },
    });
  };
  const helper = new Helper(name, () => {
    // Printing records what it refers to, which has to be read before it.
    printBlock(shared, true);
    return [when(not(call("hasKey", root, "v")), [...readValues([...used.values()]), ...shared])];
  });
  return {
    values: reference([], defaults) as Ref<T>,
    used: () => new Set(used.keys()),
    once: (key, value, block = []) => {
      shared.push(...block, run(call("set", root, key, value)));
      return expression({ kind: "root", path: key });
    },
    prepare: output(helper.include()),
    helper,
  };
}

interface Use {
  readonly path: readonly string[];
  readonly fallback: unknown;
}

interface Tree {
  [key: string]: Tree | Expr<unknown>;
}

/** Puts under `$.v` what some template reads; nothing below what is read as a whole. */
function readValues(uses: readonly Use[]): Block {
  const root = argument<Record<string, unknown>>();
  const given = expression({ kind: "root", path: "Values.AsMap" });
  const tree: Tree = {};
  for (const { path, fallback } of uses.toSorted((left, right) => left.path.length - right.path.length)) {
    let at = tree;
    for (const step of path.slice(0, -1)) {
      at[step] ??= {};
      const next = at[step];
      if (isExpression(next)) throw new Error(`values.${path.join(".")} and what it is in are both read as a whole`);
      at = next;
    }
    at[path.at(-1) ?? ""] = call("dig", ...path, fallback, given);
  }
  return [
    run(call("set", root, "v", {})),
    ...Object.entries(tree).map(([key, part]) =>
      run(call("set", expression({ kind: "root", path: "v" }), key, printed(part))),
    ),
  ];
}

function printed(part: Tree | Expr<unknown>): Expr<unknown> {
  if (isExpression(part)) return part;
  return call("dict", ...Object.entries(part).flatMap(([key, inner]) => [key, printed(inner)]));
}
