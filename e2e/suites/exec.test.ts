import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AsyncQueue } from "../../src/common/async.ts";
import { openshell } from "../../src/wire/index.ts";
import { administratorOf } from "../support/administrator.ts";
import { Conformance, randomName, type WorkloadImage } from "../support/conformance.ts";
import { linesOf, plantedFile, plantedWord, plantTree } from "../support/file-tree.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";

let suite: Conformance;
/** One sandbox of each image for all tests: none of them leaves anything that another one sees. */
const sandboxes = {} as Record<WorkloadImage, TestSandbox>;

beforeAll(async () => {
  suite = await Conformance.open();
  const make = async (image: WorkloadImage) => {
    sandboxes[image] = await suite.create({ image });
    await sandboxes[image].ready();
  };
  await Promise.all(images.map(([image]) => make(image)));
});

afterAll(async () => {
  await Promise.all(Object.values(sandboxes).map((sandbox) => sandbox[Symbol.asyncDispose]()));
  await suite[Symbol.asyncDispose]();
});

/** The same requests in the words of each image. */
interface Words {
  args(...words: string[]): string[];
  readonly cat: string[];
  err(text: string): string[];
  exit(code: number): string[];
  sleep(seconds: number): string[];
  env(name: string): string[];
  read(file: string): string[];
  readonly id: string[];
  /** Prints rows and columns. */
  readonly terminal: string[];
}

const shell: Words = {
  args: (...words) => ["printf", "%s\\n", ...words],
  cat: ["cat"],
  err: (text) => ["sh", "-c", 'echo "$0" >&2', text],
  exit: (code) => ["sh", "-c", `exit ${code}`],
  sleep: (seconds) => ["sleep", String(seconds)],
  env: (name) => ["sh", "-c", 'env | sed -n "s/^$0=//p" | grep .', name],
  read: (file) => ["cat", file],
  id: ["sh", "-c", "echo $(id -u):$(id -g)"],
  terminal: ["stty", "size"],
};

const probe: Words = {
  args: (...words) => ["/bin/probe", "args", ...words],
  cat: ["/bin/probe", "cat"],
  err: (text) => ["/bin/probe", "err", text],
  exit: (code) => ["/bin/probe", "exit", String(code)],
  sleep: (seconds) => ["/bin/probe", "sleep", String(seconds)],
  env: (name) => ["/bin/probe", "env", name],
  read: (file) => ["/bin/probe", "read", file],
  id: ["/bin/probe", "id"],
  terminal: ["/bin/probe", "tty"],
};

const images: readonly [WorkloadImage, Words][] = [
  ["busybox", shell],
  ["glibc", shell],
  ["noshell", probe],
];

describe.each(images)("exec in the %s image", (image, words) => {
  let sandbox: TestSandbox;

  beforeAll(() => {
    sandbox = sandboxes[image];
  });

  it("hands every argument over as it is", async () => {
    const tricky = ["", " two words ", "$HOME", "`id`", "'\"\\", "*", "-n", "ü→✓", "line\nbreak"];
    const outcome = await sandbox.exec(words.args(...tricky));
    expect(outcome).toEqual({ exitCode: 0, stdout: tricky.map((word) => `${word}\n`).join(""), stderr: "" });
  });

  it("keeps standard output and standard error apart", async () => {
    expect(await sandbox.exec(words.err("oops"))).toEqual({ exitCode: 0, stdout: "", stderr: "oops\n" });
  });

  it.each([0, 1, 42, 255])("gives exit code %i", async (code) => {
    expect((await sandbox.exec(words.exit(code))).exitCode).toBe(code);
  });

  it("says 127 for a program that is not there", async () => {
    expect((await sandbox.exec(["/no/such/program"])).exitCode).toBe(127);
  });

  it("passes standard input and its end", async () => {
    const stdin = Buffer.alloc(1_000_000, "0123456789abcdef\n").toString();
    const outcome = await sandbox.exec(words.cat, { stdin });
    expect(outcome.exitCode).toBe(0);
    expect(outcome.stdout === stdin).toBe(true);
  });

  it("ends a command that runs too long with 124", async () => {
    const started = performance.now();
    expect((await sandbox.exec(words.sleep(100), { timeoutSeconds: 1 })).exitCode).toBe(124);
    expect(performance.now() - started).toBeLessThan(15_000);
  });

  it("sets variables and the working directory, runs as the sandbox's user and has a home", async () => {
    const environment = { WORD: "a b" };
    expect((await sandbox.exec(words.env("WORD"), { environment })).stdout).toBe("a b\n");
    expect((await sandbox.exec(words.env("HOME"))).stdout).toBe("/sandbox\n");
    expect((await sandbox.exec(words.read("settings.json"), { workdir: "/sandbox/.config" })).stdout).toContain(
      "seeded",
    );
    expect((await sandbox.exec(words.id)).stdout.trim()).toMatch(/^[1-9]\d*:[1-9]\d*$/);
  });

  it("has no variable of ours", async () => {
    for (const name of ["OPENSHELL_SANDBOX_ID", "OPENSHELL_BOUNDARY_PORT", "LD_LIBRARY_PATH", "NODE_OPTIONS"]) {
      expect(await sandbox.exec(words.env(name), { noLoginShell: true })).toMatchObject({ exitCode: 1, stdout: "" });
    }
  });

  it("gives a terminal of the asked size that can be resized", async () => {
    const size = { columns: 101, rows: 33 };
    const once = sandbox.execInteractive(words.terminal, { tty: size });
    expect(await once.outcome).toMatchObject({ exitCode: 0, stdout: "33 101\r\n" });
  });

  it("passes keystrokes to a terminal, which echoes them, and ends on end-of-file", async () => {
    const cat = sandbox.execInteractive(words.cat, { tty: { columns: 80, rows: 24 } });
    cat.write("hello\r");
    cat.write("\u0004");
    const outcome = await cat.outcome;
    expect(outcome.exitCode).toBe(0);
    expect(outcome.stdout.replaceAll("\r\n", "\n")).toMatch(/^hello\nhello\n/);
  });

  it("ends a command in a terminal on Ctrl-C", async () => {
    const sleeping = sandbox.execInteractive(words.sleep(100), { tty: { columns: 80, rows: 24 } });
    sleeping.write("\u0003");
    expect((await sleeping.outcome).exitCode).toBe(130);
  });

  it("runs several at a time", async () => {
    const outcomes = await Promise.all(Array.from({ length: 8 }, (_, index) => sandbox.exec(words.args(`n${index}`))));
    expect(outcomes.map((outcome) => outcome.stdout)).toEqual(Array.from({ length: 8 }, (_, index) => `n${index}\n`));
  });
});

describe.each(images)("files of the %s image", (image, words) => {
  it("go up and come back by the command line, with their contents, modes and links", async () => {
    const { name, workspace } = sandboxes[image];
    await using user = await administratorOf(suite.gateway);
    const command = (...args: string[]) =>
      user.openshell(["--workspace", workspace, "sandbox", ...args], { signal: AbortSignal.timeout(60_000) });
    const [tree, there, back] = [join(user.home, "tree"), randomName(), join(user.home, "back")];
    await plantTree(tree);
    const moved = (said: string) => ({ code: 0, stdout: `${said}\n`, stderr: "" });
    const uploaded = `Uploaded 5 files (4.0 MiB) to /sandbox/${there}/tree in ${name}.`;
    expect(await command("upload", name, tree, there)).toEqual(moved(uploaded));
    // In the sandbox, and not only on the way.
    const planted = await sandboxes[image].exec(words.read(`/sandbox/${there}/tree/${plantedFile}`));
    expect(planted).toEqual({ exitCode: 0, stdout: plantedWord, stderr: "" });
    const downloaded = `Downloaded 5 files (4.0 MiB) to ${back}.`;
    expect(await command("download", name, `${there}/tree`, back)).toEqual(moved(downloaded));
    expect(await linesOf(back)).toEqual(await linesOf(tree));
  });
});

describe("exec where there is a shell", () => {
  it("runs a login shell around the command unless asked not to", async () => {
    const sandbox = sandboxes.glibc;
    expect((await sandbox.exec(["printenv", "PROFILE_WAS_READ"])).stdout).toBe("yes\n");
    expect((await sandbox.exec(["printenv", "PROFILE_WAS_READ"], { noLoginShell: true })).exitCode).toBe(1);
    const resizing = sandbox.execInteractive(["sh", "-c", "read x; stty size"], { tty: { columns: 80, rows: 24 } });
    resizing.resize(120, 40);
    resizing.write("go\r");
    expect((await resizing.outcome).stdout).toContain("40 120");
  });

  it("carries more output than any buffer holds, unchanged", async () => {
    const sandbox = sandboxes.busybox;
    const megabytes = 32;
    const outcome = await sandbox.exec(["sh", "-c", `yes 0123456 | head -c ${megabytes * 1_048_576}`]);
    expect(outcome.stdout.length).toBe(megabytes * 1_048_576);
    expect(outcome.stdout.replaceAll("0123456\n", "")).toBe("");
  });

  it("does not let the agent look into PID 1", async () => {
    const sandbox = sandboxes.busybox;
    const peek = "cat /proc/1/environ; cat /proc/1/mem; ls /proc/1/fd; ls /run/openshell/identity/";
    const outcome = await sandbox.exec(["sh", "-c", `${peek}; true`]);
    expect(outcome.stdout).toBe("");
    expect(outcome.stderr).toMatch(/environ'?: Permission denied/);
    expect(outcome.stderr).toMatch(/mem'?: Permission denied/);
  });

  it("ends what a client started that goes away, and leaves the sandbox as it is", async () => {
    const sandbox = sandboxes.busybox;
    const before = await suite.pair(sandbox);
    await using phases = phasesOf(sandbox);
    await expect.poll(phases.seen).toEqual(["READY"]);
    const request = {
      workspaceScope: { selection: { case: "workspace" as const, value: sandbox.workspace } },
      sandbox: sandbox.name,
      command: ["sh", "-c", "echo $$; exec sleep 1000"],
    };
    const input = new AsyncQueue<MessageInitShape<typeof openshell.ExecSandboxInputSchema>>();
    input.offer({ payload: { case: "start", value: { ...request, tty: true } } });
    const pids = await Promise.all([
      leaveAtFirstLine((options) => suite.gateway.client.execSandbox(request, options)),
      leaveAtFirstLine((options) => suite.gateway.client.execSandboxInteractive(input, options)),
    ]);
    const alive = ["sh", "-c", 'for pid; do test -d "/proc/$pid" && echo "$pid"; done; true', "sh", ...pids];
    await expect.poll(async () => (await sandbox.exec(alive)).stdout, { timeout: 15_000 }).toBe("");
    await sandbox.ready();
    expect(phases.seen()).toEqual(["READY"]);
    const after = await suite.pair(sandbox);
    expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
    expect(after.supervisor.metadata.uid).toBe(before.supervisor.metadata.uid);
  });

  it("reaps what the agent leaves behind", async () => {
    const sandbox = sandboxes.busybox;
    await sandbox.exec(["sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.2 &) ; done"]);
    const zombies = () =>
      sandbox.exec(["sh", "-c", "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; pidof sleep | wc -w"]);
    await expect.poll(async () => (await zombies()).stdout, { timeout: 15_000 }).toBe("0\n0\n");
  });
});

/** Every phase that a sandbox is in from now on. */
function phasesOf({ workspace, name }: TestSandbox): AsyncDisposable & { readonly seen: () => string[] } {
  const seen = new Set<string>();
  const stop = new AbortController();
  const workspaceScope = { selection: { case: "workspace" as const, value: workspace } };
  const request = { workspaceScope, sandbox: name, followStatus: true };
  const watching = (async () => {
    for await (const { payload } of suite.gateway.client.watchSandbox(request, { signal: stop.signal })) {
      if (payload.case === "sandbox") seen.add(openshell.SandboxPhase[payload.value.status?.phase ?? 0] ?? "");
    }
  })();
  // A stream that broke would have seen nothing more.
  watching.catch((error: Error) => stop.signal.aborted || seen.add(error.message));
  return {
    seen: () => [...seen],
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await watching.catch(() => {});
    },
  };
}

/** A client that breaks its call off as soon as the command has printed a line. @returns the line */
async function leaveAtFirstLine(
  call: (options: { readonly signal: AbortSignal }) => AsyncIterable<openshell.ExecSandboxEvent>,
): Promise<string> {
  const leave = new AbortController();
  const signal = AbortSignal.any([leave.signal, AbortSignal.timeout(20_000)]);
  let line = "";
  const reading = async () => {
    for await (const { payload } of call({ signal })) {
      if (payload.case === "stdout") line += Buffer.from(payload.value.data).toString();
      if (line.endsWith("\n")) leave.abort();
    }
  };
  await expect(reading()).rejects.toMatchObject({ code: "cancelled" });
  expect(leave.signal.aborted, "the command printed a line").toBe(true);
  return line.trim();
}
