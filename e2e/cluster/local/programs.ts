import { access, mkdir, mkdtemp, readdir, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OpenShellError } from "../../../src/common/errors.ts";
import { programsDirectory } from "../cache.ts";
import { run } from "../exec.ts";
import type { Progress } from "../progress.ts";

export const kubernetesVersion = "v1.34.4";

/** A third-party program that is built from its Go module, because no Debian package has it. */
interface GoProgram {
  readonly version: string;
  /** Import path to install, or a package of the module in `programs/`. */
  readonly package: string;
  /** Directory below `programs/` of the module that a package `.` is in. @default `programs/` itself */
  readonly module?: string;
  readonly ldflags?: string;
  /** Build tags of a program that is linked with C libraries; without them it is linked with none. */
  readonly cgoTags?: string;
  /** Roughly how long a cold build takes on two cores, to set expectations. */
  readonly takes: string;
}

const stamps = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
  .flatMap((path) => [`-X ${path}.gitVersion=${kubernetesVersion}`, `-X ${path}.gitMajor=1`, `-X ${path}.gitMinor=34`])
  .join(" ");

function containerd(name: string) {
  return { version: "v2.4.1", package: `github.com/containerd/containerd/v2/cmd/${name}` } as const;
}

const goPrograms = {
  /** kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kube-proxy. */
  kubernetes: { version: kubernetesVersion, package: ".", ldflags: stamps, takes: "5 min" },
  /** Debian's is 1.6, and Pods with a user namespace of their own need 2. */
  containerd: { ...containerd("containerd"), takes: "100 s" },
  "containerd-shim-runc-v2": { ...containerd("containerd-shim-runc-v2"), takes: "10 s" },
  ctr: { ...containerd("ctr"), takes: "10 s" },
  /** Debian's is 1.1, and a user namespace with idmapped mounts needs 1.2. Without seccomp it would refuse every Pod that has a profile. */
  runc: { version: "v1.4.4", package: "github.com/opencontainers/runc", cgoTags: "seccomp", takes: "25 s" },
  /** The first process of every Pod's sandbox. */
  pause: { version: "1", package: "./pause", takes: "2 s" },
  /** The release, with its NetworkPolicy controller only. */
  "kube-router": { version: "v2.1.0-cluster", package: ".", module: "kube-router", takes: "70 s" },
  /** The release, with few of its plugins. */
  coredns: { version: "v1.14.6-cluster", package: ".", module: "coredns", takes: "90 s" },
  /** Makes volumes of directories. */
  storage: { version: "1", package: "./storage", takes: "15 s" },
  helm3: { version: "v3.21.4", package: "helm.sh/helm/v3/cmd/helm", takes: "60 s" },
  /** Hollow nodes for `npm run bench -- scale`; no cluster is made of it. */
  kwok: { version: "v0.7.0", package: "sigs.k8s.io/kwok/cmd/kwok", takes: "100 s" },
} as const satisfies Record<string, GoProgram>;

export type GoProgramName = keyof typeof goPrograms;

/** Programs that a local cluster is made of. */
export const clusterPrograms: readonly GoProgramName[] = [
  "kubernetes",
  "kube-router",
  "coredns",
  "storage",
  "containerd",
  "containerd-shim-runc-v2",
  "ctr",
  "runc",
  "pause",
];

/** Builds what is missing of them, two at a time: one alone leaves cores idle while it downloads and links, more would not fit in memory. */
export async function buildPrograms(
  names: readonly GoProgramName[],
  progress: Progress,
  signal?: AbortSignal,
): Promise<void> {
  const waiting = [...names];
  const work = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      await buildProgram(name, progress, signal);
    }
  };
  // Both are awaited also when one fails: nothing of ours runs on after the error.
  for (const outcome of await Promise.allSettled([work(), work()])) {
    if (outcome.status === "rejected") throw outcome.reason;
  }
}

/** True when every one of them is in the cache. */
export async function areBuilt(names: readonly GoProgramName[]): Promise<boolean> {
  return (await Promise.all(names.map((name) => exists(programPath(name))))).every(Boolean);
}

const moduleDirectory = join(import.meta.dirname, "programs");

/** Where the program is, or will be once {@link buildProgram} has run. */
export function programPath(name: GoProgramName): string {
  return join(programsDirectory, `${name}-${goPrograms[name].version}`);
}

/** Builds the program unless this version is in the cache. An interrupted build goes on where Go's own cache ends. */
export async function buildProgram(name: GoProgramName, progress: Progress, signal?: AbortSignal): Promise<string> {
  const program: GoProgram = goPrograms[name];
  const target = programPath(name);
  if (await exists(target)) return target;
  await mkdir(programsDirectory, { recursive: true });
  progress.note(`building ${name} ${program.version} (about ${program.takes} the first time)`);
  const output = await mkdtemp(join(programsDirectory, ".build-"));
  const local = program.package.startsWith(".");
  const ldflags = `-s -w ${program.ldflags ?? ""}`.trim();
  const flags = ["-ldflags", ldflags, ...(program.cgoTags === undefined ? [] : ["-tags", program.cgoTags])];
  const args = local
    ? ["build", ...flags, "-o", `${output}/`, program.package]
    : ["install", ...flags, `${program.package}@${program.version}`];
  try {
    await run("go", args, {
      cwd: local ? join(moduleDirectory, program.module ?? "") : tmpdir(),
      env: {
        CGO_ENABLED: program.cgoTags === undefined ? "0" : "1",
        // One toolchain for all, so that the standard library is compiled once; a newer one is fetched only where a program needs it.
        GOTOOLCHAIN: "auto",
        ...(local ? {} : { GOBIN: output }),
      },
      ...(signal === undefined ? {} : { signal }),
      remedy:
        "Look at the message above; when space ran out, free some (`df -h`), then run again: it goes on where it stopped.",
    });
    const [built] = await readdir(output);
    if (built === undefined) throw new OpenShellError("internal", `go built nothing for ${program.package}`);
    await rename(join(output, built), target);
  } finally {
    await rm(output, { recursive: true, force: true });
  }
  return target;
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
