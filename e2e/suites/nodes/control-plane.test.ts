import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Conformance } from "../../support/conformance.ts";
import { CountingSandbox } from "../../support/counting-sandbox.ts";
import { scrapeGateway } from "../../support/gateway-metrics.ts";
import { watchRestarts } from "../../support/kube-requests.ts";
import { leftOf } from "../../support/outcome.ts";
import { phase } from "../../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Longer than any single request may take to be given up by whoever watches for stalls in seconds. */
const stallSeconds = 25;

/** Of the driver since its start: all requests to the API server, and watches that it opened again. */
async function asked() {
  const scrape = await scrapeGateway(suite.kube, suite.release);
  const ofRequests = [...scrape.values].filter(([series]) => series.startsWith("openshell_kube_requests_total{"));
  expect(ofRequests.length).toBeGreaterThan(0);
  const requests = ofRequests.reduce((sum, [, count]) => sum + count, 0);
  return { requests, restarts: watchRestarts(scrape) };
}

describe("an API server that answers nobody", () => {
  it("in the middle of a create, a stop and a delete changes nothing of how they end, and a pair that runs goes on meanwhile", async ({
    skip,
  }) => {
    const { provider } = suite;
    const { faults } = provider;
    if (faults === undefined) skip(`the ${provider.name} provider does not run the API server itself`);
    await using running = await CountingSandbox.running(suite);
    await using stopping = await suite.create();
    await using deleting = await suite.create();
    await Promise.all([stopping.ready(), deleting.ready()]);
    const pair = await suite.pair(running);
    const count = await running.count();
    const before = await asked();

    await using creating = await suite.create();
    await Promise.all([stopping.stop(), deleting.delete()]);
    {
      using _stall = await faults?.stallApiServer();
      await sleep(stallSeconds * 1000);
    }
    await suite.gateway.reconnect();

    await creating.ready();
    expect(await creating.exec(["echo", "here"])).toMatchObject({ stdout: "here\n" });
    await stopping.until(phase("STOPPED"));
    await deleting.gone();
    await expect.poll(() => leftOf(suite, deleting), { timeout: 60_000 }).toEqual([]);
    // Ten a second, all the time: neither was it frozen nor replaced.
    await running.countsOn(count + stallSeconds * 8);
    const after = await suite.pair(running);
    expect([after.workload.metadata.uid, after.supervisor.metadata.uid]).toEqual([
      pair.workload.metadata.uid,
      pair.supervisor.metadata.uid,
    ]);
    expect(suite.podsOf(creating)).toHaveLength(2);
    // Writes of a create, a stop and a delete, watches that are opened again, and tries with back-off: no hot loop.
    const { requests, restarts } = await asked();
    expect(requests - before.requests).toBeLessThan(150);
    // There are some ten, and each lives for 45 seconds at most.
    expect(restarts).toBeGreaterThan(before.restarts);
  }, 300_000);
});
