import { sleep } from "../common/async.ts";
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
}

export interface HeldLease {
  /** Aborts when the lease is lost or given back: from then on another may hold it. */
  readonly lost: AbortSignal;
  /** Stops renewing and lets the next one have it at once. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Waits until this process holds a coordination Lease, and keeps it. Another holder's time is measured from when we saw
 * its last renewal, so that clocks need not agree.
 *
 * @throws `cancelled` when the signal aborts before
 */
export async function holdLease(options: LeaseOptions): Promise<HeldLease> {
  const durationMs = (options.durationSeconds ?? 15) * 1000;
  let lease = await acquire(options, durationMs);
  const stop = new AbortController();
  const lost = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  const renewing = renew(options, durationMs, lease, signal, (renewed) => {
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

async function acquire(options: LeaseOptions, durationMs: number): Promise<Live<Lease>> {
  let seen = { renewTime: "", holder: "", at: 0 };
  for (;;) {
    if (options.signal?.aborted) throw new OpenShellError("cancelled", `stopped waiting for lease ${options.name}`);
    try {
      const lease = await options.client.find(leases, options.namespace, options.name);
      if (lease === undefined) return await create(options, durationMs);
      const { holderIdentity: holder = "", renewTime = "", leaseTransitions = 0 } = lease.spec ?? {};
      if (renewTime !== seen.renewTime || holder !== seen.holder) seen = { renewTime, holder, at: performance.now() };
      const heldMs = (lease.spec?.leaseDurationSeconds ?? 0) * 1000;
      if (holder === "" || holder === options.identity || performance.now() - seen.at > heldMs) {
        return await write(options, lease, {
          holderIdentity: options.identity,
          leaseDurationSeconds: Math.ceil(durationMs / 1000),
          acquireTime: microTime(),
          renewTime: microTime(),
          leaseTransitions: holder === options.identity ? leaseTransitions : leaseTransitions + 1,
        });
      }
    } catch (error) {
      if (!isConflict(error) && !isAlreadyExists(error)) options.onError?.(error);
    }
    await pause((durationMs / 10) * (1 + Math.random()), options.signal);
  }
}

/** Ends when the lease is another's, could not be renewed in time, or the signal aborts. */
async function renew(
  options: LeaseOptions,
  durationMs: number,
  acquired: Live<Lease>,
  signal: AbortSignal,
  onRenewed: (lease: Live<Lease>) => void,
): Promise<void> {
  let lease = acquired;
  let renewedAt = performance.now();
  let waitMs = durationMs / 3;
  for (;;) {
    await pause(waitMs, signal);
    if (signal.aborted) return;
    // A call that is under way at the end of our time must not let us believe that we still hold it.
    const leftMs = renewedAt + durationMs * 0.8 - performance.now();
    if (leftMs <= 0) return;
    const startedAt = performance.now();
    try {
      lease = await write(options, lease, { renewTime: microTime() }, leftMs);
      renewedAt = startedAt;
      waitMs = durationMs / 3;
      onRenewed(lease);
    } catch (error) {
      options.onError?.(error);
      waitMs = (durationMs / 15) * (1 + Math.random());
      if (isNotFound(error)) return;
      if (!isConflict(error)) continue;
      // Somebody wrote a label, or took it.
      const findMs = Math.max(1, renewedAt + durationMs * 0.8 - performance.now());
      const current = await options.client
        .find(leases, options.namespace, options.name, { deadlineMs: findMs })
        .catch(() => undefined);
      if (current?.spec?.holderIdentity !== options.identity) return;
      lease = current;
    }
  }
}

async function create(options: LeaseOptions, durationMs: number): Promise<Live<Lease>> {
  const time = microTime();
  return await options.client.create(leases, options.namespace, {
    metadata: { name: options.name },
    spec: {
      holderIdentity: options.identity,
      leaseDurationSeconds: Math.ceil(durationMs / 1000),
      acquireTime: time,
      renewTime: time,
      leaseTransitions: 0,
    },
  });
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
    deadlineMs === undefined ? {} : { deadlineMs },
  );
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(ms, signal);
  } catch {
    // The caller looks at the signal.
  }
}

/** The API's MicroTime wants six digits. */
function microTime(): string {
  return new Date().toISOString().replace("Z", "000Z");
}
