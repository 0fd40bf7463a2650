import { describe, expect, test } from "vitest";
import { isDaemon, linksIn, mountsIn, namesIn, oursIn, routesIn, rulesIn } from "./traces.ts";

const any = oursIn("/var/lib/mine");
const second = oursIn("/var/lib/mine", 1);
const whats = (traces: readonly { what: string }[]) => traces.map(({ what }) => what);

describe("what a cluster leaves", () => {
  test("is known by whole names, so that neither osl1 nor oslo is taken for osl11", () => {
    const listed = ["/sys/fs/cgroup/cpu/osl1", "osl1-node-1", "osl11-node-1", "osl16", "oslo", "kubepods"];
    expect(whats(namesIn("cgroup", listed, second))).toEqual(["/sys/fs/cgroup/cpu/osl1", "osl1-node-1"]);
    expect(whats(namesIn("cgroup", listed, any))).toEqual(["/sys/fs/cgroup/cpu/osl1", "osl1-node-1", "osl11-node-1"]);
  });

  test("is a mount below its state directory or one of its network namespaces", () => {
    const mounts = [
      "tmpfs /var/lib/mine/nodes/node-1/x tmpfs rw 0 0",
      "tmpfs /var/lib/mine2/x tmpfs rw 0 0",
      "nsfs /run/netns/osl1-node-2 nsfs rw 0 0",
      "nsfs /run/netns/osl2-node-2 nsfs rw 0 0",
      "nsfs /run/netns/cni-1 nsfs rw 0 0",
    ].join("\n");
    expect(whats(mountsIn(mounts, second))).toEqual(["/var/lib/mine/nodes/node-1/x", "/run/netns/osl1-node-2"]);
  });

  test("is a link or a bridge of its own", () => {
    const links = "lo  UNKNOWN 00:00\nosl1 UP aa:bb\nosl1-node-1@if2 UP aa:bb\neth0 UP cc:dd\n";
    expect(whats(linksIn(links, any))).toEqual(["osl1", "osl1-node-1"]);
  });

  test("is a route over its bridge, and nobody else's over another device", () => {
    const routes = [
      "default via 192.168.0.1 dev eth0",
      "10.209.64.0/24 via 10.209.0.11 dev osl1 ",
      "10.209.0.0/24 dev osl1 proto kernel scope link src 10.209.0.1",
      "10.210.0.0/24 dev osl2 proto kernel scope link src 10.210.0.1",
      "10.209.0.0/16 dev tun0",
    ].join("\n");
    expect(whats(routesIn(routes, second))).toEqual([
      "10.209.64.0/24 via 10.209.0.11 dev osl1",
      "10.209.0.0/24 dev osl1 proto kernel scope link src 10.209.0.1",
    ]);
  });

  test("would be a Kubernetes rule in the host's own packet filter", () => {
    const saved =
      "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FORWARD - [0:0]\n-A KUBE-FORWARD -j ACCEPT\n-A INPUT -j ACCEPT\n";
    expect(whats(rulesIn(saved))).toEqual([":KUBE-FORWARD - [0:0]", "-A KUBE-FORWARD -j ACCEPT"]);
  });

  test.each([
    [["etcd", "--data-dir=/var/lib/mine/etcd"], true],
    [["/cache/kubernetes-v1.34.4", "kubelet", "--config=/var/lib/mine/nodes/node-1/config/kubelet.yaml"], true],
    [["/cache/containerd-v2.4.1", "--config=/var/lib/mine/nodes/node-1/config/containerd.toml"], true],
    [["/cache/containerd-shim-runc-v2-v2.4.1", "-address", "/var/lib/mine/nodes/node-1/c.sock"], true],
    [["etcd", "--data-dir=/var/lib/etcd"], false],
    [["etcd", "--data-dir=/var/lib/mine2/etcd"], false],
    [["tail", "-f", "/var/lib/mine/logs/audit.log"], false],
    [[], false],
  ])("is a daemon with its paths: %j %s", (words, expected) => {
    expect(isDaemon(words, any)).toBe(expected);
  });
});
