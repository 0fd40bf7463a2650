import { type Clock, realClock } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { isAlreadyExists, isConflict, isNotFound } from "./errors.ts";
import { type Lease, leases } from "./resources.ts";
import type { KubeClient, Live } from "./types.ts";

export interface LeaseOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly name: string;
  /** Who holds it; another for each process that may not hold it together with this one. Its holder has it again at once. */
  readonly identity: string;
  /** A holder that did not renew for this long has lost it. It is renewed three times as often. @default 15 */
  readonly durationSeconds?: number;
  /** Gives up waiting, or gives the lease back. */
  readonly signal?: AbortSignal;
  /** Told of failures that are tried again. */
  readonly onError?: (error: unknown) => void;
  /** @default the process's own */
  readonly clock?: Clock;
}

export interface HeldLease {
  /** Aborts when the lease is lost or given back: from then on another may hold it. */
  readonly lost: AbortSignal;
  /** Stops renewing and lets the next one have it at once. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * The part of a lease's time for which its holder counts on it. It counts from before its write was sent, the others from after that was
 * applied; the rest is for timers that fire late.
 */
const countedOn = 0.8;

/**
 * Waits until this process holds a coordination Lease, and keeps it. Another holder's time is measured from when we saw
 * its last renewal, so that clocks need not agree.
 *
 * @throws `cancelled` when the signal aborts before
 */
export async function holdLease(options: LeaseOptions): Promise<HeldLease> {
  const durationMs = (options.durationSeconds ?? 15) * 1000;
  const taken = await acquire(options, durationMs);
  let { lease } = taken;
  const stop = new AbortController();
  const lost = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  const renewing = renew(options, durationMs, taken, signal, (renewed) => {
    lease = renewed;
  }).finally(() => lost.abort());
  const release = async (): Promise<void> => {
    stop.abort();
    await renewing;
    try {
      await write(options, lease, { holderIdentity: "", leaseDurationSeconds: 1 });
    } catch (error) {
      // Somebody else's by now, or gone with its namespace: there is nothing to give back.
      if (!isConflict(error) && !isNotFound(error)) throw error;
    }
  };
  return { lost: lost.signal, release, [Symbol.asyncDispose]: release };
}

/** A lease that was taken by a write. */
interface Taken {
  readonly lease: Live<Lease>;
  /** When that write was sent, by the clock: the server may have applied it right then, however late it answered. */
  readonly since: number;
}

async function acquire(options: LeaseOptions, durationMs: number): Promise<Taken> {
  const { clock = realClock } = options;
  let seen = { renewTime: "", holder: "", at: 0 };
  for (;;) {
    if (options.signal?.aborted) throw new OpenShellError("cancelled", `stopped waiting for lease ${options.name}`);
    try {
      const lease = await options.client.find(leases, options.namespace, options.name, { urgent: true });
      const since = clock.now();
      const deadlineMs = durationMs * countedOn;
      if (lease === undefined) return { lease: await create(options, durationMs, deadlineMs), since };
      const { holderIdentity: holder = "", renewTime = "", leaseTransitions = 0 } = lease.spec ?? {};
      if (renewTime !== seen.renewTime || holder !== seen.holder) seen = { renewTime, holder, at: clock.now() };
      const heldMs = (lease.spec?.leaseDurationSeconds ?? 0) * 1000;
      if (holder === "" || holder === options.identity || clock.now() - seen.at > heldMs) {
        const spec = {
          holderIdentity: options.identity,
          leaseDurationSeconds: Math.ceil(durationMs / 1000),
          acquireTime: microTime(),
          renewTime: microTime(),
          leaseTransitions: holder === options.identity ? leaseTransitions : leaseTransitions + 1,
        };
        return { lease: await write(options, lease, spec, deadlineMs), since };
      }
    } catch (error) {
      if (!isConflict(error) && !isAlreadyExists(error)) options.onError?.(error);
    }
    await pause(clock, (durationMs / 10) * (1 + Math.random()), options.signal);
  }
}

/** Ends when the lease is another's, could not be renewed in time, or the signal aborts. */
async function renew(
  options: LeaseOptions,
  durationMs: number,
  taken: Taken,
  signal: AbortSignal,
  onRenewed: (lease: Live<Lease>) => void,
): Promise<void> {
  const { clock = realClock } = options;
  let { lease, since } = taken;
  const leftMs = (): number => since + durationMs * countedOn - clock.now();
  const leftToRenewal = (): number => Math.max(0, since + durationMs / 3 - clock.now());
  let waitMs = leftToRenewal();
  while (leftMs() > 0) {
    await pause(clock, Math.min(waitMs, leftMs()), signal);
    const deadlineMs = leftMs();
    if (signal.aborted || deadlineMs <= 0) return;
    const startedAt = clock.now();
    try {
      // A call that is under way at the end of our time must not let us believe that we still hold it.
      lease = await write(options, lease, { renewTime: microTime() }, deadlineMs);
      since = startedAt;
      // However long the answer took: an API server that is slow is slow the next time, too.
      waitMs = leftToRenewal();
      onRenewed(lease);
    } catch (error) {
      options.onError?.(error);
      waitMs = (durationMs / 15) * (1 + Math.random());
      if (isNotFound(error)) return;
      if (!isConflict(error)) continue;
      // Somebody wrote a label, or took it.
      try {
        const current = await options.client.find(leases, options.namespace, options.name, {
          deadlineMs: Math.max(1, leftMs()),
          urgent: true,
        });
        if (current?.spec?.holderIdentity !== options.identity) return;
        lease = current;
      } catch (unread) {
        options.onError?.(unread);
      }
    }
  }
}

async function create(options: LeaseOptions, durationMs: number, deadlineMs: number): Promise<Live<Lease>> {
  const time = microTime();
  const spec = {
    holderIdentity: options.identity,
    leaseDurationSeconds: Math.ceil(durationMs / 1000),
    acquireTime: time,
    renewTime: time,
    leaseTransitions: 0,
  };
  const body = { metadata: { name: options.name }, spec };
  return await options.client.create(leases, options.namespace, body, { deadlineMs, urgent: true });
}

function write(
  options: LeaseOptions,
  { metadata: { resourceVersion } }: Live<Lease>,
  spec: Lease["spec"] & object,
  deadlineMs?: number,
): Promise<Live<Lease>> {
  const body = { metadata: { resourceVersion }, spec };
  return options.client.patch(
    leases,
    options.namespace,
    options.name,
    { type: "merge", body },
    { urgent: true, ...(deadlineMs !== undefined && { deadlineMs }) },
  );
}

async function pause(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await clock.sleep(ms, signal);
  } catch {
    // The caller looks at the signal.
  }
}

/** The API's MicroTime wants six digits. */
function microTime(): string {
  return new Date().toISOString().replace("Z", "000Z");
}
