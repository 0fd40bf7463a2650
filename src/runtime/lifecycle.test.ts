import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { describe, expect, it } from "vitest";
import { download, openTcp, runExec, services } from "../boundary/index.ts";
import { boundary } from "../wire/index.ts";
import { Generation, isRoot, RuntimeProcess, type TestSupervisor } from "./_harness.ts";
import { listProcesses } from "./process-list.ts";

const {
  FenceStatus_State: Fence,
  MainProcessStatus_State: Main,
  SessionRefused_Reason: Reason,
  RestartPolicy,
} = boundary;

/** The main process's status once it is in `state`. */
function mainIs(supervisor: TestSupervisor, state: boundary.MainProcessStatus_State) {
  return supervisor.seen((payload) =>
    payload.case === "mainProcess" && payload.value.state === state ? payload.value : undefined,
  );
}

function fenceIs(supervisor: TestSupervisor, state: boundary.FenceStatus_State) {
  return supervisor.seen((payload) => {
    const fence = payload.case === "hello" ? payload.value.fence : payload.case === "fence" ? payload.value : undefined;
    return fence?.state === state ? fence : undefined;
  });
}

async function listener(): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => socket.destroy());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return { server, port: typeof address === "object" && address !== null ? address.port : 0 };
}

describe("a supervisor", () => {
  it("of another generation's authority fails the handshake", async () => {
    await using runtime = await RuntimeProcess.start();
    await using foreign = await runtime.supervisor(1, { generation: await Generation.create() });
    await expect(foreign.connect()).rejects.toMatchObject({ code: "unavailable" });
  });

  it.each([
    ["for another TLS key", { tls: "0".repeat(64) }],
    ["for another sandbox", { sandbox: "other" }],
    ["for another generation", { generation: "other" }],
    ["with a session that is no number", { session: "1" }],
  ])("is refused with a grant %s", async (_name, change) => {
    await using runtime = await RuntimeProcess.start();
    const certificate = await runtime.generation.supervisorCertificate();
    const grant = await runtime.generation.grant(1, certificate.certPem, change);
    await using supervisor = await runtime.supervisor(1, { certificate, grant });
    expect(await supervisor.connect()).toMatchObject({ case: "refused", value: { reason: Reason.BAD_GRANT } });
  });

  it("is refused with a grant signed by another key", async () => {
    await using runtime = await RuntimeProcess.start();
    const certificate = await runtime.generation.supervisorCertificate();
    const { id, sandboxId } = runtime.generation;
    const other = await Generation.create();
    const grant = await other.grant(1, certificate.certPem, { sandbox: sandboxId, generation: id });
    await using supervisor = await runtime.supervisor(1, { certificate, grant });
    expect(await supervisor.connect()).toMatchObject({ case: "refused", value: { reason: Reason.BAD_GRANT } });
  });

  it("of another protocol version is refused with both versions named", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor(1, { version: { major: 2, minor: 0, build: "9.9.9" } });
    expect(await supervisor.connect()).toMatchObject({
      case: "refused",
      value: { reason: Reason.VERSION_SKEW, message: expect.stringMatching(/9\.9\.9.*2\.0.*1\.0/) },
    });
  });

  it("is replaced by a newer session; the older one is refused and opens no channel any more", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    expect((await first.exec(["true"])).code).toBe(0);
    await using second = await runtime.supervisor(2);
    expect(await second.connect()).toMatchObject({ case: "hello" });
    expect(await first.seen((payload) => (payload.case === "refused" ? payload.value.reason : undefined))).toBe(
      Reason.OLDER_SESSION,
    );
    await expect(first.exec(["true"])).rejects.toMatchObject({ code: "permission-denied" });
    await using again = await runtime.supervisor(1);
    expect(await again.connect()).toMatchObject({ case: "refused", value: { reason: Reason.OLDER_SESSION } });
    expect((await second.exec(["true"])).code).toBe(0);
  });
});

describe("a channel that was opened and not used", () => {
  it("starts nothing while the tree is frozen", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const execs = await supervisor.channel(services.exec);
    const tcp = await supervisor.channel(services.tcp);
    const files = await supervisor.channel(services.files);
    supervisor.disconnect();
    const opened = async () => (await supervisor.channel(services.exec)).abort(new Error("the test leaves"));
    const refusal = () => opened().catch((error) => error.code);
    await expect.poll(refusal).toBe("permission-denied");
    const started = runExec(execs, { command: ["touch", "started"] }).next();
    await expect(started).rejects.toMatchObject({ code: "permission-denied" });
    await expect(openTcp(tcp, "127.0.0.1", runtime.port)).rejects.toMatchObject({ code: "permission-denied" });
    const received = download(files, { source: ".", destination: `${runtime.directory}/received` });
    await expect(received).rejects.toMatchObject({ code: "permission-denied" });
    expect(existsSync(`${runtime.home}/started`)).toBe(false);
  });

  it("starts nothing for a supervisor that was replaced, and what it runs is hung up", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    const unused = await first.channel(services.exec);
    const command = ["sh", "-c", "trap 'echo x > hung; exit' HUP; echo up; while :; do sleep 0.05; done"];
    const running = runExec(await first.channel(services.exec), { command });
    await running.next();
    await using second = await runtime.supervisor(2);
    await second.connect();
    await expect(runExec(unused, { command: ["touch", "started"] }).next()).rejects.toThrow();
    await expect(running.next()).rejects.toThrow();
    await expect.poll(() => existsSync(`${runtime.home}/hung`)).toBe(true);
    expect(existsSync(`${runtime.home}/started`)).toBe(false);
  });
});

describe.skipIf(!isRoot)("an exec whose client leaves", () => {
  it("stays stopped while the tree is frozen, until it is killed", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const channel = await supervisor.channel(services.exec);
    const command = ["/bin/sh", "-c", "trap '' HUP; echo up; while :; do echo x >> beats; sleep 0.01; done"];
    await runExec(channel, { command, noLoginShell: true }).next();
    const states = () => listProcesses(pidOf(runtime)).map(({ state }) => state);
    supervisor.disconnect();
    await expect.poll(() => new Set(states())).toEqual(new Set(["T"]));
    const beats = readFileSync(`${runtime.home}/beats`, "utf8").length;
    channel.abort(new Error("the test leaves"));
    await expect.poll(states).toEqual([]);
    expect(readFileSync(`${runtime.home}/beats`, "utf8").length).toBe(beats);
  });

  it("is not hung up once its command has ended", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const channel = await supervisor.channel(services.exec);
    // More than is on its way when nobody reads it: the copy still goes on when the command has ended.
    const background = "exec 2> /dev/null; trap 'echo x > hung' HUP; head -c 64000000 /dev/zero; echo x > outlived";
    const command = ["/bin/sh", "-c", `echo $$ > leader; (${background}) & echo up; sleep 0.5`];
    await runExec(channel, { command, noLoginShell: true }).next();
    await expect
      .poll(async () => (await supervisor.exec(["sh", "-c", "cat leader && kill -0 $(cat leader)"])).code)
      .toBe(1);
    channel.abort(new Error("the test leaves"));
    await expect.poll(() => existsSync(`${runtime.home}/outlived`)).toBe(true);
    expect(existsSync(`${runtime.home}/hung`)).toBe(false);
  });
});

describe("the main process", () => {
  it("runs once per generation, is not killed by a lost supervisor, and its exit is repeated until it is acknowledged", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    first.launch({ command: ["sh", "-c", "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 5"] });
    const { instanceId } = await mainIs(first, Main.RUNNING);
    // Its shell may be frozen before it has done anything.
    await expect.poll(async () => (await first.exec(["cat", "runs"])).stdout).toBe("run\n");
    first.disconnect();

    await using second = await runtime.supervisor(2);
    expect(await second.connect()).toMatchObject({ value: { tree: { frozen: true } } });
    second.launch({ command: ["sh", "-c", "echo again >> runs"] });
    expect((await second.exec(["sh", "-c", "touch go; cat runs"])).stdout).toBe("run\n");
    expect(await mainIs(second, Main.EXITED)).toMatchObject({ exitCode: 5, instanceId });

    const count = () =>
      second.frames.filter((one) => one?.case === "mainProcess" && one.value.state === Main.EXITED).length;
    await expect.poll(count, { timeout: 6_000 }).toBeGreaterThanOrEqual(2);
    second.send({ case: "exitAcknowledged", value: { instanceId } });
    second.send({ case: "terminate", value: { reason: "test" } });
    expect(await runtime.exited).toBe(5);
  });

  it("with a terminal may send its output elsewhere, as what runs in the background does", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const command = ["sh", "-c", "echo up; exec < /dev/null > log 2>&1; sleep 0.3; echo done; exit 5"];
    supervisor.launch({ command, tty: true });
    expect(await mainIs(supervisor, Main.EXITED)).toMatchObject({ exitCode: 5 });
    expect(readFileSync(`${runtime.home}/log`, "utf8")).toBe("done\n");
    expect(runtime.log).toContain("up");
  });

  it("is restarted by its policy inside the generation", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    supervisor.launch({
      command: ["sh", "-c", "echo run >> runs; [ $(wc -l < runs) -ge 2 ]"],
      restartPolicy: RestartPolicy.ON_FAILURE,
    });
    expect(await mainIs(supervisor, Main.RESTARTING)).toMatchObject({ exitCode: 1, restartCount: 1 });
    expect(await mainIs(supervisor, Main.EXITED)).toMatchObject({ exitCode: 0, restartCount: 1 });
  });

  it("is restarted without what its former run left, and leaves execs alone", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    const exec = runExec(await supervisor.channel(services.exec), { command: ["sh", "-c", "echo up; sleep 4000"] });
    await exec.next();
    // With job control, a background process has a group of its own.
    const script = "set -m; sleep 3000 & echo run >> runs; [ $(wc -l < runs) -ge 2 ]";
    supervisor.launch({ command: ["sh", "-c", script], restartPolicy: RestartPolicy.ON_FAILURE });
    await mainIs(supervisor, Main.EXITED);
    const { stdout } = await supervisor.exec(["sh", "-c", "ps -e -o args | grep '^[s]leep' | sort"]);
    expect(stdout).toBe("sleep 3000\nsleep 4000\n");
    await exec.return();
  });
});

describe("PID 1", () => {
  it.skipIf(!isRoot)("reaps orphans", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    await supervisor.exec(["sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.1 & ) ; done"]);
    await expect
      .poll(async () => (await supervisor.exec(["sh", "-c", "ps -e -o ppid,stat,args | grep -v ps"])).stdout, {
        timeout: 5_000,
      })
      .not.toMatch(/Z|sleep/);
  });

  it.skipIf(!isRoot)(
    "forwards SIGTERM and waits for the tree; it then ended by SIGTERM, and no exit of the main process is told, however well that ended",
    async () => {
      await using runtime = await RuntimeProcess.start();
      await using supervisor = await runtime.supervisor();
      await supervisor.connect();
      supervisor.launch({
        command: ["sh", "-c", "trap 'sleep 0.2; echo bye > last; exit 0' TERM; touch up; while :; do sleep 0.05; done"],
      });
      await mainIs(supervisor, Main.RUNNING);
      await expect.poll(async () => (await supervisor.exec(["ls"])).stdout).toContain("up");
      process.kill(pidOf(runtime), "SIGTERM");
      expect(await runtime.exited).toBe(128 + 15);
      expect(readFileSync(`${runtime.home}/last`, "utf8")).toBe("bye\n");
      expect(supervisor.frames.filter((one) => one?.case === "mainProcess" && one.value.state === Main.EXITED)).toEqual(
        [],
      );
    },
  );

  it.skipIf(!isRoot)("ends with the main process's code by SIGTERM, too, when that had ended before", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    supervisor.launch({ command: ["sh", "-c", "exit 9"] });
    const { instanceId } = await mainIs(supervisor, Main.EXITED);
    supervisor.send({ case: "exitAcknowledged", value: { instanceId } });
    process.kill(pidOf(runtime), "SIGTERM");
    expect(await runtime.exited).toBe(9);
  });

  it("freezes the tree when the supervisor is lost and thaws it for the next", async () => {
    await using runtime = await RuntimeProcess.start();
    await using first = await runtime.supervisor(1);
    await first.connect();
    first.launch({ command: ["sh", "-c", "while :; do date +%s%N > tick; sleep 0.02; done"] });
    await mainIs(first, Main.RUNNING);
    const tick = () => readFileSync(`${runtime.home}/tick`, "utf8");
    await expect.poll(() => ticking(tick)).toBe(true);
    first.disconnect();
    await expect.poll(() => ticking(tick), { timeout: 5_000 }).toBe(false);
    await using second = await runtime.supervisor(2);
    expect(await second.connect()).toMatchObject({ value: { tree: { frozen: true } } });
    expect(await second.seen((payload) => (payload.case === "tree" ? payload.value.frozen : undefined))).toBe(false);
    await expect.poll(() => ticking(tick), { timeout: 5_000 }).toBe(true);
  });

  it.skipIf(!isRoot)("cannot be looked into by a process of its own user, and leaves no identity behind", async () => {
    await using runtime = await RuntimeProcess.start({ uid: 10_001 });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    expect(runtime.identityIsLeft).toBe(false);
    for (const file of ["mem", "environ", "maps", "fd/", "cwd/", "root/", "auxv", "io", "stack"]) {
      const { code, stdout } = await supervisor.exec([
        "sh",
        "-c",
        file.endsWith("/") ? `ls /proc/1/${file}` : `head -c 16 /proc/1/${file}`,
      ]);
      expect([file, code === 0, stdout]).toEqual([file, false, ""]);
    }
    expect((await supervisor.exec(["id", "-u"])).stdout).toBe("10001\n");
    // Attaching is refused too; and the signal that opens Node's inspector does nothing.
    const script = "kill -USR1 1; sleep 0.2; cat /proc/net/tcp /proc/net/tcp6 | grep -ci ':240D '";
    expect((await supervisor.exec(["sh", "-c", script])).stdout.trim()).toBe("0");
  });
});

describe("the fence", () => {
  it("keeps every agent process from starting until it stands, and freezes them when it falls", async () => {
    const { server, port } = await listener();
    await using runtime = await RuntimeProcess.start({
      environment: { OPENSHELL_FENCE_CHECK: "enforce", OPENSHELL_FENCE_TARGETS: `127.0.0.1:${port}` },
    });
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    supervisor.launch({ command: ["sh", "-c", "date +%s%N > started; sleep 1000"] });
    await fenceIs(supervisor, Fence.PROBING);
    await expect(supervisor.exec(["true"])).rejects.toMatchObject({ code: "unavailable" });
    await expect(supervisor.channel(services.tcp)).rejects.toMatchObject({ code: "unavailable" });

    await new Promise((resolve) => server.close(resolve));
    const closed = BigInt(Date.now()) * 1_000_000n;
    await fenceIs(supervisor, Fence.FENCED);
    await mainIs(supervisor, Main.RUNNING);
    const read = async () => (await supervisor.exec(["cat", "started"])).stdout;
    await expect.poll(read).not.toBe("");
    expect(BigInt((await read()).trim()) - closed).toBeGreaterThan(900_000_000n);

    server.listen(port, "127.0.0.1");
    expect(await fenceIs(supervisor, Fence.BREACHED)).toMatchObject({ reachable: `127.0.0.1:${port}` });
    expect(await supervisor.seen((payload) => (payload.case === "tree" ? payload.value.frozen : undefined))).toBe(true);
    await expect(supervisor.exec(["true"])).rejects.toMatchObject({ code: "unavailable" });
    server.close();
  });

  it.skipIf(!isRoot)(
    "counts as fallen when a process of the agent's user takes the descriptors to look at it",
    async () => {
      await using runtime = await RuntimeProcess.start({
        uid: 10_001,
        environment: { OPENSHELL_FENCE_CHECK: "enforce", OPENSHELL_FENCE_TARGETS: "127.0.0.1:1" },
      });
      await using supervisor = await runtime.supervisor();
      await supervisor.connect();
      await fenceIs(supervisor, Fence.FENCED);
      expect(await supervisor.exec(["prlimit", "--pid=1", "--nofile=3:3"])).toMatchObject({ code: 0 });
      expect(await fenceIs(supervisor, Fence.BREACHED)).toMatchObject({ reachable: "" });
      const tree = await supervisor.seen((payload) => (payload.case === "tree" ? payload.value : undefined));
      expect(tree).toMatchObject({ frozen: true, reason: expect.stringMatching(/cannot be probed: .* EMFILE/) });
    },
  );

  it("is reported as unchecked where the operator switched the check off", async () => {
    await using runtime = await RuntimeProcess.start();
    await using supervisor = await runtime.supervisor();
    await supervisor.connect();
    await fenceIs(supervisor, Fence.UNCHECKED);
  });
});

async function ticking(tick: () => string): Promise<boolean> {
  const before = tick();
  await new Promise((resolve) => setTimeout(resolve, 200));
  return tick() !== before;
}

/** Pid of the runtime itself, child of the unshare(1) that made its namespace. */
function pidOf(runtime: RuntimeProcess): number {
  return Number(readFileSync(`/proc/${runtime.pid}/task/${runtime.pid}/children`, "utf8").trim());
}
