import { readFile, writeFile } from "node:fs/promises";

/** Settings of the whole machine that a kubelet changes when it starts. They are noted before and put back by `down`. */
const changedByKubelet = [
  "vm/overcommit_memory",
  "vm/panic_on_oom",
  "kernel/panic",
  "kernel/panic_on_oops",
  "kernel/keys/root_maxkeys",
  "kernel/keys/root_maxbytes",
];

export async function readSysctls(): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of changedByKubelet) {
    const value = await readFile(`/proc/sys/${name}`, "utf8").catch(() => undefined);
    if (value !== undefined) found[name] = value.trim();
  }
  return found;
}

export async function restoreSysctls(values: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, value] of Object.entries(values)) {
    const now = (await readFile(`/proc/sys/${name}`, "utf8")).trim();
    if (now !== value) await writeFile(`/proc/sys/${name}`, value);
  }
}
