import { statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { cacheDirectory } from "../cache.ts";
import { attempt, run } from "../exec.ts";
import type { Progress } from "../progress.ts";

/** Debian and Ubuntu packages a local cluster is made of, each with a file that shows that it is installed. */
const packages: Readonly<Record<string, string>> = {
  containerd: "/usr/bin/containerd",
  runc: "/usr/sbin/runc",
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
};

/** Directory of the CNI plugins that Debian's package installs. */
export const cniPlugins = "/usr/lib/cni";

const neededBytes = 8 * 1024 ** 3;

/** Why this machine cannot have a local cluster, in one sentence; undefined when it can. */
export function unsuitable(machine: {
  readonly platform: string;
  readonly arch: string;
  readonly uid: number;
}): string | undefined {
  if (machine.platform !== "linux") {
    return `the local cluster needs Linux, and this is ${machine.platform}: install Docker and k3d and use --provider k3d`;
  }
  if (machine.arch !== "x64")
    return `the local cluster is built for amd64, and this machine is ${machine.arch}: use --provider k3d`;
  if (machine.uid !== 0) {
    return "the local cluster needs root for network namespaces and mounts: run as root, or install Docker and k3d and use --provider k3d";
  }
  return undefined;
}

/** Fails when the machine cannot have a local cluster: not Linux, not root, no Go, no space. Changes nothing. */
export async function checkMachine(state: string): Promise<void> {
  const reason = unsuitable({ platform: process.platform, arch: process.arch, uid: process.getuid?.() ?? -1 });
  if (reason !== undefined) throw new OpenShellError("failed-precondition", reason);
  const go = await attempt("go", ["version"]).catch(() => undefined);
  if (go?.code !== 0) {
    throw new OpenShellError(
      "failed-precondition",
      "the go command is missing: install Go 1.25 or newer (https://go.dev/dl/) and run again",
    );
  }
  for (const directory of [dirname(state), dirname(dirname(cacheDirectory))]) {
    const { bavail, bsize } = await statfs(directory);
    if (bavail * bsize < neededBytes) {
      const free = ((bavail * bsize) / 1024 ** 3).toFixed(1);
      throw new OpenShellError(
        "resource-exhausted",
        `${directory} has ${free} GiB free and 8 GiB are needed: free some and run again`,
      );
    }
  }
}

/** Installs the packages that are missing. */
export async function installPackages(progress: Progress, signal?: AbortSignal): Promise<void> {
  const missing: string[] = [];
  for (const [name, file] of Object.entries(packages)) {
    const found = await attempt("test", ["-e", file]);
    if (found.code !== 0) missing.push(name);
  }
  if (missing.length === 0) return;
  progress.note(`installing ${missing.join(" ")}`);
  const options = {
    env: { DEBIAN_FRONTEND: "noninteractive" },
    ...(signal === undefined ? {} : { signal }),
    remedy: `Install these by hand and run again: ${missing.join(" ")}`,
  };
  await run("apt-get", ["update", "-qq"], options);
  // A machine that boots with an init system would start these as services; the cluster starts its own.
  await run("apt-get", ["install", "-y", "-qq", "--no-install-recommends", ...missing], options);
}
