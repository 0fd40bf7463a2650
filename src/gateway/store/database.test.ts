import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { backupPath, openDatabase, pathOfUrl } from "./database.ts";
import { migrations } from "./migrations.ts";

let directory: string;
let path: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-store-"));
  path = join(directory, "store.db");
});
afterEach(() => rmSync(directory, { recursive: true }));

const addColumn = { name: "a column", sql: "ALTER TABLE workspaces ADD COLUMN note TEXT NOT NULL DEFAULT ''" };

describe("the store's schema", () => {
  it("is created in WAL mode and opens again unchanged", () => {
    openDatabase(path).close();
    const again = openDatabase(path);
    expect(again.prepare("PRAGMA journal_mode").get()).toEqual({ journal_mode: "wal" });
    expect(again.prepare("PRAGMA user_version").get()).toEqual({ user_version: migrations.length });
    again.close();
  });

  it("is copied aside before a later migration runs", () => {
    openDatabase(path).close();
    openDatabase(path, [...migrations, addColumn]).close();
    const copy = new DatabaseSync(backupPath(path, migrations.length));
    expect(copy.prepare("PRAGMA user_version").get()).toEqual({ user_version: migrations.length });
    copy.close();
  });

  it("keeps the old schema when a migration fails half way", () => {
    openDatabase(path).close();
    const broken = { name: "broken", sql: `${addColumn.sql}; SELECT * FROM nowhere;` };
    expect(() => openDatabase(path, [...migrations, broken])).toThrow(/migration \d+ \(broken\) failed: no such table/);
    const after = openDatabase(path);
    expect(() => after.prepare("SELECT note FROM workspaces")).toThrow(/no such column/);
    after.close();
  });

  it("says that a migration found no room, and not that it could not be taken back", () => {
    openDatabase(path).close();
    const large = { name: "large", sql: "PRAGMA max_page_count = 40; CREATE TABLE x AS SELECT zeroblob(400000)" };
    const opening = () => openDatabase(path, [...migrations, large]);
    expect(opening).toThrow(/migration \d+ \(large\) failed: database or disk is full/);
  });

  it("of a newer release that only added to it is used as it is", () => {
    openDatabase(path, [...migrations, addColumn]).close();
    const rolledBack = openDatabase(path);
    expect(rolledBack.prepare("PRAGMA user_version").get()).toEqual({ user_version: migrations.length + 1 });
    rolledBack.close();
    // It goes on where it was when the newer release comes back.
    const upgraded = openDatabase(path, [...migrations, addColumn]);
    expect(upgraded.prepare("SELECT note FROM workspaces").all()).toEqual([]);
    upgraded.close();
  });

  it("is written to by the names of its columns alone, so that one more does no harm", () => {
    const sources = readdirSync(import.meta.dirname).filter((name) => /(?<!\.test|migrations)\.ts$/.test(name));
    const inserts = sources.flatMap(
      (name) => readFileSync(join(import.meta.dirname, name), "utf8").match(/INSERT[\w ]* INTO \w+\s+\S/g) ?? [],
    );
    expect(inserts).toHaveLength(5);
    for (const insert of inserts) expect(insert).toMatch(/\($/);
  });

  it("of a newer release that this one cannot work with is refused with what to do, also when more was added later", () => {
    openDatabase(path, [...migrations, { ...addColumn, breaks: true }]).close();
    const refusal = (found: number) =>
      `${path} has schema ${found}, this release knows ${migrations.length}: run the newer release that wrote it`;
    expect(() => openDatabase(path)).toThrow(refusal(migrations.length + 1));
    const later = { name: "another", sql: "ALTER TABLE workspaces ADD COLUMN more TEXT" };
    openDatabase(path, [...migrations, { ...addColumn, breaks: true }, later]).close();
    expect(() => openDatabase(path)).toThrow(refusal(migrations.length + 2));
  });

  it("reports a file that cannot be opened in one sentence", () => {
    expect(() => openDatabase(join(directory, "missing", "store.db"))).toThrow(/^cannot open the store .*store\.db: /);
  });

  it("is found by a sqlite URL only", () => {
    expect(pathOfUrl("sqlite:/var/openshell/openshell.db")).toBe("/var/openshell/openshell.db");
    expect(pathOfUrl("sqlite:///a/b.db")).toBe("/a/b.db");
    expect(pathOfUrl("sqlite::memory:")).toBe(":memory:");
    expect(() => pathOfUrl("postgres://db")).toThrow(/expected sqlite:/);
  });
});
