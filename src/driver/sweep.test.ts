import { pino } from "pino";
import { expect, test } from "vitest";
import type { Live, Pod, Service } from "../kube/index.ts";
import { testNow, testPod, testRecord, testService } from "./_testing.ts";
import { orphanAgeMs, sweep } from "./sweep.ts";

const record = testRecord();
const aged = (ms: number) => new Date(testNow.getTime() - ms).toISOString();
const pod = (name: string, metadata: Partial<Live<Pod>["metadata"]>) =>
  testPod("supervisor", record, {
    uid: name,
    metadata: { ...testPod("supervisor", record).metadata, name, uid: name, ...metadata },
  });

/** A view that shows these orphans, and what was deleted of them. */
function swept(pods: Live<Pod>[], services: Live<Service>[], fails: readonly string[] = []) {
  const deleted: string[] = [];
  const note = async ({ metadata: { name } }: Live<Pod> | Live<Service>) => {
    if (fails.includes(name)) throw new Error("the API server is away");
    deleted.push(name);
  };
  const parts = { view: { orphans: () => ({ pods, services }) }, executor: { deletePod: note, deleteService: note } };
  return sweep(parts as unknown as Parameters<typeof sweep>[0], testNow, pino({ level: "silent" })).then(() => deleted);
}

test("a Pod and a Service whose Sandbox is gone for ten minutes are deleted", async () => {
  const service = testService(record);
  const old = { ...service, metadata: { ...service.metadata, creationTimestamp: aged(orphanAgeMs + 1) } };
  expect(await swept([pod("old", { creationTimestamp: aged(orphanAgeMs + 1) })], [old])).toEqual([
    "old",
    "os-boundary",
  ]);
});

test("what is younger, what is ending already and what has no age is left alone", async () => {
  const left = [
    pod("young", { creationTimestamp: aged(orphanAgeMs - 1) }),
    pod("ending", { creationTimestamp: aged(orphanAgeMs * 2), deletionTimestamp: aged(1) }),
  ];
  expect(await swept(left, [testService(record)])).toEqual([]);
});

test("one that cannot be deleted does not keep the others", async () => {
  const old = aged(orphanAgeMs * 2);
  const pods = [pod("first", { creationTimestamp: old }), pod("second", { creationTimestamp: old })];
  expect(await swept(pods, [], ["first"])).toEqual(["second"]);
});
