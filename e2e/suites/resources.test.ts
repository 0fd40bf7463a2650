import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Conformance, tables } from "../support/conformance.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

describe("resources of a pair", () => {
  it("keep both Pods out of QoS class BestEffort without any setting", async () => {
    await using sandbox = await suite.create();
    const { workload, supervisor } = await suite.pair(sandbox);
    for (const pod of [workload, supervisor]) {
      expect(["Burstable", "Guaranteed"]).toContain(pod.status?.qosClass);
      for (const container of [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])]) {
        expect(container.resources?.requests, container.name).toMatchObject({
          cpu: expect.any(String),
          memory: expect.any(String),
        });
      }
    }
    expect(supervisor.spec?.containers[0]?.resources?.limits?.memory).toBeDefined();
  });

  it("come from the operator for the supervisor and from the caller for the workload", async () => {
    await suite.configure({
      [tables.driver]: { supervisor_resources: { requests: { cpu: "60m" }, limits: { memory: "300Mi" } } },
    });
    await using sandbox = await suite.create({
      resources: { requests: { cpu: "70m", memory: "140Mi" }, limits: { memory: "280Mi" } },
    });
    const { workload, supervisor } = await suite.pair(sandbox);
    expect(supervisor.spec?.containers[0]?.resources).toMatchObject({
      requests: { cpu: "60m" },
      limits: { memory: "300Mi" },
    });
    expect(workload.spec?.containers[0]?.resources).toMatchObject({
      requests: { cpu: "70m", memory: "140Mi" },
      limits: { memory: "280Mi" },
    });
    await sandbox.ready();
  });
});
