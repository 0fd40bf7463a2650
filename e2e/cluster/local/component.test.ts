import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { componentPid, isInCgroup, lives, logFileOf, waitForComponent } from "./component.ts";

describe("a process", () => {
  test.each([
    ["12 (etcd) S 1 12", true],
    ["12 (a) Z (b) R 1 12", true],
    ["12 (etcd) Z 1 12", false],
    ["12 (etcd) X 1 12", false],
    ["", false],
  ])("with the status %j lives: %s", (stat, expected) => {
    expect(lives(stat)).toBe(expected);
  });

  test.each([
    ["4:memory:/osl1/control\n0::/", "osl1/control", true],
    ["0::/osl1/control", "osl1/control", true],
    ["0::/osl1/control/deeper", "osl1/control", false],
    ["0::/other/osl1/control", "osl1/control", false],
    ["0::/osl11/control", "osl1/control", false],
    ["", "osl1/control", false],
  ])("in %j is in %s: %s", (groups, cgroup, expected) => {
    expect(isInCgroup(groups, cgroup)).toBe(expected);
  });
});

describe("a component", () => {
  let directory: string;
  const place = () => ({ run: join(directory, "run"), logs: directory, hierarchies: { unified: true, roots: [] } });
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "component-"));
    await mkdir(join(directory, "run"));
  });
  afterEach(() => rm(directory, { recursive: true }));

  test("is not a stranger that has its number by now", async () => {
    const stranger = spawn("sleep", ["60"], { stdio: "ignore" });
    await once(stranger, "spawn");
    try {
      await writeFile(join(directory, "run", "etcd.pid"), String(stranger.pid));
      expect(await componentPid(place(), "etcd", "osl1/control")).toBeUndefined();
      const groups = await readFile(`/proc/${stranger.pid}/cgroup`, "utf8");
      const own = groups.split("\n")[0]?.split(":").slice(2).join(":").slice(1) ?? "";
      expect(await componentPid(place(), "etcd", own)).toBe(stranger.pid);
    } finally {
      stranger.kill();
    }
  });

  test.each(["", "0", "-1", "no number"])("does not run by a pid file that holds %j", async (content) => {
    await writeFile(join(directory, "run", "etcd.pid"), content);
    expect(await componentPid(place(), "etcd", "osl1/control")).toBeUndefined();
  });

  test("that ended is told with the end of its log, not waited for", async () => {
    const log = Array.from({ length: 20 }, (_, line) => `line ${line}`).join("\n");
    await writeFile(logFileOf(place(), "etcd"), log);
    const component = { name: "etcd", cgroup: "osl1/control" };
    const waiting = waitForComponent(place(), component, "ready", async () => false, { timeoutMs: 60_000 });
    await expect(waiting).rejects.toThrow(/^etcd ended; the end of .*etcd\.log:\nline 12\n[\s\S]*line 19$/);
  });
});
