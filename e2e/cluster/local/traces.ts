import { access, readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { attempt } from "../exec.ts";
import { findHierarchies, processesIn } from "./cgroups.ts";
import { slots, stateDirectory } from "./layout.ts";

/** Something a cluster left on the machine. */
export interface Trace {
  readonly kind: "process" | "namespace" | "mount" | "cgroup" | "link" | "route" | "rule" | "file";
  /** What it is and where, e.g. `osl0-node-1`. */
  readonly what: string;
}

const names = Array.from({ length: slots }, (_, slot) => `osl${slot}`);
const ours = new RegExp(`^(${names.join("|")})(-|$)`);
const subnets = new RegExp(`^10\\.(${names.map((_, slot) => 208 + slot).join("|")})\\.\\S+ .*\\bdev osl`);

/** Everything on this machine that a local cluster makes, of whatever slot. Empty after `down`. Changes nothing. */
export async function findTraces(state: string = stateDirectory()): Promise<readonly Trace[]> {
  const found = await Promise.all([
    processes(state),
    namespaces(),
    mounts(state),
    cgroups(),
    links(),
    routes(),
    rules(),
    files(state),
  ]);
  return found.flat();
}

async function processes(state: string): Promise<readonly Trace[]> {
  const hierarchies = await findHierarchies();
  const inGroups = await Promise.all(names.map((name) => processesIn(hierarchies, name)));
  const traces = new Map<string, Trace>();
  const add = (pid: string, why: string) => traces.set(pid, { kind: "process", what: `${pid} ${why}` });
  for (const pid of inGroups.flat()) add(String(pid), "in a cgroup of the cluster");
  // A process outside of the cgroups would have escaped their end: its arguments or its root give it away.
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name) && name !== String(process.pid))) {
    const words = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0");
    const daemon = /^(etcd|containerd|containerd-shim\S*|kube-router\S*|kubernetes\S*)$/.test(basename(words[0] ?? ""));
    if (daemon && words.some((word) => word.includes(`${state}/`))) add(pid, words.slice(0, 3).join(" "));
  }
  return [...traces.values()];
}

async function namespaces(): Promise<readonly Trace[]> {
  const listed = await readdir("/run/netns").catch(() => []);
  return listed.filter((name) => ours.test(name)).map((what) => ({ kind: "namespace", what }));
}

async function mounts(state: string): Promise<readonly Trace[]> {
  const lines = (await readFile("/proc/self/mounts", "utf8")).split("\n").map((line) => line.split(" ")[1] ?? "");
  return lines
    .filter((path) => path.startsWith(`${state}/`) || /^\/run\/netns\/osl\d/.test(path))
    .map((what) => ({ kind: "mount", what }));
}

async function cgroups(): Promise<readonly Trace[]> {
  const traces: Trace[] = [];
  for (const root of (await findHierarchies()).roots) {
    for (const name of await readdir(root).catch(() => []))
      if (ours.test(name)) traces.push({ kind: "cgroup", what: join(root, name) });
  }
  return traces;
}

async function links(): Promise<readonly Trace[]> {
  const { stdout } = await attempt("ip", ["-brief", "link"]);
  const listed = stdout.split("\n").map((line) => line.split(/[\s@]/)[0] ?? "");
  return listed.filter((name) => ours.test(name)).map((what) => ({ kind: "link", what }));
}

async function routes(): Promise<readonly Trace[]> {
  const { stdout } = await attempt("ip", ["-4", "route", "show"]);
  return stdout
    .split("\n")
    .filter((line) => subnets.test(line))
    .map((what) => ({ kind: "route", what }));
}

/** The cluster puts packet filter rules only into its nodes' namespaces; one on the host would be a mistake of ours. */
async function rules(): Promise<readonly Trace[]> {
  const saved = await attempt("iptables-save", []).catch(() => undefined);
  const lines = saved?.stdout.split("\n") ?? [];
  return lines.filter((line) => /^-A KUBE-|^:KUBE-/.test(line)).map((what) => ({ kind: "rule", what }));
}

async function files(state: string): Promise<readonly Trace[]> {
  const left = await access(state).then(
    () => true,
    () => false,
  );
  return left ? [{ kind: "file", what: state }] : [];
}

if (process.argv[1] === import.meta.filename) {
  const traces = await findTraces();
  for (const { kind, what } of traces) process.stdout.write(`${kind}\t${what}\n`);
  process.exitCode = traces.length === 0 ? 0 : 1;
}
