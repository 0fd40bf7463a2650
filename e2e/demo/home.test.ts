import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ProviderName } from "../cluster/provider.ts";
import { DemoHome } from "./home.ts";

let directory: string;
let home: DemoHome;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "home-"));
  home = new DemoHome(directory);
});
afterEach(async () => rm(directory, { recursive: true, force: true }));

const cluster = (isThere: boolean, name: ProviderName = "local") => ({ name, exists: async () => isThere });

describe("what `demo --down` removes", () => {
  test("is the cluster that the demo brought up, also when an earlier try removed some of it", async () => {
    await home.settle(cluster(false));
    await home.settle(cluster(true));
    expect(await home.removal(cluster(true))).toBe("cluster");
    expect(await home.removal(cluster(false))).toBe("cluster");
  });

  test("is never a cluster that was there before", async () => {
    await home.settle(cluster(true));
    expect(await home.removal(cluster(true))).toBe("release");
    await home.settle(cluster(true));
    expect(await home.removal(cluster(true))).toBe("release");
  });

  test("is never a cluster on a machine that remembers no demo", async () => {
    expect(await home.removal(cluster(true))).toBe("release");
    expect(await home.removal(cluster(false))).toBe("nothing");
  });

  test("is nothing once somebody removed the cluster that was there before", async () => {
    await home.settle(cluster(true));
    expect(await home.removal(cluster(false))).toBe("nothing");
  });

  test("is the demo's own cluster in the place of one that was there before", async () => {
    await home.settle(cluster(true));
    await home.settle(cluster(false));
    expect(await home.removal(cluster(true))).toBe("cluster");
  });
});

test("while it is on one provider it neither begins nor ends on another", async () => {
  await home.settle(cluster(false));
  const refusal = "the demo is on local, not k3d: remove it with `npm run demo -- --down` first";
  await expect(home.settle(cluster(true, "k3d"))).rejects.toThrow(refusal);
  await expect(home.removal(cluster(true, "k3d"))).rejects.toThrow(refusal);
  expect(await home.provider()).toBe("local");
});

test("a provider that cannot say whether there is a cluster is no provider without one", async () => {
  const silent = { name: "k3d" as const, exists: () => Promise.reject(new Error("Docker does not answer")) };
  await expect(home.settle(silent)).rejects.toThrow("Docker does not answer");
  expect(await home.provider()).toBeUndefined();
});

test("a memory that is damaged is named", async () => {
  await writeFile(join(directory, "cluster.json"), "{");
  await expect(home.settle(cluster(true))).rejects.toThrow("no longer says where the demo is: remove the file");
});
