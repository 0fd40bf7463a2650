import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { ProviderName } from "../cluster/provider.ts";
import { administratorOf } from "../support/administrator.ts";
import { Conformance, tables } from "../support/conformance.ts";
import { CountingSandbox } from "../support/counting-sandbox.ts";
import { linesOf, plantTree } from "../support/file-tree.ts";
import { failureOf } from "../support/outcome.ts";
import { podQuota } from "../support/resource-quota.ts";
import type { TestSandbox } from "../support/test-sandbox.ts";
import { classesByUserNamespaces } from "../support/user-namespaces.ts";
import { phase, reason } from "../support/waits.ts";

const { able, unable } = await classesByUserNamespaces(inject("kubeconfig"), inject("providerName") as ProviderName);

let suite: Conformance;

beforeAll(async () => {
  suite = await Conformance.open({
    [tables.driver]: {
      enable_user_namespaces: true,
      ...(able === undefined ? {} : { default_runtime_class_name: able }),
      allowed_runtime_class_names: ["conformance-a", "conformance-b"],
    },
    [tables.runtime]: { pod_anti_affinity: "preferred" },
  });
});

afterAll(async () => suite[Symbol.asyncDispose]());

/** Where the users of a sandbox begin on its node, and how many it has. */
async function rangeOf(sandbox: TestSandbox, map: "uid_map" | "gid_map"): Promise<readonly [number, number]> {
  const { stdout } = await sandbox.exec(["cat", `/proc/self/${map}`]);
  const [inside, outside, length] = stdout.trim().split(/\s+/).map(Number);
  expect({ lines: stdout.trim().split("\n").length, inside }, stdout).toEqual({ lines: 1, inside: 0 });
  return [outside ?? 0, length ?? 0];
}

const isOfSandbox = async (sandbox: TestSandbox, path: string) =>
  (await sandbox.exec(["sh", "-c", 'test "$(stat -c %u:%g "$0")" = "$(id -u):$(id -g)"', path])).exitCode === 0;

describe.skipIf(able === undefined)(
  "a workload in a user namespace, on nodes whose container runtime has them (containerd 2, runc 1.2)",
  () => {
    let counting: CountingSandbox;
    let sandbox: TestSandbox;

    beforeAll(async () => {
      counting = await CountingSandbox.create(suite);
      ({ sandbox } = counting);
      await sandbox.ready();
    });

    afterAll(async () => counting?.[Symbol.asyncDispose]());

    it("has users of its own on its node, which no other sandbox has, and its supervisor has none", async () => {
      await using other = await suite.create();
      await other.ready();
      const { workload, supervisor } = await suite.pair(sandbox);
      expect(workload.spec?.hostUsers).toBe(false);
      expect(supervisor.spec).not.toHaveProperty("hostUsers");
      for (const map of ["uid_map", "gid_map"] as const) {
        const [begin, length] = await rangeOf(sandbox, map);
        expect(begin).toBeGreaterThanOrEqual(65_536);
        expect(length).toBeGreaterThanOrEqual(65_536);
        const { workload: another } = await suite.pair(other);
        if (another.spec?.nodeName !== workload.spec?.nodeName) continue;
        const [otherBegin, otherLength] = await rangeOf(other, map);
        expect(begin >= otherBegin + otherLength || otherBegin >= begin + length, `${begin} ${otherBegin}`).toBe(true);
      }
    });

    it("finds its workspace seeded, and all of it its own", async () => {
      expect(await sandbox.exec(["cat", "/sandbox/seed.txt"])).toMatchObject({ stdout: "seeded by busybox\n" });
      for (const path of ["/sandbox", "/sandbox/seed.txt", "/sandbox/.config/settings.json", "/sandbox/count"])
        expect(await isOfSandbox(sandbox, path), path).toBe(true);
    });

    it("gives commands a terminal, and files a way up and back", async () => {
      const terminal = sandbox.execInteractive(["sh", "-c", "tty; stty size; read word; echo got $word"], {
        tty: { columns: 101, rows: 33 },
      });
      terminal.write("it\r");
      // The echo of what is typed comes wherever it comes.
      expect((await terminal.outcome).stdout.split("\r\n")).toEqual(
        expect.arrayContaining([expect.stringMatching(/^\/dev\/pts\/\d+$/), "33 101", "got it"]),
      );

      await using user = await administratorOf(suite.gateway);
      const command = async (...args: string[]) => {
        const signal = AbortSignal.timeout(60_000);
        const { code, stderr } = await user.openshell(["--workspace", sandbox.workspace, "sandbox", ...args], {
          signal,
        });
        expect(code, stderr).toBe(0);
      };
      const [tree, back] = [join(user.home, "tree"), join(user.home, "back")];
      await plantTree(tree);
      await command("upload", sandbox.name, tree, "there");
      expect(await isOfSandbox(sandbox, "/sandbox/there/tree/noise")).toBe(true);
      await command("download", sandbox.name, "there/tree", back);
      expect(await linesOf(back)).toEqual(await linesOf(tree));
    });

    it("is frozen while it has no supervisor, and goes on with the next one", async () => {
      await counting.countsOn(0);
      const before = await suite.pair(sandbox);
      await using stack = new AsyncDisposableStack();
      const quota = stack.use(await podQuota(suite, 1));
      const { name, namespace = "" } = before.supervisor.metadata;
      await suite.kubectl(["-n", namespace, "delete", "--wait", "pod", name]);
      await sandbox.until(reason("SupervisorRefused"));
      const count = await counting.frozen();
      await quota[Symbol.asyncDispose]();
      await counting.countsOn(count);
      expect((await suite.pair(sandbox)).workload.metadata.uid).toBe(before.workload.metadata.uid);
    }, 240_000);

    it("has its files again after a stop and a start, under whatever users its node then gives it", async () => {
      await sandbox.exec(["sh", "-c", "echo kept > /sandbox/kept.txt; chmod 600 /sandbox/kept.txt"]);
      await sandbox.stop();
      await sandbox.until(phase("STOPPED"));
      await sandbox.start();
      await sandbox.ready();
      expect(await sandbox.exec(["cat", "/sandbox/kept.txt"])).toMatchObject({ exitCode: 0, stdout: "kept\n" });
      expect(await isOfSandbox(sandbox, "/sandbox/kept.txt")).toBe(true);
      const [begin] = await rangeOf(sandbox, "uid_map");
      expect(begin).toBeGreaterThanOrEqual(65_536);
    }, 240_000);
  },
);

describe.skipIf(unable === undefined)(
  "a workload in a user namespace, on nodes whose container runtime has none",
  () => {
    it("fails within seconds in the kubelet's words, and its Pods are ended", async () => {
      const started = performance.now();
      const { text, sandbox } = await failureOf(suite.create({ runtimeClass: unable ?? "" }));
      await using _failed = sandbox;
      expect(text).toMatch(
        /WorkloadReady NodeRefused: node \S+ cannot run the workload in a user namespace of its own: .*does not support user namespaces/,
      );
      expect(performance.now() - started).toBeLessThan(20_000);
      if (sandbox === undefined) return;
      await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
    });
  },
);
