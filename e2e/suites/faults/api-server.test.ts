import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, expiredWatch, type Fault, type SeenRequest, statusAnswer } from "../../support/api-proxy.ts";
import { Breakpoints } from "../../support/breakpoints.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { Lives } from "../../support/lives.ts";

let bench: FaultSuite;

const second = 1000;
const isWrite = ({ method }: SeenRequest) => method !== "GET";

/** Meets of all requests for one thing every other one, the first of them: what is tried again passes. Two tries need not be the same to the last byte. */
function firstTries(
  met: (request: SeenRequest) => boolean,
  instead: (pass: () => Promise<Answer>) => Promise<Answer | undefined>,
  again = true,
): Fault {
  const counts = new Map<string, number>();
  return async (request, pass) => {
    const { method, path, query, body } = request;
    const name = method === "POST" ? /"name":"[^"]*"/.exec(body)?.[0] : "";
    const key = `${method} ${path} ${query} ${name}`;
    const count = counts.get(key) ?? 0;
    if (!met(request)) return pass();
    counts.set(key, count + 1);
    return count === 0 || (again && count % 2 === 0) ? instead(pass) : pass();
  };
}

/** What happens to requests while four sandboxes are on their way. */
const requestFaults: Readonly<Record<string, () => Fault>> = {
  "answers 429 with Retry-After to the first try of every request": () =>
    firstTries(
      () => true,
      async () => statusAnswer(429, "TooManyRequests", "slow down", { "retry-after": "1" }),
    ),
  "answers 409 to the first try of every change": () =>
    firstTries(
      ({ method }) => method === "PATCH",
      async () => statusAnswer(409, "Conflict", "the object has been modified"),
    ),
  "answers 500 to the first try of every request": () =>
    firstTries(
      () => true,
      async () => statusAnswer(500, "InternalError", "etcdserver: request timed out"),
    ),
  "accepts every write and loses its first answer": () =>
    firstTries(
      isWrite,
      async (pass) => {
        await pass();
        return undefined;
      },
      // A Secret whose answer was lost is deleted and made again: were both lost every other time, that would go on for ever.
      false,
    ),
  "takes four seconds for every answer": () => async (_request, pass) => {
    const answer = await pass();
    await sleep(4 * second);
    return answer;
  },
};

/** What happens to watches meanwhile, again and again. */
const watchFaults: Readonly<Record<string, { readonly everyMs: number; readonly act: () => unknown }>> = {
  "drops every watch, four times a second": { everyMs: 250, act: () => bench.proxy.dropWatches() },
  "forgets the place of every watch, once a second": {
    everyMs: 1000,
    act: () => bench.proxy.dropWatches(expiredWatch),
  },
};

function repeating({ everyMs, act }: { readonly everyMs: number; readonly act: () => unknown }): Disposable {
  const timer = setInterval(act, everyMs);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Runs four steps of life under a fault and asserts that nothing came of it, and that nobody ran in a circle. */
async function survives(fault: () => Disposable, most = 150): Promise<void> {
  await using lives = await Lives.prepare(bench.suite);
  await bench.quiet();
  const at = performance.now();
  {
    using _fault = fault();
    await lives.begin();
    await lives.settled();
  }
  await bench.quiet();
  expect(bench.since(at).length).toBeLessThan(most);
}

describe("an API server that", { skip: !canBreak }, () => {
  beforeAll(async () => {
    bench = await FaultSuite.open();
  });

  afterAll(async () => bench?.[Symbol.asyncDispose]());

  it.each(Object.entries(requestFaults))(
    "%s changes nothing of how a create, a stop, a start and a delete end",
    async (_what, fault) => {
      await survives(() => bench.proxy.breaking(fault()));
    },
    300_000,
  );

  it.each(Object.entries(watchFaults))(
    "%s changes nothing of how a create, a stop, a start and a delete end",
    async (_what, fault) => {
      // Every list that a forgotten place costs, of some ten informers with back-off.
      await survives(() => repeating(fault), 400);
    },
    300_000,
  );

  it("says every event twice changes nothing of how a create, a stop, a start and a delete end", async () => {
    await survives(() => {
      bench.proxy.lineFault = (line) => [line, line];
      return {
        [Symbol.dispose]: () => {
          bench.proxy.lineFault = undefined;
        },
      };
    });
  }, 300_000);

  it("lets its watches fall silent without ending them is asked anew, and the four come to their ends", async () => {
    await survives(() => {
      expect(bench.proxy.silenceWatches()).toBeGreaterThan(5);
      return { [Symbol.dispose]: () => undefined };
    });
  }, 300_000);

  /** A minute in which there is no API server, or as good as none. */
  const outages: Readonly<Record<string, () => Disposable | Promise<Disposable>>> = {
    "is not there for a minute": () => bench.proxy.away(),
    "answers nobody for a minute": () => bench.faults.stallApiServer(),
    "answers, for a minute, only when nobody waits any more": () =>
      bench.proxy.breaking(async (_request, pass) => {
        const answer = await pass();
        await sleep(35 * second);
        return answer;
      }),
  };

  it.each(Object.entries(outages))(
    "%s, in the middle of a create, a stop, a start, a delete and a supervisor's replacement, changes nothing of how they end",
    async (_what, begin) => {
      const { proxy, suite } = bench;
      await using lives = await Lives.prepare(suite);
      await bench.quiet();
      const at = performance.now();
      const connections = proxy.connections;
      using held = new Breakpoints(bench.writes, lives.points({ creating: 4, stopping: 1, starting: 3, deleting: 0 }));
      const fault = proxy.breaking(held.fault);
      const begun = lives.begin();
      await held.reached();
      fault[Symbol.dispose]();
      await lives.loseSupervisor();
      {
        using _outage = await begin();
        held[Symbol.dispose]();
        await sleep(60 * second);
      }
      await begun;
      await suite.gateway.reconnect();
      await lives.settled();
      await bench.quiet();
      // Tries with back-off, of some ten watches, a lease and five sandboxes.
      expect(bench.since(at).length).toBeLessThan(200);
      expect(proxy.connections - connections).toBeLessThan(600);
    },
    420_000,
  );
});
