import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod/mini";
import type { ProbeRound } from "./fence.ts";
import { type Connects, intervals, monotonicMs, probeRounds, type Target } from "./fence-probe.ts";

/**
 * A time in which every round of probes found every path closed, in milliseconds of the machine's monotonic clock. The Pod's first container
 * begins to count and leaves it to the agent's, so that the second for which a fence has to hold passes while the others start.
 */
export interface ClosedSpan {
  readonly since: number;
  readonly until: number;
}

/** In the directory of the identity, which only our user reads, and nobody else's process writes before the runtime has taken it. */
const fileName = "fence-closed.json";
const spanFile = z.object({ since: z.number(), until: z.number() });
/** Between the containers an image may have to be pulled. What is later than that says nothing of this start. */
const longestGapMs = 60_000;
/** The stage is not held up for a SYN that nobody answers; an open path answers within a round trip. */
const connectTimeoutMs = 200;

/** Probes until `signal` aborts. @returns the time since which all was closed; undefined when it was not, or nobody could tell */
export async function closedUntil(
  targets: readonly Target[],
  signal: AbortSignal,
  connects?: Connects,
): Promise<ClosedSpan | undefined> {
  let span: ClosedSpan | undefined;
  const rounds = probeRounds(targets, () => intervals.open, signal, {
    connectTimeoutMs,
    ...(connects && { connects }),
  });
  for await (const round of rounds) span = extended(span, round);
  return span;
}

export function extended(span: ClosedSpan | undefined, round: ProbeRound): ClosedSpan | undefined {
  if (round.reachable !== undefined || round.untold !== undefined) return undefined;
  return { since: span?.since ?? round.startedAt, until: round.endedAt };
}

export function writeSpan(directory: string, span: ClosedSpan): void {
  writeFileSync(join(directory, fileName), JSON.stringify(span), { mode: 0o600 });
}

/**
 * Reads what the first container has left, and unlinks it.
 * @returns undefined when there is none, or when what it saw is too long ago to say anything of now
 */
export function takeSpan(directory: string, now = monotonicMs()): ClosedSpan | undefined {
  const file = join(directory, fileName);
  try {
    const span = spanFile.parse(JSON.parse(readFileSync(file, "utf8")));
    const isRecent = span.since <= span.until && span.until <= now && now - span.until <= longestGapMs;
    return isRecent ? span : undefined;
  } catch {
    // Nothing was left: the second is counted here.
    return undefined;
  } finally {
    rmSync(file, { force: true });
  }
}
