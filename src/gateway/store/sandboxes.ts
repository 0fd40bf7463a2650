import type { DatabaseSync, StatementSync } from "node:sqlite";
import { clone, fromBinary, toBinary } from "@bufbuild/protobuf";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import type { Lifecycle } from "../sandbox/lifecycle.ts";
import { nextRevision, transaction } from "./revision.ts";
import { requireActive, workspaceNotFound } from "./workspaces.ts";

/** A sandbox as stored: the object its user sees, and what the gateway wants of it. */
export interface SandboxRecord {
  readonly id: string;
  readonly workspace: string;
  readonly name: string;
  readonly resourceVersion: number;
  /** Its metadata.resource_version equals `resourceVersion`. Not to be changed in place. */
  readonly object: openshell.Sandbox;
  readonly lifecycle: Lifecycle;
}

/** A sandbox of a list. */
export interface ListedSandbox extends SandboxRecord {
  /** Bytes that the object takes. */
  readonly bytes: number;
}

/** Where a list goes on: after this workspace and name. */
export interface ListPosition {
  readonly workspace: string;
  readonly name: string;
}

/** The table of sandboxes. Every write takes a new resource version and fails `aborted` when the object changed meanwhile. */
export class SandboxTable {
  readonly #database: DatabaseSync;
  readonly #byId: StatementSync;
  readonly #byName: StatementSync;
  readonly #workspace: StatementSync;
  readonly #insert: StatementSync;
  readonly #update: StatementSync;
  readonly #delete: StatementSync;
  readonly #listOfOne: StatementSync;
  readonly #listOfAll: StatementSync;

  constructor(database: DatabaseSync) {
    this.#database = database;
    this.#byId = database.prepare("SELECT * FROM sandboxes WHERE id = ?");
    this.#byName = database.prepare("SELECT * FROM sandboxes WHERE workspace = ? AND name = ?");
    this.#workspace = database.prepare("SELECT terminating FROM workspaces WHERE name = ?");
    this.#insert = database.prepare(
      "INSERT INTO sandboxes (id, workspace, name, resource_version, object, lifecycle) VALUES (?, ?, ?, ?, ?, ?)",
    );
    this.#update = database.prepare(
      "UPDATE sandboxes SET resource_version = ?, object = ?, lifecycle = ? WHERE id = ? AND resource_version = ?",
    );
    this.#delete = database.prepare("DELETE FROM sandboxes WHERE id = ?");
    this.#listOfOne = database.prepare("SELECT * FROM sandboxes WHERE workspace = ? AND name > ? ORDER BY name");
    this.#listOfAll = database.prepare(
      "SELECT * FROM sandboxes WHERE (workspace, name) > (?, ?) ORDER BY workspace, name",
    );
  }

  byId(id: string): SandboxRecord | undefined {
    return recordOf(this.#byId.get(id));
  }

  byName(workspace: string, name: string): SandboxRecord | undefined {
    return recordOf(this.#byName.get(workspace, name));
  }

  /**
   * @param along writes what is to be there if, and only if, the sandbox is
   * @throws already-exists when the workspace has a sandbox of this name; not-found or failed-precondition when it goes or is gone
   */
  insert(
    object: openshell.Sandbox,
    lifecycle: Lifecycle,
    along: (record: SandboxRecord) => void = () => {},
  ): SandboxRecord {
    const { id = "", workspace = "", name = "" } = object.metadata ?? {};
    return transaction(this.#database, () => {
      const row = this.#workspace.get(workspace);
      if (row === undefined) throw workspaceNotFound(workspace);
      requireActive({ name: workspace, terminating: row.terminating === 1 });
      const before = this.byName(workspace, name);
      if (before !== undefined) throw nameTaken(before);
      const resourceVersion = nextRevision(this.#database);
      const stamped = stamp(object, resourceVersion);
      this.#insert.run(id, workspace, name, resourceVersion, bytesOf(stamped), JSON.stringify(lifecycle));
      const record = { id, workspace, name, resourceVersion, object: stamped, lifecycle };
      along(record);
      return record;
    });
  }

  /**
   * Writes what `before` became. A status alone is derived: whoever told it tells it again.
   * @throws aborted when the stored object is no longer `before`
   */
  update(before: SandboxRecord, object: openshell.Sandbox, lifecycle: Lifecycle): SandboxRecord {
    const text = JSON.stringify(lifecycle);
    const write = () => {
      const resourceVersion = nextRevision(this.#database);
      const stamped = stamp(object, resourceVersion);
      const { changes } = this.#update.run(resourceVersion, bytesOf(stamped), text, before.id, before.resourceVersion);
      if (changes !== 1) {
        throw new OpenShellError("aborted", `sandbox ${before.name} was changed by someone else meanwhile: try again`);
      }
      return { ...before, resourceVersion, object: stamped, lifecycle };
    };
    return transaction(this.#database, write, { derived: text === JSON.stringify(before.lifecycle) });
  }

  /** False when it was gone already. */
  delete(id: string): boolean {
    return transaction(this.#database, () => Number(this.#delete.run(id).changes) > 0);
  }

  /**
   * Sandboxes in order of workspace and name; `workspace` undefined is all of them. Each is read when it is asked for, so that no more is
   * held than somebody wants; nothing is to be written in between.
   */
  *list(workspace: string | undefined, after?: ListPosition): Generator<ListedSandbox, void, undefined> {
    const rows =
      workspace === undefined
        ? this.#listOfAll.iterate(after?.workspace ?? "", after?.name ?? "")
        : this.#listOfOne.iterate(workspace, after?.name ?? "");
    for (const row of rows) yield { ...(recordOf(row) as SandboxRecord), bytes: (row.object as Uint8Array).length };
  }
}

/** For who wants a sandbox by the name of one that is there, or not gone yet. */
export function nameTaken({ name, workspace, lifecycle }: SandboxRecord): OpenShellError {
  const what =
    lifecycle.desired === "deleted"
      ? `is still being deleted from workspace ${workspace}: try again shortly, or choose another name`
      : `already exists in workspace ${workspace}: choose another name, or delete it first`;
  return new OpenShellError("already-exists", `sandbox ${name} ${what}`);
}

function recordOf(row: Record<string, unknown> | undefined): SandboxRecord | undefined {
  if (row === undefined) return undefined;
  return {
    id: String(row.id),
    workspace: String(row.workspace),
    name: String(row.name),
    resourceVersion: Number(row.resource_version),
    object: fromBinary(openshell.SandboxSchema, row.object as Uint8Array),
    lifecycle: JSON.parse(String(row.lifecycle)) as Lifecycle,
  };
}

function stamp(object: openshell.Sandbox, resourceVersion: number): openshell.Sandbox {
  const stamped = clone(openshell.SandboxSchema, object);
  if (stamped.metadata !== undefined) stamped.metadata.resourceVersion = BigInt(resourceVersion);
  return stamped;
}

function bytesOf(object: openshell.Sandbox): Uint8Array {
  return toBinary(openshell.SandboxSchema, object);
}
