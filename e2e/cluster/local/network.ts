import { networkInterfaces } from "node:os";
import { OpenShellError } from "../../../src/common/errors.ts";
import { attempt, run } from "../exec.ts";
import { type Layout, layoutOf, type NodeLayout, slots } from "./layout.ts";

/**
 * The network: one bridge on the host, a network namespace for each node joined to it by a veth, a Pod subnet for each node with static routes
 * between them. Service addresses are reached from the host through the first node, whose kube-proxy translates them. Nothing is
 * translated or forwarded by the host itself, so no packet filter rule of the host is touched.
 */
export async function makeBridge(layout: Layout): Promise<void> {
  const bridge = layout.prefix;
  if ((await attempt("ip", ["link", "show", bridge])).code !== 0) {
    await run("ip", ["link", "add", bridge, "type", "bridge"]);
  }
  await run("ip", ["address", "replace", `${layout.hostAddress}/24`, "dev", bridge]);
  await run("ip", ["link", "set", bridge, "up"]);
}

/** Makes a node's namespace and joins it to the bridge. */
export async function makeNodeNetwork(layout: Layout, node: NodeLayout): Promise<void> {
  const inside = (...args: string[]) => run("ip", ["-netns", node.namespace, ...args]);
  if (!(await namespaces()).includes(node.namespace)) await run("ip", ["netns", "add", node.namespace]);
  if ((await attempt("ip", ["link", "show", node.link])).code !== 0) {
    await run("ip", ["link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.namespace]);
  }
  await run("ip", ["link", "set", node.link, "master", layout.prefix, "up"]);
  await inside("address", "replace", `${node.address}/24`, "dev", "eth0");
  await inside("link", "set", "lo", "up");
  await inside("link", "set", "eth0", "up");
  await inside("route", "replace", "default", "via", layout.hostAddress);
  const settings = ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"];
  await run("nsenter", [`--net=/run/netns/${node.namespace}`, "sysctl", "-q", "-w", ...settings]);
}

/** Makes every node and the host know the way to every node's Pods, and the host the way to Services. */
export async function makeRoutes(layout: Layout, nodes: readonly NodeLayout[]): Promise<void> {
  for (const to of nodes) {
    await run("ip", ["route", "replace", to.podSubnet, "via", to.address]);
    for (const from of nodes) {
      if (from !== to) await run("ip", ["-netns", from.namespace, "route", "replace", to.podSubnet, "via", to.address]);
    }
  }
  const [first] = nodes;
  if (first !== undefined) await run("ip", ["route", "replace", layout.serviceSubnet, "via", first.address]);
}

export async function removeNodeNetwork(node: NodeLayout, others: readonly NodeLayout[]): Promise<void> {
  await attempt("ip", ["route", "del", node.podSubnet]);
  for (const other of others) await attempt("ip", ["-netns", other.namespace, "route", "del", node.podSubnet]);
  if ((await namespaces()).includes(node.namespace)) await run("ip", ["netns", "delete", node.namespace]);
  await attempt("ip", ["link", "delete", node.link]);
}

/** Removes the bridge; the routes over it go with it. */
export async function removeBridge(layout: Layout): Promise<void> {
  await attempt("ip", ["link", "delete", layout.prefix]);
}

/**
 * Reserves the first slot whose /16 overlaps no address and no route of this machine.
 *
 * @param reserve takes a slot for this cluster alone; false when another has it, which may not have made its network yet
 */
export async function reserveSlot(reserve: (prefix: string) => Promise<boolean>): Promise<number> {
  const routes = await run("ip", ["-4", "route", "show", "table", "all"]);
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const used = [routes, ...addresses.map((address) => address.address)].join("\n");
  for (const slot of freeSlots(used)) if (await reserve(layoutOf("", slot).prefix)) return slot;
  throw new OpenShellError(
    "resource-exhausted",
    `10.208.0.0/16 to 10.${208 + slots - 1}.0.0/16 are all in use: free one and run again`,
  );
}

/** Pure part of {@link reserveSlot}: `used` is any text with the addresses and subnets in use. */
export function freeSlots(used: string): readonly number[] {
  const taken = [...used.matchAll(/\b(\d{1,3})\.(\d{1,3})\.\d{1,3}\.\d{1,3}(?:\/(\d{1,2}))?/g)].map((match) => ({
    first: Number(match[1]),
    second: Number(match[2]),
    bits: Math.min(Number(match[3] ?? 32), 16),
  }));
  return Array.from({ length: slots }, (_, slot) => slot).filter((slot) => {
    const second = Number(layoutOf("", slot).network.split(".")[1]);
    return !taken.some(({ first, second: other, bits }) => {
      const shift = 16 - bits;
      return bits > 0 && ((first << 8) | other) >> shift === ((10 << 8) | second) >> shift;
    });
  });
}

async function namespaces(): Promise<readonly string[]> {
  const listed = await run("ip", ["netns", "list"]);
  return listed.split("\n").map((line) => line.split(" ")[0] ?? "");
}
