import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { FenceState } from "./fence.ts";
import { type Answer, monotonicMs, probeFence } from "./fence-probe.ts";
import { closedUntil, extended, takeSpan, writeSpan } from "./fence-span.ts";

const target = { host: "10.0.0.1", port: 443 };
let directory: string;
const file = () => join(directory, "fence-closed.json");

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-fence-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** Gives one answer to each connect, the last of them for good, and aborts with `end`. */
function answering(answers: readonly Answer[], end?: () => void) {
  let asked = 0;
  return async () => {
    const answer = answers[Math.min(asked, answers.length - 1)] ?? "closed";
    asked += 1;
    if (asked === answers.length) end?.();
    return answer;
  };
}

describe("what the first container saw of the fence", () => {
  it("reaches over all rounds since the last that was open or could not tell", () => {
    const closed = (startedAt: number) => ({ startedAt, endedAt: startedAt + 10 });
    const span = extended(extended(undefined, closed(0)), closed(100));
    expect(span).toEqual({ since: 0, until: 110 });
    expect(extended(span, { ...closed(200), reachable: "10.0.0.1:443" })).toBeUndefined();
    expect(extended(span, { ...closed(200), untold: "EMFILE" })).toBeUndefined();
    expect(extended(undefined, closed(300))).toEqual({ since: 300, until: 310 });
  });

  it.each<[string, readonly Answer[], boolean]>([
    ["is nothing while a path is open", ["closed", "open", "closed"], false],
    ["is nothing when it could not be told", ["closed", { untold: "EMFILE" }, "closed"], false],
    ["is a span from the first closed round", ["open", "closed", "closed", "closed"], true],
  ])("%s, as of when the files are staged", async (_what, answers, isClosed) => {
    const staged = new AbortController();
    const begin = monotonicMs();
    // The round in which the files are ready does not count any more.
    const span = await closedUntil(
      [target],
      staged.signal,
      answering(answers, () => staged.abort()),
    );
    if (!isClosed) return expect(span).toBeUndefined();
    expect(span?.since).toBeGreaterThan(begin + 90);
    expect(span?.until).toBeGreaterThan((span?.since ?? 0) + 90);
  });

  it("does not hold the stage up for an answer that does not come", async () => {
    const staged = new AbortController();
    const span = closedUntil([target], staged.signal, () => new Promise(() => {}));
    staged.abort();
    expect(await span).toBeUndefined();
  });

  it("is read once, and by its user alone", () => {
    const now = monotonicMs();
    writeSpan(directory, { since: now - 2_000, until: now - 1_000 });
    expect(statSync(file()).mode & 0o777).toBe(0o600);
    expect(takeSpan(directory)).toEqual({ since: now - 2_000, until: now - 1_000 });
    expect(existsSync(file())).toBe(false);
    expect(takeSpan(directory)).toBeUndefined();
  });

  it.each([
    ["too long ago", { since: 1_000, until: 39_999 }],
    ["of another clock", { since: 99_000, until: 100_001 }],
    ["of no time", { since: 99_900, until: 99_800 }],
    ["no numbers", { since: "1", until: "2" }],
  ])("is not believed when it is %s", (_what, span) => {
    writeFileSync(file(), JSON.stringify(span));
    expect(takeSpan(directory, 100_000)).toBeUndefined();
    expect(existsSync(file())).toBe(false);
  });

  it("is not believed when it is cut off", () => {
    writeFileSync(file(), '{"since":1,');
    expect(takeSpan(directory, 10)).toBeUndefined();
  });
});

describe("a probe that goes on from it", () => {
  /** Probes until `kind` is told. */
  async function told(kind: FenceState["kind"], answers: readonly Answer[], closedSince?: number) {
    const end = new AbortController();
    const states: FenceState["kind"][] = [];
    const tell = (state: FenceState) => {
      states.push(state.kind);
      if (state.kind === kind) end.abort();
    };
    const begin = monotonicMs();
    await probeFence([target], tell, end.signal, { closedSince, connects: answering(answers) });
    return { states, milliseconds: monotonicMs() - begin };
  }

  it("finds the fence standing at once, when its own first round is closed too", async () => {
    const { states, milliseconds } = await told("fenced", ["closed"], monotonicMs() - 1_000);
    expect(states).toEqual(["probing", "fenced"]);
    expect(milliseconds).toBeLessThan(500);
  });

  it("counts anew when its own first round is open", async () => {
    const { milliseconds } = await told("fenced", ["open", "closed"], monotonicMs() - 60_000);
    expect(milliseconds).toBeGreaterThanOrEqual(1_000);
  });

  it("counts the rest of the second itself", async () => {
    const { milliseconds } = await told("fenced", ["closed"], monotonicMs() - 500);
    expect(milliseconds).toBeGreaterThanOrEqual(490);
    expect(milliseconds).toBeLessThan(900);
  });

  it("looks as closely as ever for its own first second", async () => {
    const { states, milliseconds } = await told(
      "breached",
      ["closed", "closed", "closed", "open"],
      monotonicMs() - 1_000,
    );
    expect(states).toEqual(["probing", "fenced", "breached"]);
    expect(milliseconds).toBeLessThan(1_000);
  });
});
