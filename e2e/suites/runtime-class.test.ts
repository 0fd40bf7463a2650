import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Live, Pod } from "../../src/kube/index.ts";
import { Conformance, tables } from "../support/conformance.ts";
import { ociRuntimeOf } from "../support/oci-runtime.ts";
import { phase } from "../support/waits.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

const isRunning = (pod: Live<Pod>) => pod.status?.phase === "Running";

describe("RuntimeClasses of a pair", () => {
  it("are the operator's two, distinct, at creation and after a restart, and really run by two OCI runtimes", async () => {
    await suite.configure({
      [tables.driver]: {
        default_runtime_class_name: "conformance-b",
        supervisor_runtime_class_name: "conformance-a",
      },
    });
    await using sandbox = await suite.create();
    for (const round of ["created", "restarted"]) {
      await sandbox.ready();
      const { workload, supervisor } = await suite.pair(
        sandbox,
        "running Pods",
        (pair) => isRunning(pair.workload) && isRunning(pair.supervisor),
      );
      expect([workload.spec?.runtimeClassName, supervisor.spec?.runtimeClassName], round).toEqual([
        "conformance-b",
        "conformance-a",
      ]);
      const found = await Promise.all([ociRuntimeOf(suite, workload), ociRuntimeOf(suite, supervisor)]);
      // Elsewhere than on the local provider the nodes' files cannot be read; the admitted classes are asserted everywhere.
      if (suite.provider.name === "local") expect(found, round).toEqual(["crun", "runc"]);
      if (round === "created") {
        await sandbox.stop();
        await sandbox.until(phase("STOPPED"));
        await sandbox.start();
      }
    }
  }, 300_000);

  it("let a caller choose the workload's and never touch the supervisor's", async () => {
    await using sandbox = await suite.create({ runtimeClass: "conformance-a" });
    const { workload, supervisor } = await suite.pair(sandbox);
    expect([workload.spec?.runtimeClassName, supervisor.spec?.runtimeClassName]).toEqual([
      "conformance-a",
      "conformance-a",
    ]);
    await sandbox.ready();
  });

  it("fail a sandbox within seconds, with the reason, when the cluster has no such class", async () => {
    const started = performance.now();
    const outcome = await suite.create({ runtimeClass: "no-such-class" }).then(
      async (sandbox) => {
        await using failed = sandbox;
        const seen = await failed.until({
          ...phase("ERROR", 30_000),
          test: (now) => phase("ERROR").test(now) === true,
        });
        return (seen.status?.conditions ?? []).map(({ reason, message }) => `${reason}: ${message}`).join("\n");
      },
      (error: Error) => error.message,
    );
    expect(outcome).toMatch(/no-such-class/);
    expect(performance.now() - started).toBeLessThan(60_000);
  });
});
