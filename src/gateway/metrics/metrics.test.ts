import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { OpenShellError } from "../../common/errors.ts";
import { issueAuthority, issueLeaf } from "../../pki/certificates.ts";
import { inDefault, TestGateway } from "../_testing.ts";
import { MemoryDriver } from "../_testing-driver.ts";
import { about, create, exec, ready } from "../_testing-sandbox.ts";
import type { GatewayOptions } from "../gateway.ts";
import { DriverMeters } from "./driver-meters.ts";
import { Counter, Histogram, secondsBuckets } from "./meters.ts";
import { printMetrics } from "./print.ts";
import { type MetricName, metricTable, stages } from "./table.ts";

const loopback = { host: "127.0.0.1", port: 0 };

/** Starts a gateway for the test, with a driver whose meters are shown. */
async function measured(options: Partial<GatewayOptions> & { readonly driver?: MemoryDriver } = {}) {
  const meters = new DriverMeters();
  const state = { depth: 0, leads: false };
  const driverReadings = meters.readings({ depth: () => state.depth, leads: () => state.leads });
  const test = await TestGateway.start({ metrics: loopback, driverReadings, ...options });
  onTestFinished(() => test[Symbol.asyncDispose]());
  const scrape = async () => {
    const answer = await fetch(`http://127.0.0.1:${test.gateway.metricsPort}/metrics`);
    expect(answer.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    return answer.text();
  };
  /** Values by series, as `name` or `name{label="value"}`. */
  const values = async () =>
    new Map(
      [...(await scrape()).matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, series, value]) => [series, Number(value)]),
    );
  const value = async (series: string) => (await values()).get(series);
  return { test, meters, state, scrape, value };
}

async function certificateUntil(notAfter: Date) {
  const validity = { notBefore: new Date(Date.now() - 60_000), notAfter };
  const authority = await issueAuthority({ commonName: "CA", algorithm: "ecdsa-p256", ...validity });
  const leaf = { authority, commonName: "gateway", ipAddresses: ["127.0.0.1"] };
  return issueLeaf({ ...leaf, usages: ["server"], ...validity });
}

/** What makes each metric move. One that is added to the table and not here does not compile. */
const moves: Readonly<Record<MetricName, () => Promise<void>>> = {
  async openshell_sandboxes() {
    const { test, value } = await measured();
    await create(test, "one");
    await create(test, "two");
    expect(await value('openshell_sandboxes{phase="PROVISIONING"}')).toBe(2);
    await test.client.deleteSandbox(about("one"));
    expect(await value('openshell_sandboxes{phase="PROVISIONING"}')).toBe(1);
  },

  async openshell_create_seconds() {
    const { test, value } = await measured();
    const counted = (stage: string) => value(`openshell_create_seconds_count{stage="${stage}"}`);
    for (const stage of stages) expect(await counted(stage), stage).toBe(0);
    test.driver.automatic = false;
    const waiting = await create(test, "waiting");
    await expect.poll(() => counted("accepted")).toBe(1);
    expect(await counted("scheduled")).toBe(0);
    test.driver.report(waiting, "Running");
    await expect.poll(() => counted("workload_ready")).toBe(1);
    expect([await counted("supervisor_connected"), await counted("ready")]).toEqual([0, 0]);
    test.driver.automatic = true;
    const { supervisor } = await ready(test, "one");
    for (const stage of ["fenced", "ready"]) expect(await counted(stage), stage).toBe(1);
    expect(await counted("accepted")).toBe(2);
    const sum = await value('openshell_create_seconds_sum{stage="ready"}');
    expect(sum).toBeGreaterThan(0);
    expect(await value('openshell_create_seconds_bucket{stage="ready",le="+Inf"}')).toBe(1);
    // A supervisor that comes again is no create.
    await supervisor[Symbol.asyncDispose]();
    expect(await counted("ready")).toBe(1);
  },

  async openshell_generation_failures_total() {
    const { test, value } = await measured();
    const failed = (reason: string) => value(`openshell_generation_failures_total{reason="${reason}"}`);
    test.driver.automatic = false;
    const id = await create(test, "one");
    expect(await failed("Broken")).toBeUndefined();
    test.driver.report(id, "Broken");
    await expect.poll(() => failed("Broken")).toBe(1);
    // It goes on being so, which is no further failure.
    test.driver.report(id, "Stopped");
    test.driver.report(id, "Broken");
    test.driver.refuse.set("create", new OpenShellError("failed-precondition", "no", { reason: "QuotaExceeded" }));
    await expect(create(test, "two")).rejects.toMatchObject({ code: "failed-precondition" });
    expect([await failed("Broken"), await failed("QuotaExceeded")]).toEqual([1, 1]);
  },

  async openshell_supervisor_sessions() {
    const { test, value } = await measured();
    expect(await value("openshell_supervisor_sessions")).toBe(0);
    await ready(test, "one");
    expect(await value("openshell_supervisor_sessions")).toBe(1);
  },

  async openshell_relays() {
    const { test, value } = await measured();
    const seen: (number | undefined)[] = [];
    await ready(test, "one", {}, async () => void seen.push(await value("openshell_relays")));
    expect(await value("openshell_relays")).toBe(1);
    await exec(test, "one").catch(() => undefined);
    expect(seen).toEqual([2]);
  },

  async openshell_driver_stream_restarts_total() {
    const { test, value } = await measured();
    await create(test, "one");
    expect(await value("openshell_driver_stream_restarts_total")).toBe(0);
    test.driver.breakWatches();
    await expect.poll(() => value("openshell_driver_stream_restarts_total")).toBe(1);
  },

  async openshell_certificate_expiry_seconds() {
    expect(await (await measured()).value("openshell_certificate_expiry_seconds")).toBeUndefined();
    const directory = mkdtempSync(join(tmpdir(), "openshell-metrics-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const files = { cert: join(directory, "tls.crt"), key: join(directory, "tls.key"), clientCa: undefined };
    const renew = async (year: number) => {
      const { certPem, keyPem } = await certificateUntil(new Date(Date.UTC(year, 0, 1)));
      writeFileSync(files.cert, certPem);
      writeFileSync(files.key, keyPem);
    };
    await renew(2040);
    const { test, value } = await measured({ tls: files });
    expect(await value("openshell_certificate_expiry_seconds")).toBe(Date.UTC(2040, 0, 1) / 1000);
    await renew(2050);
    expect(test.gateway.tls?.reload()).toBe(true);
    expect(await value("openshell_certificate_expiry_seconds")).toBe(Date.UTC(2050, 0, 1) / 1000);
  },

  async openshell_oidc_key_fetches_total() {
    const { value } = await withOidc();
    await expect.poll(() => value('openshell_oidc_key_fetches_total{outcome="failed"}')).toBeGreaterThan(0);
    expect(await value('openshell_oidc_key_fetches_total{outcome="ok"}')).toBe(0);
  },

  // Its way to 1 is in identity/oidc/oidc.test.ts, which has a provider.
  async openshell_oidc_usable() {
    expect(await (await measured()).value("openshell_oidc_usable")).toBeUndefined();
    expect(await (await withOidc()).value("openshell_oidc_usable")).toBe(0);
  },

  async openshell_driver_leads() {
    const { state, value } = await measured();
    expect(await value("openshell_driver_leads")).toBe(0);
    state.leads = true;
    expect(await value("openshell_driver_leads")).toBe(1);
  },

  async openshell_reconcile_depth() {
    const { state, value } = await measured();
    state.depth = 4;
    expect(await value("openshell_reconcile_depth")).toBe(4);
  },

  async openshell_reconcile_seconds() {
    const { meters, value } = await measured();
    expect(await value("openshell_reconcile_seconds_count")).toBe(0);
    for (const seconds of [0.002, 0.002, 7]) meters.listeners.onReconciled(seconds);
    expect(await value("openshell_reconcile_seconds_count")).toBe(3);
    expect(await value("openshell_reconcile_seconds_sum")).toBeCloseTo(7.004);
    expect(await value('openshell_reconcile_seconds_bucket{le="0.0025"}')).toBe(2);
  },

  async openshell_supervisor_replacements_total() {
    const { meters, value } = await measured();
    expect(await value('openshell_supervisor_replacements_total{cause="evicted"}')).toBe(0);
    meters.listeners.onReplacement("evicted");
    expect(await value('openshell_supervisor_replacements_total{cause="evicted"}')).toBe(1);
    expect(await value('openshell_supervisor_replacements_total{cause="deleted"}')).toBe(0);
  },

  async openshell_kube_requests_total() {
    const { meters, value } = await measured();
    const request = { verb: "create", resource: "pods", durationMs: 1 } as const;
    for (const code of [201, 201, 409]) meters.listeners.onRequest({ ...request, code });
    expect(await value('openshell_kube_requests_total{verb="create",resource="pods",code="201"}')).toBe(2);
    expect(await value('openshell_kube_requests_total{verb="create",resource="pods",code="409"}')).toBe(1);
  },

  async openshell_watch_restarts_total() {
    const { meters, value } = await measured();
    meters.listeners.onWatchRestart("pods");
    expect(await value('openshell_watch_restarts_total{resource="pods"}')).toBe(1);
  },

  async process_cpu_seconds_total() {
    const { value } = await measured();
    const before = (await value("process_cpu_seconds_total")) ?? Number.NaN;
    expect(before).toBeGreaterThan(0);
    await expect.poll(() => value("process_cpu_seconds_total")).toBeGreaterThan(before);
  },

  async process_resident_memory_bytes() {
    const { value } = await measured();
    const { rss } = process.memoryUsage();
    const told = (await value("process_resident_memory_bytes")) ?? 0;
    expect(told / rss).toBeGreaterThan(0.5);
    expect(told / rss).toBeLessThan(2);
  },
};

/** A gateway whose OIDC provider is not there. */
function withOidc() {
  const oidc = { issuer: "http://127.0.0.1:9", audience: "openshell-cli", jwksTtlSeconds: 60, jwksAllowedOrigins: [] };
  const rules = { rolesClaim: "roles", adminRole: "admin", userRole: "user", scopesClaim: "" };
  return measured({ oidc: { ...oidc, ...rules, allowInsecureHttp: true } });
}

describe("every metric moves", () => {
  it.each(Object.entries(moves))("%s", async (_name, move) => {
    await move();
  });

  it("and is shown with its kind and its help, whether it has moved or not", async () => {
    const { scrape } = await measured();
    const shown = [...(await scrape()).matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, kind]) => [name, kind]);
    expect(shown).toEqual(Object.entries(metricTable).map(([name, { kind }]) => [name, kind]));
  });

  it("and what happened before a restart is not counted again", async () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-metrics-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const driver = new MemoryDriver();
    driver.automatic = false;
    const options = { databasePath: join(directory, "store.db"), driver };
    const first = await measured(options);
    driver.report(await create(first.test, "broken"), "Broken");
    const failed = 'openshell_generation_failures_total{reason="Broken"}';
    await expect.poll(() => first.value(failed)).toBe(1);
    const rising = await create(first.test, "rising");
    await first.test.gateway.stop();
    const second = await measured(options);
    driver.report(rising, "Running");
    await expect
      .poll(async () => {
        const request = { workspaceScope: inDefault, name: "rising" };
        const { sandbox } = await second.test.client.getSandbox(request);
        return sandbox?.status?.conditions.find(({ type }) => type === "Scheduled")?.status;
      })
      .toBe("True");
    expect(await second.value(failed)).toBeUndefined();
    expect(await second.value('openshell_create_seconds_count{stage="scheduled"}')).toBe(0);
  });
});

describe("meters", () => {
  it("print labels that Prometheus can read, whatever they hold", () => {
    const openshell_sandboxes = () => [{ labels: { phase: 'a"b\\c\nd' }, value: 2 }];
    expect(printMetrics({ openshell_sandboxes })).toBe(
      '# HELP openshell_sandboxes Sandboxes by phase.\n# TYPE openshell_sandboxes gauge\nopenshell_sandboxes{phase="a\\"b\\\\c\\nd"} 2\n',
    );
  });

  it("a histogram's buckets hold all that is not above them, and +Inf everything", () => {
    const histogram = new Histogram({ stage: "x" });
    for (const seconds of [0, 0.001, 0.0011, 300, 301]) histogram.observe(seconds);
    const samples = histogram.samples();
    const buckets = samples
      .filter(({ suffix }) => suffix === "_bucket")
      .map(({ labels, value }) => [labels?.le, value]);
    expect(buckets.slice(0, 2)).toEqual([
      ["0.001", 2],
      ["0.0025", 3],
    ]);
    expect(buckets.slice(-2)).toEqual([
      ["300", 4],
      ["+Inf", 5],
    ]);
    expect(buckets).toHaveLength(secondsBuckets.length + 1);
    expect(samples.at(-1)).toEqual({ suffix: "_count", labels: { stage: "x" }, value: 5 });
  });

  it("a counter shows what is known beforehand as 0", () => {
    const counter = new Counter([{ cause: "a" }]);
    counter.count({ cause: "b" });
    expect(counter.samples()).toEqual([
      { labels: { cause: "a" }, value: 0 },
      { labels: { cause: "b" }, value: 1 },
    ]);
  });
});
