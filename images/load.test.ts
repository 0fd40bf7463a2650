import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { ProviderName } from "../e2e/cluster/provider.ts";
import { loadImages } from "./load.ts";

let directory: string;
let loads: number;
let nodes: string[];
/** By kubeconfig. */
let records: Record<string, Readonly<Record<string, string>>>;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "load-"));
});
afterAll(async () => rm(directory, { recursive: true, force: true }));
beforeEach(() => {
  [loads, nodes, records] = [0, ["b", "a"], {}];
});

async function load(name: ProviderName): Promise<void> {
  const provider = {
    name,
    kubeconfig: async () => "/kubeconfig",
    nodes: async () => nodes.map((node) => ({ name: node, address: "", ready: true, schedulable: true })),
    loadImage: async () => {
      loads += 1;
    },
  };
  const record = {
    read: async (kubeconfig: string) => records[kubeconfig] ?? {},
    write: async (kubeconfig: string, data: Readonly<Record<string, string>>) => {
      records[kubeconfig] = data;
    },
  };
  await loadImages(provider, { names: ["busybox"], out: directory, cache: directory }, record);
}

test("an image is loaded once for the nodes that there are, and again when one of them is new", async () => {
  await load("k3d");
  nodes = ["a", "b"];
  await load("k3d");
  expect(loads).toBe(1);
  nodes = ["a", "c"];
  await load("k3d");
  expect(loads).toBe(2);
});

test("on somebody's cluster an image is loaded each time, and nothing is noted there", async () => {
  for (const _ of ["first", "again"]) await load("kubeconfig");
  expect(loads).toBe(2);
  expect(records).toEqual({});
});
