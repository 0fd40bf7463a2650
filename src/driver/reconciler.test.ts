import { pino } from "pino";
import { expect, test } from "vitest";
import { testGatewayId, testObserved, testPod, testRecord } from "./_testing.ts";
import type { Action } from "./action.ts";
import type { ClusterView } from "./cluster-view.ts";
import type { Executor } from "./execute.ts";
import { Hub } from "./hub.ts";
import { Reconciler } from "./reconciler.ts";

test("what a driver rendered before it lost its lease may be another's by the time that it has it again", async () => {
  const record = testRecord({ supervisorUid: "supervisor-uid" });
  const observed = testObserved(record, {
    workloads: [testPod("workload", record, { spec: { hostNetwork: true } })],
    supervisors: [testPod("supervisor", record)],
  });
  const planned: Action[] = [];
  const round = { of: Promise.withResolvers<void>() };
  const reconciler = new Reconciler({
    view: { api: "v1beta1", sandboxIds: () => [], observe: () => observed } as unknown as ClusterView,
    // Nothing is written, and so each look plans the same.
    executor: { perform: async () => undefined } as unknown as Executor,
    hub: new Hub(),
    gatewayId: testGatewayId,
    log: pino({ level: "silent" }),
    now: () => observed.now,
    onRound: (_id, actions) => {
      planned.push(...actions);
      round.of.resolve();
    },
  });
  const intents = async (begin: () => void) => {
    planned.length = 0;
    round.of = Promise.withResolvers<void>();
    const lost = new AbortController();
    reconciler.start(lost.signal);
    begin();
    await round.of.promise;
    lost.abort();
    await reconciler.stop();
    return planned.map((action) => action.do === "suspend" && action.record?.intent)[0];
  };
  const own = await intents(() => {
    reconciler.create(record, async () => undefined).catch(() => undefined);
  });
  const later = await intents(() => reconciler.wake(record.sandbox.id));
  expect([own, later]).toEqual(["failed", "running"]);
});
