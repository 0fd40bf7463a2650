import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Live, type Pod, persistentVolumeClaims } from "../../src/kube/index.ts";
import { Conformance, type NewSandbox, tables } from "../support/conformance.ts";
import { failed, failureOf, leftOf, said } from "../support/outcome.ts";
import { resourceQuota } from "../support/resource-quota.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open();
});

afterAll(async () => suite[Symbol.asyncDispose]());

const containersOf = ({ spec }: Live<Pod>) => [...(spec?.initContainers ?? []), ...(spec?.containers ?? [])];
const resourcesOf = ({ spec }: Live<Pod>) => spec?.containers[0]?.resources;

describe("resources of a pair", () => {
  it("keep both Pods out of QoS class BestEffort without any setting", async () => {
    await using sandbox = await suite.create();
    const { workload, supervisor } = await suite.pair(sandbox);
    for (const pod of [workload, supervisor]) {
      expect(["Burstable", "Guaranteed"]).toContain(pod.status?.qosClass);
      for (const container of containersOf(pod)) {
        expect(container.resources?.requests, container.name).toMatchObject({
          cpu: expect.any(String),
          memory: expect.any(String),
        });
        expect(container.securityContext, container.name).not.toHaveProperty("appArmorProfile");
      }
      for (const field of ["nodeSelector", "runtimeClassName", "priorityClassName", "hostUsers", "affinity"]) {
        expect(pod.spec, "what nobody asked for").not.toHaveProperty(field);
      }
    }
    expect(resourcesOf(supervisor)?.limits?.memory).toBeDefined();
  });

  it.each<[string, NewSandbox, string, object]>([
    [
      "limits alone, below the default requests too",
      { resources: { limits: { cpu: "40m", memory: "200Mi" } } },
      "Burstable",
      { requests: { cpu: "40m", memory: "96Mi" }, limits: { cpu: "40m", memory: "200Mi" } },
    ],
    [
      "requests alone",
      { driverConfig: { containers: { agent: { resources: { requests: { cpu: "70m", memory: "130Mi" } } } } } },
      "Burstable",
      { requests: { cpu: "70m", memory: "130Mi" } },
    ],
    [
      "as much of both",
      { resources: { requests: { cpu: "70m", memory: "200Mi" }, limits: { cpu: "70m", memory: "200Mi" } } },
      "Guaranteed",
      { requests: { cpu: "70m", memory: "200Mi" }, limits: { cpu: "70m", memory: "200Mi" } },
    ],
  ])("may be %s, for the workload", async (_what, wishes, qosClass, resources) => {
    await using sandbox = await suite.create(wishes);
    const { workload } = await suite.pair(sandbox);
    expect(workload.status?.qosClass).toBe(qosClass);
    expect(resourcesOf(workload)).toMatchObject(resources);
    if (!("limits" in resources)) expect(resourcesOf(workload)).not.toHaveProperty("limits");
  });

  const limitRange = (name: string, limits: object) => ({
    apiVersion: "v1",
    kind: "LimitRange",
    metadata: { name: `conformance-${name}`, namespace: suite.release.sandboxNamespace },
    spec: { limits: [{ type: "Container", ...limits }] },
  });

  it("are completed by a LimitRange's defaults, and what is above its maximum is refused (LimitRangeRefused)", async () => {
    const amounts = { cpu: "1", memory: "400Mi", "ephemeral-storage": "1Gi" };
    const range = { default: amounts, defaultRequest: { cpu: "10m", memory: "10Mi" }, max: { memory: "500Mi" } };
    await using _range = await suite.applied(limitRange("defaults", range));
    await using sandbox = await suite.create();
    await sandbox.ready();
    const { workload, supervisor } = await suite.pair(sandbox);
    expect(resourcesOf(workload)).toMatchObject({ requests: { cpu: "50m", memory: "96Mi" }, limits: amounts });
    expect(resourcesOf(supervisor)).toMatchObject({
      requests: { cpu: "50m", memory: "96Mi" },
      limits: { ...amounts, memory: "256Mi" },
    });

    const { text, sandbox: refused } = await failureOf(suite.create({ resources: { limits: { memory: "600Mi" } } }));
    await using _refused = refused;
    expect(text).toMatch(/LimitRangeRefused: .*maximum memory usage per Container is 500Mi, but limit is 600Mi/);
  }, 300_000);

  it("are refused in the call when a LimitRange's default limit lies below what the supervisor asks for", async () => {
    await using _range = await suite.applied(
      limitRange("low", { default: { cpu: "20m" }, defaultRequest: { cpu: "10m" } }),
    );
    const { text, sandbox } = await failureOf(suite.create());
    await using _refused = sandbox;
    expect(text).toMatch(/the supervisor Pod: .*"50m": must be less than or equal to cpu limit of 20m/);
  });

  it("count against a ResourceQuota: a pair that fits runs, and the next ones say by name what there is too little of (QuotaExceeded)", async () => {
    const claims = async () =>
      (await suite.kube.list(persistentVolumeClaims, suite.release.sandboxNamespace)).items.length;
    // Of the tests before.
    await expect.poll(claims, { timeout: 60_000 }).toBe(0);
    {
      await using stack = new AsyncDisposableStack();
      // Three times what one Pod asks for, and claims for two.
      const quota = stack.use(
        await resourceQuota(suite, "conformance-amounts", { "requests.cpu": "150m", persistentvolumeclaims: "2" }),
      );
      await stack.use(await suite.create()).ready();
      await expect
        .poll(quota.used, { timeout: 30_000 })
        .toEqual({ "requests.cpu": "100m", persistentvolumeclaims: "1" });

      const withoutProcessor = stack.use(await suite.create());
      expect(said(await withoutProcessor.until(failed()))).toMatch(
        /QuotaExceeded: .*the workload Pod: .*exceeded quota: conformance-amounts, requested: requests\.cpu=50m, used: requests\.cpu=150m, limited: requests\.cpu=150m/,
      );
      // Its supervisor is gone, its claim is kept.
      await expect
        .poll(quota.used, { timeout: 30_000 })
        .toEqual({ "requests.cpu": "100m", persistentvolumeclaims: "2" });

      const withoutVolume = stack.use(await suite.create());
      expect(said(await withoutVolume.until(failed()))).toMatch(
        /QuotaExceeded: .*exceeded quota: conformance-amounts, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=2, limited: persistentvolumeclaims=2/,
      );
    }
    await using _limits = await resourceQuota(suite, "conformance-limits", { "limits.cpu": "4" });
    const { text, sandbox } = await failureOf(suite.create());
    await using _refused = sandbox;
    expect(text).toMatch(
      /the supervisor Pod: .*failed quota: conformance-limits: must specify limits\.cpu for: supervisor/,
    );
  }, 300_000);

  it.each([
    "count/sandboxes.agents.x-k8s.io",
    "count/services",
    "count/secrets",
    "count/pods",
    "count/persistentvolumeclaims",
    "requests.storage",
  ])(
    "count against a quota of %s: the next pair says so (QuotaExceeded), and nothing of it runs",
    async (resource) => {
      await using _quota = await resourceQuota(suite, "conformance-counts", { [resource]: "0" });
      const { text, sandbox } = await failureOf(suite.create());
      await using failure = sandbox;
      expect(text).toMatch(
        new RegExp(`exceeded quota: conformance-counts, requested: ${resource.replaceAll(".", "\\.")}=`),
      );
      if (failure === undefined) return;
      expect(text).toContain("QuotaExceeded");
      const left = async () => (await leftOf(suite, failure)).filter((object) => !object.startsWith("service/"));
      await expect.poll(left, { timeout: 30_000 }).toEqual([]);
    },
    120_000,
  );

  it("come from the operator for the supervisor and from the caller for the workload, by driver_config only where that is allowed", async () => {
    await suite.configure({
      [tables.driver]: {
        supervisor_resources: { requests: { cpu: "60m" }, limits: { memory: "300Mi" } },
        allow_driver_config: false,
      },
    });
    const loose = { containers: { agent: { resources: { requests: { cpu: "70m" } } } } };
    await expect(suite.create({ driverConfig: loose })).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining("this gateway does not accept driver_config"),
    });
    await using sandbox = await suite.create({
      resources: { requests: { cpu: "70m", memory: "140Mi" }, limits: { memory: "280Mi" } },
    });
    const { workload, supervisor } = await suite.pair(sandbox);
    expect(resourcesOf(supervisor)).toMatchObject({
      requests: { cpu: "60m" },
      limits: { memory: "300Mi" },
    });
    expect(resourcesOf(workload)).toMatchObject({
      requests: { cpu: "70m", memory: "140Mi" },
      limits: { memory: "280Mi" },
    });
    await sandbox.ready();
  }, 240_000);
});
