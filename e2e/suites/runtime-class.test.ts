import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { retry } from "../../src/common/async.ts";
import type { Live, Pod } from "../../src/kube/index.ts";
import { Conformance, type NewSandbox, type Pair, tables } from "../support/conformance.ts";
import { ociRuntimeOf } from "../support/oci-runtime.ts";
import { failureOf } from "../support/outcome.ts";
import { workerRelease } from "../support/release.ts";
import { runtimeClass } from "../support/runtime-class.ts";
import { phase } from "../support/waits.ts";

/** Of supervisors, and nobody else's. */
const ofSupervisors = runtimeClass(`conformance-${workerRelease().name}-supervisors`);

let suite: Conformance;
let supervisorsClass: AsyncDisposable | undefined;

beforeAll(async () => {
  suite = await Conformance.open({
    [tables.driver]: {
      default_runtime_class_name: "conformance-b",
      supervisor_runtime_class_name: ofSupervisors.metadata.name,
      allowed_runtime_class_names: ["conformance-a", "conformance-b", "no-such-class"],
    },
  });
  supervisorsClass = await suite.applied(ofSupervisors);
});

afterAll(async () => {
  await supervisorsClass?.[Symbol.asyncDispose]();
  await suite[Symbol.asyncDispose]();
});

const isRunning = (pod: Live<Pod>) => pod.status?.phase === "Running";

const classesOf = ({ workload, supervisor }: Pair) => [
  workload.spec?.runtimeClassName,
  supervisor.spec?.runtimeClassName,
];

describe("RuntimeClasses of a pair", () => {
  it("are the operator's two, distinct, at creation and after a restart, and really run by two OCI runtimes", async () => {
    await using sandbox = await suite.create();
    for (const round of ["created", "restarted"]) {
      await sandbox.ready();
      const { workload, supervisor } = await suite.pair(
        sandbox,
        "running Pods",
        (pair) => isRunning(pair.workload) && isRunning(pair.supervisor),
      );
      expect(classesOf({ workload, supervisor }), round).toEqual(["conformance-b", ofSupervisors.metadata.name]);
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

  const inDriverConfig = (name: string) => ({ driverConfig: { pod: { runtime_class_name: name } } });
  it.each<[string, NewSandbox, string]>([
    ["the typed template's", { runtimeClass: "conformance-a", ...inDriverConfig("conformance-b") }, "conformance-a"],
    [
      "driver_config's, where the template's is empty",
      { runtimeClass: "", ...inDriverConfig("conformance-a") },
      "conformance-a",
    ],
    ["the operator's, where both are empty", { runtimeClass: "", ...inDriverConfig("") }, "conformance-b"],
  ])("are, for the workload, %s; never another for the supervisor", async (_whose, wishes, expected) => {
    await using sandbox = await suite.create(wishes);
    expect(classesOf(await suite.pair(sandbox))).toEqual([expected, ofSupervisors.metadata.name]);
  });

  it.each([
    ["in the typed template", { runtimeClass: "not-allowed" }],
    ["in driver_config", inDriverConfig("not-allowed")],
  ])("are refused when the operator does not allow them, %s", async (_where, wishes) => {
    await expect(suite.create(wishes)).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringContaining(`RuntimeClass "not-allowed" is not one that this gateway's operator allows`),
    });
  });

  it("fail a sandbox within seconds, with the reason, when the cluster has no such class", async () => {
    const started = performance.now();
    const { text, sandbox } = await failureOf(suite.create({ runtimeClass: "no-such-class" }));
    await using _failed = sandbox;
    expect(text).toMatch(/no-such-class/);
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it("never give way to an ordinary supervisor: without its class nothing is made or started, and a pair runs once it is back", async () => {
    const { name } = ofSupervisors.metadata;
    const isMissing = `RuntimeClass "${name}" does not exist in the cluster`;
    await using sandbox = await suite.create();
    await sandbox.ready();
    await sandbox.stop();
    await sandbox.until(phase("STOPPED"));
    const refusal = async () => {
      try {
        await using _made = await suite.create();
        return "none";
      } catch (error) {
        return (error as Error).message;
      }
    };
    await supervisorsClass?.[Symbol.asyncDispose]();
    await expect.poll(refusal, { timeout: 15_000 }).toContain(isMissing);
    const { text } = await failureOf(sandbox.start().then(() => sandbox));
    expect(text).toContain(isMissing);
    expect(suite.pods.list().filter(({ metadata }) => metadata.deletionTimestamp === undefined)).toEqual([]);
    supervisorsClass = await suite.applied(ofSupervisors);
    // A start fails for as long as the driver has not seen the class.
    await retry(
      async () => {
        await sandbox.start();
        await sandbox.until(phase("READY", 60_000));
      },
      { attempts: 3, initialMs: 1_000 },
    );
    expect(classesOf(await suite.pair(sandbox))).toEqual(["conformance-b", name]);
  }, 300_000);
});
