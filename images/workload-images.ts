import { createHash } from "node:crypto";
import { access, mkdir, readFile, realpath, rename } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OpenShellError } from "../src/common/errors.ts";
import { tool } from "./_commands.ts";
import type { ImageSpec, LayerEntry } from "./oci.ts";
import { loaderName, sharedLibraries } from "./shared-libraries.ts";
import type { BuildContext } from "./shipped.ts";

const agentCommand = ["/bin/sh"];

/** Only busybox: one static program and its links. */
export async function busyboxImage(name: string): Promise<ImageSpec> {
  const busybox = await firstOf(["/bin/busybox", "/usr/bin/busybox"], "apt-get install busybox-static");
  if ((await sharedLibraries(busybox)).length > 0) {
    throw new OpenShellError("failed-precondition", `${busybox} is not static: apt-get install busybox-static`);
  }
  const applets = (await tool(busybox, ["--list"], "apt-get install busybox-static")).trim().split("\n");
  return {
    name,
    layers: [
      {
        entries: [
          ...accounts("/bin/sh"),
          executable("bin/busybox", busybox),
          ...applets
            .filter((applet) => applet !== "busybox")
            .map((applet): LayerEntry => ({ type: "symlink", path: `bin/${applet}`, linkname: "busybox" })),
        ],
      },
      { entries: seeds("busybox") },
    ],
    config: { cmd: agentCommand, workdir: "/sandbox" },
  };
}

/** Programs that an agent on a distribution with glibc finds, copied from this machine with the libraries they load. */
const userland = [
  "bash dash cat chmod chown cp cut date dd df dirname basename du echo env expr false find grep gzip head hostname id",
  "kill ln ls md5sum mkdir mktemp mv nproc printenv printf ps pwd readlink realpath rm rmdir sed seq sha256sum sleep sort",
  "stat stty sync tail tar tee test timeout touch tr true tty uname uniq wc whoami xargs yes",
]
  .join(" ")
  .split(" ");

export async function glibcImage(name: string): Promise<ImageSpec> {
  const programs = new Map<string, string>();
  for (const program of userland) {
    const found = await firstOf(
      [`/usr/bin/${program}`, `/bin/${program}`],
      `this machine has no ${program}: apt-get install bash coreutils findutils grep gzip hostname procps sed tar`,
    );
    programs.set(program, await realpath(found));
  }
  const libraries = await sharedLibraries(...programs.values());
  const links: LayerEntry[] = ["bin", "sbin", "lib", "lib64"].map((path) => ({
    type: "symlink",
    path,
    linkname: `usr/${path}`,
  }));
  return {
    name,
    layers: [
      {
        entries: [
          ...accounts("/bin/bash"),
          ...links,
          { type: "directory", path: "usr/sbin" },
          ...[...programs].map(([program, file]) => executable(`usr/bin/${program}`, file)),
          { type: "symlink", path: "usr/bin/sh", linkname: "dash" },
          ...libraries.map(({ name: library, file }) =>
            executable(library === loaderName ? `usr/lib64/${library}` : `usr/lib/x86_64-linux-gnu/${library}`, file),
          ),
          text("etc/profile", 'export PROFILE_WAS_READ=yes\nPS1="$ "\n'),
        ],
      },
      { entries: seeds("glibc") },
    ],
    config: { cmd: ["/bin/bash"], workdir: "/sandbox" },
  };
}

/** Nothing but one static program and a directory of seeds: no shell, no libraries, no passwd. */
export async function noshellImage(name: string, context: BuildContext): Promise<ImageSpec> {
  const probe = await compileProbe(context.cache);
  return {
    name,
    layers: [
      { entries: [executable("bin/probe", probe), { type: "directory", path: "tmp", mode: 0o1777 }] },
      { entries: seeds("noshell") },
    ],
    config: { entrypoint: ["/bin/probe"], cmd: ["sleep", "1000000"], workdir: "/sandbox" },
  };
}

async function compileProbe(cache: string): Promise<string> {
  const source = fileURLToPath(new URL("workload/noshell/probe.c", import.meta.url));
  const compiler = process.env.CC ?? "gcc";
  const install = "apt-get install gcc libc6-dev";
  const version = await tool(compiler, ["--version"], install);
  const flags = ["-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-Wl,--build-id=none"];
  const key = createHash("sha256")
    .update(await readFile(source))
    .update(version)
    .update(flags.join(" "))
    .digest("hex");
  const target = join(cache, "probe", key.slice(0, 16));
  const known = await access(target).then(
    () => true,
    () => false,
  );
  if (known) return target;
  await mkdir(join(cache, "probe"), { recursive: true });
  const partial = `${target}.${process.pid}`;
  await tool(compiler, [...flags, "-o", partial, source], install);
  await rename(partial, target);
  return target;
}

/** What the image puts into /sandbox, so that seeding can be told from an empty volume: a file, a script, a link, a nested file. */
function seeds(image: string): LayerEntry[] {
  return [
    { type: "directory", path: "sandbox", mode: 0o755 },
    text("sandbox/seed.txt", `seeded by ${image}\n`),
    { ...text("sandbox/run.sh", "#!/bin/sh\necho ran\n"), mode: 0o755 },
    { type: "symlink", path: "sandbox/link.txt", linkname: "seed.txt" },
    { type: "directory", path: "sandbox/.config" },
    text("sandbox/.config/settings.json", '{"seeded":true}\n'),
  ];
}

function accounts(shell: string): LayerEntry[] {
  return [
    text("etc/passwd", `root:x:0:0:root:/root:${shell}\nnobody:x:65534:65534:nobody:/:/bin/false\n`),
    text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    { type: "directory", path: "root", mode: 0o700 },
    { type: "directory", path: "tmp", mode: 0o1777 },
  ];
}

async function firstOf(paths: readonly string[], remedy: string): Promise<string> {
  for (const path of paths) {
    const found = await access(path).then(
      () => true,
      () => false,
    );
    if (found) return path;
  }
  throw new OpenShellError("failed-precondition", `${paths[0]} is missing: ${remedy}`);
}

const text = (path: string, content: string): LayerEntry & { type: "file" } => ({
  type: "file",
  path,
  source: { bytes: Buffer.from(content) },
});
const executable = (path: string, source: string): LayerEntry => ({
  type: "file",
  path,
  mode: 0o755,
  source: { file: source },
});
