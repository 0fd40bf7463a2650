import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { attempt, pasteable, run } from "./exec.ts";

describe("a command", () => {
  test("gives its standard output", async () => {
    expect(await run("sh", ["-c", "cat; echo more"], { input: "in " })).toBe("in more\n");
  });

  test("reads a file as its input", async () => {
    const file = join(tmpdir(), `exec-test-${process.pid}`);
    await writeFile(file, "from a file");
    expect(await run("cat", [], { input: { file } })).toBe("from a file");
  });

  test("that fails prints as something to paste, with what it said and the remedy", async () => {
    const failing = run("sh", ["-c", "echo 'no room' >&2; exit 3"], { env: { A: "b c" }, remedy: "Free some space." });
    await expect(failing).rejects.toThrow(
      "command failed (exit 3): A='b c' sh -c 'echo '\\''no room'\\'' >&2; exit 3'\nno room\nFree some space.",
    );
  });

  test("that is not installed is named", async () => {
    await expect(run("no-such-program-here", [])).rejects.toThrow("no-such-program-here is not installed");
  });

  test("that may fail gives its exit code", async () => {
    expect(await attempt("sh", ["-c", "echo x; exit 4"])).toEqual({ code: 4, stdout: "x\n", stderr: "" });
  });

  test("is killed when its time is over", async () => {
    await expect(attempt("sleep", ["60"], { timeoutMs: 20 })).rejects.toThrow(/timeout/i);
  });

  test("may end without reading a large input", async () => {
    expect(await attempt("true", [], { input: "x".repeat(1 << 20) })).toMatchObject({ code: 0 });
  });

  test("shows its lines while it runs", async () => {
    const lines: string[] = [];
    await run("printf", ["a\\nb\\n"], { onLine: (line) => lines.push(line) });
    expect(lines).toEqual(["a", "b"]);
  });
});

test("a pasted command keeps its words and its directory", () => {
  expect(pasteable("echo", ["a b", "$HOME", "it's", ""], { cwd: "/tmp/x y" })).toBe(
    "cd '/tmp/x y' && echo 'a b' '$HOME' 'it'\\''s' ''",
  );
});
