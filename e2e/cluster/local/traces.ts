import { access, readdir, readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { attempt } from "../exec.ts";
import { findHierarchies, type Hierarchies, processesIn } from "./cgroups.ts";
import { layoutOf, slots, stateDirectory } from "./layout.ts";
import { sysctlsFile } from "./sysctls.ts";

/** Something a cluster left on the machine. */
export interface Trace {
  readonly kind: "process" | "namespace" | "mount" | "cgroup" | "link" | "route" | "rule" | "file";
  /** What it is and where, e.g. `osl0-node-1`. */
  readonly what: string;
}

/** What belongs to the clusters that are looked for. */
export interface Ours {
  /** Names of links, namespaces and cgroups. */
  readonly isName: (name: string) => boolean;
  readonly prefixes: readonly string[];
  readonly state: string;
}

/** @param slot only of this one; undefined: of any */
export function oursIn(state: string, slot?: number): Ours {
  const all = slot === undefined ? Array.from({ length: slots }, (_, index) => index) : [slot];
  const prefixes = all.map((index) => layoutOf(state, index).prefix);
  return { prefixes, state, isName: (name) => prefixes.includes(name.split("-")[0] ?? "") };
}

/** Everything on this machine that a local cluster makes. Empty after `down`. Changes nothing. */
export async function findTraces(
  state: string = stateDirectory(),
  options: { /** @default of any cluster */ readonly slot?: number } = {},
): Promise<readonly Trace[]> {
  const ours = oursIn(state, options.slot);
  const hierarchies = await findHierarchies();
  const said = async (command: string, ...args: string[]) => (await attempt(command, args)).stdout;
  const cgroups = await Promise.all(
    hierarchies.roots.map(async (root) => (await readdir(root).catch(() => [])).map((name) => join(root, name))),
  );
  const found = [
    ...(await processes(ours, hierarchies)),
    ...namesIn("namespace", await readdir("/run/netns").catch(() => []), ours),
    ...mountsIn(await readFile("/proc/self/mounts", "utf8"), ours),
    ...namesIn("cgroup", cgroups.flat(), ours),
    ...linksIn(await said("ip", "-brief", "link"), ours),
    ...routesIn(await said("ip", "-4", "route", "show"), ours),
    ...rulesIn(
      await attempt("iptables-save", [])
        .then(({ stdout }) => stdout)
        .catch(() => ""),
    ),
  ];
  const files = options.slot === undefined ? [state, sysctlsFile] : [state];
  for (const file of files) if (await exists(file)) found.push({ kind: "file", what: file });
  return found;
}

async function processes(ours: Ours, hierarchies: Hierarchies): Promise<readonly Trace[]> {
  const inGroups = await Promise.all(ours.prefixes.map((name) => processesIn(hierarchies, name)));
  const traces = new Map<string, Trace>();
  const add = (pid: string, why: string) => traces.set(pid, { kind: "process", what: `${pid} ${why}` });
  for (const pid of inGroups.flat()) add(String(pid), "in a cgroup of the cluster");
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name) && name !== String(process.pid))) {
    const words = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0");
    if (isDaemon(words, ours)) add(pid, words.slice(0, 3).join(" "));
  }
  return [...traces.values()];
}

/** A process outside of the cgroups would have escaped their end: its arguments give it away. */
export function isDaemon(words: readonly string[], { state }: Ours): boolean {
  const program = /^(etcd|containerd\S*|kube-router\S*|kubernetes\S*)$/.test(basename(words[0] ?? ""));
  return program && words.some((word) => word.includes(`${state}/`));
}

/** @param names or paths that end in the name */
export function namesIn(kind: Trace["kind"], names: readonly string[], { isName }: Ours): readonly Trace[] {
  return names.filter((name) => isName(basename(name))).map((what) => ({ kind, what }));
}

/** @param text /proc/self/mounts */
export function mountsIn(text: string, { isName, state }: Ours): readonly Trace[] {
  const paths = text.split("\n").map((line) => line.split(" ")[1] ?? "");
  const isOurs = (path: string) =>
    path.startsWith(`${state}/`) || (dirname(path) === "/run/netns" && isName(basename(path)));
  return paths.filter(isOurs).map((what) => ({ kind: "mount", what }));
}

/** @param text of `ip -brief link` */
export function linksIn(text: string, ours: Ours): readonly Trace[] {
  return namesIn(
    "link",
    text.split("\n").map((line) => line.split(/[\s@]/)[0] ?? ""),
    ours,
  );
}

/** @param text of `ip -4 route show` */
export function routesIn(text: string, { isName }: Ours): readonly Trace[] {
  const isOurs = (line: string) => isName(/\bdev (\S+)/.exec(line)?.[1] ?? "");
  return text
    .split("\n")
    .filter(isOurs)
    .map((what) => ({ kind: "route", what: what.trim() }));
}

/**
 * Packet filter rules go only into the nodes' namespaces; one on the host would be a mistake of ours.
 *
 * @param text of `iptables-save`
 */
export function rulesIn(text: string): readonly Trace[] {
  const lines = text.split("\n").filter((line) => /^-A KUBE-|^:KUBE-/.test(line));
  return lines.map((what) => ({ kind: "rule", what }));
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({ options: { slot: { type: "string" } } });
  const traces = await findTraces(stateDirectory(), values.slot === undefined ? {} : { slot: Number(values.slot) });
  for (const { kind, what } of traces) process.stdout.write(`${kind}\t${what}\n`);
  process.exitCode = traces.length === 0 ? 0 : 1;
}
