/** `openshell-gateway selftest`: looks at an installed gateway from inside the cluster, and at what the cluster gives its driver. */
import { existsSync, readFileSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { backoffMs, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { type Finding, reviewCluster, type SelfReviewOptions } from "../driver/index.ts";
import { createChannel, grpcClient, openshell } from "../wire/index.ts";

export interface SelfTestOptions
  extends Pick<SelfReviewOptions, "workspaceMode" | "operatorNamespaceLabel" | "operatorNamespaceFile"> {
  /** `host:port` of the gateway. */
  readonly endpoint: string;
  /** It listens with TLS. @default false */
  readonly tls?: boolean;
  /** The name that the certificate has to have: the one that supervisors verify. @default the endpoint's host */
  readonly serverName?: string;
  /** File with the authority of its certificate. @default, and where there is no such file, the authorities that Node knows */
  readonly ca?: string;
  /** Namespace of the sandboxes: the rights in it are reviewed. @default no review */
  readonly namespace?: string;
  /** The gateway's id: rights to some objects are given by their names, which contain it. @default openshell */
  readonly gatewayId?: string;
  /** `host:port` where somebody listens and which a NetworkPolicy keeps this process from. @default not tried */
  readonly fenced?: string;
  /** Milliseconds for the whole of it. @default 60000 */
  readonly timeoutMs?: number;
}

/** A connection attempt. */
const attemptMs = 3_000;
const dayMs = 86_400_000;

/** Each thing that was looked at, in order; nothing is left out because something before it was wrong. */
export async function selfTest(options: SelfTestOptions): Promise<Finding[]> {
  const signal = AbortSignal.timeout(options.timeoutMs ?? 60_000);
  const {
    endpoint,
    tls,
    serverName = parseAddress(endpoint).host,
    ca,
    namespace,
    gatewayId = "openshell",
    fenced,
  } = options;
  const authority = ca !== undefined && existsSync(ca) ? readFileSync(ca) : undefined;
  const findings: Finding[] = [];
  const look = async (what: string, at: () => Promise<Finding[]>) => {
    findings.push(...(await at().catch((error) => [{ what, problem: OpenShellError.from(error).message }])));
  };
  if (tls === true)
    await look(`certificate of ${endpoint}`, async () => [await certificateOf(endpoint, serverName, authority)]);
  const channel = tls === true ? credentials.createSsl(authority) : credentials.createInsecure();
  await look(`health of ${endpoint}`, async () => [await healthOf(endpoint, serverName, channel)]);
  if (namespace !== undefined) await look("rights", () => reviewCluster({ ...options, namespace, gatewayId, signal }));
  if (fenced !== undefined) await look("NetworkPolicy", async () => [await fenceOf(fenced, signal)]);
  return findings;
}

/** One line for each finding: what a person reads in `helm test --logs`. */
export function printFindings(findings: readonly Finding[]): string {
  return findings
    .map(({ what, problem }) => (problem === undefined ? `ok    ${what}\n` : `FAIL  ${what}: ${problem}\n`))
    .join("");
}

function parseAddress(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(":");
  const port = Number(address.slice(at + 1));
  if (at < 1 || !Number.isInteger(port) || port < 1 || port > 65_535)
    throw new OpenShellError("invalid-argument", `${address} is not an address such as gateway.example.com:8080`);
  return { host: address.slice(0, at), port };
}

/** The chain leads to the authority, the name is in the certificate, and it lives longer than a day. */
function certificateOf(endpoint: string, serverName: string, ca: Buffer | undefined): Promise<Finding> {
  const { host, port } = parseAddress(endpoint);
  const { promise, resolve, reject } = Promise.withResolvers<Finding>();
  const trust = ca === undefined ? {} : { ca };
  // The gateway speaks HTTP/2 only, and says so by ALPN.
  const socket = connectTls(
    { ...trust, host, port, servername: serverName, ALPNProtocols: ["h2"], timeout: attemptMs },
    () => {
      const left = Date.parse(socket.getPeerCertificate().valid_to) - Date.now();
      socket.destroy();
      const what = `certificate of ${endpoint} is signed by the authority, names ${serverName === host ? "it" : serverName} and lives ${Math.floor(left / dayMs)} days`;
      resolve(left > dayMs ? { what } : { what, problem: "it is about to expire; run the PKI Job or helm upgrade" });
    },
  );
  socket.once("timeout", () => socket.destroy(new OpenShellError("deadline-exceeded", `${endpoint} does not answer`)));
  socket.once("error", reject);
  return promise;
}

async function healthOf(endpoint: string, serverName: string, by: ChannelCredentials): Promise<Finding> {
  const channel = createChannel(endpoint, by, { "grpc.ssl_target_name_override": serverName });
  try {
    const { status, version } = await grpcClient(openshell.OpenShell, channel).health({}, { timeoutMs: 10_000 });
    const what = `health of ${endpoint}, version ${version}`;
    if (status === openshell.ServiceStatus.HEALTHY) return { what };
    return { what, problem: `it says ${openshell.ServiceStatus[status]}; see the gateway's log` };
  } finally {
    channel.close();
  }
}

/** A policy takes a moment to reach a new Pod, and a new name to be known: what must become closed is asked for until it is. */
async function fenceOf(address: string, signal: AbortSignal): Promise<Finding> {
  const what = `NetworkPolicy keeps this Pod from ${address}`;
  let last: Reach = "unknown";
  for (let attempt = 0; !signal.aborted; attempt++) {
    last = await reach(address);
    if (last === "closed") return { what };
    await sleep(backoffMs(attempt, { initialMs: 500, maxMs: 5_000 }), signal).catch(() => undefined);
  }
  const problem =
    last === "unknown"
      ? "its name is not found, so nothing is known; see the cluster's DNS and whether the gateway is ready"
      : "the connection is open: this cluster does not enforce NetworkPolicy, so sandboxes are not fenced; install a network plugin that does";
  return { what, problem };
}

/** `unknown`: the name is not found, which says nothing about a policy. */
type Reach = "open" | "closed" | "unknown";

function reach(address: string): Promise<Reach> {
  const { host, port } = parseAddress(address);
  const { promise, resolve } = Promise.withResolvers<Reach>();
  const socket = connectTcp({ host, port, timeout: attemptMs });
  const end = (outcome: Reach) => {
    socket.destroy();
    resolve(outcome);
  };
  socket.once("connect", () => end("open"));
  socket.once("timeout", () => end("closed"));
  socket.once("error", (error: NodeJS.ErrnoException) => end(error.syscall === "getaddrinfo" ? "unknown" : "closed"));
  return promise;
}
