import { access } from "node:fs/promises";
import { OpenShellError } from "../src/common/errors.ts";
import { bundle, bundleFiles, bundleNative, nativeFile } from "./bundles.ts";
import { type NodeProgram, nodeProgram } from "./node-program.ts";
import type { ImageConfig, ImageSpec, Layer, LayerEntry } from "./oci.ts";
import { loaderName, loaderPath } from "./shared-libraries.ts";

export interface BuildContext {
  /** What is kept between builds. */
  readonly cache: string;
  /** Where this build's bundles go. */
  readonly bundles: string;
}

/** uid and gid of our own programs. */
const nonRoot = 65532;

/** Where Debian's, Fedora's and Alpine's systems keep the certificates that programs trust. */
const certificateFiles = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/cert.pem",
];

/**
 * A small young generation keeps a supervisor at rest at 27 MB of its own instead of 35. A heap of 12 MB beside which buffers come and go
 * would be collected in full every 3 MB that pass (measured: 29 times in 80 MB); growing by 300 % first makes that once.
 */
export const supervisorHeap = ["--max-semi-space-size=1", "--heap-growing-percent=300", "--max-old-space-size=128"];

export async function gatewayImage(name: string, context: BuildContext): Promise<ImageSpec> {
  const script = await bundle("gateway", context.bundles);
  return programImage(name, await nodeProgram(context.cache), script, {
    entrypoint: ["/usr/bin/node", `/app/${bundleFiles.gateway}`],
    cmd: ["serve"],
    exposedPorts: ["8080/tcp", "8081/tcp", "9090/tcp"],
  });
}

export async function supervisorImage(name: string, context: BuildContext): Promise<ImageSpec> {
  const script = await bundle("supervisor", context.bundles);
  return programImage(name, await nodeProgram(context.cache), script, {
    entrypoint: ["/usr/bin/node", ...supervisorHeap, `/app/${bundleFiles.supervisor}`],
    exposedPorts: ["5501/tcp"],
  });
}

/** The relocatable bundle under /opt/openshell; `stage` copies it into a workload Pod whose image may have nothing of its own. */
export async function runtimeImage(name: string, context: BuildContext): Promise<ImageSpec> {
  const [node, script, native] = [
    await nodeProgram(context.cache),
    await bundle("runtime", context.bundles),
    await bundleNative(context.bundles),
  ];
  const home = "opt/openshell";
  const system: Layer = {
    entries: [
      ...accountEntries(),
      { type: "directory", path: "tmp", mode: 0o1777 },
      { type: "directory", path: home },
      { type: "directory", path: `${home}/bin` },
      { type: "directory", path: `${home}/lib` },
      executable(`${home}/bin/node`, node.file),
      ...node.libraries.map(({ name: library, file }) => executable(`${home}/lib/${library}`, file)),
    ],
  };
  const program: Layer = {
    entries: [
      file(`${home}/${bundleFiles.runtime}`, script),
      executable(`${home}/${nativeFile}`, native),
      { type: "directory", path: home },
    ],
  };
  return {
    name,
    layers: [system, program],
    config: {
      entrypoint: [
        `/${home}/lib/${loaderName}`,
        "--library-path",
        `/${home}/lib`,
        `/${home}/bin/node`,
        "--disable-sigusr1",
        `/${home}/${bundleFiles.runtime}`,
      ],
      cmd: ["stage"],
      user: `${nonRoot}:${nonRoot}`,
      labels: labels("runtime"),
    },
  };
}

/** Node where programs expect it, certificates, a user, and one script. Nothing else: no shell, no package manager. */
async function programImage(name: string, node: NodeProgram, script: string, config: ImageConfig): Promise<ImageSpec> {
  const system: Layer = {
    entries: [
      ...accountEntries(),
      { type: "directory", path: "tmp", mode: 0o1777 },
      file("etc/ssl/certs/ca-certificates.crt", await hostCertificates()),
      executable("usr/bin/node", node.file),
      ...node.libraries.map(({ name: library, file: source }) =>
        executable(library === loaderName ? loaderPath : `lib/x86_64-linux-gnu/${library}`, source),
      ),
    ],
  };
  const scriptName = script.slice(script.lastIndexOf("/") + 1);
  return {
    name,
    layers: [system, { entries: [file(`app/${scriptName}`, script)] }],
    config: {
      user: `${nonRoot}:${nonRoot}`,
      workdir: "/app",
      env: { NODE_ENV: "production", SSL_CERT_FILE: "/etc/ssl/certs/ca-certificates.crt" },
      labels: labels(scriptName.replace(/^openshell-|\.mjs$/g, "")),
      ...config,
    },
  };
}

function accountEntries(): LayerEntry[] {
  const passwd = `root:x:0:0:root:/root:/sbin/nologin\nopenshell:x:${nonRoot}:${nonRoot}:openshell:/tmp:/sbin/nologin\n`;
  return [
    text("etc/passwd", passwd),
    text("etc/group", `root:x:0:\nopenshell:x:${nonRoot}:\n`),
    text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
  ];
}

async function hostCertificates(): Promise<string> {
  for (const path of certificateFiles) {
    const found = await access(path).then(
      () => true,
      () => false,
    );
    if (found) return path;
  }
  throw new OpenShellError(
    "failed-precondition",
    `no CA certificates found (looked for ${certificateFiles.join(", ")}): apt-get install ca-certificates`,
  );
}

const labels = (component: string) => ({
  "org.opencontainers.image.title": `openshell-${component}`,
  "org.opencontainers.image.licenses": "Apache-2.0",
});

const file = (path: string, source: string): LayerEntry => ({ type: "file", path, source: { file: source } });
const text = (path: string, content: string): LayerEntry => ({
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
