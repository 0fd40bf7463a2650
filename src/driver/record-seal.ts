import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { annotations, sandboxResourceName } from "../manifests/index.ts";
import { masterKidOf } from "./identity.ts";
import { type GenerationRecord, type ReadRecord, readRecord, writeRecord } from "./record.ts";

export interface RecordSealOptions {
  readonly masterSecret: Uint8Array;
  readonly gatewayId: string;
  /** Where sandboxes of a workspace may be. */
  readonly namespacesOf: (workspace: string) => readonly string[];
}

interface Carrier {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly generation?: number;
    readonly creationTimestamp?: string;
    readonly annotations?: Record<string, string>;
  };
}

const sealed = /^\{"seal":"([0-9a-f]{64})",/;

/**
 * Who may write Sandboxes in one namespace can write any record there, and a record says in which namespace the driver acts, under which
 * generation's keys and for which sandbox. So each carries an HMAC-SHA-256 over the place of its CR and its text, under a key derived
 * (RFC 5869) from the master secret: a record that was written by somebody else, changed, or copied to another CR is none.
 */
export class RecordSeal {
  readonly #key: Buffer;
  readonly #masterKid: string;
  readonly #namespacesOf: RecordSealOptions["namespacesOf"];

  constructor({ masterSecret, gatewayId, namespacesOf }: RecordSealOptions) {
    this.#key = Buffer.from(hkdfSync("sha256", masterSecret, gatewayId, "openshell generation record v1", 32));
    this.#masterKid = masterKidOf(masterSecret);
    this.#namespacesOf = namespacesOf;
  }

  /** The annotation's text for the CR that the record describes, and for no other of its name where its UID is known. */
  write(record: GenerationRecord): string {
    const text = writeRecord(record);
    return `{"seal":"${this.#macOf(placeOf(record), text).toString("hex")}",${text.slice(1)}`;
  }

  read(of: Carrier): ReadRecord {
    const read = readRecord(of);
    if (!read.ok) return read;
    const problem = this.#problemOf(of, read.record);
    return problem === undefined
      ? read
      : { ok: false, problem: `annotation ${annotations.generation} is not to be trusted: ${problem}` };
  }

  #problemOf({ metadata }: Carrier, record: GenerationRecord): string | undefined {
    const text = metadata.annotations?.[annotations.generation] ?? "";
    const [head, seal] = sealed.exec(text) ?? [];
    if (head === undefined || seal === undefined) return "it has no seal of this gateway";
    const place = placeOf(record);
    const { namespace = "", name } = metadata;
    if (place.namespace !== namespace || place.name !== name) {
      return `it is of Sandbox "${place.name}" in namespace "${place.namespace}"`;
    }
    const { workspace } = record.sandbox;
    if (!this.#namespacesOf(workspace).includes(namespace)) {
      return `workspace "${workspace}" is not in namespace "${namespace}"`;
    }
    if (timingSafeEqual(this.#macOf(place, `{${text.slice(head.length)}`), Buffer.from(seal, "hex"))) {
      return isBoundTo(metadata, record)
        ? undefined
        : "it is of another Sandbox of that name, or of the time when this one was made";
    }
    return record.masterKid === this.#masterKid
      ? "somebody else wrote or changed it"
      : `it says that it was sealed under master secret ${record.masterKid}, and the gateway has ${this.#masterKid}; put that one back if it was replaced`;
  }

  #macOf({ namespace, name }: { readonly namespace: string; readonly name: string }, text: string): Buffer {
    return createHmac("sha256", this.#key).update(`${namespace}\0${name}\0${text}`).digest();
  }
}

/** The API server gives up a request after one minute, and a refused one is repeated for a few seconds. */
const longestCreationMs = 2 * 60_000;

/**
 * The record that a CR is made with cannot name its UID. It counts on a CR that the API server made at that time, and whose spec nobody has
 * changed since: the same patch that first lets a CR run names it.
 */
function isBoundTo(
  { uid, generation = 1, creationTimestamp }: Carrier["metadata"],
  { resourceUid, bindsUids, startedAt }: GenerationRecord,
): boolean {
  if (resourceUid !== undefined) return resourceUid === uid;
  if (bindsUids === undefined) return true;
  const lateMs = Math.abs(Date.parse(creationTimestamp ?? "") - Date.parse(startedAt));
  return generation === 1 && lateMs < longestCreationMs;
}

function placeOf({ settings, sandbox }: GenerationRecord): { readonly namespace: string; readonly name: string } {
  return { namespace: settings.namespace, name: sandboxResourceName(sandbox.workspace, sandbox.name) };
}
