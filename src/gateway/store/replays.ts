import type { DatabaseSync } from "node:sqlite";
import { OpenShellError } from "../../common/errors.ts";
import { transaction } from "./revision.ts";

/** How long a request_id is remembered. */
export const replayMs = 24 * 3600 * 1000;
/** How many answers a caller may have remembered, and how many bytes of them; the oldest go first, when the table is swept. */
export const replaysPerCaller = 1000;
export const replayBytesPerCaller = 8 * 1024 * 1024;
/** A sweep reads the whole table. It follows 64 small answers, or few large ones. */
const sweepWeight = 2 * 1024 * 1024;
const leastWeight = sweepWeight / 64;

/** Answers of mutations by caller and request_id, so that a repeated request gets the first one's answer and changes nothing. */
export class ReplayTable {
  readonly #database: DatabaseSync;
  /** Weight of the answers that came since the last sweep. */
  #unswept = sweepWeight;

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /**
   * The answer given before, or undefined when this request is new.
   * @throws invalid-argument when the id was used for a different request
   */
  find(caller: string, requestId: string, fingerprint: string, now: number): Uint8Array | undefined {
    const row = this.#database
      .prepare("SELECT * FROM replays WHERE caller = ? AND request_id = ? AND created_ms > ?")
      .get(caller, requestId, now - replayMs);
    if (row === undefined) return undefined;
    if (row.fingerprint !== fingerprint) throw usedOtherwise(requestId);
    return row.response as Uint8Array;
  }

  put(caller: string, requestId: string, fingerprint: string, response: Uint8Array, now: number): void {
    transaction(this.#database, () => {
      this.#database
        .prepare(
          "INSERT OR REPLACE INTO replays (caller, request_id, fingerprint, response, created_ms) VALUES (?, ?, ?, ?, ?)",
        )
        .run(caller, requestId, fingerprint, response, now);
      this.#unswept += leastWeight + response.length;
      if (this.#unswept >= sweepWeight) this.#sweep(now);
    });
  }

  forget(caller: string, requestId: string): void {
    transaction(this.#database, () => {
      this.#database.prepare("DELETE FROM replays WHERE caller = ? AND request_id = ?").run(caller, requestId);
    });
  }

  #sweep(now: number): void {
    this.#database.prepare("DELETE FROM replays WHERE created_ms <= ?").run(now - replayMs);
    this.#database
      .prepare(
        `DELETE FROM replays WHERE rowid IN (
           SELECT id FROM (
             SELECT rowid AS id, row_number() OVER newest AS place, sum(length(response)) OVER newest AS bytes FROM replays
             WINDOW newest AS (PARTITION BY caller ORDER BY created_ms DESC, rowid DESC ROWS UNBOUNDED PRECEDING)
           ) WHERE place > ? OR (bytes > ? AND place > 1)
         )`,
      )
      .run(replaysPerCaller, replayBytesPerCaller);
    this.#unswept = 0;
  }
}

export function usedOtherwise(requestId: string): OpenShellError {
  return new OpenShellError("invalid-argument", `request_id ${requestId} was already used for a different request`, {
    violations: [{ field: "request_id", description: "belongs to a different request; use a new one" }],
  });
}
