import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { HangUps } from "./hang-ups.ts";
import type { ProcessEntry } from "./process-list.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Leaders of sessions, with when each was started; what is listed and what is signalled is counted. */
function treeOf(starts: Map<number, string>) {
  const signals: string[] = [];
  let walks = 0;
  const tryList = (): ProcessEntry[] => {
    walks += 1;
    const entry = { parent: 1, state: "S", threads: 1 };
    return [...starts].map(([pid, started]) => ({ ...entry, pid, group: pid, session: pid, started }));
  };
  const signalSession = (leader: number, signal: NodeJS.Signals, among: readonly ProcessEntry[] = tryList()) => {
    signals.push(`${signal} ${leader}`);
    return among.some(({ session }) => session === leader);
  };
  return { tree: { tryList, signalSession }, signals, walks: () => walks };
}

describe("hanging up", () => {
  it("on all who are lost at once takes one walk of the process list, and their end one more", () => {
    const leaders = Array.from({ length: 64 }, (_, index) => 100 + index);
    const { tree, signals, walks } = treeOf(new Map(leaders.map((pid) => [pid, "1"])));
    const hangUps = new HangUps(tree, () => false);
    for (const leader of leaders) hangUps.add(leader);
    vi.advanceTimersByTime(1);
    expect(walks()).toBe(1);
    expect(signals).toEqual([...leaders.map((pid) => `SIGHUP ${pid}`), ...leaders.map((pid) => `SIGCONT ${pid}`)]);
    vi.advanceTimersByTime(2_000);
    expect(walks()).toBe(2);
    expect(signals.slice(128)).toEqual(leaders.map((pid) => `SIGKILL ${pid}`));
  });

  it("on one after others is as on the first", () => {
    const { tree, signals } = treeOf(new Map([10, 11].map((pid) => [pid, "1"])));
    const hangUps = new HangUps(tree, () => false);
    hangUps.add(10);
    vi.advanceTimersByTime(1_000);
    hangUps.add(11);
    vi.advanceTimersByTime(1_000);
    expect(signals).toEqual(["SIGHUP 10", "SIGCONT 10", "SIGHUP 11", "SIGCONT 11", "SIGKILL 10"]);
    vi.advanceTimersByTime(1_000);
    expect(signals.at(-1)).toBe("SIGKILL 11");
  });

  it("continues nobody while the tree is frozen", () => {
    const { tree, signals } = treeOf(new Map([[10, "1"]]));
    new HangUps(tree, () => true).add(10);
    vi.advanceTimersByTime(2_001);
    expect(signals).toEqual(["SIGHUP 10", "SIGKILL 10"]);
  });

  it("kills who stayed when its leader went, and nobody who has a leader's number by now", () => {
    const starts = new Map([10, 11, 12].map((pid) => [pid, "1"]));
    const { tree, signals } = treeOf(starts);
    const hangUps = new HangUps(tree, () => true);
    for (const leader of [10, 11, 12, 13]) hangUps.add(leader);
    vi.advanceTimersByTime(1);
    starts.delete(10);
    starts.set(11, "2");
    vi.advanceTimersByTime(2_000);
    expect(signals.slice(4)).toEqual(["SIGKILL 10", "SIGKILL 12"]);
  });
});
