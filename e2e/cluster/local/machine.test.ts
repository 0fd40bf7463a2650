import { X509Certificate } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { parse } from "yaml";
import { run } from "../exec.ts";
import { silent } from "../progress.ts";
import { Authority } from "./certificates.ts";
import { parseHierarchies } from "./cgroups.ts";
import { controlPlane } from "./control-plane.ts";
import { layoutOf, nodeLayoutOf } from "./layout.ts";
import { nodeFiles } from "./node-config.ts";
import { checkMachine, installPackages, notInstalled, tooFull } from "./requirements.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "machine-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe("cgroup hierarchies", () => {
  test("are all of version 1 where any is mounted, the hybrid's version 2 left out", () => {
    const mounts = [
      "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0",
      "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0",
      "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0",
    ].join("\n");
    expect(parseHierarchies(mounts)).toEqual({
      unified: false,
      roots: ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"],
    });
  });

  test("is the one of version 2 elsewhere", () => {
    expect(parseHierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")).toEqual({
      unified: true,
      roots: ["/sys/fs/cgroup"],
    });
  });

  test("that are not mounted are refused in one line", () => {
    expect(() => parseHierarchies("proc /proc proc rw 0 0")).toThrow(/^no cgroup hierarchy is mounted: [^\n]+$/);
  });
});

describe("the cluster's authority", () => {
  test("issues a server its addresses and a client its groups, and verifies both", async () => {
    const authority = await Authority.open(directory);
    const ca = new X509Certificate(authority.certificate);
    const server = new X509Certificate(
      (await authority.issue({ name: "s", commonName: "s", hosts: ["10.1.2.3", "kubernetes.default"] })).certificate,
    );
    const client = new X509Certificate(
      (await authority.issue({ name: "c", commonName: "system:node:a", organizations: ["system:nodes"] })).certificate,
    );
    expect(server.verify(ca.publicKey)).toBe(true);
    expect(client.verify(ca.publicKey)).toBe(true);
    expect(server.checkIP("10.1.2.3")).toBe("10.1.2.3");
    expect(server.checkHost("kubernetes.default")).toBe("kubernetes.default");
    expect(client.subject).toBe("CN=system:node:a\nO=system:nodes");
    expect(client.keyUsage).toEqual(["1.3.6.1.5.5.7.3.2"]);
  });

  test("is the same one when opened again, and gives what it issued", async () => {
    const first = await Authority.open(directory);
    const issued = await first.issue({ name: "c", commonName: "c" });
    const second = await Authority.open(directory);
    expect(second.certificate).toBe(first.certificate);
    expect(await second.issue({ name: "c", commonName: "c" })).toEqual(issued);
    const other = new X509Certificate((await second.issue({ name: "d", commonName: "d" })).certificate);
    expect(other.verify(new X509Certificate(first.certificate).publicKey)).toBe(true);
  });

  test("says what to do about a damaged file", async () => {
    const authority = await Authority.open(directory);
    await authority.issue({ name: "c", commonName: "c" });
    await writeFile(authority.file("c.key"), "");
    await expect(authority.issue({ name: "c", commonName: "c" })).rejects.toThrow(
      "is damaged: bring the cluster down and up again",
    );
    expect(await readFile(authority.file("ca.crt"), "utf8")).toBe(authority.certificate);
  });
});

describe("configuration", () => {
  const layout = layoutOf("/state", 0);
  const node = nodeLayoutOf(layout, 2);
  const files = nodeFiles(layout, node, (name) => `/pki/${name}`);

  test("gives a node both runtime handlers, its own Pod subnet and its own cgroup", () => {
    const containerd = files["/state/nodes/node-2/config/containerd.toml"];
    expect(containerd).toMatch(/runtimes\.runc\.options]\s+BinaryName = ".*\/bin\/runc-v1\.\d+\.\d+"/);
    expect(containerd).toMatch(/runtimes\.crun\.options]\s+BinaryName = "\/state\/nodes\/node-2\/config\/crun"/);
    expect(containerd).not.toContain('"/opt');
    const cni = JSON.parse(files["/state/nodes/node-2/config/cni/10-pods.conflist"] ?? "");
    expect(cni.plugins[0].ipam.ranges).toEqual([[{ subnet: "10.208.66.0/24" }]]);
    const kubelet = parse(files["/state/nodes/node-2/config/kubelet.yaml"] ?? "");
    expect(kubelet).toMatchObject({
      cgroupRoot: "/osl0/node-2",
      clusterDNS: ["10.208.128.10"],
      address: "10.208.0.12",
    });
  });

  test("calls crun with a specification of a version that it takes, and changes nothing else of it", async () => {
    const script = files["/state/nodes/node-2/config/crun"]?.replace("/usr/bin/crun", "echo") ?? "";
    const config = join(directory, "config.json");
    const text = '{"ociVersion":"1.3.0","process":{"env":["A=\\"ociVersion\\":\\"1.3.0\\""]}}';
    await writeFile(config, text);
    const call = ["--root", "/r", "create", "--bundle", directory, "--pid-file", "a b", "id"];
    expect(await run("/bin/sh", ["-c", script, "crun", ...call])).toBe(`${call.join(" ")}\n`);
    expect(await readFile(config, "utf8")).toBe(text.replace("1.3.0", "1.0.2"));
  });

  test("starts the API server with the admission gate, an audit log and credentials for kubelets", () => {
    const [, apiServer] = controlPlane(layout, (name) => `/pki/${name}`, "osl0/control");
    expect(apiServer.args).toEqual(
      expect.arrayContaining([
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        "--audit-log-path=/state/logs/audit.log",
        "--kubelet-client-certificate=/pki/apiserver-kubelet.crt",
        "--bind-address=10.208.0.1",
      ]),
    );
  });
});

describe("a machine that lacks something is told so in one sentence", () => {
  test("packages that apt-get cannot install, with its own reason", () => {
    const said = "W: some index failed\nE: Could not get lock\nE: Unable to locate package crun\n";
    expect(notInstalled(["crun", "ipset"], said).message).toBe(
      "the packages crun, ipset are missing and cannot be installed (Unable to locate package crun): install them by hand and run again",
    );
  });

  test("packages where there is no apt-get", async () => {
    vi.stubEnv("PATH", directory);
    try {
      await expect(installPackages(silent, undefined, { nothing: "/absent" })).rejects.toThrow(
        "the packages nothing are missing and cannot be installed (apt-get is not installed): install them by hand and run again",
      );
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test("Go, only while something has to be built", async () => {
    vi.stubEnv("PATH", directory);
    try {
      const check = checkMachine(directory, false);
      if (process.getuid?.() === 0) await expect(check).rejects.toThrow(/^the go command is missing: install Go/);
      else await expect(check).rejects.toThrow(/^the local cluster needs root/);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test("space", () => {
    expect(tooFull("/var", 1.25 * 1024 ** 3, 3 * 1024 ** 3)).toBe(
      "/var has 1.3 GiB free and 3.0 GiB are needed: free some and run again",
    );
  });
});
