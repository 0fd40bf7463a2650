import { existsSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { OpenShellError } from "../../common/errors.ts";
import { migrations as allMigrations, type Migration } from "./migrations.ts";
import { rollBack, skipRevisions } from "./revision.ts";

/** In the table of counters, which every schema has. */
const oldestReaderName = "oldest_schema_that_reads";

/** The file behind a `sqlite:` URL; `sqlite::memory:` keeps everything in memory. */
export function pathOfUrl(url: string): string {
  const path = url.startsWith("sqlite:") ? url.slice("sqlite:".length).replace(/^\/\/(?=\/)/, "") : "";
  if (path === "") {
    throw new OpenShellError("invalid-argument", `database URL ${JSON.stringify(url)}: expected sqlite:/path/to/file`);
  }
  return path;
}

/**
 * Opens the database and brings its schema up to date, one transaction per migration, after a copy of the file beside it. What a newer release
 * has only added to is used as it is.
 * @throws failed-precondition when a newer release wrote a schema that this one cannot work with; unavailable when the file cannot be opened
 */
export function openDatabase(path: string, migrations: readonly Migration[] = allMigrations): DatabaseSync {
  const database = connect(path);
  try {
    const found = schemaVersion(database);
    if (found > migrations.length && migrations.length < oldestReader(database)) {
      throw new OpenShellError(
        "failed-precondition",
        `${path} has schema ${found}, this release knows ${migrations.length}: run the newer release that wrote it, or restore the copy ${backupPath(path, migrations.length)}`,
      );
    }
    for (let version = found; version < migrations.length; version += 1) {
      if (version > 0) copyAside(database, path, version);
      apply(database, migrations[version] as Migration, version + 1);
    }
    skipRevisions(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** Where the copy made before leaving schema `version` lies. */
export function backupPath(path: string, version: number): string {
  return `${path}.schema-${version}.backup`;
}

function connect(path: string): DatabaseSync {
  try {
    const database = new DatabaseSync(path, { enableForeignKeyConstraints: true, timeout: 5000 });
    // FULL: what was answered survives a node that loses power, or a created sandbox would be nobody's. What is derived need not.
    database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    return database;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("unavailable", `cannot open the store ${path}: ${reason}`, { cause });
  }
}

function schemaVersion(database: DatabaseSync): number {
  return Number(database.prepare("PRAGMA user_version").get()?.user_version ?? 0);
}

/** The lowest schema version whose releases can work with the store. A store without a mark is older than marks. */
function oldestReader(database: DatabaseSync): number {
  const row = database.prepare("SELECT value FROM counters WHERE name = ?").get(oldestReaderName);
  return row === undefined ? Number.POSITIVE_INFINITY : Number(row.value);
}

function copyAside(database: DatabaseSync, path: string, version: number): void {
  if (path === ":memory:") return;
  const copy = backupPath(path, version);
  if (existsSync(copy)) rmSync(copy);
  database.prepare("VACUUM INTO ?").run(copy);
}

function apply(database: DatabaseSync, migration: Migration, version: number): void {
  database.exec("BEGIN IMMEDIATE");
  try {
    database.exec(migration.sql);
    const reader = migration.breaks ? version : 1;
    database
      .prepare(
        "INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)",
      )
      .run(oldestReaderName, reader);
    database.exec(`PRAGMA user_version = ${version}`);
    database.exec("COMMIT");
  } catch (cause) {
    rollBack(database);
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("internal", `store migration ${version} (${migration.name}) failed: ${reason}`, { cause });
  }
}
