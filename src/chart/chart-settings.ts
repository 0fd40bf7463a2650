/** The settings of gateway.toml that the chart decides. Nothing else of it writes a setting, and the reference tells them apart by this. */
import { ports } from "../manifests/names.ts";
import { values } from "./_values.ts";
import { files } from "./files.ts";
import { images, pullPolicy } from "./images.ts";
import { call, choose, type Input, more, not, shorten, text, variable } from "./layer/index.ts";
import { fullname, names, sandboxNamespace, serviceHost } from "./names.ts";

/** One setting, as the chart writes it. */
export interface ChartSetting {
  readonly value: Input<unknown>;
  /** Where that comes from, for the reference. In backquotes: the values of the chart that it follows. */
  readonly says: string;
  /** @default always */
  readonly when?: Input<unknown>;
  /** Whether "" is no answer either. @default false */
  readonly replacesEmpty?: boolean;
}

type Tables = Readonly<Record<string, Readonly<Record<string, ChartSetting>>>>;

/** What becomes gateway.toml. A setting may read what was written before it. */
export const tree = variable<Record<string, unknown>>("tree", call("dict"));

const plain = values.server.disableTls;
const onAllAddresses = (port: Input<number>) => text`0.0.0.0:${port}`;
const ofSecret = (given: string, maker: string) => `a file of Secret \`${given}\`, or of the one that ${maker} makes`;
const fullnameSays = "the release's full name, such as prod-openshell (`nameOverride`, `fullnameOverride`)";

/** The table that is there with TLS only. */
export const tlsTable = "openshell.gateway.tls";
const serverTls = ofSecret("server.tls.certSecretName", "the hook or cert-manager");

/** They win over whatever gatewayConfig says. */
export const ownSettings = {
  "openshell.gateway": {
    bind_address: {
      value: onAllAddresses(ports.gateway),
      says: `port ${ports.gateway} of the Pod on all addresses`,
    },
    health_bind_address: {
      value: onAllAddresses(values.service.healthPort),
      says: "port `service.healthPort` on all addresses",
    },
    metrics_bind_address: {
      value: choose(more(values.service.metricsPort, 0), onAllAddresses(values.service.metricsPort), ""),
      says: "port `service.metricsPort` on all addresses (0: nowhere)",
    },
    disable_tls: { value: plain, says: "`server.disableTls`" },
    master_secret_path: { value: files.masterSecret, says: ofSecret("server.keysSecretName", "the hook") },
  },
  [tlsTable]: {
    cert_path: { value: files.serverCertificate, says: serverTls },
    key_path: { value: files.serverKey, says: serverTls },
    client_ca_path: {
      value: files.clientCa,
      says: ofSecret("server.tls.clientCaSecretName", "the hook or cert-manager"),
    },
  },
  "openshell.gateway.gateway_jwt": {
    signing_key_path: { value: files.jwtSigningKey, says: ofSecret("server.jwtSecretName", "the hook") },
    public_key_path: { value: files.jwtPublicKey, says: ofSecret("server.jwtSecretName", "the hook") },
    kid_path: { value: files.jwtKid, says: ofSecret("server.jwtSecretName", "the hook") },
  },
  "openshell.gateway.credential_storage": {
    key_encryption_key_path: { value: files.keyEncryptionKey, says: ofSecret("server.keysSecretName", "the hook") },
  },
  "openshell.drivers.kubernetes": {
    namespace: {
      value: sandboxNamespace,
      says: "`sandboxNamespace.name`, or the release's namespace with -sandboxes after it",
    },
    service_account_name: {
      value: names.sandboxServiceAccount,
      says: "the ServiceAccount of `sandboxServiceAccount`",
    },
  },
} as const satisfies Tables;

/** They hold where gatewayConfig says nothing. */
export const filledSettings = {
  "openshell.gateway": { name: { value: fullname, says: fullnameSays } },
  "openshell.gateway.mtls_auth": {
    enabled: { value: not(plain), says: "true, or false where `server.disableTls` is true" },
  },
  "openshell.drivers.kubernetes": {
    gateway_id: { value: shorten(fullname, 33), says: `${fullnameSays}, at most 33 characters of it` },
    supervisor_image: {
      value: images.supervisor,
      says: "`supervisor.image`, and what it leaves out from `global.image`",
    },
    supervisor_image_pull_policy: {
      value: pullPolicy(values.supervisor.image),
      says: "`supervisor.image.pullPolicy`, or `global.image.pullPolicy`",
    },
    sandbox_runtime_image: {
      value: images.runtime,
      says: "`sandboxRuntime.image`, and what it leaves out from `global.image`",
    },
    sandbox_runtime_image_pull_policy: {
      value: pullPolicy(values.sandboxRuntime.image),
      says: "`sandboxRuntime.image.pullPolicy`, or `global.image.pullPolicy`",
    },
    default_image: {
      when: values.sandbox.image.repository,
      value: images.sandbox,
      says: "`sandbox.image` where it has a repository",
    },
    image_pull_policy: {
      when: values.sandbox.image.pullPolicy,
      value: values.sandbox.image.pullPolicy,
      says: "`sandbox.image.pullPolicy` where it is not empty",
    },
    grpc_endpoint: {
      replacesEmpty: true,
      value: text`${choose(plain, "http", "https")}://${serviceHost}:${values.service.port}`,
      says: "the gateway's Service at `service.port`, by http where `server.disableTls` is true",
    },
  },
  "openshell.gateway.gateway_jwt": {
    gateway_id: {
      value: call("dig", "openshell", "drivers", "kubernetes", "gateway_id", "", tree),
      says: "gateway_id of the driver",
    },
  },
} as const satisfies Tables;

/** What the reference says about each, by the full TOML path. */
export const chartSettingsSay: ReadonlyMap<string, string> = new Map([
  ...sentences(ownSettings, "; not settable here"),
  ...sentences(filledSettings, ", unless set here"),
]);

function sentences(tables: Tables, end: string): [string, string][] {
  return settingsOf(tables).map(({ table, key, says }) => [`${table}.${key}`, `${says}${end}`]);
}

/** All settings of tables, one after another. */
export function settingsOf(tables: Tables): (ChartSetting & { readonly table: string; readonly key: string })[] {
  return Object.entries(tables).flatMap(([table, settings]) =>
    Object.entries(settings).map(([key, setting]) => ({ table, key, ...setting })),
  );
}
