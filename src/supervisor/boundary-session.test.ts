import { connect, createServer, type Server, type Socket } from "node:net";
import { pino } from "pino";
import { expect, test } from "vitest";
import { services } from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import { longestText, longestWord } from "../common/cut.ts";
import { boundary } from "../wire/index.ts";
import { testAuthority } from "./_test-certificates.ts";
import { Log, TestRuntime } from "./_test-peers.ts";
import { type BoundaryOptions, BoundarySession, boundaryTiming } from "./boundary-session.ts";
import type { BoundaryLink } from "./state.ts";

const serverName = "runtime.g1.openshell.internal";

/** A session that runs against a test runtime, whose port `route` may replace by that of something on the way. */
async function startSession(
  options: Partial<Omit<BoundaryOptions, "onLink">> & { onLink(link: BoundaryLink, runtime: TestRuntime): void },
  route: (port: number) => Promise<number> = async (port) => port,
) {
  const authority = await testAuthority();
  const runtime = new TestRuntime();
  await runtime.listen(authority.certificate, await authority.issue(serverName));
  const stop = new AbortController();
  const session = new BoundarySession({
    settings: {
      target: `127.0.0.1:${await route(runtime.port)}`,
      serverName,
      ca: authority.certificate,
      ...(await authority.issue("supervisor")),
      grant: "grant-jws",
    },
    instanceId: "i-1",
    build: "test",
    log: pino({ level: "silent" }),
    random: () => 0.5,
    onStatus: () => {},
    ...options,
    onLink: (link) => options.onLink(link, runtime),
  });
  const running = session.run(stop.signal);
  running.catch(() => {});
  return {
    session,
    runtime,
    signal: stop.signal,
    /** Of `run`. */
    end: running,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await Promise.allSettled([running]);
      runtime.server.forceShutdown();
    },
  };
}

/** How long it takes until a runtime that answers and drops after `livesMs`, by the session's clock, was connected to this often. */
async function connectAgain(times: number, livesMs: number, retryMs = boundaryTiming.retryMs): Promise<number> {
  let now = 0;
  await using started = await startSession({
    timing: { ...boundaryTiming, retryMs },
    now: () => now,
    onLink: ({ name }, runtime) => {
      if (name !== "connected") return;
      now += livesMs;
      runtime.drop();
    },
  });
  await started.runtime.hellos.next();
  const begin = performance.now();
  for (let seen = 1; seen < times; seen += 1) await started.runtime.hellos.next();
  return performance.now() - begin;
}

test("a runtime that answers and drops is connected to each time later", async () => {
  expect(await connectAgain(4, 1_000, 300)).toBeGreaterThan(300 + 600 + 1200);
});

test("one whose session lived is connected to at once", async () => {
  expect(await connectAgain(9, 5_000)).toBeLessThan(50 + 100 + 200 + 400 + 4 * 500);
});

/** A way to a port that can fall silent: nothing more is passed on, and nothing is closed. */
class Way implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets: Socket[] = [];

  constructor(port: number) {
    this.#server = createServer((near) => {
      const far = connect(port, "127.0.0.1");
      near.pipe(far);
      far.pipe(near);
      for (const socket of [near, far]) this.#sockets.push(socket.on("error", () => {}));
    });
  }

  listen(): Promise<number> {
    return new Promise((resolve) => {
      this.#server.listen(0, "127.0.0.1", () => resolve((this.#server.address() as { port: number }).port));
    });
  }

  /** For the connections that are there; later ones pass. */
  fallSilent(): void {
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}

test("a channel ends when the way to the runtime goes dead without a word", { timeout: 30_000 }, async () => {
  let way: Way | undefined;
  const links = new Log<BoundaryLink>();
  const timing = { intervalMs: 20, lostAfterMs: 2_000, retryMs: 5, keepaliveMs: 3_000 };
  await using started = await startSession({ timing, onLink: (link) => links.add(link) }, (port) => {
    way = new Way(port);
    return way.listen();
  });
  await using silent = way;
  await links.next(({ name }) => name === "connected");
  const frames = new AsyncQueue<{ payload: { case: "open"; value: { serviceId: string } } }>();
  frames.offer({ payload: { case: "open", value: { serviceId: services.exec } } });
  const channel = started.session.channel(frames, started.signal)[Symbol.asyncIterator]();
  const opened = channel.next();
  (await started.runtime.channels.next()).output.offer({ payload: { case: "opened", value: {} } });
  expect((await opened).value?.payload.case).toBe("opened");

  silent?.fallSilent();
  await expect(channel.next()).rejects.toMatchObject({ code: "unavailable" });
  await links.next(({ name }) => name === "connected");
});

test("a runtime that says hello again in its session is left, and connected to anew", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({ onLink: (link) => links.add(link) });
  await links.next(({ name }) => name === "connected");
  const version = { major: 1, minor: 0, build: "test" };
  started.runtime.send({ case: "hello", value: { version, instanceId: started.runtime.instanceId } });
  expect(await links.next(({ name }) => name !== "connected")).toMatchObject({
    name: "lost",
    message: "the runtime said hello twice",
  });
  await links.next(({ name }) => name === "connected");
});

test("a session that was replaced after it was accepted is over only when the next hello is refused", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({ onLink: (link) => links.add(link) });
  const reason = boundary.SessionRefused_Reason.OLDER_SESSION;
  await links.next(({ name }) => name === "connected");
  started.runtime.send({ case: "refused", value: { reason, message: "replaced by a newer connection (session 1)" } });
  expect(await links.next(({ name }) => name !== "connected")).toMatchObject({ name: "lost", reason: "Replaced" });
  await links.next(({ name }) => name === "connected");

  started.runtime.refuse = { reason, message: "session 1 was replaced by session 2" };
  started.runtime.drop();
  expect(await started.end).toEqual({ reason: "Superseded", message: "session 1 was replaced by session 2" });
});

test("what a runtime says of itself is cut before it is kept or logged", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({ onLink: (link) => links.add(link) });
  const { runtime } = started;
  await links.next(({ name }) => name === "connected");
  const reason = boundary.SessionRefused_Reason.TERMINATED;
  runtime.send({ case: "refused", value: { reason, message: "x".repeat(100_000) } });
  const lost = await links.next(({ name }) => name === "lost");
  expect(lost.name === "lost" && lost.message.length).toBe(longestText);
  runtime.refuse = { reason, message: "x".repeat(100_000) };
  runtime.drop();
  const end = await started.end;
  expect([end.reason, end.message.length]).toEqual(["RuntimeEnded", longestText]);
});

test("a runtime with a name of 100 kB is known by its beginning", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({
    onLink: (link, runtime) => {
      if (link.name === "connecting") runtime.instanceId = "x".repeat(100_000);
      links.add(link);
    },
  });
  const isConnected = ({ name }: BoundaryLink) => name === "connected";
  const first = await links.next(isConnected);
  expect(first.name === "connected" && first.runtimeInstance.length).toBe(longestWord);
  started.runtime.drop();
  expect(await links.next(isConnected)).toEqual(first);
});

test("a message of the runtime's that is larger than any has to be loses it", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({ onLink: (link) => links.add(link) });
  await links.next(({ name }) => name === "connected");
  started.runtime.send({ case: "tree", value: { frozen: true, reason: "x".repeat(200_000) } });
  expect(await links.next(({ name }) => name === "lost")).toMatchObject({ reason: "Unreachable" });
});

test("a runtime that listens nowhere yet is told in a sentence, with what the system said", async () => {
  const links = new Log<BoundaryLink>();
  const way = new Way(0);
  const port = await way.listen();
  await way[Symbol.asyncDispose]();
  await using _ = await startSession({ onLink: (link) => links.add(link) }, async () => port);
  expect(await links.next(({ name }) => name === "lost")).toEqual({
    name: "lost",
    reason: "Unreachable",
    message: `cannot connect to the runtime: connect ECONNREFUSED 127.0.0.1:${port}`,
  });
});

test("a runtime that takes nothing of what it is told is lost", async () => {
  const links = new Log<BoundaryLink>();
  await using started = await startSession({ onLink: (link) => links.add(link) });
  await links.next(({ name }) => name === "connected");
  for (let told = 0; told < 300; told += 1) started.session.acknowledgeExit("main-1");
  expect(await links.next(({ name }) => name === "lost")).toMatchObject({
    message: "the runtime took none of 256 frames",
  });
});

test("an exit acknowledged while the runtime is away is acknowledged when it is back, and each time again", async () => {
  const links = new Log<BoundaryLink>();
  let onceLost = () => {};
  await using started = await startSession({
    onLink: (link) => {
      links.add(link);
      if (link.name === "lost") onceLost();
    },
  });
  const { runtime, session } = started;
  await links.next(({ name }) => name === "connected");
  onceLost = () => {
    onceLost = () => {};
    session.acknowledgeExit("main-1");
  };
  runtime.drop();
  for (let times = 0; times < 2; times += 1) {
    const frame = await runtime.frames.next(({ case: kind }) => kind === "exitAcknowledged");
    expect(frame.value).toMatchObject({ instanceId: "main-1" });
    runtime.drop();
  }
});
