import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Live, Pod } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** Where containerd has OCI runtimes keep their state, in a node's own mount namespace. */
const stateDirectory = "root/run/containerd/runc/k8s.io";

/**
 * The OCI runtime that really made a Pod's main container, by the file it left: runc writes `state.json`, crun writes `status`.
 * Undefined on providers whose nodes' files are out of reach.
 */
export async function ociRuntimeOf(suite: Conformance, pod: Live<Pod>): Promise<"runc" | "crun" | undefined> {
  const id = pod.status?.containerStatuses?.[0]?.containerID?.replace(/^containerd:\/\//, "");
  if (suite.provider.name !== "local" || id === undefined) return undefined;
  for (const process of await containerdProcesses()) {
    const directory = join("/proc", process, stateDirectory, id);
    if (await exists(join(directory, "state.json"))) return "runc";
    if (await exists(join(directory, "status"))) return "crun";
  }
  return undefined;
}

async function containerdProcesses(): Promise<string[]> {
  const processes = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const names = await Promise.all(
    processes.map((name) => readFile(join("/proc", name, "comm"), "utf8").catch(() => "")),
  );
  // The kernel keeps 15 characters of a name; the local cluster's has its version in it, and the shims are none.
  return processes.filter((_, index) => /^containerd(-v[\d.]*)?$/.test(names[index]?.trim() ?? ""));
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
