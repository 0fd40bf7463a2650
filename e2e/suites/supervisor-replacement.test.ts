import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { Conformance, type Pair, tables } from "../support/conformance.ts";
import { CountingSandbox } from "../support/counting-sandbox.ts";
import { evict } from "../support/evict.ts";
import { scrapeGateway } from "../support/gateway-metrics.ts";
import { failed, said } from "../support/outcome.ts";
import { podQuota } from "../support/resource-quota.ts";
import { phase, reason } from "../support/waits.ts";
import { withoutGateway } from "../support/without-gateway.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open({ [tables.runtime]: { pod_anti_affinity: "preferred" } });
});

afterAll(async () => suite[Symbol.asyncDispose]());

const pod = ({ supervisor }: Pair) => ["-n", suite.release.sandboxNamespace, "pod", supervisor.metadata.name];

interface Loss {
  /** As the gateway counts it. */
  readonly cause: "deleted" | "evicted";
  /** Another gateway replaces it, which counts from 0. */
  readonly countsAnew?: boolean;
  lose(pair: Pair): Promise<unknown>;
}

/** What takes a supervisor away while its workload runs. */
const losses: Readonly<Record<string, Loss>> = {
  "is deleted": { cause: "deleted", lose: (pair) => suite.kubectl(["delete", ...pod(pair)]) },
  "is deleted without grace": {
    cause: "deleted",
    lose: (pair) => suite.kubectl(["delete", "--grace-period=0", "--force", ...pod(pair)]),
  },
  "is evicted through the API, as a drain does": {
    cause: "evicted",
    lose: ({ supervisor }) => evict(suite, supervisor),
  },
  "is deleted while the gateway is down": {
    cause: "deleted",
    countsAnew: true,
    async lose(pair) {
      await using _down = await withoutGateway(suite);
      await suite.kubectl(["delete", "--wait", ...pod(pair)]);
    },
  },
};

/** How many supervisors the gateway's process has replaced for this cause. */
async function replaced(cause: Loss["cause"]): Promise<number> {
  const { values } = await scrapeGateway(suite.kube, suite.release);
  return values.get(`openshell_supervisor_replacements_total{cause="${cause}"}`) ?? Number.NaN;
}

describe("a supervisor that is lost", () => {
  // One workload outlives them all.
  let sandbox: CountingSandbox;
  beforeAll(async () => {
    sandbox = await CountingSandbox.create(suite);
  });
  beforeEach(async () => {
    await sandbox.until(phase("READY"));
    await sandbox.countsOn(0);
  });
  afterAll(async () => sandbox?.[Symbol.asyncDispose]());

  it.each(Object.entries(losses))(
    "because it %s is replaced, and the workload's processes and files stay",
    async (_, loss) => {
      const before = await suite.pair(sandbox);
      const counted = await replaced(loss.cause);
      const count = await sandbox.count();
      await loss.lose(before);
      const after = await suite.pair(
        sandbox,
        "another supervisor",
        ({ supervisor }) => supervisor.metadata.uid !== before.supervisor.metadata.uid,
      );
      await sandbox.countsOn(count);
      expect(after.workload.metadata.uid).toBe(before.workload.metadata.uid);
      const [container] = (await suite.pair(sandbox)).workload.status?.containerStatuses ?? [];
      expect(container?.restartCount).toBe(0);
      // Under the settings that its generation began with.
      const policy = ({ supervisor: { spec } }: Pair) => [
        spec?.affinity,
        spec?.runtimeClassName,
        spec?.containers[0]?.resources,
      ];
      expect(policy(after)).toEqual(policy(before));
      expect(await replaced(loss.cause)).toBe((loss.countsAnew ? 0 : counted) + 1);
    },
    240_000,
  );

  it("leaves the workload frozen while no other one can be made, and running again afterwards", async () => {
    const before = await suite.pair(sandbox);
    await using stack = new AsyncDisposableStack();
    const quota = stack.use(await podQuota(suite, 1));
    await suite.kubectl(["delete", "--wait", ...pod(before)]);
    await sandbox.until(reason("SupervisorRefused"));
    const count = await sandbox.frozen();
    await quota[Symbol.asyncDispose]();
    await sandbox.countsOn(count);
    expect((await suite.pair(sandbox)).workload.metadata.uid).toBe(before.workload.metadata.uid);
  }, 240_000);

  it("cannot be impersonated by a copy of its Pod, which gets nothing and moves nothing", async () => {
    const { supervisor, workload } = await suite.pair(sandbox);
    const { metadata, spec } = supervisor;
    const { nodeName: _, ...rest } = spec ?? {};
    const name = `copy-${randomBytes(3).toString("hex")}`;
    const copy = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: suite.release.sandboxNamespace, labels: metadata.labels ?? {} },
      spec: { ...rest, schedulingGates: [], terminationGracePeriodSeconds: 1 },
    };
    await using _copy = await suite.applied(copy);
    await suite.pods.until("the copy's container to have started", () =>
      suite.pods
        .list()
        .some(
          (one) =>
            one.metadata.name === name &&
            one.status?.containerStatuses?.some(({ state }) => state?.running ?? state?.terminated),
        ),
    );
    // Three seconds in which the copy tries.
    await sandbox.countsOn((await sandbox.count()) + 30);
    const found = (uid: string) => suite.podsOf(sandbox).find((one) => one.metadata.uid === uid);
    expect(found(supervisor.metadata.uid)?.metadata.deletionTimestamp).toBeUndefined();
    expect(found(workload.metadata.uid)?.metadata.deletionTimestamp).toBeUndefined();
    // Whoever logs in as the copy is asked for its own Pod's grant, which nobody has signed.
    const ready = suite.pods
      .list()
      .find((one) => one.metadata.name === name)
      ?.status?.conditions?.find(({ type }) => type === "Ready");
    expect(ready?.status).not.toBe("True");
  }, 240_000);
});

describe("both Pods of a generation that are gone at once", () => {
  it.each([
    ["while the gateway runs", false],
    ["while no gateway runs", true],
  ])(
    "end a later one like the first, %s (WorkloadDeleted), and it starts again",
    async (_when, isDown) => {
      await using sandbox = await suite.create();
      await sandbox.ready();
      await sandbox.stop();
      await sandbox.until(phase("STOPPED"));
      await sandbox.start();
      await sandbox.until(phase("READY"));
      const { workload, supervisor } = await suite.pair(sandbox);
      const names = [workload, supervisor].map(({ metadata }) => metadata.name);
      {
        await using _down = isDown ? await withoutGateway(suite) : undefined;
        const both = ["-n", suite.release.sandboxNamespace, "pod", ...names];
        await suite.kubectl(["delete", "--grace-period=0", "--force", ...both]);
      }
      expect(said(await sandbox.until(failed()))).toMatch(/WorkloadReady WorkloadDeleted: /);
      await sandbox.start();
      await sandbox.until(phase("READY"));
    },
    240_000,
  );
});

describe("the end of a generation without a supervisor", () => {
  it("comes when the window is over", async () => {
    await suite.configure({ [tables.replacement]: { window_seconds: 10 } });
    await using sandbox = await CountingSandbox.running(suite);
    await using _quota = await podQuota(suite, 1);
    await suite.kubectl(["delete", ...pod(await suite.pair(sandbox))]);
    expect(said(await sandbox.until(failed(90_000)))).toMatch(
      /SupervisorLost: no new supervisor ran within .*\(10\): .*exceeded quota/,
    );
  }, 240_000);

  it("comes at once where the operator configured that", async () => {
    await suite.configure({ [tables.replacement]: { mode: "terminate" } });
    await using sandbox = await CountingSandbox.running(suite);
    await suite.kubectl(["delete", ...pod(await suite.pair(sandbox))]);
    expect(said(await sandbox.until(failed()))).toMatch(/SupervisorLost/);
    await suite.pods.until("both Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
  }, 240_000);
});
