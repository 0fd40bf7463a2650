import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, existsSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { setImmediate as immediate } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type ByteChannel, type ExecInputEvent, runExec, runtimeServerName, services } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import { isRoot, RuntimeProcess, type TestSupervisor, typed } from "./_harness.ts";
import { listProcesses, type ProcessEntry } from "./process-list.ts";

/** Pid of the runtime itself: where it is PID 1, the child of the unshare(1) that made its namespace. */
function pidOf(runtime: RuntimeProcess): number {
  const children = readFileSync(`/proc/${runtime.pid}/task/${runtime.pid}/children`, "utf8").trim();
  return isRoot ? Number(children) : runtime.pid;
}

function residentMiB(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

describe("a tree of 200 processes that fork all the time", () => {
  it("is frozen as a whole, and runs again but for what its own user had stopped", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    // Those that stay are 200; what each of them has just forked comes on top.
    const branch =
      "i=0; while [ $i -lt 39 ]; do (while :; do sleep 1; done) & i=$((i+1)); done; while :; do /bin/true; done";
    const bomb = `n=0; while [ $n -lt 5 ]; do (${branch}) & n=$((n+1)); done; wait`;
    first.launch({ command: ["sh", "-c", bomb] });
    const tree = () => listProcesses(pidOf(runtime));
    await expect.poll(() => tree().length, { timeout: 30_000 }).toBeGreaterThanOrEqual(200);
    // In a session of its own: a stopped group that its shell's end orphans is hung up by the kernel.
    const stop = "setsid sleep 5000 > /dev/null 2>&1 & until grep -q ^sleep /proc/$!/comm; do :; done; kill -STOP $!";
    const user = await first.exec(["sh", "-c", stop]);
    expect(user.code).toBe(0);
    const stoppedByUser = () => tree().filter(({ pid }) => commandOf(pid) === "sleep 5000");
    await expect.poll(() => stoppedByUser().map(({ state }) => state)).toEqual(["T"]);

    first.disconnect();
    // A parent whose child was stopped between vfork(2) and exec waits for it in the kernel.
    const isHeld = ({ pid, state }: ProcessEntry) =>
      state === "T" || (state === "D" && tree().some(({ parent, state }) => parent === pid && state === "T"));
    await expect.poll(() => tree().filter((one) => !isHeld(one)).length, { timeout: 20_000 }).toBe(0);
    const frozen = tree().map(({ pid, state }) => [pid, state]);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(tree().map(({ pid, state }) => [pid, state])).toEqual(frozen);

    await using second = await runtime.supervisor(2);
    await second.connect();
    await expect.poll(() => tree().filter(({ state }) => state === "T").length, { timeout: 20_000 }).toBe(1);
    expect(stoppedByUser().map(({ state }) => state)).toEqual(["T"]);
  }, 90_000);
});

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").join(" ").trim();
  } catch {
    return "";
  }
}

describe("a process whose main thread has ended", () => {
  it("is frozen with the tree, and runs again with it", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    const program = `${runtime.directory}/headless`;
    execFileSync("cc", ["-pthread", "-x", "c", "-o", program, "-"], { input: headless });
    first.launch({ command: [program] });
    const beats = () => (existsSync(`${runtime.home}/beats`) ? statSync(`${runtime.home}/beats`).size : 0);
    const isBeating = async () => {
      const before = beats();
      await new Promise((resolve) => setTimeout(resolve, 200));
      return beats() > before;
    };
    await expect.poll(isBeating).toBe(true);
    await expect.poll(() => listProcesses(pidOf(runtime)).map(({ state }) => state)).toEqual(["Z"]);
    first.disconnect();
    await expect.poll(isBeating).toBe(false);
    const frozen = beats();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(beats()).toBe(frozen);
    await using second = await runtime.supervisor(2);
    await second.connect();
    await expect.poll(isBeating).toBe(true);
  });
});

const headless = `
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
static void *beat(void *file) {
  int fd = open(file, O_CREAT | O_WRONLY | O_APPEND, 0644);
  while (write(fd, ".", 1) == 1) usleep(20000);
  return NULL;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, beat, "beats");
  pthread_exit(NULL);
}`;

describe("programs that ask to end with their parent", () => {
  it("go on for as long as the runtime does", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const program = `${runtime.directory}/bound`;
    execFileSync("cc", ["-x", "c", "-o", program, "-"], { input: bound });
    const all = Array.from({ length: 40 }, () => supervisor.exec([program], { noLoginShell: true }));
    expect(await Promise.all(all)).toEqual(all.map(() => ({ stdout: "alive\n", stderr: "", code: 0 })));
  });
});

const bound = `
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  usleep(200000);
  puts("alive");
}`;

describe("a program that its disk gives slowly", () => {
  let runtime: RuntimeProcess;
  let supervisor: TestSupervisor;
  let program: string;
  let holder: ChildProcess;
  beforeEach(async () => {
    runtime = await RuntimeProcess.start();
    supervisor = await runtime.supervisor();
    await supervisor.connect();
    program = `${runtime.directory}/slow`;
    copyFileSync("/bin/true", program);
    execFileSync("cc", ["-x", "c", "-o", `${runtime.directory}/hold`, "-"], { input: hold });
    holder = spawn(`${runtime.directory}/hold`, [program], { stdio: ["pipe", "pipe", "inherit"] });
    if (holder.stdout !== null) await once(holder.stdout, "data");
  });
  afterEach(async () => {
    holder?.kill();
    await supervisor?.[Symbol.asyncDispose]();
    await runtime?.[Symbol.asyncDispose]();
  });
  const waiting = () => listProcesses(pidOf(runtime)).filter(({ pid }) => exeOf(pid) === process.execPath).length;

  it("is waited for as long as that takes, and keeps nobody else from anything", async () => {
    const slow = [1, 2, 3].map(() => supervisor.exec([program], { noLoginShell: true }));
    await expect.poll(waiting).toBe(3);
    const input = typed("nobody holds the other end of this\n");
    expect((await supervisor.exec(["wc", "-l"], { input })).stdout.trim()).toBe("1");
    holder.stdin?.end();
    expect(await Promise.all(slow)).toEqual(slow.map(() => ({ stdout: "", stderr: "", code: 0 })));
  });

  it("may take no longer than the command", async () => {
    const { code } = await supervisor.exec([program], { noLoginShell: true, timeoutMs: 200 });
    expect(code).toBe(124);
    await expect.poll(waiting).toBe(0);
  });

  it("is waited for by nobody once its client has left", async () => {
    const channel = await supervisor.channel(services.exec);
    const running = runExec(channel, { command: [program], noLoginShell: true }).next();
    await expect.poll(waiting).toBe(1);
    channel.abort(new Error("the test leaves"));
    await expect(running).rejects.toThrow();
    await expect.poll(waiting).toBe(0);
  });
});

/** Keeps a file from being opened, by anybody else, until its input ends. */
const hold = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char byte;
  (void)argc;
  signal(SIGIO, SIG_IGN);
  // Not for writing: at its end the lease would be gone a moment before that, and who waits for it be told that the file is busy.
  if (fcntl(open(argv[1], O_RDONLY), F_SETLEASE, F_WRLCK) < 0) return 1;
  puts("held");
  fflush(stdout);
  return read(0, &byte, 1) < 0;
}`;

/** Of a child that has no program yet: the runtime's. */
function exeOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/exe`);
  } catch {
    return "";
  }
}

describe("at the limits", () => {
  let runtime: RuntimeProcess;
  let supervisor: TestSupervisor;
  beforeAll(async () => {
    runtime = await RuntimeProcess.start();
    supervisor = await runtime.supervisor();
    await supervisor.connect();
    // Beside what the fork bomb of another worker left for it.
  }, 30_000);
  afterAll(async () => {
    await supervisor?.[Symbol.asyncDispose]();
    await runtime?.[Symbol.asyncDispose]();
  });

  it("an exec takes 1,024 arguments of 256 KiB in all, one of 32 KiB, and as much environment", async () => {
    const args = [..."x".repeat(1_021)].map((_, index) => String(index).padEnd(219, "."));
    const command = ["sh", "-c", 'printf "%s %s" $# "$VALUE" | wc -c', ...args, "y".repeat(32 * 1024)];
    const value = "v".repeat(32 * 1024);
    const filler = Object.fromEntries(Array.from({ length: 7 }, (_, index) => [`FILLER_${index}`, value]));
    const result = await supervisor.exec(command.slice(0, 1_024), { environment: { VALUE: value, ...filler } });
    expect(result).toEqual({ stdout: `${"1020 ".length + value.length}\n`, stderr: "", code: 0 });
  });

  it("an argument that no kernel takes is answered with 126 and why", async () => {
    const result = await supervisor.exec(["true", "x".repeat(200 * 1024)], { noLoginShell: true });
    expect(result).toMatchObject({ code: 126, stderr: expect.stringContaining("Argument list too long") });
  });

  it("an exec takes 4 MiB of standard input", async () => {
    const input = typed(...Array.from({ length: 4 }, () => "x".repeat(1024 * 1024)));
    expect((await supervisor.exec(["wc", "-c"], { input })).stdout.trim()).toBe(String(4 * 1024 * 1024));
  });

  it("terminals are resized while they end, and dropped while they are resized", async () => {
    const race = async (index: number) => {
      const input = new AsyncQueue<ExecInputEvent>(1_000);
      const channel = await supervisor.channel(services.exec);
      const running = runExec(channel, { command: ["sh", "-c", "echo up; exit 3"], tty: true }, input);
      let code = -1;
      for await (const event of running) {
        if (event.kind === "exit") code = event.code;
        else for (let size = 1; size <= 50; size += 1) input.offer({ kind: "resize", columns: size, rows: size });
        if (index % 3 === 0) break;
      }
      input.end();
      return index % 3 === 0 ? 3 : code;
    };
    const codes = await Promise.all(Array.from({ length: 30 }, (_, index) => race(index)));
    expect(new Set(codes)).toEqual(new Set([3]));
    expect((await supervisor.exec(["true"])).code).toBe(0);
  });
});

describe("a process that stops every new one as soon as it has a pid", () => {
  // Elsewhere the pids that follow its own are somebody else's.
  it.skipIf(!isRoot)(
    "costs an exec, and not the runtime",
    async () => {
      await using runtime = await RuntimeProcess.start();
      await using supervisor = await runtime.supervisor();
      await supervisor.connect();
      // A shell, since the pids after Node's own are its threads'.
      const script =
        'echo up; exec 2> /dev/null; next=""; for i in $(seq 500); do next="$next $(($$ + i))"; done; while :; do kill -s STOP $next; done';
      const command = ["/bin/sh", "-c", script];
      const stopper = runExec(await supervisor.channel(services.exec), { command, noLoginShell: true });
      await stopper.next();
      // One that it stops is killed for its time, also before it has its program.
      const attempt = () => supervisor.exec(["true"], { noLoginShell: true, timeoutMs: 100 });
      const isCaught = () =>
        listProcesses(pidOf(runtime)).some(({ pid, state }) => state === "T" && exeOf(pid) === process.execPath);
      let caught = false;
      for (const until = performance.now() + 40_000; !caught && performance.now() < until; ) {
        let isOver = false;
        const one = attempt().finally(() => {
          isOver = true;
        });
        for (; !caught && !isOver; await immediate()) caught = isCaught();
        expect([0, 124]).toContain((await one).code);
      }
      expect(caught).toBe(true);
      await stopper.return();
      await expect.poll(async () => (await attempt()).code, { timeout: 30_000 }).toBe(0);
    },
    90_000,
  );
});

describe("a peer that means harm", () => {
  it("costs little memory and no service, whatever it sends", async () => {
    await using runtime = await RuntimeProcess.start();
    const certificate = await runtime.generation.supervisorCertificate();
    await using supervisor = await runtime.supervisor(1, { certificate });
    await supervisor.connect();
    expect((await supervisor.exec(["true"])).code).toBe(0);
    const before = residentMiB(pidOf(runtime));

    // Bytes that are no TLS, and after the handshake bytes that are no HTTP/2.
    for (let round = 0; round < 20; round += 1) {
      const plain = connectTcp({ host: "127.0.0.1", port: runtime.port });
      plain.on("error", () => {});
      plain.end(randomBytes(10_000));
      plain.resume();
      await once(plain, "close");
      const secure = connectTls({
        host: "127.0.0.1",
        port: runtime.port,
        servername: runtimeServerName(runtime.generation.id),
        ca: runtime.generation.authority.certPem,
        cert: certificate.certPem,
        key: certificate.keyPem,
        ALPNProtocols: ["h2"],
      });
      secure.on("error", () => {});
      secure.end(randomBytes(100_000));
      secure.resume();
      await once(secure, "close");
    }

    // Execs that are no messages (fields of a wire type that does not exist), or say that a gigabyte follows.
    for (const bytes of [Buffer.from([4, 0xff, 0xff, 0xff, 0x7f]), Buffer.from([0xff, 0xff, 0xff, 0xff, 0x07])]) {
      const channel = await supervisor.channel(services.exec);
      await channel.write(bytes);
      const answer: Uint8Array[] = [];
      for await (const chunk of channel.readable) answer.push(chunk);
      expect(Buffer.concat(answer).length).toBeGreaterThan(0);
    }

    // A thousand channels at once; each that is opened is stuffed with input that its program never reads.
    const attempts = await Promise.allSettled(Array.from({ length: 1_000 }, () => supervisor.channel(services.files)));
    const opened = attempts.filter((one): one is PromiseFulfilledResult<ByteChannel> => one.status === "fulfilled");
    const refused = attempts.filter((one) => one.status === "rejected");
    expect(opened.length).toBeLessThanOrEqual(256);
    const codes = new Set(refused.map(({ reason }) => reason.code));
    expect(codes.size).toBeGreaterThan(0);
    expect(codes).not.toContain("internal");
    expect(codes).not.toContain("unknown");
    for (const { value } of opened) value.abort(new Error("the test leaves"));

    // Another one, since this process may have been too busy to be heard as the first.
    await using next = await runtime.supervisor(2);
    expect(await next.connect()).toMatchObject({ case: "hello" });
    await expect
      .poll(async () => (await next.exec(["true"]).catch(() => undefined))?.code, { timeout: 30_000 })
      .toBe(0);
    expect(residentMiB(pidOf(runtime)) - before).toBeLessThan(200);
  });
});
