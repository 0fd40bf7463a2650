/** One step of the store's schema. Within a minor steps only ever add, so that the release before still runs after a rollback. */
export interface Migration {
  /** What it brings, for the log. */
  readonly name: string;
  readonly sql: string;
  /** Releases that do not know it cannot work with the store any more. @default false */
  readonly breaks?: boolean;
}

/** In order; the number of a migration is its place in this list, counted from 1, and never changes. */
export const migrations: readonly Migration[] = [
  {
    name: "workspaces, sandboxes, supervisor sessions and replayed mutations",
    sql: `
      CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
      INSERT INTO counters VALUES ('revision', 0);

      CREATE TABLE workspaces (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        resource_version INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        labels TEXT NOT NULL
      ) STRICT;

      CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY,
        workspace TEXT NOT NULL REFERENCES workspaces (name),
        name TEXT NOT NULL,
        resource_version INTEGER NOT NULL,
        object BLOB NOT NULL,
        lifecycle TEXT NOT NULL,
        UNIQUE (workspace, name)
      ) STRICT;

      CREATE TABLE supervisor_sessions (
        sandbox_id TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
        session_id TEXT NOT NULL,
        runtime_identity TEXT NOT NULL,
        bearer TEXT NOT NULL,
        connected INTEGER NOT NULL
      ) STRICT;

      CREATE TABLE replays (
        caller TEXT NOT NULL,
        request_id TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        response BLOB NOT NULL,
        created_ms INTEGER NOT NULL,
        PRIMARY KEY (caller, request_id)
      ) STRICT;
    `,
  },
  {
    name: "workspaces that are being deleted",
    sql: "ALTER TABLE workspaces ADD COLUMN terminating INTEGER NOT NULL DEFAULT 0;",
  },
  {
    name: "when the latest token of a supervisor's session was issued",
    sql: "ALTER TABLE supervisor_sessions ADD COLUMN latest_issued INTEGER;",
  },
];
