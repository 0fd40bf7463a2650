/** From gatewayConfig to gateway.toml: one effective configuration, and its printing as TOML. */
import { defaultSettings } from "../config/index.ts";
import { once, overlay, values } from "./_values.ts";
import { filledSettings, ownSettings, settingsOf, tlsTable, tree } from "./chart-settings.ts";
import {
  and,
  argument,
  type Block,
  byName,
  call,
  type Expr,
  equal,
  expression,
  forEach,
  fromJson,
  guard,
  Helper,
  type Input,
  json,
  not,
  or,
  output,
  run,
  type Statement,
  text,
  toJson,
  type Variable,
  variable,
  when,
} from "./layer/index.ts";

type Table = Record<string, unknown>;

const isKind = (kind: "map" | "slice" | "string" | "invalid", value: Input<unknown>) =>
  call<boolean>("kindIs", kind, value);
const isNull = (value: Input<unknown>) => isKind("invalid", value);
/** A field of a table; null where there is none. */
const field = <T>(table: Expr<Table>, key: Input<string>) => call<T>("index", table, key);
const get = <T>(table: Expr<Table>, key: Input<string>) => call<T>("get", table, key);
const put = (table: Expr<Table>, key: Input<string>, value: Input<unknown>) => run(call("set", table, key, value));

/** Refuses what must not stand in a ConfigMap, wherever it hides. */
const refuseSecrets: Helper = new Helper("openshell.config.refuseSecrets", () => {
  const [path, value] = [argument<string>("path"), argument<unknown>("value")];
  const into = (step: Expr<string>, inner: Expr<unknown>) =>
    output(refuseSecrets.include(call("dict", "path", step, "value", inner)));
  return [
    when(isKind("map", value), [
      forEach<string, unknown>(value, (item, key) => [
        guard(
          equal(key, "database_url"),
          text`gatewayConfig: ${path}.database_url: the database address may hold a password and does not belong into a ConfigMap; the chart gives it to the gateway itself`,
        ),
        into(text`${path}.${key}`, item),
      ]),
    ]),
    when(isKind("slice", value), [forEach<number, unknown>(value, (item, key) => [into(text`${path}[${key}]`, item)])]),
    when(isKind("string", value), [
      // A pattern is compiled each time: most strings are seen not to fit without it.
      guard(
        and(call("contains", "PRIVATE KEY", value), call("regexMatch", "-----BEGIN [A-Z0-9 ]*PRIVATE KEY", value)),
        text`gatewayConfig: ${path}: a private key does not belong into a ConfigMap; put it into a Secret and name the Secret in server.tls, server.jwtSecretName or server.keysSecretName`,
      ),
      guard(
        and(call("contains", "@", value), call("regexMatch", "[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\s]*@", value)),
        text`gatewayConfig: ${path}: an address with a user or password does not belong into a ConfigMap; write it without what stands before the @`,
      ),
    ]),
  ];
});

/** Opens the table `key` of `parent`, made when it is not there. */
function open(name: string, parent: Expr<Table>, key: string): { table: Variable<Table>; block: Block } {
  const table = variable<Table>(name, field(parent, key));
  return {
    table,
    block: [table.declaration, when(not(isKind("map", table)), [table.assign({}), put(parent, key, table)])],
  };
}

/** The tables of gatewayConfig as one tree, without null, each setting once. */
function readGatewayConfig(tree: Expr<Table>): Block {
  const whole = variable<string>("json", toJson(values.gatewayConfig));
  // Most configurations are seen to hold no secret without a look at each string.
  const mayHoldSecret = or(...["database_url", "PRIVATE KEY", "@"].map((part) => call("contains", part, whole)));
  const refuse = (name: Expr<string>, table: Expr<Table>) =>
    when(mayHoldSecret, [output(refuseSecrets.include(call("dict", "path", name, "value", table)))]);
  // A copy, in which a number has one type, whether a file or --set gave it.
  const read = forEach<string, Table>(fromJson<Table>(whole), (table, name) => [
    guard(
      equal(name, "openshell"),
      "gatewayConfig.openshell: the keys of gatewayConfig are whole table names; with --set escape their dots: --set 'gatewayConfig.openshell\\.gateway.log_level=debug'",
    ),
    when(not(isNull(table)), [
      guard(
        not(or(isKind("map", table), isKind("slice", table))),
        text`gatewayConfig: ${name} must be a map, or a list of maps, got ${call("kindOf", table)}`,
      ),
      refuse(name, table),
      ...placeTable(tree, name, table),
    ]),
  ]);
  return [whole.declaration, read];
}

function placeTable(tree: Expr<Table>, given: Expr<string>, table: Expr<Table>): Block {
  const name = variable<string>("name", given);
  const fields = variable<Table>("fields", table);
  const target = variable<Table>("target", tree);
  return [
    name.declaration,
    fields.declaration,
    when(isKind("slice", table), asSetting(name, fields)),
    target.declaration,
    forEach<number, string>(call("splitList", ".", name), (segment) => [
      guard(equal(segment, ""), text`gatewayConfig: ${name} has an empty part between two dots`),
      when(not(isKind("map", field(target, segment))), [put(target, segment, {})]),
      target.assign(field(target, segment)),
    ]),
    forEach<string, unknown>(fields, (value, key) => [
      when(not(isNull(value)), [
        guard(
          not(isNull(field(target, key))),
          text`gatewayConfig: ${name}.${key} is given twice: nested in its parent table and by a table name of its own; keep one of them`,
        ),
        put(target, key, value),
      ]),
    ]),
  ];
}

/** A list under a table's name is an array of tables: a setting, of that name, of the table above. */
function asSetting(name: Variable<string>, fields: Variable<Table>): Block {
  const own = call<string>("last", call("splitList", ".", name));
  return [
    forEach<number, unknown>(fields, (entry, index) => [
      guard(
        not(isKind("map", entry)),
        text`gatewayConfig: ${name}[${index}] must be a map, got ${call("kindOf", entry)}`,
      ),
    ]),
    fields.assign(call("dict", own, fields)),
    name.assign(call("trimSuffix", text`.${own}`, name)),
  ];
}

/** What the chart says, over what gatewayConfig says. */
function writeChartSettings(): Block {
  const root = open("openshell", tree, "openshell");
  const gateway = open("gateway", root.table, "gateway");
  const mtls = open("mtls", gateway.table, "mtls_auth");
  const jwt = open("jwt", gateway.table, "gateway_jwt");
  const storage = open("storage", gateway.table, "credential_storage");
  const drivers = open("drivers", root.table, "drivers");
  const driver = open("driver", drivers.table, "kubernetes");
  const { [tlsTable]: tls, ...own } = ownSettings;
  const opened = {
    "openshell.gateway": gateway.table,
    "openshell.gateway.mtls_auth": mtls.table,
    "openshell.gateway.gateway_jwt": jwt.table,
    "openshell.gateway.credential_storage": storage.table,
    "openshell.drivers.kubernetes": driver.table,
  } satisfies Record<keyof typeof own | keyof typeof filledSettings, Expr<Table>>;
  const tableOf = (name: string) => opened[name as keyof typeof opened];
  return [
    ...[root, gateway, mtls, jwt, storage, drivers, driver].flatMap(({ block }) => block),
    put(root.table, "version", 2),
    ...settingsOf(own).map(({ table, key, value }) => put(tableOf(table), key, value)),
    run(call("unset", gateway.table, "tls")),
    when(not(values.server.disableTls), [
      put(gateway.table, "tls", Object.fromEntries(Object.entries(tls).map(([key, { value }]) => [key, value]))),
    ]),
    ...settingsOf(filledSettings).map(({ table, key, value, when: condition = true, replacesEmpty }) => {
      const isUnset = replacesEmpty ? call("empty", get(tableOf(table), key)) : isNull(field(tableOf(table), key));
      return when(and(condition, isUnset), [put(tableOf(table), key, value)]);
    }),
  ];
}

/** The effective configuration: the TOML, the guards and every object that depends on a setting read this one. */
export const effectiveConfig = once<Table>("config", tree, [
  tree.declaration,
  ...readGatewayConfig(tree),
  ...writeChartSettings(),
]);

/**
 * Tables of gateway.toml, and where the templates have the settings that they read of them, over their defaults: `$.gateway.disable_tls`,
 * `$.driver.workspace_mode`.
 */
const readTables = (
  [
    ["gateway", "openshell.gateway"],
    ["driver", "openshell.drivers.kubernetes"],
  ] as const
).map(([name, table]) => {
  const read = new Map<string, readonly string[]>();
  const given = expression<Table>({ kind: "root", path: `config.${table}` });
  once(name, expression<Table>({ kind: "variable", name }), () => {
    const settings = variable(name, json(defaultsOf(table, read.values())));
    return [settings.declaration, overlay(settings, given, read.values())];
  });
  return { name, prefix: `${table}.`, read };
});

/** One setting of the effective configuration, by its TOML path, with the default of src/config. */
export function effective<T>(key: string): Expr<T> {
  const table = readTables.find(({ prefix }) => key.startsWith(prefix));
  // A field of a table that may not be there is looked for where it is read.
  if (table === undefined || !isTable(defaultAt(key.split(".").slice(0, -1)))) return settingIn(effectiveConfig, key);
  const path = key.slice(table.prefix.length).split(".");
  table.read.set(key, path);
  return expression({ kind: "root", path: [table.name, ...path].join(".") });
}

/** The defaults of some settings of a table, by name; "" for one that has none. */
function defaultsOf(table: string, paths: Iterable<readonly string[]>): Table {
  const defaults: Table = {};
  for (const path of [...paths].toSorted(byName)) {
    let at = defaults;
    for (const step of path.slice(0, -1)) {
      at[step] ??= {};
      at = at[step] as Table;
    }
    const value = defaultAt([...table.split("."), ...path]) ?? "";
    at[path.at(-1) ?? ""] = isTable(value) ? { ...value } : value;
  }
  return defaults;
}

/** One setting of any configuration of this form. */
export function settingIn<T>(config: Expr<Table>, key: string): Expr<T> {
  const path = key.split(".");
  return call("dig", ...path, defaultAt(path) ?? "", config);
}

const { gateway, kubernetes } = defaultSettings();
const defaultDocument: Table = { openshell: { version: 2, gateway, drivers: { kubernetes } } };
const isTable = (value: unknown): value is Table =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function defaultAt(path: readonly string[]): unknown {
  return path.reduce<unknown>((value, step) => (isTable(value) ? value[step] : undefined), defaultDocument);
}

/** The id that names of cluster objects contain. */
export const gatewayId = effective<string>("openshell.drivers.kubernetes.gateway_id");

/** What JSON leaves as it is and neither TOML nor a YAML block takes: DEL, the C1 controls, the byte order mark, non-characters. */
const unprintable = [...Array.from({ length: 33 }, (_, index) => 0x7f + index), 0xfeff, 0xfffe, 0xffff];
const escapeOf = (code: number) => `\\u${code.toString(16).toUpperCase().padStart(4, "0")}`;

/** TOML's strings are JSON's, with a few more characters escaped: in the whole text at once, since they stand in strings only. */
const tomlString = (value: Input<unknown>) => toJson(value);

function escapeUnprintable(printed: Variable<string>): Statement {
  const escapes = Object.fromEntries(unprintable.map((code) => [String.fromCharCode(code), escapeOf(code)]));
  return when(call("regexMatch", "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]", printed), [
    forEach<string, string>(escapes, (escaped, character) => [
      printed.assign(call("replace", character, escaped, printed)),
    ]),
  ]);
}

const bareCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
const keyHelper: Helper = new Helper("openshell.toml.key", () => {
  const key = argument<string>();
  // Nothing is left when all that a bare key may hold is trimmed away. A pattern would be compiled for each key.
  return [when(and(key, not(call("trimAll", bareCharacters, key))), [output(key)], [output(tomlString(key))])];
});

const valueHelper: Helper = new Helper("openshell.toml.value", () => {
  const value = argument<unknown>();
  const parts = variable<string[]>("parts", []);
  return [
    when(
      isKind("map", value),
      [
        parts.declaration,
        forEach<string, unknown>(value, (item, key) => [
          when(not(isNull(item)), [
            parts.assign(call("append", parts, text`${keyHelper.include(key)} = ${valueHelper.include(item)}`)),
          ]),
        ]),
        output(text`{ ${call<string>("join", ", ", parts)} }`),
      ],
      [
        when(
          isKind("slice", value),
          [
            parts.declaration,
            forEach<number, unknown>(value, (item) => [
              guard(isNull(item), "gatewayConfig: null inside a list means nothing; remove the entry"),
              parts.assign(call("append", parts, valueHelper.include(item))),
            ]),
            output(text`[${call<string>("join", ", ", parts)}]`),
          ],
          [output(tomlString(value))],
        ),
      ],
    ),
  ];
});

/** Tables down to this depth get a header of their own; what is deeper is an inline table. */
const deepestHeader = 4;

const tableHelper: Helper = new Helper("openshell.toml.table", () => {
  const [path, depth, table] = [argument<string>("path"), argument<number>("depth"), argument<Table>("table")];
  const hasTables = variable<boolean>("hasTables", call("lt", call("int", depth), deepestHeader));
  const isTable = (value: Expr<unknown>) => and(isKind("map", value), hasTables);
  const hasHeader = variable<boolean>("hasHeader", call("empty", table));
  const lines = variable<string>("lines", "");
  return [
    hasTables.declaration,
    hasHeader.declaration,
    lines.declaration,
    forEach<string, unknown>(table, (value, key) => [
      when(not(isTable(value)), [
        hasHeader.assign(true),
        when(not(isNull(value)), [
          lines.assign(text`${lines}${keyHelper.include(key)} = ${valueHelper.include(value)}\n`),
        ]),
      ]),
    ]),
    when(hasHeader, [output(text`\n[${path}]\n${lines}`)]),
    forEach<string, unknown>(table, (value, key) => [
      when(isTable(value), [
        output(
          tableHelper.include(
            call("dict", "path", text`${path}.${keyHelper.include(key)}`, "depth", call("add1", depth), "table", value),
          ),
        ),
      ]),
    ]),
  ];
});

const printed = variable<string>(
  "toml",
  text`# Rendered by the chart from gatewayConfig and its own values.\n${tableHelper.include(
    call("dict", "path", "openshell", "depth", 1, "table", get<Table>(effectiveConfig, "openshell")),
  )}`,
);

/** The text of gateway.toml. */
export const gatewayToml = once<string>("toml", printed, [printed.declaration, escapeUnprintable(printed)]);

export const tomlHelpers = [refuseSecrets, keyHelper, valueHelper, tableHelper];
