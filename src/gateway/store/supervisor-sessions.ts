import type { DatabaseSync } from "node:sqlite";
import { transaction } from "./revision.ts";

/** Which supervisor may speak for a sandbox. No token is stored, only the session's name that tokens carry. */
export interface SupervisorSessionRecord {
  readonly sandboxId: string;
  /** In every token of the session; a new session makes the tokens of the one before void. */
  readonly sessionId: string;
  /** The pair it belongs to, as the driver names it. */
  readonly runtimeIdentity: string;
  /** Who showed the projected token: the Pod's UID, or the token's digest where there is no Pod. */
  readonly bearer: string;
  /** It reached ConnectSupervisor: from then on the same bearer gets no second session. */
  readonly connected: boolean;
  /** When its latest token was issued, in seconds since 1970. Undefined where an older gateway began it and none was issued since. */
  readonly latestIssued?: number;
}

export class SupervisorSessionTable {
  readonly #database: DatabaseSync;

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  bySandbox(sandboxId: string): SupervisorSessionRecord | undefined {
    const row = this.#database.prepare("SELECT * FROM supervisor_sessions WHERE sandbox_id = ?").get(sandboxId);
    if (row === undefined) return undefined;
    return {
      sandboxId: String(row.sandbox_id),
      sessionId: String(row.session_id),
      runtimeIdentity: String(row.runtime_identity),
      bearer: String(row.bearer),
      connected: row.connected === 1,
      ...(row.latest_issued === null ? {} : { latestIssued: Number(row.latest_issued) }),
    };
  }

  /** Whether the session is still the sandbox's. */
  isLive({ sandboxId, sessionId }: Pick<SupervisorSessionRecord, "sandboxId" | "sessionId">): boolean {
    return this.bySandbox(sandboxId)?.sessionId === sessionId;
  }

  /** Replaces whatever session the sandbox had. */
  put(record: SupervisorSessionRecord): void {
    const { sandboxId, sessionId, runtimeIdentity, bearer, connected, latestIssued = null } = record;
    const put = this.#database.prepare(
      `INSERT OR REPLACE INTO supervisor_sessions
         (sandbox_id, session_id, runtime_identity, bearer, connected, latest_issued) VALUES (?, ?, ?, ?, ?, ?)`,
    );
    transaction(this.#database, () => {
      put.run(sandboxId, sessionId, runtimeIdentity, bearer, connected ? 1 : 0, latestIssued);
    });
  }

  markConnected(sandboxId: string, sessionId: string): void {
    const mark = this.#database.prepare(
      "UPDATE supervisor_sessions SET connected = 1 WHERE sandbox_id = ? AND session_id = ?",
    );
    transaction(this.#database, () => {
      mark.run(sandboxId, sessionId);
    });
  }

  /** Remembers the latest token of a session, and waits for no disk: whoever has a later one tells that by it. */
  markLatest(sandboxId: string, sessionId: string, issued: number): void {
    const write = () =>
      this.#database
        .prepare("UPDATE supervisor_sessions SET latest_issued = ? WHERE sandbox_id = ? AND session_id = ?")
        .run(issued, sandboxId, sessionId);
    transaction(this.#database, write, { derived: true });
  }

  /** The sandbox's tokens are void from here on. */
  revoke(sandboxId: string): void {
    const revoke = this.#database.prepare("DELETE FROM supervisor_sessions WHERE sandbox_id = ?");
    transaction(this.#database, () => {
      revoke.run(sandboxId);
    });
  }
}
