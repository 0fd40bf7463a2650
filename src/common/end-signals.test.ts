import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const module = new URL("end-signals.ts", import.meta.url).href;
const isRoot = process.getuid?.() === 0;
/** As in a container: PID 1 of a PID namespace, which the kernel spares what it has no handler for. */
const asInit = isRoot ? ["unshare", "--pid", "--fork", "--kill-child"] : [];

/** A program that runs for a minute, once it has run `script`. */
async function started(script: string): Promise<{ readonly child: ChildProcess; readonly exited: Promise<number> }> {
  const [file = "", ...argv] = [...asInit, process.execPath, "--input-type=module", "--eval"];
  const code = `import { EndSignals } from "${module}"; ${script}; setTimeout(() => {}, 60_000); console.log("up");`;
  const child = spawn(file, [...argv, code], { stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(child, "exit").then(([code]) => code as number);
  await once(child.stdout as NodeJS.ReadableStream, "data");
  return { child, exited };
}

function send(child: ChildProcess, signal: NodeJS.Signals): void {
  const pid = child.pid ?? 0;
  const inside = isRoot ? readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8") : String(pid);
  process.kill(Number(inside), signal);
}

it.each([
  ["SIGTERM", 143],
  ["SIGINT", 130],
] as const)("%s ends a program that is not up yet with %i", async (signal, code) => {
  const { child, exited } = await started("new EndSignals()");
  send(child, signal);
  expect(await exited).toBe(code);
});

it("a signal is the program's own once it is up", async () => {
  const { child, exited } = await started(
    "new EndSignals().handledBy((signal) => process.exit(signal === 'SIGTERM' ? 7 : 8))",
  );
  send(child, "SIGTERM");
  expect(await exited).toBe(7);
});

it.skipIf(!isRoot)("without it, PID 1 goes on after a SIGTERM", async () => {
  const { child, exited } = await started("void EndSignals");
  send(child, "SIGTERM");
  const still = await Promise.race([exited, new Promise((resolve) => setTimeout(resolve, 500, "still up"))]);
  expect(still).toBe("still up");
  child.kill("SIGKILL");
  await exited;
});
