import { describe, expect, it } from "vitest";
import { type CommandOptions, finish } from "./commands.ts";

const minute = 60_000;
const options = (more: Partial<CommandOptions> = {}): CommandOptions => ({
  cwd: import.meta.dirname,
  signal: new AbortController().signal,
  timeoutMs: minute,
  ...more,
});

describe("a command of a run", () => {
  it("gives its exit code and what it said on both streams", async () => {
    const { code, output } = await finish("sh", ["-c", "echo out; echo err >&2; exit 3"], options());
    expect(code).toBe(3);
    expect(output.split("\n").toSorted()).toEqual(["", "err", "out"]);
  });

  it("ends when the run is interrupted, with everything that it started", async () => {
    const interrupted = new AbortController();
    const output = { write: () => interrupted.abort() };
    const running = finish(
      "sh",
      ["-c", "sleep 60 & echo begun; wait"],
      options({ signal: interrupted.signal, output }),
    );
    expect(await running).toMatchObject({ code: 130, output: "begun\n\ninterrupted" });
  });

  it("is not begun once the run is interrupted", async () => {
    const finished = await finish("sh", ["-c", "echo begun"], options({ signal: AbortSignal.abort() }));
    expect(finished).toEqual({ code: 130, output: "interrupted", seconds: 0 });
  });

  it("ends when its time is over", async () => {
    expect(await finish("sleep", ["60"], options({ timeoutMs: 50 }))).toMatchObject({ code: 124 });
  });

  it("that is not installed is named", async () => {
    const { code, output } = await finish("no-such-program-here", [], options());
    expect(code).toBe(127);
    expect(output).toContain("no-such-program-here cannot be started");
  });
});
