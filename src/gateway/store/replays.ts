import type { DatabaseSync } from "node:sqlite";
import { OpenShellError } from "../../common/errors.ts";

/** How long a request_id is remembered. */
export const replayMs = 24 * 3600 * 1000;
/** How many a caller may have remembered; the oldest go first. */
export const replaysPerCaller = 1000;

/** Answers of mutations by caller and request_id, so that a repeated request gets the first one's answer and changes nothing. */
export class ReplayTable {
  readonly #database: DatabaseSync;

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
    this.#database
      .prepare("INSERT OR REPLACE INTO replays VALUES (?, ?, ?, ?, ?)")
      .run(caller, requestId, fingerprint, response, now);
    this.#database.prepare("DELETE FROM replays WHERE created_ms <= ?").run(now - replayMs);
    this.#database
      .prepare(
        `DELETE FROM replays WHERE caller = ?1 AND rowid NOT IN
           (SELECT rowid FROM replays WHERE caller = ?1 ORDER BY created_ms DESC, rowid DESC LIMIT ?2)`,
      )
      .run(caller, replaysPerCaller);
  }

  forget(caller: string, requestId: string): void {
    this.#database.prepare("DELETE FROM replays WHERE caller = ? AND request_id = ?").run(caller, requestId);
  }
}

export function usedOtherwise(requestId: string): OpenShellError {
  return new OpenShellError("invalid-argument", `request_id ${requestId} was already used for a different request`, {
    violations: [{ field: "request_id", description: "belongs to a different request; use a new one" }],
  });
}
