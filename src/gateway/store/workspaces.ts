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
  insert(workspace: Omit<WorkspaceRecord, "resourceVersion">): WorkspaceRecord {
    return transaction(this.#database, () => {
      if (this.byName(workspace.name) !== undefined) {
        throw new OpenShellError("already-exists", `workspace ${workspace.name} already exists`);
      }
      const resourceVersion = nextRevision(this.#database);
      const { id, name, createdMs, labels } = workspace;
      this.#database
        .prepare("INSERT INTO workspaces VALUES (?, ?, ?, ?, ?)")
        .run(id, name, resourceVersion, createdMs, JSON.stringify(labels));
      return { ...workspace, resourceVersion };
    });
  }

  /**
   * False when it was gone already.
   * @throws failed-precondition when it still holds sandboxes
   */
  delete(name: string): boolean {
    return transaction(this.#database, () => {
      const row = this.#database.prepare("SELECT count(*) AS held FROM sandboxes WHERE workspace = ?").get(name);
      const held = Number(row?.held);
      if (held > 0) {
        const what = held === 1 ? "1 sandbox" : `${held} sandboxes`;
        throw new OpenShellError("failed-precondition", `workspace ${name} still holds ${what}: delete them first`);
      }
      return Number(this.#database.prepare("DELETE FROM workspaces WHERE name = ?").run(name).changes) > 0;
    });
  }

  /** Up to `limit` workspaces in order of name, after `after`. */
  page(after: string, limit: number): WorkspaceRecord[] {
    const rows = this.#database
      .prepare("SELECT * FROM workspaces WHERE name > ? ORDER BY name LIMIT ?")
      .all(after, limit);
    return rows.map((row) => recordOf(row) as WorkspaceRecord);
  }
}

function recordOf(row: Record<string, unknown> | undefined): WorkspaceRecord | undefined {
  if (row === undefined) return undefined;
  return {
    id: String(row.id),
    name: String(row.name),
    resourceVersion: Number(row.resource_version),
    createdMs: Number(row.created_ms),
    labels: JSON.parse(String(row.labels)) as Record<string, string>,
  };
}
