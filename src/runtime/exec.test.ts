import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { channelPair, type ExecInputEvent, openTcp, runExec, services } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { isRoot, RuntimeProcess, type TestSupervisor, typed } from "./_harness.ts";
import type { Descriptor } from "./descriptor.ts";
import { serveExec } from "./exec.ts";

let runtime: RuntimeProcess;
let supervisor: TestSupervisor;

beforeAll(async () => {
  runtime = await RuntimeProcess.start({
    environment: {
      IMAGE_SAYS: "hello",
      OPENSHELL_SECRET: "hidden",
      NODE_OPTIONS: "",
      PATH: "/usr/local/bin:/usr/bin:/bin",
    },
  });
  supervisor = await runtime.supervisor();
  await supervisor.connect();
  supervisor.launch({ baseEnvironment: { FROM_TEMPLATE: "base", BOTH: "base" } });
});
afterAll(async () => {
  await supervisor?.[Symbol.asyncDispose]();
  await runtime?.[Symbol.asyncDispose]();
});

it("a terminal is typed into once its program runs: before, a Ctrl-C would be for nobody", async () => {
  const { promise: started, resolve: begin } = Promise.withResolvers<undefined>();
  const { promise: resized, resolve: resize } = Promise.withResolvers<void>();
  const { promise: exited, resolve: exit } = Promise.withResolvers<number>();
  const keys: number[] = [];
  const write = async (bytes: Uint8Array) => {
    keys.push(...bytes);
    exit(128 + 2);
  };
  const terminal = { write, resize, read: async function* () {}, finish() {}, close() {} } as unknown as Descriptor;
  const child = { pid: 2, started, stdin: terminal, stdout: terminal, stderr: undefined, exited };
  const processes = { spawn: () => child, signalSession: () => true };
  const [client, served] = channelPair();
  const { signal } = new AbortController();
  const serving = serveExec(served, { processes, hangUps: { add() {} }, signal, permit() {}, environment: {} });
  const input = new AsyncQueue<ExecInputEvent>();
  input.offer({ kind: "stdin", data: new Uint8Array([3]) });
  input.offer({ kind: "resize", columns: 132, rows: 50 });
  const ending = runExec(client, { command: ["true"], tty: true, noLoginShell: true }, input).next();
  await resized;
  expect(keys).toEqual([]);
  begin(undefined);
  expect((await ending).value).toEqual({ kind: "exit", code: 130 });
  expect(keys).toEqual([3]);
  await serving;
});

it("fails where its program's output cannot be read, and ends the program", async () => {
  const { promise: exited, resolve: exit } = Promise.withResolvers<number>();
  const read = async function* () {
    yield await Promise.reject<Uint8Array>(new OpenShellError("internal", "it cannot be watched"));
  };
  const output = { read, finish() {}, close() {} } as unknown as Descriptor;
  const child = {
    pid: 2,
    started: Promise.resolve(undefined),
    stdin: undefined,
    stdout: output,
    stderr: undefined,
    exited,
  };
  const signals: NodeJS.Signals[] = [];
  const signalSession = (_leader: number, signal: NodeJS.Signals) => {
    signals.push(signal);
    exit(128 + 9);
    return true;
  };
  const processes = { spawn: () => child, signalSession };
  const [client, served] = channelPair();
  const { signal } = new AbortController();
  const serving = serveExec(served, { processes, hangUps: { add() {} }, signal, permit() {}, environment: {} });
  // A program that ends by itself when its output is closed would end this wait, too.
  setTimeout(exit, 1_000, 0).unref();
  await expect(runExec(client, { command: ["true"], noLoginShell: true }).next()).rejects.toMatchObject({
    code: "internal",
    message: "it cannot be watched",
  });
  expect(signals).toEqual(["SIGKILL"]);
  await serving;
});

describe("a program that asks its parent to trace it, to see whether a debugger does", () => {
  /** It meets three signals: of a child's end, its own, and the one by which a tracee tells of its exec. */
  const source = `
    #include <signal.h>
    #include <stdio.h>
    #include <sys/ptrace.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile sig_atomic_t seen;
    static void see(int number) { seen = number; }
    int main(int count, char **argument) {
      if (count > 1) { puts("again"); return 42; }
      if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) return 1;
      signal(SIGUSR1, see);
      if (fork() == 0) _exit(0);
      wait(NULL);
      raise(SIGUSR1);
      puts(seen == SIGUSR1 ? "seen" : "unseen");
      fflush(stdout);
      execl(argument[0], argument[0], "again", (char *)NULL);
      return 2;
    }`;
  let program: string;

  beforeAll(() => {
    program = join(runtime.directory, "traced");
    execFileSync(process.env.CC || "cc", ["-x", "c", "-o", program, "-"], { input: source });
  });

  it("goes on as without, and is told by its own exit code", async () => {
    const result = await supervisor.exec([program], { timeoutMs: 5_000 });
    expect(result).toEqual({ stdout: "seen\nagain\n", stderr: "", code: 42 });
  });

  it("goes on, too, where its own parent has ended", async () => {
    await supervisor.exec(["sh", "-c", `(sleep 0.2; exec ${program} > traced.out) > /dev/null 2>&1 &`]);
    const result = await supervisor.exec(["sh", "-c", "until grep again traced.out; do sleep 0.05; done"], {
      timeoutMs: 5_000,
    });
    expect(result).toMatchObject({ stdout: "again\n", code: 0 });
  });
});

describe("an exec", () => {
  it("keeps standard output, standard error and the exit code apart", async () => {
    const result = await supervisor.exec(["sh", "-c", "echo out; echo err >&2; exit 7"]);
    expect(result).toEqual({ stdout: "out\n", stderr: "err\n", code: 7 });
  });

  it("passes standard input and its end", async () => {
    const result = await supervisor.exec(["cat"], { input: typed("one\n", "two\n") });
    expect(result).toEqual({ stdout: "one\ntwo\n", stderr: "", code: 0 });
  });

  it("passes arguments untouched through the shell", async () => {
    const odd = ["a b", "$HOME", "'", '"', "", "*", "line\nline", "-e"];
    const result = await supervisor.exec(["printf", "[%s]", ...odd]);
    expect(result.stdout).toBe(odd.map((one) => `[${one}]`).join(""));
  });

  it("runs without a shell when asked to", async () => {
    const result = await supervisor.exec(["cat", "/proc/self/cmdline"], { noLoginShell: true });
    expect(result.stdout).toBe("cat\0/proc/self/cmdline\0");
  });

  it.each([
    [["no-such-program"], false, 127],
    [["no-such-program"], true, 127],
    [["/no/such/program"], true, 127],
    [["x".repeat(300)], true, 127],
    [["/etc/passwd"], false, 126],
    [["/etc/passwd"], true, 126],
    [["/etc"], true, 126],
  ] as const)("answers %j (no_login_shell %s) with %i and a reason", async (command, noLoginShell, code) => {
    const result = await supervisor.exec(command, { noLoginShell });
    expect(result.code).toBe(code);
    expect(result.stderr).not.toBe("");
  });

  it("reports a signal as 128 + its number", async () => {
    expect((await supervisor.exec(["sh", "-c", "kill -SEGV $$"])).code).toBe(128 + 11);
  });

  it("has the image's environment below the template's below its own, and nothing of the runtime's", async () => {
    const { stdout } = await supervisor.exec(["env"], { environment: { BOTH: "exec", MINE: "1" }, noLoginShell: true });
    const lines = stdout.trim().split("\n");
    expect(lines).toEqual(
      expect.arrayContaining([
        "IMAGE_SAYS=hello",
        "FROM_TEMPLATE=base",
        "BOTH=exec",
        "MINE=1",
        `HOME=${runtime.home}`,
        "USER=sandbox",
      ]),
    );
    expect(lines.filter((line) => line.startsWith("OPENSHELL_") || line.startsWith("NODE_OPTIONS"))).toEqual([]);
  });

  it("starts in the home, in a directory below it, or where it is told", async () => {
    expect((await supervisor.exec(["pwd"])).stdout).toBe(`${runtime.home}\n`);
    expect((await supervisor.exec(["pwd"], { workdir: "/usr" })).stdout).toBe("/usr\n");
    const missing = await supervisor.exec(["pwd"], { workdir: "absent" });
    expect(missing).toMatchObject({ code: 126, stderr: expect.stringContaining(`${runtime.home}/absent`) });
  });

  it("is ended with 124 when its time is over, with everything it started", async () => {
    const marker = `${runtime.home}/survivors`;
    const result = await supervisor.exec(
      ["sh", "-c", `trap '' TERM HUP; (sleep 1000; echo x >> ${marker}) & sleep 1000`],
      {
        timeoutMs: 300,
      },
    );
    expect(result.code).toBe(124);
    expect((await supervisor.exec(["sh", "-c", "ps -e -o args | grep -c '[s]leep 1000'"])).stdout.trim()).toBe("0");
  });

  it("does not wait for output of what it leaves in the background, but loses nothing that was written", async () => {
    const result = await supervisor.exec(["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; sleep 30 & exit 3"]);
    expect(result.code).toBe(3);
    expect(result.stdout.length).toBe(200_000);
  });

  it("does not mind that its input is not read", async () => {
    const big = "x".repeat(1_000_000);
    expect((await supervisor.exec(["true"], { input: typed(big) })).code).toBe(0);
  });

  it("that writes faster than it is read is slowed down, not buffered", async () => {
    const channel = await supervisor.channel(services.exec);
    const output = runExec(channel, { command: ["sh", "-c", "head -c 500000000 /dev/zero; echo done >&2"] });
    await output.next();
    // Nothing more is taken: the process must come to a halt in write(2).
    await expect
      .poll(
        async () =>
          (await supervisor.exec(["sh", "-c", "ps -e -o wchan:20,args | grep -E '^[a-z_]+ +head -c 500000000'"]))
            .stdout,
        {
          timeout: 10_000,
        },
      )
      .toMatch(/pipe_write|anon_pipe_write/);
    await output.return();
  });

  it("is killed when its channel is dropped", async () => {
    const channel = await supervisor.channel(services.exec);
    const output = runExec(channel, { command: ["sh", "-c", "echo started; sleep 2000"] });
    await output.next();
    await output.return();
    await expect
      .poll(async () => (await supervisor.exec(["sh", "-c", "ps -e -o args | grep -c '[s]leep 2000'"])).stdout.trim(), {
        timeout: 8_000,
      })
      .toBe("0");
  });

  it("without a command is refused", async () => {
    await expect(supervisor.exec([])).rejects.toMatchObject({ code: "invalid-argument" });
  });

  it("cannot gain privileges", async () => {
    const { stdout } = await supervisor.exec(["grep", "NoNewPrivs", "/proc/self/status"]);
    expect(stdout).toMatch(/NoNewPrivs:\s+1/);
  });

  it("has the default reaction to signals and no signal blocked", async () => {
    const { stdout } = await supervisor.exec(["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"], {
      noLoginShell: true,
    });
    expect(stdout).toMatch(/SigBlk:\s+0+\nSigIgn:\s+0+\n/);
  });

  it("may have as many descriptors as any program at its start, and more when it asks for them", async () => {
    const hard = execFileSync("sh", ["-c", "ulimit -Hn"], { encoding: "utf8" });
    const soft = Math.min(1_024, Number.parseInt(hard, 10) || 1_024);
    expect((await supervisor.exec(["sh", "-c", "ulimit -Sn; ulimit -Hn"])).stdout).toBe(`${soft}\n${hard}`);
  });

  it("inherits no descriptor of the runtime", async () => {
    const { stdout } = await supervisor.exec(["ls", "/proc/self/fd"], { noLoginShell: true });
    expect(stdout.trim().split("\n").length).toBe(4);
  });
});

describe.skipIf(!isRoot)("an exec by a user who may not search a directory of its path", () => {
  it("finds its program in the next one; what is in none may be in that one", async () => {
    await using runtime = await RuntimeProcess.start({ uid: 10_001, environment: { PATH: "/usr/bin:/bin" } });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const closed = `${runtime.directory}/closed`;
    mkdirSync(closed, { mode: 0o700 });
    const options = { environment: { PATH: `${closed}/bin:/usr/bin:/bin` }, noLoginShell: true };
    expect(await supervisor.exec(["echo", "hi"], options)).toMatchObject({ stdout: "hi\n", code: 0 });
    const absent = { code: 126, stderr: "no-such-program: Permission denied\n" };
    expect(await supervisor.exec(["no-such-program"], options)).toMatchObject(absent);
  });
});

describe("an exec with a terminal", () => {
  it("has one of the size it asked for, with the error output in it", async () => {
    const result = await supervisor.exec(["sh", "-c", "tty; stty size; echo $TERM; echo err >&2"], {
      tty: true,
      columns: 100,
      rows: 40,
    });
    expect(result.stdout).toMatch(/^\/dev\/pts\/\d+\r\n40 100\r\nxterm-256color\r\nerr\r\n$/);
    expect(result.stderr).toBe("");
  });

  it("follows a change of size, and control characters act", async () => {
    const input = new AsyncQueue<ExecInputEvent>();
    const channel = await supervisor.channel(services.exec);
    const script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let text = "";
    let code = -1;
    for await (const event of runExec(channel, { command: ["sh", "-c", script], tty: true }, input)) {
      if (event.kind === "exit") {
        code = event.code;
        break;
      }
      text += new TextDecoder().decode(event.data);
      if (text.endsWith("ready\r\n")) input.offer({ kind: "resize", columns: 132, rows: 50 });
      if (text.endsWith("50 132\r\n")) input.offer({ kind: "stdin", data: new Uint8Array([0x03]) });
    }
    input.end();
    expect(text).toContain("50 132");
    expect(code).toBe(128 + 2);
  });

  it("follows a change of size also while its program does not read what is typed", async () => {
    const input = new AsyncQueue<ExecInputEvent>();
    const channel = await supervisor.channel(services.exec);
    const script = "stty raw -echo; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.05; done";
    const options = { command: ["sh", "-c", script], tty: true, timeoutMs: 10_000 };
    let text = "";
    let code = -1;
    for await (const event of runExec(channel, options, input)) {
      if (event.kind === "exit") {
        code = event.code;
        break;
      }
      text += new TextDecoder().decode(event.data);
      if (!text.endsWith("ready\r\n") && !text.endsWith("ready\n")) continue;
      // More than a terminal holds.
      input.offer({ kind: "stdin", data: new Uint8Array(20_000).fill(0x61) });
      input.offer({ kind: "resize", columns: 132, rows: 50 });
    }
    input.end();
    expect(text).toContain("50 132");
    expect(code).toBe(4);
  });

  it("loses nothing that is written after no process had the terminal open for a while", async () => {
    const away = "exec < /dev/null > /dev/null 2>&1; sleep 0.3; exec > /dev/tty 2>&1";
    const result = await supervisor.exec(["sh", "-c", `echo one; ${away}; head -c 100000 /dev/zero | tr '\\0' x`], {
      tty: true,
      timeoutMs: 10_000,
    });
    expect(result.code).toBe(0);
    expect(result.stdout).toBe(`one\r\n${"x".repeat(100_000)}`);
  });

  it("ends its input with the end of what is typed", async () => {
    const result = await supervisor.exec(["cat"], { tty: true, input: typed("abc\n") });
    expect(result).toMatchObject({ code: 0, stdout: "abc\r\nabc\r\n" });
  });
});

describe("a connection into the sandbox", () => {
  it("carries bytes both ways and half closes", async () => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      let text = "";
      socket.on("data", (chunk) => {
        text += String(chunk);
      });
      socket.on("end", () => socket.end(text.toUpperCase()));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = address !== null && typeof address === "object" ? address.port : 0;
    const connection = await openTcp(await supervisor.channel(services.tcp), "localhost", port);
    await connection.write(new TextEncoder().encode("quiet"));
    connection.end();
    let answer = "";
    for await (const chunk of connection.readable) answer += new TextDecoder().decode(chunk);
    expect(answer).toBe("QUIET");
    server.close();
  });

  it("goes to loopback only", async () => {
    const attempt = openTcp(await supervisor.channel(services.tcp), "10.0.0.1", 80);
    await expect(attempt).rejects.toMatchObject({ code: "permission-denied" });
  });

  it("names a port where nobody listens", async () => {
    const attempt = openTcp(await supervisor.channel(services.tcp), "127.0.0.1", 1);
    await expect(attempt).rejects.toMatchObject({ code: "unavailable", message: expect.stringContaining("port 1 ") });
  });
});
