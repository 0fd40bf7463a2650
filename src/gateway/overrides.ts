import { resolve } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import { defaultSettings, type SettingOverride, type Settings, splitBindAddress } from "../config/index.ts";
import type { Address } from "./address.ts";
import { oidcOverrides } from "./oidc-flags.ts";
import type { TlsFiles } from "./tls.ts";

/** What flags and environment variables say over the file; undefined is not said. Flags and variables are joined by commander. */
export interface Overrides {
  /** IP or ip:port. */
  readonly bindAddress?: string;
  readonly port?: string;
  readonly healthPort?: string;
  readonly metricsPort?: string;
  readonly logLevel?: string;
  readonly disableTls?: boolean | undefined;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsClientCa?: string;
}

const gateway = "openshell.gateway";

/**
 * The overrides as settings: flag over environment over file, setting by setting; IP and port of the listener count separately. They are
 * applied to the file before its rules run, so that a flag completes a file and breaks no rule unseen.
 * @throws invalid-argument naming a flag that makes no sense by itself
 */
export function settingOverrides(given: Overrides): SettingOverride[] {
  const found: SettingOverride[] = [];
  const set = (name: string, from: string, value: unknown) => {
    if (value !== undefined) found.push({ key: `${gateway}.${name}`, from, value: () => value });
  };
  if (given.bindAddress !== undefined || given.port !== undefined) found.push(bindOverride(given));
  for (const [flag, port, name] of [
    ["--health-port", given.healthPort, "health_bind_address"],
    ["--metrics-port", given.metricsPort, "metrics_bind_address"],
  ] as const) {
    if (port !== undefined) found.push(besideOverride(flag, port, name));
  }
  set("log_level", "--log-level", given.logLevel);
  set("disable_tls", "--disable-tls", given.disableTls);
  // A file written for TLS is served in plain text when the flag says so; certificates given beside the flag contradict it.
  if (given.disableTls === true) found.push({ key: `${gateway}.tls`, from: "--disable-tls", value: () => undefined });
  set("tls.cert_path", "--tls-cert", absolute(given.tlsCert));
  set("tls.key_path", "--tls-key", absolute(given.tlsKey));
  set("tls.client_ca_path", "--tls-client-ca", absolute(given.tlsClientCa));
  return [...found, ...oidcOverrides(given)];
}

/** The listeners of a settings file. */
export function listenersOf({ gateway: own }: Settings): {
  readonly bind: Address;
  readonly health: Address | undefined;
  readonly metrics: Address | undefined;
  readonly tls: TlsFiles | undefined;
} {
  const { tls } = own;
  return {
    bind: addressOf(own.bind_address),
    health: own.health_bind_address === "" ? undefined : addressOf(own.health_bind_address),
    metrics: own.metrics_bind_address === "" ? undefined : addressOf(own.metrics_bind_address),
    tls: tls === undefined ? undefined : { cert: tls.cert_path, key: tls.key_path, clientCa: tls.client_ca_path },
  };
}

function bindOverride({ bindAddress, port }: Overrides): SettingOverride {
  const asked = bindAddress === undefined ? undefined : askedAddress(bindAddress);
  const askedPort = port === undefined ? asked?.port : portOf("--port", port);
  return {
    key: bindKey,
    from: bindAddress === undefined ? "--port" : "--bind-address",
    value: (read) => {
      const file = bound(read);
      // An unusable address in the file is the file's problem to be told of.
      if (file === undefined && (asked === undefined || askedPort === undefined)) return read(bindKey);
      return printed({ host: asked?.host ?? file?.host ?? "", port: askedPort ?? file?.port ?? 0 });
    },
  };
}

/** A port beside the main listener, on its address; 0 is none. */
function besideOverride(flag: string, port: string, name: string): SettingOverride {
  const number = portOf(flag, port);
  const value = (read: (key: string) => unknown) => {
    const bind = bound(read);
    if (number === 0) return "";
    return bind === undefined ? undefined : printed({ host: bind.host, port: number });
  };
  return { key: `${gateway}.${name}`, from: flag, value };
}

const bindKey = `${gateway}.bind_address`;

function bound(read: (key: string) => unknown): Address | undefined {
  const value = read(bindKey) ?? defaultSettings().gateway.bind_address;
  return typeof value === "string" ? splitBindAddress(value) : undefined;
}

function printed({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function addressOf(setting: string): Address {
  const found = splitBindAddress(setting);
  if (found !== undefined) return found;
  throw new OpenShellError("internal", `${setting} passed as an address and is none`);
}

function askedAddress(text: string): { readonly host: string; readonly port: number | undefined } {
  const whole = splitBindAddress(text);
  if (whole !== undefined) return whole;
  const alone = splitBindAddress(text.includes(":") ? `[${text}]:0` : `${text}:0`);
  if (alone !== undefined) return { host: alone.host, port: undefined };
  throw new OpenShellError(
    "invalid-argument",
    `--bind-address: ${JSON.stringify(text)} is no address like 0.0.0.0 or 0.0.0.0:8080`,
  );
}

function portOf(flag: string, text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65_535) return port;
  throw new OpenShellError("invalid-argument", `${flag}: ${JSON.stringify(text)} is no port (0 to 65535)`);
}

function absolute(path: string | undefined): string | undefined {
  return path === undefined ? undefined : resolve(path);
}
