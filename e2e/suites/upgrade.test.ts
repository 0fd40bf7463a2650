import { afterAll, beforeAll, expect, it } from "vitest";
import { networkPolicies, services } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { Conformance, tables } from "../support/conformance.ts";
import { said } from "../support/outcome.ts";
import { phase, reason } from "../support/waits.ts";
import { withoutGateway } from "../support/without-gateway.ts";

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open({
    [tables.runtime]: { pod_anti_affinity: "required" },
    [tables.driver]: { allow_driver_config: true },
  });
});

afterAll(async () => suite[Symbol.asyncDispose]());

it("a pair that waits for a node outlives a gateway's upgrade to a release that renders it otherwise, and runs once there is one", async () => {
  const label = `conformance.openshell.test/${suite.release.name}-upgrade`;
  await using sandbox = await suite.create({ driverConfig: { pod: { node_selector: { [label]: "yes" } } } });
  await sandbox.until(reason("Unschedulable"));
  // The workload goes first, so that the supervisor waits behind its gate.
  const { supervisor: former } = await suite.pair(sandbox);
  const { name, namespace = "", uid } = former.metadata;
  {
    await using _away = await withoutGateway(suite);
    // As a release would have made it that renders one field more; what of a gated Pod may be changed at all is little.
    const more = JSON.stringify({ spec: { nodeSelector: { "kubernetes.io/os": "linux" } } });
    await suite.kubectl(["-n", namespace, "patch", "pod", name, "--type=merge", "--patch", more]);
  }
  const remade = await suite.pair(sandbox, "another supervisor", (pair) => pair.supervisor.metadata.uid !== uid);
  expect(remade.supervisor.spec).not.toHaveProperty("nodeSelector");
  const waiting = await sandbox.until(reason("Unschedulable"));
  expect(phase("PROVISIONING").test(waiting), said(waiting)).toBe(true);

  const [node = ""] = (await suite.provider.nodes()).map((one) => one.name);
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => void (await suite.kubectl(["label", "node", node, `${label}-`])));
  await suite.kubectl(["label", "node", node, `${label}=yes`]);
  await sandbox.ready();
  const { workload, supervisor } = await suite.pair(sandbox);
  expect(supervisor.metadata.uid).toBe(remade.supervisor.metadata.uid);
  expect(workload.spec?.nodeName).toBe(node);
  expect(supervisor.spec?.nodeName).not.toBe(node);
}, 240_000);

/** Ports that the policies of the sandboxes' namespace name, in either direction. */
async function openPorts(): Promise<unknown[]> {
  const { items } = await suite.kube.list(networkPolicies, suite.release.sandboxNamespace);
  const rules = items.flatMap(({ spec }) => [...(spec?.ingress ?? []), ...(spec?.egress ?? [])]);
  return rules.flatMap(({ ports }) => (ports ?? []).map(({ port }) => port));
}

it("another boundary port holds nobody up: pairs of the former one go on, and it is closed with the last of them", async () => {
  await using undo = new AsyncDisposableStack();
  const first = undo.use(await suite.create());
  await first.ready();
  const { items } = await suite.kube.list(services, suite.release.sandboxNamespace, {
    labelSelector: `${labels.sandboxId}=${first.id}`,
  });
  const former = items[0]?.spec?.ports?.[0]?.port ?? 0;
  const next = former + 100;
  await suite.configure({ [tables.runtime]: { pod_anti_affinity: "required", boundary_port: next } });
  await using second = await suite.create();
  await second.ready();
  expect(await openPorts()).toEqual(expect.arrayContaining([former, next]));
  await first.ready();
  expect((await first.exec(["echo", "still here"])).stdout).toBe("still here\n");
  await first[Symbol.asyncDispose]();
  await using third = await suite.create();
  await third.ready();
  await expect.poll(openPorts, { timeout: 30_000 }).not.toContain(former);
  expect(await openPorts()).toContain(next);
}, 240_000);
