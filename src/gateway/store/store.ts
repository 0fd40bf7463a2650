import type { DatabaseSync } from "node:sqlite";
import { openDatabase } from "./database.ts";
import { ReplayTable } from "./replays.ts";
import { SandboxTable } from "./sandboxes.ts";
import { SupervisorSessionTable } from "./supervisor-sessions.ts";
import { defaultWorkspace, WorkspaceTable } from "./workspaces.ts";

/** Everything the gateway remembers, in one SQLite file. Calls are synchronous, and durable when they return unless they say otherwise. */
export class Store implements Disposable {
  readonly #database: DatabaseSync;
  readonly sandboxes: SandboxTable;
  readonly workspaces: WorkspaceTable;
  readonly sessions: SupervisorSessionTable;
  readonly replays: ReplayTable;

  /** @param path a file, or ":memory:" */
  constructor(path: string, now: () => number = Date.now) {
    this.#database = openDatabase(path);
    this.sandboxes = new SandboxTable(this.#database);
    this.workspaces = new WorkspaceTable(this.#database);
    this.sessions = new SupervisorSessionTable(this.#database);
    this.replays = new ReplayTable(this.#database);
    if (this.workspaces.byName(defaultWorkspace) === undefined) {
      this.workspaces.insert({ id: crypto.randomUUID(), name: defaultWorkspace, createdMs: now(), labels: {} });
    }
  }

  get isOpen(): boolean {
    return this.#database.isOpen;
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
