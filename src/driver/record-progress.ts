import type { AgentSandbox, Live } from "../kube/index.ts";
import { annotations } from "../manifests/index.ts";
import { isNewer } from "./overlay.ts";
import type { GenerationRecord, ReadRecord } from "./record.ts";

/**
 * Whoever may write Sandboxes can keep a record of ours and put it back later: its seal is good. So one that says less than this process has
 * read of the same CR before is none. Sessions only grow, and one that was stopped never runs again.
 */
export class RecordProgress {
  readonly #furthest = new Map<string, { readonly step: number; readonly resource: Live<AgentSandbox> }>();

  /** What counts of the record that was read from a CR. */
  judge(resource: Live<AgentSandbox>, read: ReadRecord): ReadRecord {
    if (!read.ok) return read;
    const { uid } = resource.metadata;
    const step = stepOf(read.record);
    const before = this.#furthest.get(uid);
    if (before === undefined || step >= before.step) {
      this.#furthest.set(uid, { step, resource });
      return read;
    }
    // A watch that fell back shows an older state whole, and that is no doing of anybody's.
    if (!isNewer(resource, before.resource)) return read;
    const problem = `annotation ${annotations.generation} is an older one of this Sandbox, which somebody put back`;
    return { ok: false, problem, wasReadable: true };
  }

  /** The CR is gone. */
  forget(uid: string): void {
    this.#furthest.delete(uid);
  }
}

function stepOf({ generation, intent }: GenerationRecord): number {
  return 2 * generation.session + (intent === "running" ? 0 : 1);
}
