import { readFile, rm, writeFile } from "node:fs/promises";
import { z } from "zod";

/** Settings of the whole machine that a kubelet changes when it starts. They are noted before and put back with the last cluster's `down`. */
const changedByKubelet = [
  "vm/overcommit_memory",
  "vm/panic_on_oom",
  "kernel/panic",
  "kernel/panic_on_oops",
  "kernel/keys/root_maxkeys",
  "kernel/keys/root_maxbytes",
];

/** What the settings were before the first of the clusters that live now. Gone with a reboot, as the changes are. */
export const sysctlsFile = "/run/openshell-local-clusters.sysctls.json";

/** The settings as they were before any cluster: noted by the first one, read by those after it. */
export async function originalSysctls(file: string = sysctlsFile): Promise<Record<string, string>> {
  const noted = await readFile(file, "utf8").catch(() => undefined);
  if (noted !== undefined) return z.record(z.string(), z.string()).parse(JSON.parse(noted));
  const found: Record<string, string> = {};
  for (const name of changedByKubelet) {
    const value = await readFile(`/proc/sys/${name}`, "utf8").catch(() => undefined);
    if (value !== undefined) found[name] = value.trim();
  }
  await writeFile(file, JSON.stringify(found));
  return found;
}

/** For the last cluster: puts the settings back and forgets them. */
export async function restoreSysctls(
  values: Readonly<Record<string, string>>,
  file: string = sysctlsFile,
): Promise<void> {
  for (const [name, value] of Object.entries(values)) {
    const now = (await readFile(`/proc/sys/${name}`, "utf8")).trim();
    if (now !== value) await writeFile(`/proc/sys/${name}`, value);
  }
  await rm(file, { force: true });
}
