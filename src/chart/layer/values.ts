import { type Expr, type Node, nodeSymbol } from "./expression.ts";

/** A reference to a value of values.yaml, and, below it, to the values inside. What is not in the schema does not compile. */
export type Ref<T> = Expr<T> &
  (NonNullable<T> extends readonly unknown[]
    ? unknown
    : NonNullable<T> extends object
      ? string extends keyof NonNullable<T>
        ? unknown
        : { readonly [Key in keyof NonNullable<T>]-?: Ref<NonNullable<NonNullable<T>[Key]>> }
      : unknown);

/** References into a tree of defaults, and a record of which of them were printed. */
export interface Values<T> {
  readonly values: Ref<T>;
  /** Dotted paths that some template reads. */
  used(): ReadonlySet<string>;
}

/**
 * References to every value, printed as `dig "a" "b" <default> $.Values.AsMap`: absent, null and reused values give the default, and false,
 * 0 and "" survive (`.Values.a.b` fails on a missing parent, and `default` would turn false into true).
 */
export function valueReferences<T extends object>(defaults: T): Values<T> {
  const used = new Set<string>();
  const reference = (path: readonly string[], fallback: unknown): unknown => {
    const target = {
      get [nodeSymbol](): Node {
        used.add(path.join("."));
        return {
          kind: "call",
          name: "dig",
          args: [...path, fallback]
            .map((value): Node => ({ kind: "literal", value }))
            .concat({ kind: "root", path: "Values.AsMap" }),
        };
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
  return { values: reference([], defaults) as Ref<T>, used: () => used };
}
