import type { DatabaseSync } from "node:sqlite";

/** The store's revision counter: every write of an object takes the next value as its resource_version. */
export function nextRevision(database: DatabaseSync): number {
  const row = database.prepare("UPDATE counters SET value = value + 1 WHERE name = 'revision' RETURNING value").get();
  return Number(row?.value);
}

/**
 * Revisions that a start leaves out. A power failure may take the latest derived writes along, whose revisions somebody may have seen; the log
 * of writes is made durable after a thousand pages at the latest, and each write has at least two.
 */
const gapAtStart = 1_000;

/** To be called once for each opening of a store: no revision that was ever seen is given again. */
export function skipRevisions(database: DatabaseSync): void {
  database.prepare("UPDATE counters SET value = value + ? WHERE name = 'revision'").run(gapAtStart);
}

/**
 * Runs `work` as one transaction that survives a loss of power.
 *
 * @param options.derived what is written is told again by those who told it: it survives the end of this process, and a loss of power only
 *   once something else was written. It waits for no disk, and nobody waits for it.
 */
export function transaction<T>(database: DatabaseSync, work: () => T, options: { readonly derived?: boolean } = {}): T {
  if (database.isTransaction) return work();
  if (options.derived !== true) return committed(database, work);
  database.exec("PRAGMA synchronous = NORMAL");
  try {
    return committed(database, work);
  } finally {
    database.exec("PRAGMA synchronous = FULL");
  }
}

function committed<T>(database: DatabaseSync, work: () => T): T {
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
