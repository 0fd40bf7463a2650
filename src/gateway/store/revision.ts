import type { DatabaseSync } from "node:sqlite";

/** The store's revision counter: every write of an object takes the next value as its resource_version. */
export function nextRevision(database: DatabaseSync): number {
  const row = database.prepare("UPDATE counters SET value = value + 1 WHERE name = 'revision' RETURNING value").get();
  return Number(row?.value);
}

/** Runs `work` as one transaction. */
export function transaction<T>(database: DatabaseSync, work: () => T): T {
  if (database.isTransaction) return work();
  database.exec("BEGIN IMMEDIATE");
  try {
    const result = work();
    database.exec("COMMIT");
    return result;
  } catch (error) {
    database.exec("ROLLBACK");
    throw error;
  }
}
