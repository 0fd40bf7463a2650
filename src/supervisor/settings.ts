import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runtimeServerName } from "../boundary/index.ts";
import { OpenShellError } from "../common/errors.ts";
import { type LogLevel, logLevels } from "../common/log.ts";

/** Files of the generation's supervisor Secret, by their names below `OPENSHELL_SUPERVISOR_DIR`. */
const files = { grant: "grant.jwt", certificate: "tls.crt", key: "tls.key", boundaryCa: "boundary-ca.crt" } as const;
const gatewayCaFile = "gateway-ca.crt";

/** All a supervisor is told; it asks nobody else. */
export interface SupervisorSettings {
  readonly sandboxId: string;
  readonly generationId: string;
  readonly podUid: string;
  readonly logLevel: LogLevel;
  /** TCP port that accepts connections exactly while both sessions are up. */
  readonly readinessPort: number;
  readonly gateway: {
    /** `host:port` */
    readonly target: string;
    readonly tls: boolean;
    /** PEM; absent means the system's roots. */
    readonly ca?: Buffer;
    /** File with the projected ServiceAccount token; kubelet renews it in place, so it is read at each use. */
    readonly tokenFile: string;
  };
  readonly boundary: {
    /** `host:port` of the boundary Service. */
    readonly target: string;
    /** Name in the runtime's certificate, whatever address it is reached by. */
    readonly serverName: string;
    readonly ca: Buffer;
    readonly certificate: Buffer;
    readonly key: Buffer;
    /** Session grant: compact JWS. */
    readonly grant: string;
  };
}

/**
 * Reads environment and Secret files.
 * @throws OpenShellError `invalid-argument` that lists everything that is missing or malformed
 */
export function readSettings(env: Readonly<Record<string, string | undefined>>): SupervisorSettings {
  const problems: string[] = [];
  const required = (name: string): string => {
    const value = env[name];
    if (value === undefined || value === "") problems.push(`${name} is not set`);
    return value ?? "";
  };
  const read = (path: string): Buffer => {
    try {
      return readFileSync(path);
    } catch (error) {
      problems.push(`${path} cannot be read (${(error as NodeJS.ErrnoException).code ?? "unknown error"})`);
      return Buffer.alloc(0);
    }
  };

  const directory = env.OPENSHELL_SUPERVISOR_DIR ?? "/etc/openshell/supervisor";
  const endpoint = parseEndpoint(required("OPENSHELL_GATEWAY_ENDPOINT"), problems);
  const generationId = required("OPENSHELL_GENERATION_ID");
  const level = env.OPENSHELL_LOG_LEVEL || "info";
  if (!isLogLevel(level)) problems.push(`OPENSHELL_LOG_LEVEL is "${level}": use ${logLevels.join(", ")}`);
  const readinessPort = Number(env.OPENSHELL_READINESS_PORT ?? "5501");
  if (!Number.isInteger(readinessPort) || readinessPort < 0 || readinessPort > 65535) {
    problems.push("OPENSHELL_READINESS_PORT is no port number");
  }
  const boundaryTarget = required("OPENSHELL_BOUNDARY_ENDPOINT");
  if (boundaryTarget !== "" && !/^.+:\d+$/.test(boundaryTarget)) {
    problems.push(`OPENSHELL_BOUNDARY_ENDPOINT is "${boundaryTarget}": use host:port`);
  }
  const ca = endpoint.tls ? optionalFile(join(directory, gatewayCaFile)) : undefined;
  const settings: SupervisorSettings = {
    sandboxId: required("OPENSHELL_SANDBOX_ID"),
    generationId,
    podUid: required("OPENSHELL_POD_UID"),
    logLevel: isLogLevel(level) ? level : "info",
    readinessPort,
    gateway: {
      ...endpoint,
      ...(ca === undefined ? {} : { ca }),
      tokenFile: env.OPENSHELL_TOKEN_FILE ?? "/var/run/secrets/openshell/token",
    },
    boundary: {
      target: boundaryTarget,
      serverName: runtimeServerName(generationId),
      ca: read(join(directory, files.boundaryCa)),
      certificate: read(join(directory, files.certificate)),
      key: read(join(directory, files.key)),
      grant: read(join(directory, files.grant)).toString("utf8").trim(),
    },
  };
  if (problems.length > 0) {
    throw new OpenShellError("invalid-argument", `the supervisor cannot start: ${problems.join("; ")}`);
  }
  return settings;
}

function parseEndpoint(text: string, problems: string[]): { target: string; tls: boolean } {
  if (text === "") return { target: "", tls: true };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:") || url.hostname === "") {
    problems.push(`OPENSHELL_GATEWAY_ENDPOINT is "${text}": use http(s)://host:port`);
    return { target: "", tls: true };
  }
  const tls = url.protocol === "https:";
  return { target: `${url.hostname}:${url.port || (tls ? "443" : "80")}`, tls };
}

/** An empty file counts as absent: a Secret key cannot be left out once a template names it. */
function optionalFile(path: string): Buffer | undefined {
  try {
    const content = readFileSync(path);
    return content.length === 0 ? undefined : content;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new OpenShellError("invalid-argument", `${path} cannot be read`, { cause: error });
  }
}

function isLogLevel(text: string): text is LogLevel {
  return (logLevels as readonly string[]).includes(text);
}
