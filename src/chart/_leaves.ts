/**
 * Test support: every single value and setting of the chart with another value than its default, out of the schemas, so that a new one is
 * among them by itself.
 */
import { type JsonSchema, jsonSchemaOf, tables } from "../config/index.ts";
import { valuesDescription } from "./values-yaml.ts";

type Values = Readonly<Record<string, unknown>>;

/** One value or setting, before and after a change of nothing else. */
export interface Leaf {
  /** `service.port`, or `gatewayConfig.openshell.gateway.log_level`. */
  readonly name: string;
  readonly isSetting: boolean;
  readonly description: string;
  readonly before: Values;
  readonly after: Values;
}

const driver = "openshell.drivers.kubernetes";
const setting = (table: string, settings: Values) => ({ gatewayConfig: { [table]: settings } });
const unauthenticated = setting("openshell.gateway", { auth: { allow_unauthenticated_users: true } });
const grpcRoute = {
  enabled: true,
  gateway: { name: "edge" },
  backendTLSPolicy: { enabled: true, caConfigMapName: "edge-ca" },
};
const ownGateway = { create: true, className: "edge", listener: { certificateSecretNames: ["edge-tls"] } };
const allSecrets = {
  server: { tls: { certSecretName: "a", clientCaSecretName: "b" }, jwtSecretName: "c", keysSecretName: "d" },
};

/**
 * What a value needs beside it to be allowed and to matter, and what can only change together with it, by the beginning of its name; every
 * entry that fits holds. A group with a switch `enabled` needs no entry for that.
 */
const companions: readonly (readonly [start: string, beside: Values, together?: Values])[] = [
  ["sandbox.image", { sandbox: { image: { repository: "agents/base" } } }],
  ["serviceAccount.create", { serviceAccount: { name: "given" } }],
  ["service.nodePort", { service: { type: "NodePort" } }],
  ["service.externalTrafficPolicy", { service: { type: "NodePort" } }],
  ["service.loadBalancer", { service: { type: "LoadBalancer" } }],
  ["resourceQuota.enabled", {}, { resourceQuota: { maxRunningSandboxes: 3 } }],
  ["resourceQuota.maxRunningSandboxes", { resourceQuota: { hard: { services: "9" } } }],
  ["resourceQuota.hard", { resourceQuota: { maxRunningSandboxes: 3 } }],
  ["limitRange", { limitRange: { min: { cpu: "1m" }, max: { cpu: "9" } } }],
  ["tlsRoute", { tlsRoute: { hostnames: ["a.example.com"], gateway: { name: "edge" } } }],
  ["grpcRoute", { grpcRoute, ...unauthenticated }],
  ["grpcRoute.enabled", { grpcRoute: { backendTLSPolicy: { enabled: false } }, server: { disableTls: true } }],
  ["grpcRoute.backendTLSPolicy.enabled", { server: { disableTls: true } }, { server: { disableTls: false } }],
  ["grpcRoute.gateway.create", { grpcRoute: { gateway: ownGateway } }],
  ["grpcRoute.gateway.className", { grpcRoute: { gateway: ownGateway } }],
  ["grpcRoute.gateway.listener", { grpcRoute: { gateway: ownGateway } }],
  ["ingress", { ingress: { host: "a.example.com", tlsSecretName: "edge-tls" }, ...unauthenticated }],
  ["ingress.passthrough", {}, { ingress: { tlsSecretName: "" } }],
  ["openshiftRoute", { openshiftRoute: { host: "a.example.com" } }],
  ["certManager.certificateDuration", { certManager: { certificateRenewBefore: "10m" } }],
  ["certManager.serverIssuerRef", { certManager: { serverIssuerRef: { name: "given" } } }],
  [
    "certManager.internalNames",
    {
      certManager: { serverDnsNames: ["a.example.com"] },
      ...setting(driver, { grpc_endpoint: "https://a.example.com:8080" }),
    },
  ],
  ["server.disableTls", unauthenticated],
  ["pkiInitJob.enabled", allSecrets],
  ["extraVolumeMounts", { extraVolumes: [{ name: "proxy-ca", emptyDir: {} }] }],
  ["gatewayConfig.openshell.gateway.oidc", setting("openshell.gateway", { oidc: { issuer: "https://a.example.com" } })],
  [
    "gatewayConfig.openshell.gateway.mtls_auth.enabled",
    merge(unauthenticated, setting("openshell.gateway", { mtls_auth: { enabled: false } })),
  ],
  [`gatewayConfig.${driver}.grpc_endpoint`, setting(driver, { grpc_endpoint: "https://a.example.com:8080" })],
  ["gatewayConfig.openshell.gateway.gateway_jwt.gateway_id", {}, setting(driver, { gateway_id: "changed" })],
  [
    `gatewayConfig.${driver}.operator_namespace_label`,
    setting(driver, { workspace_mode: "operator", operator_namespace_label: "a=b" }),
  ],
  [
    `gatewayConfig.${driver}.operator_namespace_file`,
    setting(driver, { workspace_mode: "operator", operator_namespace_file: "/a.json" }),
  ],
  [`gatewayConfig.${driver}.managed_namespaces`, setting(driver, { workspace_mode: "managed" })],
  [`gatewayConfig.${driver}.gateway_id`, setting(driver, { workspace_mode: "managed" })],
];

/** Texts of every grammar that a value may ask for; the first that fits is taken. */
const texts = [
  "changed",
  "Changed",
  "changed.example.com",
  "/changed",
  "2Gi",
  "7m",
  "https://changed.example.com",
  "sha256:7".padEnd(71, "7"),
];
const keys = ["changed", "example.com/changed"];

/** Every value of values.yaml, and every setting of gateway.toml, that there is another value for: all but replicaCount and compute_driver. */
export function leaves(): readonly Leaf[] {
  const values = leavesOf(valuesDescription(), []).filter(({ path }) => path[0] !== "gatewayConfig");
  const settings = Object.entries(tables).flatMap(([table, schema]) =>
    leavesOf(jsonSchemaOf(schema), ["gatewayConfig", table]),
  );
  return [...values, ...settings].flatMap(({ path, schema }) => {
    const name = path.join(".");
    const fitting = companions.filter(([start]) => name.startsWith(start));
    const context = [switchesOf(path), ...fitting.map(([, beside]) => beside)].reduce(merge, {});
    const together = fitting.reduce((all, [, , more = {}]) => merge(all, more), {});
    // A switch is turned, to what its companion says or away from its default; other values change from what the companion says.
    const isSwitch = schema.type === "boolean";
    const before = isSwitch ? without(context, path) : context;
    const changed = isSwitch ? (at(context, path) ?? schema.default !== true) : changedOf(schema, at(context, path));
    if (changed === undefined || name === "replicaCount") return [];
    const isSetting = path[0] === "gatewayConfig";
    return [
      {
        name,
        isSetting,
        description: schema.description ?? "",
        before,
        after: [nested(path, changed), together].reduce(merge, context),
      },
    ];
  });
}

interface Found {
  readonly path: readonly string[];
  readonly schema: JsonSchema;
}

function leavesOf(schema: JsonSchema, path: readonly string[]): Found[] {
  const inner = Object.entries(schema.properties ?? {});
  if (inner.length === 0) return [{ path, schema }];
  return inner.flatMap(([key, part]) => leavesOf(part, [...path, key]));
}

/** `enabled` of every group around a value, where it is off. */
function switchesOf(path: readonly string[]): Values {
  let schema = path[0] === "gatewayConfig" ? undefined : valuesDescription();
  let switches: Values = {};
  path.forEach((step, index) => {
    schema = schema?.properties?.[step];
    if (schema?.properties?.enabled?.default === false)
      switches = merge(switches, nested([...path.slice(0, index + 1), "enabled"], true));
  });
  return switches;
}

/** Another value than the default and than the one beside it. */
function changedOf(schema: JsonSchema, beside: unknown): unknown {
  const now = JSON.stringify(beside ?? schema.default);
  const isOther = (value: unknown) => value !== undefined && JSON.stringify(value) !== now;
  return [...(schema.examples ?? []), ...samplesOf(schema)].find(isOther);
}

function samplesOf(schema: JsonSchema): unknown[] {
  const { const: only, enum: choices, anyOf, default: fallback } = schema;
  if (only !== undefined) return [only];
  if (choices !== undefined) return choices;
  if (anyOf !== undefined) return anyOf.flatMap(samplesOf);
  switch (schema.type) {
    case "boolean":
      return [true];
    case "integer": {
      const next = Number(fallback ?? schema.minimum) + 7;
      return [next <= Number(schema.maximum) ? next : Number(schema.minimum)];
    }
    case "string":
      return texts.filter((text) => isAllowed(schema, text));
    case "array":
      return samplesOf(schema.items ?? {}).map((item) => [item]);
    case "object":
      return samplesOfMap(schema);
    default:
      return ["changed"];
  }
}

function samplesOfMap({ properties, patternProperties, additionalProperties, ...schema }: JsonSchema): unknown[] {
  if (properties !== undefined)
    return [Object.fromEntries(Object.entries(properties).map(([key, part]) => [key, samplesOf(part)[0]]))];
  // A map of amounts such as requests knows its keys.
  const [known] = Object.keys((schema.default ?? {}) as object);
  const [[pattern, fitting] = []] = Object.entries(patternProperties ?? {});
  const form = pattern === undefined ? (schema.propertyNames ?? {}) : { pattern };
  const key = known ?? keys.find((one) => isAllowed(form, one)) ?? "";
  const entry = fitting ?? (typeof additionalProperties === "object" ? additionalProperties : {});
  return samplesOf(entry).map((value) => ({ [key]: value }));
}

function isAllowed({ pattern, maxLength = Number.MAX_SAFE_INTEGER }: JsonSchema, text: string): boolean {
  return text.length <= Number(maxLength) && (typeof pattern !== "string" || new RegExp(pattern).test(text));
}

function nested(path: readonly string[], value: unknown): Values {
  return path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as Values;
}

function isMap(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `over` laid over `under`, as Helm lays one values file over another. */
export function merge(under: Values, over: Values): Values {
  const merged: Record<string, unknown> = { ...under };
  for (const [key, value] of Object.entries(over)) {
    const below = merged[key];
    merged[key] = isMap(below) && isMap(value) ? merge(below, value) : value;
  }
  return merged;
}

function at(values: Values, path: readonly string[]): unknown {
  return path.reduce<unknown>((value, key) => (isMap(value) ? value[key] : undefined), values);
}

function without(values: Values, path: readonly string[]): Values {
  const [key = "", ...rest] = path;
  const { [key]: inner, ...others } = values;
  return rest.length > 0 && isMap(inner) ? { ...others, [key]: without(inner, rest) } : others;
}
