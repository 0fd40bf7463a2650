import { connect, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { abortable, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { closedForMs, type FenceState, observe, type ProbeRound, permits, probing, untoldOf } from "./fence.ts";

export interface Target {
  readonly host: string;
  readonly port: number;
}

/** What one connect says: that the path is open, that it is closed, or nothing, with the error code that made it fail on this side. */
export type Answer = "open" | "closed" | { readonly untold: string };

export type Connects = (target: Target, timeoutMs: number) => Promise<Answer>;

/** From the beginning of one round to the next: until the fence stands they follow closely; afterwards they only have to notice that it fell. */
export const intervals = { open: 100, closed: 5_000 } as const;
/** A dropped SYN is never answered; an open path answers within a round trip. */
const patienceMs = 500;

/** Milliseconds of the machine's clock that nobody sets: the same in every process of a Pod, unlike performance.now. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/**
 * Reads `OPENSHELL_FENCE_TARGETS`: `10.96.0.1:443,[fd00::1]:8080`.
 * @throws invalid-argument unless every target is an IP literal with a port: a name that does not resolve would look like a fence
 */
export function parseTargets(text: string): Target[] {
  return text
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "")
    .map((one) => {
      const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(one);
      const host = match?.[1] ?? match?.[2] ?? "";
      const port = Number(match?.[3]);
      if (isIP(host) === 0 || !(port >= 1 && port <= 65_535)) {
        throw new OpenShellError("invalid-argument", `fence target "${one}" is not IP:PORT or [IPv6]:PORT`);
      }
      return { host, port };
    });
}

/** One connect to every target at a time, for as long as the signal allows; what it cuts short tells nothing. */
export async function* probeRounds(
  targets: readonly Target[],
  intervalMs: () => number,
  signal: AbortSignal,
  { connectTimeoutMs = patienceMs, connects = tryTarget }: { connectTimeoutMs?: number; connects?: Connects } = {},
): AsyncGenerator<ProbeRound> {
  while (!signal.aborted) {
    const startedAt = monotonicMs();
    const connecting = Promise.all(targets.map((one) => connects(one, connectTimeoutMs)));
    const answers = await abortable(connecting, signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
    if (answers === undefined) return;
    const endedAt = monotonicMs();
    const first = targets[answers.indexOf("open")];
    const untold = answers.find((one) => typeof one === "object")?.untold;
    yield {
      startedAt,
      endedAt,
      ...(first === undefined ? {} : { reachable: printTarget(first) }),
      ...(untold === undefined ? {} : { untold }),
    };
    await sleep(Math.max(0, startedAt + intervalMs() - endedAt), signal).catch(() => {});
  }
}

/**
 * Probes for as long as the signal allows and tells every new state.
 * @param closedSince when the Pod's first container began to find all paths closed, by `monotonicMs`
 */
export async function probeFence(
  targets: readonly Target[],
  tell: (state: FenceState) => void,
  signal: AbortSignal,
  { closedSince, ...how }: { closedSince?: number | undefined; connects?: Connects } = {},
): Promise<void> {
  const begin = monotonicMs();
  let state = probing(begin, closedSince);
  tell(state);
  // What stands by another's account is looked at as closely as what does not stand yet.
  const isYoung = () => monotonicMs() - begin < closedForMs;
  const intervalMs = () => (permits(state) && !isYoung() ? intervals.closed : intervals.open);
  for await (const round of probeRounds(targets, intervalMs, signal, how)) {
    const next = observe(state, round);
    if (next.kind !== state.kind || untoldOf(next) !== untoldOf(state)) tell(next);
    state = next;
  }
}

function printTarget({ host, port }: Target): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Connects to a target once. A SYN that nobody answers finds a closed path. */
export function tryTarget({ host, port }: Target, timeoutMs = patienceMs): Promise<Answer> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: timeoutMs });
    const done = (answer: Answer) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once("connect", () => done("open"));
    // Not before the loop has looked at its sockets: where it stood still for long, the answer is there and has not been read.
    socket.once("timeout", () => setImmediate(() => done("closed")));
    socket.once("error", ({ code }: NodeJS.ErrnoException) => done(answerOf(code, isIP(host))));
  });
}

/** How a network says no: refused, rejected, unroutable, unanswered, by whatever enforces it. EINVAL is a blackhole route's. */
const refusals = new Set([
  ...["ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN", "ENETDOWN", "ETIMEDOUT"],
  ...["EACCES", "EPERM", "EINVAL", "EAFNOSUPPORT", "ENOPROTOOPT", "ENONET", "EPROTO"],
]);

/**
 * What a failed connect says. Every other code, such as EMFILE or ENOBUFS, is this side's own trouble.
 * @param version of IP: without an address of it, and only then, EADDRNOTAVAIL means that there is no path; else the ports are used up
 */
export function answerOf(code: string | undefined, version: number, hasAddress = hasAddressOf): Answer {
  if (code !== undefined && refusals.has(code)) return "closed";
  if (code === "EADDRNOTAVAIL" && !hasAddress(version)) return "closed";
  return { untold: code ?? "unknown" };
}

function hasAddressOf(version: number): boolean {
  const all = Object.values(networkInterfaces()).flatMap((one) => one ?? []);
  return all.some(({ family, internal, scopeid }) => family === `IPv${version}` && !internal && !scopeid);
}
