import { UnsecuredJWT } from "jose";
import { pino } from "pino";
import { expect, onTestFinished } from "vitest";
import type { KubernetesSettings } from "../config/index.ts";
import type { KubeObject, Live } from "../kube/index.ts";
import { compute, localClient } from "../wire/index.ts";
import type { FakeCluster } from "./_fake-cluster.ts";
import { testSandboxId, testSettings } from "./_testing.ts";
import { createDriver } from "./driver.ts";
import type { DriverOptions } from "./types.ts";

/** Reasons of a sandbox's conditions when it runs. */
export const ready = ["Admitted", "Scheduled", "WorkloadRunning"];

/** Lets the cluster and whatever works on it move until `condition` holds. */
export async function settled(cluster: FakeCluster, condition: () => boolean | Promise<boolean>): Promise<void> {
  const asked = async () => {
    await cluster.settle();
    return await condition();
  };
  await expect.poll(asked, { timeout: 15_000, interval: 1 }).toBe(true);
}

/** Starts a driver on the cluster, which ends with the test, or before by `stop`. */
export async function driverOn(
  cluster: FakeCluster,
  change: Partial<KubernetesSettings>,
  options: Pick<DriverOptions, "client" | "onReplacement" | "onReconciled" | "onWatchRestart"> = {},
) {
  const driver = createDriver({
    settings: testSettings(change),
    gateway: { id: "openshell", version: "0.1.0", endpoint: "https://gateway.test:8080", fenceTargets: [] },
    masterSecret: new Uint8Array(32).fill(7),
    log: pino({ level: "silent" }),
    client: cluster,
    ...options,
  });
  const running = new AbortController();
  const stop = async () => {
    if (running.signal.aborted) return;
    running.abort();
    await driver.stop();
  };
  onTestFinished(stop);
  await driver.start(running.signal);
  const client = localClient(compute.ComputeDriver, driver.implementation, undefined);
  /** Until nothing is left to do; what a round leaves to the next comes with the cluster's answer to it. */
  const quiet = async () => {
    for (let times = 0; times < 3; times += 1) await settled(cluster, () => driver.depth() === 0);
  };
  /** Runs a call while the cluster around it moves, until the driver has nothing left to do. */
  const during = async <T>(call: Promise<T>): Promise<T> => {
    let isOver = false;
    const over = call.finally(() => {
      isOver = true;
    });
    over.catch(() => undefined);
    await settled(cluster, () => isOver);
    await quiet();
    return await over;
  };
  const reasons = async (id = testSandboxId) =>
    (await client.getSandbox({ sandboxId: id })).sandbox?.status?.conditions.map(({ reason }) => reason);
  return { driver, client, during, quiet, reasons, stop };
}

/** A token that says it is the Pod's, as the API server writes them; whether it is, the review says. */
export function tokenNaming({ metadata }: Pick<Live<KubeObject>, "metadata">): string {
  const { namespace, name, uid } = metadata;
  return new UnsecuredJWT({ "kubernetes.io": { namespace, pod: { name, uid } } }).encode();
}
