import { expect, test } from "vitest";
import { WorkloadStatus } from "./workload.ts";

test("a workload that changes all the time is told of at a pace, and as it was last", async () => {
  let now = 0;
  let restartCount = 0;
  const change = () => {
    restartCount += 1;
    workload.set({ case: "mainProcess", value: { restartCount } });
  };
  const sleep = async (ms: number) => {
    now += ms;
    change();
  };
  const workload = new WorkloadStatus({ now: () => now, sleep });
  change();
  const stop = new AbortController();
  const told: (readonly [atMs: number, restartCount: number | undefined])[] = [];
  for await (const { payload } of workload.events(stop.signal)) {
    if (payload?.case === "mainProcess") told.push([now, payload.value.restartCount]);
    change();
    if (told.length === 18) stop.abort();
  }
  const atOnce = Array.from({ length: 16 }, (_, index) => [0, index + 1]);
  expect(told).toEqual([...atOnce, [250, 18], [500, 20]]);
});
