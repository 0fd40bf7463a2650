/** From gatewayConfig to gateway.toml: one effective configuration, and its printing as TOML. */
import { defaultSettings } from "../config/index.ts";
import { once, values } from "./_values.ts";
import { files } from "./files.ts";
import { images, pullPolicy } from "./images.ts";
import {
  and,
  argument,
  type Block,
  call,
  choose,
  type Expr,
  equal,
  forEach,
  fromJson,
  guard,
  Helper,
  helm,
  type Input,
  more,
  not,
  notEqual,
  or,
  output,
  run,
  type Statement,
  shorten,
  text,
  toJson,
  type Variable,
  variable,
  when,
} from "./layer/index.ts";
import { fullname, names, sandboxNamespace } from "./names.ts";

type Table = Record<string, unknown>;

const isKind = (kind: "map" | "slice" | "string" | "invalid", value: Input<unknown>) =>
  call<boolean>("kindIs", kind, value);
const has = (table: Expr<Table>, key: Input<string>) => call<boolean>("hasKey", table, key);
const get = <T>(table: Expr<Table>, key: Input<string>) => call<T>("get", table, key);
const put = (table: Expr<Table>, key: Input<string>, value: Input<unknown>) => run(call("set", table, key, value));

/** Refuses what must not stand in a ConfigMap, wherever it hides. */
const refuseSecrets: Helper = new Helper("openshell.config.refuseSecrets", () => {
  const input = argument<Table>();
  const [path, value] = [get<string>(input, "path"), get<unknown>(input, "value")];
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
  const table = variable<Table>(name, get(parent, key));
  return { table, block: [when(not(isKind("map", get(parent, key))), [put(parent, key, {})]), table.declaration] };
}

/** The tables of gatewayConfig as one tree, without null, each setting once. */
function readGatewayConfig(tree: Expr<Table>): Statement {
  const given = call<Table>("deepCopy", values.gatewayConfig);
  return forEach<string, Table>(given, (table, name) => [
    guard(
      equal(name, "openshell"),
      "gatewayConfig.openshell: the keys of gatewayConfig are whole table names; with --set escape their dots: --set 'gatewayConfig.openshell\\.gateway.log_level=debug'",
    ),
    when(notEqual(toJson(table), "null"), [
      guard(
        not(or(isKind("map", table), isKind("slice", table))),
        text`gatewayConfig: ${name} must be a map, or a list of maps, got ${call("kindOf", table)}`,
      ),
      output(refuseSecrets.include(call("dict", "path", name, "value", table))),
      when(isKind("slice", table), placeTables(tree, name, table), placeTable(tree, name, table)),
    ]),
  ]);
}

function placeTable(tree: Expr<Table>, name: Expr<string>, table: Expr<Table>): Block {
  const target = variable<Table>("target", tree);
  return [
    target.declaration,
    forEach<number, string>(call("splitList", ".", name), (segment) => [
      guard(equal(segment, ""), text`gatewayConfig: ${name} has an empty part between two dots`),
      when(not(isKind("map", get(target, segment))), [put(target, segment, {})]),
      target.assign(get(target, segment)),
    ]),
    forEach<string, unknown>(table, (value, key) => [
      when(notEqual(toJson(value), "null"), [
        guard(
          and(has(target, key), notEqual(toJson(get(target, key)), "null")),
          text`gatewayConfig: ${name}.${key} is given twice: nested in its parent table and by a table name of its own; keep one of them`,
        ),
        put(target, key, value),
      ]),
    ]),
  ];
}

/** A list under a table's name is an array of tables: a setting, of that name, of the table above. */
function placeTables(tree: Expr<Table>, name: Expr<string>, tables: Expr<unknown>): Block {
  const own = call<string>("last", call("splitList", ".", name));
  const above = call<string>("trimSuffix", text`.${own}`, name);
  return [
    forEach<number, unknown>(tables, (entry, index) => [
      guard(
        not(isKind("map", entry)),
        text`gatewayConfig: ${name}[${index}] must be a map, got ${call("kindOf", entry)}`,
      ),
    ]),
    ...placeTable(tree, above, call("dict", own, tables)),
  ];
}

/** What the chart says, over what gatewayConfig says. */
function chartSettings(tree: Expr<Table>): Block {
  const root = open("openshell", tree, "openshell");
  const gateway = open("gateway", root.table, "gateway");
  const mtls = open("mtls", gateway.table, "mtls_auth");
  const jwt = open("jwt", gateway.table, "gateway_jwt");
  const storage = open("storage", gateway.table, "credential_storage");
  const drivers = open("drivers", root.table, "drivers");
  const driver = open("driver", drivers.table, "kubernetes");
  const plain = values.server.disableTls;
  const own = (table: Expr<Table>, settings: Readonly<Record<string, Input<unknown>>>) =>
    Object.entries(settings).map(([key, value]) => put(table, key, value));
  const fill = (table: Expr<Table>, settings: Readonly<Record<string, Input<unknown>>>) =>
    Object.entries(settings).map(([key, value]) => when(isMissing(table, key), [put(table, key, value)]));
  const scheme = choose(plain, "http", "https");
  return [
    ...[root, gateway, mtls, jwt, storage, drivers, driver].flatMap(({ block }) => block),
    put(root.table, "version", 2),
    ...own(gateway.table, {
      bind_address: text`0.0.0.0:${values.service.port}`,
      health_bind_address: text`0.0.0.0:${values.service.healthPort}`,
      metrics_bind_address: choose(
        more(values.service.metricsPort, 0),
        text`0.0.0.0:${values.service.metricsPort}`,
        "",
      ),
      disable_tls: plain,
      master_secret_path: files.masterSecret,
    }),
    run(call("unset", gateway.table, "tls")),
    when(not(plain), [
      put(gateway.table, "tls", {
        cert_path: files.serverCertificate,
        key_path: files.serverKey,
        client_ca_path: files.clientCa,
      }),
    ]),
    ...own(jwt.table, {
      signing_key_path: files.jwtSigningKey,
      public_key_path: files.jwtPublicKey,
      kid_path: files.jwtKid,
    }),
    ...own(storage.table, { key_encryption_key_path: files.keyEncryptionKey }),
    ...own(driver.table, { namespace: sandboxNamespace, service_account_name: names.sandboxServiceAccount }),
    ...fill(gateway.table, { name: fullname }),
    ...fill(mtls.table, { enabled: not(plain) }),
    ...fill(driver.table, {
      gateway_id: shorten(fullname, 33),
      supervisor_image: images.supervisor,
      supervisor_image_pull_policy: pullPolicy(values.supervisor.image),
      sandbox_runtime_image: images.runtime,
      sandbox_runtime_image_pull_policy: pullPolicy(values.sandboxRuntime.image),
    }),
    ...fill(jwt.table, { gateway_id: get(driver.table, "gateway_id") }),
    when(values.sandbox.image.repository, fill(driver.table, { default_image: images.sandbox })),
    when(values.sandbox.image.pullPolicy, fill(driver.table, { image_pull_policy: values.sandbox.image.pullPolicy })),
    when(call("empty", get(driver.table, "grpc_endpoint")), [
      put(
        driver.table,
        "grpc_endpoint",
        text`${scheme}://${fullname}.${helm.releaseNamespace}.svc.cluster.local:${values.service.port}`,
      ),
    ]),
  ];
}

const isMissing = (table: Expr<Table>, key: string) => or(not(has(table, key)), isKind("invalid", get(table, key)));

const tree = variable<Table>("tree", call("dict"));

/** The effective configuration: the TOML, the guards and every object that depends on a setting read this one. */
export const effectiveConfig = once<Table>(
  "config",
  // Through JSON: afterwards a number has one type, whether a file, --set or the chart gave it.
  fromJson(toJson(tree)),
  [tree.declaration, readGatewayConfig(tree), ...chartSettings(tree)],
);

/** One setting of the effective configuration, by its TOML path, with the default of src/config. */
export function effective<T>(key: string, config: Expr<Table> = effectiveConfig): Expr<T> {
  const path = key.split(".");
  return call("dig", ...path, defaultOf(path), config);
}

const { gateway, kubernetes } = defaultSettings();
const defaultDocument = { openshell: { version: 2, gateway, drivers: { kubernetes } } };

function defaultOf(path: readonly string[]): unknown {
  let value: unknown = defaultDocument;
  for (const step of path) value = typeof value === "object" && value !== null ? (value as Table)[step] : undefined;
  return value ?? "";
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

const keyHelper: Helper = new Helper("openshell.toml.key", () => {
  const key = argument<string>();
  return [when(call("regexMatch", "^[A-Za-z0-9_-]+$", key), [output(key)], [output(tomlString(key))])];
});

const valueHelper: Helper = new Helper("openshell.toml.value", () => {
  const value = argument<unknown>();
  const parts = variable<string[]>("parts", call("list"));
  return [
    parts.declaration,
    when(
      isKind("map", value),
      [
        forEach<string, unknown>(value, (item, key) => [
          when(not(isKind("invalid", item)), [
            parts.assign(call("append", parts, text`${keyHelper.include(key)} = ${valueHelper.include(item)}`)),
          ]),
        ]),
        output(text`{ ${call<string>("join", ", ", parts)} }`),
      ],
      [
        when(
          isKind("slice", value),
          [
            forEach<number, unknown>(value, (item) => [
              guard(isKind("invalid", item), "gatewayConfig: null inside a list means nothing; remove the entry"),
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
  const input = argument<Table>();
  const table = get<Table>(input, "table");
  const path = get<string>(input, "path");
  const depth = get<number>(input, "depth");
  const isTable = (value: Expr<unknown>) => and(isKind("map", value), call("lt", call("int", depth), deepestHeader));
  const fields = variable<number>("fields", 0);
  return [
    fields.declaration,
    forEach<string, unknown>(table, (value) => [when(not(isTable(value)), [fields.assign(1)])]),
    when(or(more(fields, 0), call("empty", table)), [output(text`\n[${path}]\n`)]),
    forEach<string, unknown>(table, (value, key) => [
      when(not(or(isTable(value), isKind("invalid", value))), [
        output(text`${keyHelper.include(key)} = ${valueHelper.include(value)}\n`),
      ]),
    ]),
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
