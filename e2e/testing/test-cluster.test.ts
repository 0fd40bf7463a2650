import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { OpenShellError } from "../../src/common/errors.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { TestCluster } from "./test-cluster.ts";

let directory: string;
let calls: string[];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "test-cluster-"));
  calls = [];
  // In the place of vitest: a run of no tests.
  const vitest = join(directory, "vitest");
  await writeFile(vitest, `#!/bin/sh\necho ran >> ${directory}/runs\n`);
  await chmod(vitest, 0o755);
  vi.stubEnv("PATH", `${directory}${delimiter}${process.env.PATH}`);
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  await rm(directory, { recursive: true, force: true });
});

const runs = () => readFile(join(directory, "runs"), "utf8").catch(() => "");

/** Runs one project on a cluster that is there or not, and leaves it. */
async function used(exists: () => Promise<boolean>, { keep = false, leftovers = async () => {} } = {}): Promise<void> {
  const provider = {
    name: "k3d",
    exists,
    down: async () => void calls.push("down"),
    kubeconfig: async () => "/kubeconfig",
  } as Partial<ClusterProvider> as ClusterProvider;
  await using cluster = new TestCluster(
    { provider: "k3d", filter: undefined, keep },
    {
      selectProvider: async () => provider,
      takeTurn: async () => ({ [Symbol.asyncDispose]: async () => void calls.push("turn over") }),
      removeLeftovers: async (kubeconfig) => {
        calls.push(`leftovers of ${kubeconfig}`);
        await leftovers();
      },
    },
  );
  const output = { write: () => {} };
  const signal = AbortSignal.timeout(10_000);
  await cluster.tests({ root: directory, reports: directory, output, signal, facts: {} }, "pairs");
}

describe("after the tests", () => {
  test("a cluster that was not there before is taken down", async () => {
    await used(async () => false);
    expect(calls).toEqual(["down"]);
    expect(await runs()).toBe("ran\n");
  });

  test.each([
    ["was there before, in whatever state", true, false],
    ["is to be kept", false, true],
  ])("a cluster that %s stays, without what an interrupted run left in it", async (_, wasThere, keep) => {
    await used(async () => wasThere, { keep });
    expect(calls).toEqual(["leftovers of /kubeconfig", "turn over"]);
  });

  test("leftovers that cannot be removed are no end of the run", async () => {
    const leftovers = () => Promise.reject(new OpenShellError("internal", "the API server does not answer"));
    await used(async () => true, { leftovers });
    expect(vi.mocked(process.stderr.write).mock.calls.join()).toContain("the API server does not answer");
  });
});

test("nothing runs, and nothing is taken down, where it cannot be known whether there is a cluster", async () => {
  const unknown = () => Promise.reject(new OpenShellError("failed-precondition", "k3d is not installed"));
  await expect(used(unknown)).rejects.toThrow("k3d is not installed");
  expect(calls).toEqual([]);
  expect(await runs()).toBe("");
});
