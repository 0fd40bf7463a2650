import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RuntimeProcess, type TestSupervisor, typed } from "./_harness.ts";

describe("exec over the boundary", () => {
  let runtime: RuntimeProcess;
  let supervisor: TestSupervisor;

  beforeAll(async () => {
    runtime = await RuntimeProcess.start();
    supervisor = await runtime.supervisor();
    expect((await supervisor.connect()).case).toBe("hello");
  });
  afterAll(async () => {
    await supervisor?.[Symbol.asyncDispose]();
    await runtime?.[Symbol.asyncDispose]();
  });

  it("keeps standard output, standard error and the exit code apart", async () => {
    const result = await supervisor.exec(["sh", "-c", "echo out; echo err >&2; exit 7"]);
    expect(result).toEqual({ stdout: "out\n", stderr: "err\n", code: 7 });
  });

  it("passes standard input and its end", async () => {
    const result = await supervisor.exec(["cat"], { input: typed("one\n", "two\n") });
    expect(result).toEqual({ stdout: "one\ntwo\n", stderr: "", code: 0 });
  });
});
