import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { pino } from "pino";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Clock } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { SessionToken, type TokenOptions } from "./token.ts";

const lifeMs = 3_600_000;
const away = new OpenShellError("unavailable", "nobody answers");
const over = new OpenShellError("unauthenticated", "the session is over");
const once = new OpenShellError("permission-denied", "this supervisor has its session already");

/** Time that passes only while somebody sleeps, and at once. */
class TestClock implements Clock {
  ms = 0;
  readonly slept: number[] = [];
  now = () => this.ms;

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.slept.push(ms);
    this.ms += ms;
    await turn();
    signal?.throwIfAborted();
  }
}

/** Answers each call with the next of its errors, or with a token that is named after its number. */
class TestGateway {
  readonly calls: string[] = [];
  readonly refuseIssue: OpenShellError[] = [];
  readonly refuseRefresh: OpenShellError[] = [];
  /** Before each answer to a renewal. */
  onRefresh: () => Promise<void> | void = () => {};
  /** Closings of the connection. */
  closes = 0;
  /** False: its tokens live for ever. */
  expires = true;
  #tokens = 0;

  readonly client = {
    issueSandboxToken: async (_request: unknown, options?: { headers?: Record<string, string> }) => {
      this.calls.push(`issue ${options?.headers?.authorization}`);
      return this.#answer(this.refuseIssue);
    },
    refreshSandboxToken: async (_request: unknown, options?: { headers?: Record<string, string> }) => {
      this.calls.push(`refresh ${options?.headers?.authorization?.split(".").at(-1)}`);
      await this.onRefresh();
      return this.#answer(this.refuseRefresh);
    },
  } as unknown as TokenOptions["gateway"]["client"];

  close(): void {
    this.closes += 1;
  }

  #answer(errors: OpenShellError[]) {
    const error = errors.shift();
    if (error !== undefined) throw error;
    this.#tokens += 1;
    const claims = this.expires ? { iat: 5, exp: 5 + lifeMs / 1000 } : { iat: 5 };
    const token = `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.token-${this.#tokens}`;
    const expirationTime = timestampFromMs(this.expires ? 5000 + lifeMs : Date.UTC(9999, 11, 31));
    return { token, expirationTime, sandboxToken: token, sandboxExpirationTime: expirationTime };
  }
}

let directory: string;
let clock: TestClock;
let gateway: TestGateway;
let token: SessionToken;
let refused: number;
const { signal } = new AbortController();

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "supervisor-"));
  writeFileSync(join(directory, "token"), "projected\n");
});
afterAll(() => rmSync(directory, { recursive: true }));

beforeEach(() => {
  clock = new TestClock();
  gateway = new TestGateway();
  refused = 0;
  token = new SessionToken({
    gateway,
    tokenFile: join(directory, "token"),
    log: pino({ level: "silent" }),
    onExchange: () => {},
    onRefused: () => {
      refused += 1;
    },
    clock,
  });
});

/** The token of a session that was accepted; from here on the gateway's calls are those that follow. */
async function inSession(): Promise<void> {
  await token.ensure(signal);
  token.sessionAccepted();
  expect(gateway.calls.splice(0)).toEqual(["issue Bearer projected"]);
}

const times = <T>(count: number, value: T): T[] => Array<T>(count).fill(value);
const heldNow = () => token.headers().authorization?.split(".").at(-1);

describe("a session's token that ran out while the gateway was away", () => {
  it("is renewed with itself until the gateway is back, at most 2 s after that, and no other session is asked for", async () => {
    await inSession();
    clock.ms += 2 * lifeMs;
    gateway.refuseRefresh.push(...times(300, away));
    await token.ensure(signal);
    expect(gateway.calls).toEqual(times(301, "refresh token-1"));
    expect(heldNow()).toBe("token-2");
    expect(gateway.closes).toBe(300);
    expect(Math.max(...clock.slept)).toBeLessThanOrEqual(2000);
    expect(new Set(clock.slept.slice(10)).size).toBeGreaterThan(100);
  });

  it("is lost after five refusals in a row, of a renewal and of another token", async () => {
    await inSession();
    clock.ms += lifeMs;
    gateway.refuseRefresh.push(...times(5, over));
    gateway.refuseIssue.push(...times(5, once));
    await expect(token.ensure(signal)).rejects.toMatchObject({ details: { reason: "CredentialLost" } });
    expect(gateway.calls).toEqual(times(5, ["refresh token-1", "issue Bearer projected"]).flat());
  });

  it("is not lost by refusals with an absence between them", async () => {
    await inSession();
    clock.ms += lifeMs;
    gateway.refuseRefresh.push(...times(4, over), away, ...times(4, over));
    gateway.refuseIssue.push(...times(8, once));
    await token.ensure(signal);
    expect(heldNow()).toBe("token-2");
  });

  it("gives way to another session where the gateway knows of none", async () => {
    await inSession();
    clock.ms += lifeMs;
    gateway.refuseRefresh.push(over);
    await token.ensure(signal);
    expect(gateway.calls).toEqual(["refresh token-1", "issue Bearer projected"]);
    expect(heldNow()).toBe("token-2");
  });

  it("is renewed once, though the session waits for it, too", async () => {
    await inSession();
    clock.ms += lifeMs;
    const answer = Promise.withResolvers<void>();
    gateway.onRefresh = () => answer.promise;
    const stop = new AbortController();
    const fresh = token.keepFresh(stop.signal).catch(() => {});
    const ensured = token.ensure(signal);
    for (let turns = 0; turns < 10; turns += 1) await turn();
    answer.resolve();
    await ensured;
    expect(gateway.calls).toEqual(["refresh token-1"]);
    stop.abort();
    await fresh;
  });

  it("is renewed also while the session is up", async () => {
    await inSession();
    const stop = new AbortController();
    gateway.onRefresh = () => {
      if (clock.ms < 3 * lifeMs) throw new OpenShellError("internal", "the disk is full");
      stop.abort();
    };
    await token.keepFresh(stop.signal).catch(() => {});
    expect(new Set(gateway.calls)).toEqual(new Set(["refresh token-1"]));
    expect(heldNow()).toBe("token-2");
  });
});

describe("a session token", () => {
  it("that the gateway takes no more, though it lives by this clock, is renewed before it is used again", async () => {
    await inSession();
    token.invalidate();
    await token.ensure(signal);
    expect(gateway.calls).toEqual(["refresh token-1"]);
    expect(heldNow()).toBe("token-2");
  });

  it("whose renewal is refused is told of once, and left to the session that begins anew", async () => {
    await inSession();
    gateway.refuseRefresh.push(over);
    const stop = new AbortController();
    const fresh = token.keepFresh(stop.signal).catch(() => {});
    while (clock.ms < 2 * lifeMs) await turn();
    expect(gateway.calls).toEqual(["refresh token-1"]);
    expect(refused).toBe(1);
    stop.abort();
    await fresh;
  });

  it("is asked for as long as it is refused by a Pod that never had a session", async () => {
    await token.ensure(signal);
    clock.ms += lifeMs;
    gateway.refuseRefresh.push(...times(30, over));
    gateway.refuseIssue.push(...times(29, over));
    await token.ensure(signal);
    expect(heldNow()).toBe("token-2");
  });

  it("that lives for ever is never asked for again", async () => {
    gateway.expires = false;
    await inSession();
    clock.ms += 100 * 365 * 24 * lifeMs;
    await token.ensure(signal);
    expect(gateway.calls).toEqual([]);
  });
});
