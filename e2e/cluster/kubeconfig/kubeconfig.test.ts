import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { run } from "../exec.ts";
import { silent } from "../progress.ts";
import { KubeconfigProvider } from "./index.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "kubeconfig-"));
  await writeFile(join(directory, "config"), "");
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

interface FakeNode {
  readonly name: string;
  readonly unschedulable?: boolean;
}

function providerWith(nodes: readonly FakeNode[], calls: string[] = [], refused?: string): KubeconfigProvider {
  const items = nodes.map(({ name, unschedulable = false }) => ({
    metadata: { name },
    spec: { unschedulable },
    status: { conditions: [{ type: "Ready", status: "True" }] },
  }));
  const attempt = async (_command: string, args: readonly string[]) => {
    const line = args.slice(1).join(" ");
    calls.push(line);
    const code = refused !== undefined && line.startsWith(refused) ? 1 : 0;
    return { code, stdout: JSON.stringify({ items }), stderr: "" };
  };
  const shell = {
    attempt,
    run: async (command: string, args: readonly string[]) => (await attempt(command, args)).stdout,
  };
  return new KubeconfigProvider({ kubeconfig: join(directory, "config"), shell });
}

describe("a cluster by kubeconfig", () => {
  test("is up when it answers, serves Agent Sandbox and has the nodes", async () => {
    await providerWith([{ name: "a" }, { name: "b" }]).up({ nodes: 2, progress: silent });
  });

  test.each([
    ["get --raw=/readyz", "does not answer"],
    ["get crd", "has no Agent Sandbox API: install it from https://"],
  ])("is refused in one sentence when `%s` fails", async (refused, sentence) => {
    await expect(providerWith([{ name: "a" }], [], refused).up({ nodes: 1, progress: silent })).rejects.toThrow(
      sentence,
    );
  });

  test("is refused with too few usable nodes", async () => {
    const provider = providerWith([{ name: "a" }, { name: "b", unschedulable: true }]);
    await expect(provider.up({ nodes: 2, progress: silent })).rejects.toThrow("has 1 usable nodes and 2 are needed");
  });

  test("is refused without its file", async () => {
    const provider = new KubeconfigProvider({ kubeconfig: "/does/not/exist" });
    await expect(provider.up({ nodes: 1, progress: silent })).rejects.toThrow(
      "there is no kubeconfig at /does/not/exist: set KUBECONFIG",
    );
  });

  test("gets capacity by uncordoning and loses it by cordoning", async () => {
    const calls: string[] = [];
    const provider = providerWith([{ name: "a" }, { name: "b", unschedulable: true }], calls);
    expect(await provider.addNode()).toMatchObject({ name: "b", schedulable: true });
    await provider.removeNode("a");
    expect(calls.filter((call) => call.includes("cordon"))).toEqual(["uncordon b", "cordon a"]);
  });

  test("has no capacity to add when nothing is cordoned", async () => {
    await expect(providerWith([{ name: "a" }]).addNode()).rejects.toThrow("no node of this cluster is cordoned");
  });

  test("loads an image by the given command, whose values cannot become shell syntax", async () => {
    const target = join(directory, "said");
    const provider = new KubeconfigProvider({
      kubeconfig: join(directory, "config"),
      loadImageCommand: `printf '%s|%s' {archive} {ref} > ${target}`,
    });
    await provider.loadImage("/a b/$(id).tar", "openshell.local/x:dev");
    expect(await run("cat", [target])).toBe("/a b/$(id).tar|openshell.local/x:dev");
  });

  test("says what to set when it is not known how images get there", async () => {
    await expect(providerWith([]).loadImage("/a.tar", "x:y")).rejects.toThrow(
      "set OPENSHELL_LOAD_IMAGE, e.g. 'kind load image-archive {archive}', or with a registry",
    );
  });
});
