import { call, type Expr, expression, type Input, json, type Node, nodeSymbol, not } from "./expression.ts";
import {
  argument,
  type Block,
  forEach,
  Helper,
  output,
  printBlock,
  run,
  type Statement,
  variable,
  when,
} from "./statements.ts";

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
export interface Values<T, Shared extends string = never> {
  readonly values: Ref<T>;
  /** Dotted paths that some template reads. */
  used(): ReadonlySet<string>;
  /**
   * Something that many templates read and that is worked out once in a rendering, before all of them: Helm gives the templates of a chart
   * one root, and it is kept there as `$.<name>`. What it needs is declared before it; as a function, when the templates have been printed.
   */
  once<V>(name: Shared, value: Expr<V>, block?: Block | (() => Block)): Expr<V>;
  /**
   * Puts what is given over what is there: key by key in the tables above these paths, and as a whole at the paths themselves, a map too.
   * What is null is not given.
   */
  overlay(onto: Input<object>, given: Input<object>, paths: Iterable<readonly string[]>): Statement;
  /** Stands at the head of every file that refers to any of it. */
  readonly prepare: Statement;
  /** Declare what `prepare` does. They are printed last: they read what the others were seen to refer to. */
  readonly helpers: readonly Helper[];
}

/**
 * References to every value, as `$.v.a.b`, and room for what is worked out once, in the order of `shared`: each may read those before it.
 * What is printed depends on that order and on what the templates read, never on which of their modules was loaded first.
 * They are read from the release once in a rendering, its values over the defaults: absent, null and
 * reused values give the default, and false, 0 and "" survive (`.Values.a.b` fails on a missing parent, and `default` would turn false into
 * true).
 */
export function valueReferences<T extends object, Shared extends string = never>(
  chart: string,
  defaults: T,
  shared: readonly Shared[] = [],
): Values<T, Shared> {
  const used = new Map<string, readonly string[]>();
  const blocks = new Map<Shared, () => Block>();
  const printShared = () => shared.flatMap((name) => blocks.get(name)?.() ?? []);
  const root = argument<Record<string, unknown>>();
  const reference = (path: readonly string[], fallback: unknown): unknown => {
    const target = {
      get [nodeSymbol](): Node {
        used.set(path.join("."), path);
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
  const overlayHelper = overlayOf(`${chart}.overlay`);
  const overlay: Values<T, Shared>["overlay"] = (onto, given, paths) =>
    output(overlayHelper.include(call("dict", "onto", onto, "given", given, "tables", json(tablesOf(paths)))));
  const prepareHelper = new Helper(`${chart}.prepare`, () => {
    // Printing records what it refers to, which has to be read before it.
    printBlock(printShared(), true);
    const given = expression<object>({ kind: "root", path: "Values.AsMap" });
    const all = expression<object>({ kind: "root", path: "v" });
    return [
      when(not(call("hasKey", root, "v")), [
        run(call("set", root, "v", json(defaults))),
        overlay(all, given, used.values()),
        ...printShared(),
      ]),
    ];
  });
  return {
    values: reference([], defaults) as Ref<T>,
    used: () => new Set(used.keys()),
    once: (key, value, block = []) => {
      blocks.set(key, () => [...(typeof block === "function" ? block() : block), run(call("set", root, key, value))]);
      return expression({ kind: "root", path: key });
    },
    overlay,
    prepare: output(prepareHelper.include()),
    helpers: [overlayHelper, prepareHelper],
  };
}

/** A template that puts `given` over `onto`, and descends where `tables` has the key. */
function overlayOf(name: string): Helper {
  const [onto, tables] = [variable("onto", argument("onto")), variable("tables", argument("tables"))];
  const helper: Helper = new Helper(name, () => [
    onto.declaration,
    tables.declaration,
    forEach<string, unknown>(argument("given"), (value, key) => {
      const at = (of: Expr<unknown>) => call("get", of, key);
      const inside = call("dict", "onto", at(onto), "given", value, "tables", at(tables));
      const isNull = call("kindIs", "invalid", value);
      return [
        when(
          call("hasKey", tables, key),
          [output(helper.include(inside))],
          [when(not(isNull), [run(call("set", onto, key, value))])],
        ),
      ];
    }),
  ]);
  return helper;
}

/** The order of paths by name: a table comes before what is in it. */
export const byName = (left: readonly string[], right: readonly string[]) =>
  left.join(".") < right.join(".") ? -1 : 1;

interface Tables {
  [key: string]: Tables;
}

/** The tables on the way to each path, one in another, by name. */
function tablesOf(paths: Iterable<readonly string[]>): Tables {
  const tables: Tables = {};
  for (const path of [...paths].toSorted(byName)) {
    let at = tables;
    for (const step of path.slice(0, -1)) at = at[step] ??= {};
  }
  return tables;
}
