import { OpenShellError } from "../common/errors.ts";
import { type LogLevel, logLevels } from "../common/log.ts";
import type { Settings } from "../config/index.ts";
import type { Address } from "./http.ts";

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

/** The few settings that flags can change, after the file and the flags. */
export interface Listening {
  readonly bind: Address;
  readonly health: Address | undefined;
  readonly metrics: Address | undefined;
  readonly logLevel: LogLevel;
  readonly tls: { readonly cert: string; readonly key: string; readonly clientCa: string | undefined } | undefined;
}

/**
 * Flag over environment over file, setting by setting; IP and port of the listener count separately.
 * @throws invalid-argument naming the flag
 */
export function listening(settings: Settings, given: Overrides): Listening {
  const { gateway } = settings;
  const file = addressOf("bind_address", gateway.bind_address);
  const asked = given.bindAddress === undefined ? undefined : askedAddress(given.bindAddress);
  const bind = {
    host: asked?.host ?? file.host,
    port: given.port === undefined ? (asked?.port ?? file.port) : portOf("--port", given.port),
  };
  const beside = (flag: string, port: string | undefined, setting: string, fromFile: string): Address | undefined => {
    if (port === undefined) return fromFile === "" ? undefined : addressOf(setting, fromFile);
    const number = portOf(flag, port);
    return number === 0 ? undefined : { host: bind.host, port: number };
  };
  return {
    bind,
    health: beside("--health-port", given.healthPort, "health_bind_address", gateway.health_bind_address),
    metrics: beside("--metrics-port", given.metricsPort, "metrics_bind_address", gateway.metrics_bind_address),
    logLevel: levelOf(given.logLevel ?? gateway.log_level),
    tls: tlsOf(settings, given),
  };
}

function tlsOf({ gateway: { tls, disable_tls } }: Settings, given: Overrides): Listening["tls"] {
  if (given.disableTls ?? disable_tls) return undefined;
  const cert = given.tlsCert ?? tls?.cert_path;
  const key = given.tlsKey ?? tls?.key_path;
  if (cert === undefined || key === undefined) {
    throw new OpenShellError(
      "invalid-argument",
      "TLS needs a certificate and its key: set tls.cert_path and tls.key_path (or --tls-cert and --tls-key), or disable_tls for development",
    );
  }
  return { cert, key, clientCa: given.tlsClientCa ?? tls?.client_ca_path };
}

/** The parts of `ip:port`. */
export function addressOf(what: string, text: string): Address {
  const [, v6, v4, port = ""] = /^(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = v6 ?? v4;
  if (host === undefined) {
    throw new OpenShellError("invalid-argument", `${what}: ${JSON.stringify(text)} is no address like 0.0.0.0:8080`);
  }
  return { host, port: portOf(what, port) };
}

function askedAddress(text: string): { readonly host: string; readonly port: number | undefined } {
  if (/^[0-9.]+$/.test(text) || /^[0-9A-Fa-f:]+$/.test(text)) return { host: text, port: undefined };
  return addressOf("--bind-address", text);
}

function portOf(what: string, text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65_535) return port;
  throw new OpenShellError("invalid-argument", `${what}: ${JSON.stringify(text)} is no port (0 to 65535)`);
}

function levelOf(text: string): LogLevel {
  const level = logLevels.find((one) => one === text);
  if (level !== undefined) return level;
  throw new OpenShellError(
    "invalid-argument",
    `--log-level: ${JSON.stringify(text)} is none of ${logLevels.join(", ")}`,
  );
}
