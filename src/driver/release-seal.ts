import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import type { Live, Pod } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";

/**
 * Whoever may patch Pods, and every webhook, can open our gate and write what we write with it. So the annotations of a release carry an
 * HMAC-SHA-256 over the UIDs of the two Pods, under a key derived (RFC 5869) from the master secret: a Pod whose gate somebody else opened is
 * not released, and one Pod's seal is no other's. A session needs no place in it: a UID is of one Pod, and a workload outlives its sessions.
 */
export class ReleaseSeal {
  readonly #key: Buffer;
  /** Of Pods as they were seen; each look at a sandbox asks for its two again. */
  readonly #peers = new WeakMap<Live<Pod>, { readonly uid: string | undefined }>();

  constructor(masterSecret: Uint8Array, gatewayId: string) {
    this.#key = Buffer.from(hkdfSync("sha256", masterSecret, gatewayId, "openshell pod release v1", 32));
  }

  /** The annotations that open a Pod's gate. */
  write(podUid: string, peerUid: string): Record<string, string> {
    return {
      [annotations.peerUid]: peerUid,
      [annotations.releaseSeal]: this.#macOf(podUid, peerUid).toString("hex"),
    };
  }

  /** The peer that a Pod was released with; undefined where its annotations are not ours. */
  peerOf(pod: Live<Pod>): string | undefined {
    const known = this.#peers.get(pod) ?? { uid: this.#read(pod) };
    this.#peers.set(pod, known);
    return known.uid;
  }

  #read({ metadata }: Live<Pod>): string | undefined {
    const { [annotations.peerUid]: peerUid, [annotations.releaseSeal]: seal = "" } = metadata.annotations ?? {};
    if (peerUid === undefined || !/^[0-9a-f]{64}$/.test(seal)) return undefined;
    return timingSafeEqual(this.#macOf(metadata.uid, peerUid), Buffer.from(seal, "hex")) ? peerUid : undefined;
  }

  #macOf(podUid: string, peerUid: string): Buffer {
    return createHmac("sha256", this.#key).update(`${podUid}\0${peerUid}`).digest();
  }
}
