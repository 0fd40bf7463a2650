import { access, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { cacheDirectory } from "../cache.ts";
import { attempt } from "../exec.ts";
import type { Progress } from "../progress.ts";
import { lockCluster } from "./state.ts";

/** Debian and Ubuntu packages a local cluster is made of, each with a file that shows that it is installed. */
const packages: Readonly<Record<string, string>> = {
  crun: "/usr/bin/crun",
  "containernetworking-plugins": "/usr/lib/cni/ptp",
  iptables: "/usr/sbin/iptables",
  ipset: "/usr/sbin/ipset",
  conntrack: "/usr/sbin/conntrack",
  iproute2: "/usr/sbin/ip",
  "util-linux": "/usr/bin/nsenter",
  ethtool: "/usr/sbin/ethtool",
  socat: "/usr/bin/socat",
  "etcd-server": "/usr/bin/etcd",
  "busybox-static": "/usr/bin/busybox",
  unzip: "/usr/bin/unzip",
  gcc: "/usr/bin/gcc",
  "libc6-dev": "/usr/include/stdlib.h",
  "libseccomp-dev": "/usr/include/seccomp.h",
  "pkg-config": "/usr/bin/pkg-config",
};

/** Directory of the CNI plugins that Debian's package installs. */
export const cniPlugins = "/usr/lib/cni";

const gibibyte = 1024 ** 3;
/** Go's module and build caches are most of it. */
const neededForBuild = 8 * gibibyte;
const neededForCluster = 3 * gibibyte;

/** Why this machine cannot have a local cluster, in one sentence; undefined when it can. */
export function unsuitable(machine: {
  readonly platform: string;
  readonly arch: string;
  readonly uid: number;
}): string | undefined {
  if (machine.platform !== "linux") {
    return `the local cluster needs Linux, and this is ${machine.platform}`;
  }
  if (machine.arch !== "x64") return `the local cluster is built for amd64, and this machine is ${machine.arch}`;
  if (machine.uid !== 0) {
    return "the local cluster needs root for network namespaces and mounts: run as root, or install Docker and k3d and use --provider k3d";
  }
  return undefined;
}

/**
 * Fails when the machine cannot have a local cluster: not Linux, not root, no Go, no space. Changes nothing.
 *
 * @param isBuilt every program is in the cache already, so that nothing has to be built
 */
export async function checkMachine(state: string, isBuilt: boolean): Promise<void> {
  const reason = unsuitable({ platform: process.platform, arch: process.arch, uid: process.getuid?.() ?? -1 });
  if (reason !== undefined) throw new OpenShellError("failed-precondition", reason);
  if (!isBuilt) {
    const go = await attempt("go", ["version"]).catch(() => undefined);
    if (go?.code !== 0) {
      throw new OpenShellError(
        "failed-precondition",
        "the go command is missing: install Go 1.26 or newer (https://go.dev/dl/) and run again",
      );
    }
  }
  const needs = new Map([[await existing(cacheDirectory), isBuilt ? gibibyte / 4 : neededForBuild]]);
  const stateParent = await existing(state);
  needs.set(stateParent, Math.max(needs.get(stateParent) ?? 0, neededForCluster));
  for (const [directory, needed] of needs) {
    const { bavail, bsize } = await statfs(directory);
    if (bavail * bsize < needed)
      throw new OpenShellError("resource-exhausted", tooFull(directory, bavail * bsize, needed));
  }
}

export function tooFull(directory: string, free: number, needed: number): string {
  const [has, wants] = [free, needed].map((bytes) => (bytes / gibibyte).toFixed(1));
  return `${directory} has ${has} GiB free and ${wants} GiB are needed: free some and run again`;
}

/** The path itself, or the nearest directory above it that exists. */
async function existing(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    if ((await exists(at)) || at === dirname(at)) return at;
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** What `apt-get` is asked to have patience with: an unreliable mirror, and another installation that is at work. */
const patience = ["-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"];

/**
 * Installs the packages that are missing.
 *
 * @param wanted each with a file that shows that it is installed. @default all that a cluster is made of
 */
export async function installPackages(
  progress: Progress,
  signal?: AbortSignal,
  wanted: Readonly<Record<string, string>> = packages,
): Promise<void> {
  const missing: string[] = [];
  for (const [name, file] of Object.entries(wanted)) if (!(await exists(file))) missing.push(name);
  if (missing.length === 0) return;
  // Of two `apt-get update` at a time one fails at once, whatever its patience: ours take turns.
  await using _turn = await lockCluster(join(cacheDirectory, "packages"), progress, signal);
  progress.note(`installing ${missing.join(" ")}`);
  const options = { env: { DEBIAN_FRONTEND: "noninteractive" }, ...(signal === undefined ? {} : { signal }) };
  const apt = (...args: string[]) => attempt("apt-get", [...patience, "-qq", ...args], options);
  try {
    // One unreachable source of several is no reason to give up: what matters is whether the packages can be had.
    const updated = await apt("update");
    // A machine that boots with an init system would start some of these as services; the cluster starts its own beside them.
    const installed = await apt("install", "-y", "--no-install-recommends", ...missing);
    if (installed.code !== 0) throw notInstalled(missing, `${updated.stderr}\n${installed.stderr}`);
  } catch (error) {
    signal?.throwIfAborted();
    const { code, message } = OpenShellError.from(error);
    throw code === "failed-precondition" ? notInstalled(missing, `E: ${message}`) : error;
  }
}

/** One sentence from what apt-get said; its own last error says most. */
export function notInstalled(missing: readonly string[], said: string): OpenShellError {
  const errors = said.split("\n").filter((line) => line.startsWith("E: "));
  const why = errors.at(-1)?.slice("E: ".length) ?? "apt-get gave no reason";
  return new OpenShellError(
    "unavailable",
    `the packages ${missing.join(", ")} are missing and cannot be installed (${why}): install them by hand and run again`,
  );
}
