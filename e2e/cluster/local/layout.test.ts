import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { layoutOf, maxNodes, nodeLayoutOf, slots, stateDirectory } from "./layout.ts";
import { freeSlots } from "./network.ts";

function range(subnet: string): [number, number] {
  const [address = "", bits = "32"] = subnet.split("/");
  const first = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  return [first, first + 2 ** (32 - Number(bits)) - 1];
}

function overlap(a: string, b: string): boolean {
  const [[firstA, lastA], [firstB, lastB]] = [range(a), range(b)];
  return firstA <= lastB && firstB <= lastA;
}

const slot = fc.integer({ min: 0, max: slots - 1 });
const index = fc.integer({ min: 1, max: maxNodes });

describe("the addresses of a cluster", () => {
  test("never overlap: nodes, Pods of each node, Services", () => {
    fc.assert(
      fc.property(slot, index, index, (at, one, other) => {
        const layout = layoutOf("/state", at);
        const [a, b] = [nodeLayoutOf(layout, one), nodeLayoutOf(layout, other)];
        expect(overlap(a.podSubnet, b.podSubnet)).toBe(one === other);
        expect(overlap(a.podSubnet, layout.podSubnet)).toBe(true);
        expect(overlap(layout.podSubnet, layout.serviceSubnet)).toBe(false);
        expect(overlap(layout.nodeSubnet, layout.podSubnet)).toBe(false);
        expect(overlap(a.address, layout.nodeSubnet)).toBe(true);
        expect(a.address).not.toBe(layout.hostAddress);
        expect(range(a.podSubnet)[1]).toBeLessThanOrEqual(range(layout.podSubnet)[1]);
      }),
    );
  });

  test("and names differ between clusters", () => {
    fc.assert(
      fc.property(slot, slot, index, (one, other, node) => {
        fc.pre(one !== other);
        const [a, b] = [layoutOf("/a", one), layoutOf("/b", other)];
        expect(overlap(a.network, b.network)).toBe(false);
        expect(nodeLayoutOf(a, node).namespace).not.toBe(nodeLayoutOf(b, node).namespace);
        expect(a.loopback).not.toBe(b.loopback);
      }),
    );
  });

  test("give link names that fit the kernel's 15 characters", () => {
    fc.assert(fc.property(slot, index, (at, node) => nodeLayoutOf(layoutOf("/s", at), node).link.length <= 15));
  });
});

describe("the slot of a new cluster", () => {
  test.each([
    ["default via 192.0.2.1 dev eth0\n192.0.2.0/24 dev eth0", 0],
    ["10.208.0.0/24 dev osl0", 1],
    ["10.208.0.0/16 dev a\n10.209.3.4/32 dev b", 2],
    ["10.208.0.0/13 dev vpn", 8],
    ["10.0.0.0/8 dev vpn", undefined],
    ["10.220.1.1", 0],
  ])("with %j in use is %s", (used, expected) => {
    expect(freeSlots(used)[0]).toBe(expected);
  });
});

test("the state directory is the one that the environment names", () => {
  expect(stateDirectory({ OPENSHELL_LOCAL_CLUSTER: "/x" })).toBe("/x");
  expect(stateDirectory({})).toBe("/var/lib/openshell-local-cluster");
  expect(stateDirectory({ OPENSHELL_LOCAL_CLUSTER: "" })).toBe("/var/lib/openshell-local-cluster");
});
