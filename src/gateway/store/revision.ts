import type { DatabaseSync } from "node:sqlite";
import { OpenShellError } from "../../common/errors.ts";

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
  transaction(database, () => {
    database.prepare("UPDATE counters SET value = value + ? WHERE name = 'revision'").run(gapAtStart);
  });
}

/**
 * Runs `work` as one transaction that survives a loss of power.
 *
 * @param options.derived what is written is told again by those who told it: it survives the end of this process, and a loss of power only
 *   once something else was written. It waits for no disk, and nobody waits for it.
 * @throws unavailable when the disk is full or fails
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
  try {
    database.exec("BEGIN IMMEDIATE");
    const result = work();
    database.exec("COMMIT");
    return result;
  } catch (error) {
    rollBack(database);
    throw ofDisk(error) ? unwritable(error) : error;
  }
}

/** Ends the transaction that failed. SQLite has ended it by itself where the disk was full, or failed. */
export function rollBack(database: DatabaseSync): void {
  if (database.isTransaction) database.exec("ROLLBACK");
}

/** Of an error whose cause is the disk: a program can tell it from others that pass. */
export const storeUnwritable = "StoreUnwritable";

function unwritable(cause: Error): OpenShellError {
  const message = `the gateway's store cannot be written: ${cause.message}`;
  return new OpenShellError("unavailable", message, { reason: storeUnwritable, cause });
}

/** SQLITE_IOERR and SQLITE_FULL; what is above the lowest byte says which of them. */
const diskErrors: readonly number[] = [10, 13];

function ofDisk(error: unknown): error is Error {
  return error instanceof Error && "errcode" in error && diskErrors.includes(Number(error.errcode) & 0xff);
}
