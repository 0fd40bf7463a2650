import { gatewayOidc } from "./gateway-oidc.ts";

/** A scalar that a condition compares with. */
export type Scalar = string | number | boolean;

/**
 * What a rule looks at, as data: the same condition is evaluated here on a settings file and printed by the chart as a Helm guard. Keys
 * are full TOML paths, e.g. `openshell.gateway.disable_tls`.
 */
export type Condition =
  | { readonly is: string; readonly value: Scalar }
  /** Not there, or "", or an empty list or table. */
  | { readonly empty: string }
  /** Both are there and equal. */
  | { readonly same: readonly [string, string] }
  | { readonly startsWith: string; readonly prefix: string }
  | { readonly not: Condition }
  | { readonly all: readonly Condition[] }
  | { readonly any: readonly Condition[] };

/** A combination of settings that is refused. */
export interface SettingRule {
  /** Every setting the condition reads; the first one is where the error is shown. */
  readonly keys: readonly string[];
  /** `load`: wrong in any file. `serve`: wrong only for a gateway that is to serve, not for one that only renders. */
  readonly at: "load" | "serve";
  /** True when the combination is refused. */
  readonly refusedWhen: Condition;
  /** What is wrong and what to do about it. */
  readonly sentence: string;
  /** The same where the chart decides one of the settings. @default the same words */
  readonly inChart?: string;
}

const gateway = "openshell.gateway";
const oidc = `${gateway}.oidc`;
const driver = "openshell.drivers.kubernetes";

/** Every setting of OIDC besides the issuer, and when it says something else than its default. */
const withoutIssuer = Object.entries(gatewayOidc.parse({})).flatMap(([name, value]) => {
  const key = `${oidc}.${name}`;
  if (name === "issuer") return [];
  const isDefault: Condition = Array.isArray(value) || value === "" ? { empty: key } : { is: key, value };
  return [{ key, isSaid: { not: isDefault } satisfies Condition }];
});

const waysIn = [
  `${gateway}.auth.allow_unauthenticated_users`,
  `${gateway}.mtls_auth.enabled`,
  `${oidc}.issuer`,
] as const;
const nobodyComesIn: readonly Condition[] = [
  { is: waysIn[0], value: false },
  { is: waysIn[1], value: false },
  { empty: waysIn[2] },
];

/** All cross-field rules. */
export const settingRules: readonly SettingRule[] = [
  {
    keys: [`${gateway}.disable_tls`, `${gateway}.tls`],
    at: "load",
    refusedWhen: { all: [{ is: `${gateway}.disable_tls`, value: true }, { not: { empty: `${gateway}.tls` } }] },
    sentence:
      "disable_tls = true listens in plain text, so the table [openshell.gateway.tls] has no effect; remove one of the two",
  },
  {
    keys: [`${gateway}.tls`, `${gateway}.disable_tls`],
    at: "serve",
    refusedWhen: { all: [{ is: `${gateway}.disable_tls`, value: false }, { empty: `${gateway}.tls` }] },
    sentence:
      "the gateway listens with TLS but has no certificate; give [openshell.gateway.tls] cert_path and key_path, or, for development, set disable_tls = true",
  },
  {
    keys: [`${gateway}.mtls_auth.enabled`, `${gateway}.disable_tls`],
    at: "load",
    refusedWhen: {
      all: [
        { is: `${gateway}.mtls_auth.enabled`, value: true },
        { is: `${gateway}.disable_tls`, value: true },
      ],
    },
    sentence: "mtls_auth.enabled = true needs TLS, but disable_tls = true turns it off; set one of them to false",
    inChart: "mtls_auth.enabled = true needs TLS, but server.disableTls turns it off; set server.disableTls to false",
  },
  {
    keys: [`${gateway}.mtls_auth.enabled`, `${gateway}.tls.client_ca_path`, `${gateway}.disable_tls`],
    at: "load",
    refusedWhen: {
      all: [
        { is: `${gateway}.mtls_auth.enabled`, value: true },
        { is: `${gateway}.disable_tls`, value: false },
        { empty: `${gateway}.tls.client_ca_path` },
      ],
    },
    sentence: "mtls_auth.enabled = true needs tls.client_ca_path, the authority that signs the users' certificates",
  },
  {
    keys: [...waysIn, `${gateway}.disable_tls`],
    at: "serve",
    refusedWhen: { all: [...nobodyComesIn, { is: `${gateway}.disable_tls`, value: false }] },
    sentence:
      "no user could connect: set mtls_auth.enabled = true, give [openshell.gateway.oidc] an issuer, or, for development, set auth.allow_unauthenticated_users = true",
  },
  {
    keys: [...waysIn, `${gateway}.disable_tls`],
    at: "serve",
    refusedWhen: { all: [...nobodyComesIn, { is: `${gateway}.disable_tls`, value: true }] },
    sentence:
      "no user could connect, because without TLS nobody shows a certificate: give [openshell.gateway.oidc] an issuer, or, for development, set auth.allow_unauthenticated_users = true",
    inChart:
      "no user could connect, because without TLS nobody shows a certificate: set server.disableTls to false, give [openshell.gateway.oidc] an issuer, or, for development, set auth.allow_unauthenticated_users = true",
  },
  {
    keys: [`${oidc}.issuer`, `${oidc}.dangerously_allow_insecure_http`],
    at: "load",
    refusedWhen: {
      all: [
        { startsWith: `${oidc}.issuer`, prefix: "http:" },
        { is: `${oidc}.dangerously_allow_insecure_http`, value: false },
      ],
    },
    sentence:
      "oidc.issuer is an http:// address, and whoever answers there says who everybody is; write https://, or, for development, set oidc.dangerously_allow_insecure_http = true",
  },
  {
    keys: [`${oidc}.admin_role`, `${oidc}.user_role`],
    at: "load",
    refusedWhen: {
      any: [
        { all: [{ empty: `${oidc}.admin_role` }, { not: { empty: `${oidc}.user_role` } }] },
        { all: [{ empty: `${oidc}.user_role` }, { not: { empty: `${oidc}.admin_role` } }] },
      ],
    },
    sentence:
      "oidc.admin_role and oidc.user_role go together; name both, or leave both empty, which makes everyone with a valid token an administrator",
  },
  {
    keys: [`${oidc}.issuer`, ...withoutIssuer.map(({ key }) => key)],
    at: "load",
    refusedWhen: { all: [{ empty: `${oidc}.issuer` }, { any: withoutIssuer.map(({ isSaid }) => isSaid) }] },
    sentence:
      "the settings of [openshell.gateway.oidc] have no effect without oidc.issuer; name the provider or leave them out",
  },
  {
    keys: [`${gateway}.gateway_jwt`],
    at: "serve",
    refusedWhen: { empty: `${gateway}.gateway_jwt` },
    sentence:
      "no supervisor could connect: give [openshell.gateway.gateway_jwt] signing_key_path, public_key_path and kid_path",
  },
  {
    keys: [`${gateway}.master_secret_path`],
    at: "serve",
    refusedWhen: { empty: `${gateway}.master_secret_path` },
    sentence:
      "the keys of sandboxes are derived from a secret: set master_secret_path to a file that holds 32 random bytes in base64",
  },
  {
    keys: [`${gateway}.gateway_jwt.gateway_id`, `${driver}.gateway_id`, `${gateway}.gateway_jwt`],
    at: "load",
    refusedWhen: {
      all: [
        { not: { empty: `${gateway}.gateway_jwt` } },
        { not: { same: [`${gateway}.gateway_jwt.gateway_id`, `${driver}.gateway_id`] } },
      ],
    },
    sentence:
      "gateway_jwt.gateway_id and gateway_id of [openshell.drivers.kubernetes] name the same gateway; give both the same value",
  },
  ...(["health_bind_address", "metrics_bind_address"] as const).map(
    (key): SettingRule => ({
      keys: [`${gateway}.${key}`, `${gateway}.bind_address`],
      at: "load",
      refusedWhen: { same: [`${gateway}.${key}`, `${gateway}.bind_address`] },
      sentence: `${key} and bind_address are the same address; give ${key} another port`,
    }),
  ),
  {
    keys: [`${gateway}.metrics_bind_address`, `${gateway}.health_bind_address`],
    at: "load",
    refusedWhen: { same: [`${gateway}.metrics_bind_address`, `${gateway}.health_bind_address`] },
    sentence:
      "metrics_bind_address and health_bind_address are the same address; give metrics_bind_address another port",
  },
  {
    keys: [`${driver}.workspace_mode`, `${driver}.operator_namespace_label`, `${driver}.operator_namespace_file`],
    at: "load",
    refusedWhen: {
      all: [
        { is: `${driver}.workspace_mode`, value: "operator" },
        { empty: `${driver}.operator_namespace_label` },
        { empty: `${driver}.operator_namespace_file` },
      ],
    },
    sentence:
      'workspace_mode = "operator" has to know which namespaces are workspaces; name their label in operator_namespace_label, or a list of them in operator_namespace_file',
  },
  {
    keys: [`${driver}.operator_namespace_file`, `${driver}.operator_namespace_label`],
    at: "load",
    refusedWhen: {
      all: [
        { not: { empty: `${driver}.operator_namespace_file` } },
        { not: { empty: `${driver}.operator_namespace_label` } },
      ],
    },
    sentence:
      "operator_namespace_file and operator_namespace_label both say which namespaces are workspaces; remove one of the two",
  },
  {
    keys: [`${driver}.operator_namespace_label`, `${driver}.operator_namespace_file`, `${driver}.workspace_mode`],
    at: "load",
    refusedWhen: {
      all: [
        {
          any: [
            { not: { empty: `${driver}.operator_namespace_label` } },
            { not: { empty: `${driver}.operator_namespace_file` } },
          ],
        },
        { not: { is: `${driver}.workspace_mode`, value: "operator" } },
      ],
    },
    sentence:
      'operator_namespace_label and operator_namespace_file are read only where workspace_mode is "operator"; remove them, or set workspace_mode = "operator"',
  },
  {
    keys: [`${driver}.image_pull_secrets`, `${driver}.workspace_mode`],
    at: "load",
    refusedWhen: {
      all: [{ not: { empty: `${driver}.image_pull_secrets` } }, { is: `${driver}.workspace_mode`, value: "managed" }],
    },
    sentence:
      'image_pull_secrets name Secrets of the sandboxes\' namespace, and with workspace_mode = "managed" nobody puts them into the new ones; remove them and give the nodes the credentials, or use workspace_mode = "operator" with operator_namespace_label',
  },
  {
    keys: [`${driver}.grpc_endpoint`],
    at: "serve",
    refusedWhen: { empty: `${driver}.grpc_endpoint` },
    sentence:
      "supervisors need grpc_endpoint, the address at which they reach this gateway from their Pods, such as https://gateway.example.com:8080",
  },
  {
    keys: [`${driver}.grpc_endpoint`, `${gateway}.disable_tls`],
    at: "load",
    refusedWhen: {
      all: [
        { startsWith: `${driver}.grpc_endpoint`, prefix: "http:" },
        { is: `${gateway}.disable_tls`, value: false },
      ],
    },
    sentence:
      "grpc_endpoint is an http:// address, but the gateway listens with TLS; write https://, or, for development, set disable_tls = true",
    inChart: "grpc_endpoint is an http:// address, but the gateway listens with TLS; write https://",
  },
];

/** Reads a setting by its full TOML path. */
export type SettingLookup = (key: string) => unknown;

/** Whether a condition holds for the settings that `lookup` reads. */
export function holds(condition: Condition, lookup: SettingLookup): boolean {
  if ("is" in condition) return lookup(condition.is) === condition.value;
  if ("empty" in condition) return isEmpty(lookup(condition.empty));
  if ("same" in condition) {
    const [left, right] = condition.same.map(lookup);
    return !isEmpty(left) && left === right;
  }
  if ("startsWith" in condition) {
    const value = lookup(condition.startsWith);
    return typeof value === "string" && value.startsWith(condition.prefix);
  }
  if ("not" in condition) return !holds(condition.not, lookup);
  if ("all" in condition) return condition.all.every((part) => holds(part, lookup));
  return condition.any.some((part) => holds(part, lookup));
}

/** Every setting that a condition reads. */
export function keysOf(condition: Condition): string[] {
  if ("is" in condition) return [condition.is];
  if ("empty" in condition) return [condition.empty];
  if ("same" in condition) return [...condition.same];
  if ("startsWith" in condition) return [condition.startsWith];
  if ("not" in condition) return keysOf(condition.not);
  return ("all" in condition ? condition.all : condition.any).flatMap(keysOf);
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}
