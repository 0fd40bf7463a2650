import { lookup } from "node:dns/promises";
import { existsSync } from "node:fs";
import { isIP } from "node:net";
import { dirname, join } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import { createLogger, type Logger } from "../common/log.ts";
import type { OidcSettings, Settings } from "../config/index.ts";
import { createDriver, reasonClass } from "../driver/index.ts";
import { configPath, loadSettings } from "./config-file.ts";
import { type Gateway, startGateway } from "./gateway.ts";
import { authoritiesPath, type OidcOptions } from "./identity/oidc/oidc-users.ts";
import type { SessionTokenKeys } from "./identity/session-tokens.ts";
import { readMasterSecret } from "./master-secret.ts";
import { DriverMeters } from "./metrics/driver-meters.ts";
import { listenersOf, type Overrides, settingOverrides } from "./overrides.ts";
import { readSecret } from "./secret-file.ts";
import { pathOfUrl } from "./store/database.ts";
import { version } from "./version.ts";

export interface ServeOptions extends Overrides {
  readonly config?: string;
  readonly dbUrl?: string;
  /** For development outside a cluster. */
  readonly kubeconfig?: string;
}

/**
 * Reads settings and secrets and starts the gateway with the Kubernetes driver.
 * @throws invalid-argument for what the operator has to correct; everything else is a failure to start
 */
export async function serve(options: ServeOptions): Promise<{ readonly gateway: Gateway; readonly log: Logger }> {
  const settings = loadSettings(configPath(options.config, process.env), "serve", settingOverrides(options));
  const { gateway: own, kubernetes } = settings;
  const { bind, health, metrics, tls } = listenersOf(settings);
  const databasePath = pathOfUrl(
    required(options.dbUrl, "--db-url or OPENSHELL_DB_URL, for example sqlite:/var/openshell/openshell.db"),
  );
  const log = createLogger({ name: "openshell-gateway", level: own.log_level });
  const caPath = tls === undefined ? undefined : authorityBeside(tls.cert);
  const meters = new DriverMeters();
  const driver = createDriver({
    settings: kubernetes,
    gateway: {
      id: kubernetes.gateway_id,
      version,
      endpoint: kubernetes.grpc_endpoint,
      fenceTargets: await fenceTargets(kubernetes.grpc_endpoint, log),
      ...(caPath === undefined ? {} : { caPem: () => readSecret("tls.cert_path", caPath) }),
    },
    masterSecret: readMasterSecret(required(own.master_secret_path, "master_secret_path")),
    log,
    ...meters.listeners,
    ...(options.kubeconfig === undefined ? {} : { kubeconfig: options.kubeconfig }),
  });
  const gateway = await startGateway({
    version,
    gatewayId: kubernetes.gateway_id,
    bind,
    ...(health === undefined ? {} : { health }),
    ...(metrics === undefined ? {} : { metrics }),
    ...(tls === undefined ? {} : { tls }),
    mtlsUsers: own.mtls_auth.enabled,
    ...oidcOptions(own.oidc, process.env),
    allowUnauthenticatedUsers: own.auth.allow_unauthenticated_users,
    ...tokenSettings(settings),
    databasePath,
    driver,
    driverReadings: meters.readings(driver),
    driverName: own.compute_driver,
    allowDriverConfig: kubernetes.allow_driver_config,
    classify: reasonClass,
    log,
  });
  return { gateway, log };
}

function required(value: string | undefined, what: string): string {
  if (value !== undefined && value !== "") return value;
  throw new OpenShellError("invalid-argument", `missing: ${what}`);
}

function oidcOptions(own: OidcSettings, env: NodeJS.ProcessEnv): { readonly oidc?: OidcOptions } {
  if (own.issuer === "") return {};
  const caPath = authoritiesPath(own.ca_cert_path, env);
  return {
    oidc: {
      issuer: own.issuer,
      audience: own.audience,
      jwksTtlSeconds: own.jwks_ttl_secs,
      jwksAllowedOrigins: own.jwks_allowed_origins,
      allowInsecureHttp: own.dangerously_allow_insecure_http,
      ...(caPath === undefined ? {} : { caPath }),
      rolesClaim: own.roles_claim,
      adminRole: own.admin_role,
      userRole: own.user_role,
      scopesClaim: own.scopes_claim,
    },
  };
}

function tokenSettings({ gateway: { gateway_jwt: jwt } }: Settings) {
  if (jwt === undefined) return {};
  const tokenKeys: SessionTokenKeys = {
    signingPem: readSecret("gateway_jwt.signing_key_path", jwt.signing_key_path),
    publicPem: readSecret("gateway_jwt.public_key_path", jwt.public_key_path),
    kid: readSecret("gateway_jwt.kid_path", jwt.kid_path).trim(),
  };
  return { tokenKeys, tokenTtlSeconds: jwt.ttl_secs };
}

/** File of the CA that supervisors check this gateway against: `ca.crt` beside the certificate, as the chart mounts it. It is renewed like it. */
function authorityBeside(cert: string): string | undefined {
  const path = join(dirname(cert), "ca.crt");
  return existsSync(path) ? path : undefined;
}

/** What no workload may reach, as ip:port, for the runtime's fence probe: the Kubernetes Service and this gateway. */
async function fenceTargets(endpoint: string, log: Logger): Promise<string[]> {
  const targets: string[] = [];
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = process.env;
  if (host !== undefined && host !== "") targets.push(hostPort(host, port));
  const url = new URL(endpoint);
  const name = url.hostname.replace(/^\[|\]$/g, "");
  try {
    const { address } = isIP(name) === 0 ? await lookup(name) : { address: name };
    targets.push(hostPort(address, url.port || (url.protocol === "https:" ? "443" : "80")));
  } catch (error) {
    log.warn({ err: error, endpoint }, "grpc_endpoint does not resolve here; the fence probe goes without it");
  }
  return targets;
}

function hostPort(host: string, port: string): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
