import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLogger } from "../common/log.ts";
import { Freezer } from "./freezer.ts";
import { listProcesses, type ProcessEntry, parseStat } from "./process-list.ts";

const log = createLogger({ name: "test", level: "error" });

/** A process table whose signals work as the kernel's do. */
class FakeTree {
  readonly entries = new Map<number, ProcessEntry>();
  readonly stopped = new Set<number>();
  readonly continued: number[] = [];
  /** Called before every walk, to change the table behind the freezer's back. */
  beforeList: (pass: number) => void = () => {};
  #passes = 0;

  add(pid: number, parent: number, state = "S"): void {
    this.entries.set(pid, { pid, parent, group: pid, session: pid, state, threads: 2, started: String(pid * 10) });
  }

  list(): ProcessEntry[] {
    this.#passes += 1;
    this.beforeList(this.#passes);
    return [...this.entries.values()];
  }

  signal(pid: number, signal: NodeJS.Signals): boolean {
    const entry = this.entries.get(pid);
    if (entry === undefined) return false;
    if (signal === "SIGCONT") this.continued.push(pid);
    else this.stopped.add(pid);
    if (!"DtZ".includes(entry.state)) this.entries.set(pid, { ...entry, state: signal === "SIGSTOP" ? "T" : "S" });
    return true;
  }

  signalAll(signal: NodeJS.Signals): void {
    for (const pid of this.entries.keys()) this.signal(pid, signal);
  }

  states(): string {
    return [...this.entries.values()].map((one) => one.state).join("");
  }
}

let freezer: Freezer | undefined;
afterEach(() => freezer?.stop());

describe("freezing", () => {
  it("stops everything and continues it with parents last", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    tree.add(11, 10);
    tree.add(12, 11);
    tree.add(20, 1);
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    expect(tree.states()).toBe("TTTT");
    freezer.thaw("supervisor-lost");
    expect(tree.states()).toBe("SSSS");
    expect(tree.continued.indexOf(12)).toBeLessThan(tree.continued.indexOf(11));
    expect(tree.continued.indexOf(11)).toBeLessThan(tree.continued.indexOf(10));
  });

  it("finds children that were forked between two walks", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    tree.beforeList = (pass) => {
      if (pass <= 3) tree.add(100 + pass, 10);
    };
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    expect(tree.states()).toBe("TTTT");
  });

  it("is done although a parent waits in the kernel for a child that was stopped", async () => {
    const tree = new FakeTree();
    tree.add(10, 1, "D");
    tree.add(11, 10);
    let walks = 0;
    tree.beforeList = (pass) => {
      walks = pass;
    };
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    expect(tree.states()).toBe("DT");
    expect(walks).toBeLessThan(5);
    freezer.thaw("supervisor-lost");
    expect(tree.continued).toEqual([11, 10]);
  });

  it.each([
    ["held by a debugger", "t"],
    ["ended", "Z"],
  ])("stops a process whose main thread is %s while others run, and waits for no sign of it", async (_name, state) => {
    const tree = new FakeTree();
    tree.add(10, 1, state);
    let walks = 0;
    tree.beforeList = (pass) => {
      walks = pass;
    };
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    expect([...tree.stopped]).toEqual([10]);
    expect(walks).toBeLessThan(5);
    freezer.thaw("supervisor-lost");
    expect(tree.continued).toEqual([10]);
  });

  it("leaves alone what somebody else had stopped", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    tree.add(11, 1, "T");
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    freezer.thaw("supervisor-lost");
    expect(tree.states()).toBe("ST");
  });

  it("stops also processes that continue each other, and of all continues only what it stopped", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    tree.add(11, 1);
    tree.add(12, 1, "T");
    // Stopped one by one, each is continued by the other before that is stopped.
    const { signal } = tree;
    tree.signal = (pid, name) => {
      const done = signal.call(tree, pid, name);
      const other = pid === 10 ? 11 : 10;
      if (name === "SIGSTOP" && tree.entries.get(other)?.state === "T") signal.call(tree, other, "SIGCONT");
      return done;
    };
    tree.signalAll = (name) => {
      if (!tree.entries.has(13)) tree.add(13, 10);
      for (const pid of tree.entries.keys()) signal.call(tree, pid, name);
    };
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    expect(tree.states()).toBe("TTTT");
    freezer.thaw("supervisor-lost");
    expect(tree.states()).toBe("SSTS");
  });

  it("does not continue a new process that got an old one's pid", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    freezer = new Freezer(tree, log);
    await freezer.freeze("supervisor-lost", "gone");
    tree.entries.set(10, { pid: 10, parent: 1, group: 10, session: 10, state: "T", threads: 1, started: "other" });
    freezer.thaw("supervisor-lost");
    expect(tree.continued).toEqual([]);
  });

  it("stops and continues everything at once where processes cannot be listed", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    tree.add(11, 10);
    tree.beforeList = () => {
      throw new Error("EMFILE");
    };
    freezer = new Freezer(tree, log);
    await freezer.freeze("fence-breached", "blind");
    expect(tree.states()).toBe("TT");
    freezer.thaw("fence-breached");
    expect(tree.states()).toBe("SS");
  });

  it("lasts until no cause is left, and tells each change", async () => {
    const tree = new FakeTree();
    tree.add(10, 1);
    const told: string[] = [];
    freezer = new Freezer(tree, log, () => told.push(freezer?.status.reason ?? ""));
    await freezer.freeze("supervisor-lost", "one");
    await freezer.freeze("fence-breached", "two");
    freezer.thaw("supervisor-lost");
    expect(tree.states()).toBe("T");
    expect(freezer.status).toEqual({ frozen: true, reason: "two" });
    freezer.thaw("fence-breached");
    expect(tree.states()).toBe("S");
    expect(told).toEqual(["one", "one; two", "two", ""]);
  });
});

describe("the living processes", () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "openshell-proc-"));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  it("are those with a thread that runs, whatever became of the main one", () => {
    const add = (pid: number, state: string, threads: number) => {
      mkdirSync(join(directory, String(pid)));
      const line = `${pid} (a) ${state} 1 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 ${threads} 0 987654 1000`;
      writeFileSync(join(directory, String(pid), "stat"), line);
    };
    add(2, "S", 1);
    add(3, "Z", 1);
    add(4, "Z", 2);
    add(5, "X", 1);
    mkdirSync(join(directory, "6"));
    expect(listProcesses(1, directory).map(({ pid }) => pid)).toEqual([2, 4]);
  });
});

describe("a line of /proc/<pid>/stat", () => {
  it("is read past a command name with spaces and parentheses", () => {
    const rest = "S 3 4 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 987654 1000";
    expect(parseStat(`42 (a) b (c)) ${rest}`)).toEqual({
      pid: 42,
      state: "S",
      threads: 3,
      parent: 3,
      group: 4,
      session: 5,
      started: "987654",
    });
  });
});
