import type { DatabaseSync } from "node:sqlite";
import { OpenShellError } from "../../common/errors.ts";
import { nextRevision, transaction } from "./revision.ts";

/** The workspace that exists from the first start. */
export const defaultWorkspace = "default";

export interface WorkspaceRecord {
  readonly id: string;
  readonly name: string;
  readonly resourceVersion: number;
  readonly createdMs: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Being deleted: it takes no sandboxes any more, and goes once the driver has let go of it. */
  readonly terminating: boolean;
}

export class WorkspaceTable {
  readonly #database: DatabaseSync;

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  byName(name: string): WorkspaceRecord | undefined {
    return recordOf(this.#database.prepare("SELECT * FROM workspaces WHERE name = ?").get(name));
  }

  /** @throws already-exists */
  insert(workspace: Omit<WorkspaceRecord, "resourceVersion" | "terminating">): WorkspaceRecord {
    return transaction(this.#database, () => {
      const before = this.byName(workspace.name);
      if (before !== undefined) {
        const what = before.terminating ? "is still being deleted: try again later" : "already exists";
        throw new OpenShellError("already-exists", `workspace ${workspace.name} ${what}`);
      }
      const resourceVersion = nextRevision(this.#database);
      const { id, name, createdMs, labels } = workspace;
      this.#database
        .prepare("INSERT INTO workspaces (id, name, resource_version, created_ms, labels) VALUES (?, ?, ?, ?, ?)")
        .run(id, name, resourceVersion, createdMs, JSON.stringify(labels));
      return { ...workspace, resourceVersion, terminating: false };
    });
  }

  /**
   * Marks an empty workspace as being deleted; undefined when it is gone already.
   * @throws failed-precondition when it still holds sandboxes
   */
  terminate(name: string): WorkspaceRecord | undefined {
    return transaction(this.#database, () => {
      const row = this.#database.prepare("SELECT count(*) AS held FROM sandboxes WHERE workspace = ?").get(name);
      const held = Number(row?.held);
      if (held > 0) {
        const what = held === 1 ? "1 sandbox" : `${held} sandboxes`;
        throw new OpenShellError("failed-precondition", `workspace ${name} still holds ${what}: delete them first`);
      }
      return this.#mark(name, true);
    });
  }

  /** Takes `terminate` back: the driver refused to let go of it. */
  restore(name: string): WorkspaceRecord | undefined {
    return transaction(this.#database, () => this.#mark(name, false));
  }

  /** Removes a workspace that was terminated; false when there is none. */
  remove(name: string): boolean {
    const remove = this.#database.prepare("DELETE FROM workspaces WHERE name = ? AND terminating = 1");
    return transaction(this.#database, () => Number(remove.run(name).changes) > 0);
  }

  /** Workspaces that are being deleted. */
  terminating(): WorkspaceRecord[] {
    const rows = this.#database.prepare("SELECT * FROM workspaces WHERE terminating = 1 ORDER BY name").all();
    return rows.map((row) => recordOf(row) as WorkspaceRecord);
  }

  /** Up to `limit` workspaces in order of name, after `after`. */
  page(after: string, limit: number): WorkspaceRecord[] {
    const rows = this.#database
      .prepare("SELECT * FROM workspaces WHERE name > ? ORDER BY name LIMIT ?")
      .all(after, limit);
    return rows.map((row) => recordOf(row) as WorkspaceRecord);
  }

  #mark(name: string, terminating: boolean): WorkspaceRecord | undefined {
    const before = this.byName(name);
    if (before === undefined || before.terminating === terminating) return before;
    const resourceVersion = nextRevision(this.#database);
    this.#database
      .prepare("UPDATE workspaces SET terminating = ?, resource_version = ? WHERE name = ?")
      .run(terminating ? 1 : 0, resourceVersion, name);
    return { ...before, terminating, resourceVersion };
  }
}

/** @throws failed-precondition */
export function requireActive({ name, terminating }: Pick<WorkspaceRecord, "name" | "terminating">): void {
  if (!terminating) return;
  throw new OpenShellError("failed-precondition", `workspace ${name} is being deleted`, {
    reason: "WorkspaceTerminating",
  });
}

export function workspaceNotFound(name: string): OpenShellError {
  return new OpenShellError("not-found", `workspace ${name} not found`, { reason: "WorkspaceNotFound" });
}

function recordOf(row: Record<string, unknown> | undefined): WorkspaceRecord | undefined {
  if (row === undefined) return undefined;
  return {
    id: String(row.id),
    name: String(row.name),
    resourceVersion: Number(row.resource_version),
    createdMs: Number(row.created_ms),
    labels: JSON.parse(String(row.labels)) as Record<string, string>,
    terminating: row.terminating === 1,
  };
}
