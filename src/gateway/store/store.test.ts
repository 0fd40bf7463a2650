import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { create } from "@bufbuild/protobuf";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { openshell } from "../../wire/index.ts";
import { created, stopRequested } from "../sandbox/lifecycle.ts";
import { openDatabase } from "./database.ts";
import { migrations } from "./migrations.ts";
import { replayMs } from "./replays.ts";
import { SandboxTable } from "./sandboxes.ts";
import { Store } from "./store.ts";
import { WorkspaceTable } from "./workspaces.ts";

function sandbox(name: string, workspace = "default"): openshell.Sandbox {
  return create(openshell.SandboxSchema, {
    metadata: { id: `id-${workspace}-${name}`, name, workspace },
    spec: { environment: { A: "1" } },
  });
}

describe("the store", () => {
  it("has the workspace default from the first start, once", () => {
    using store = new Store(":memory:");
    expect(store.workspaces.page("", 10).map((one) => one.name)).toEqual(["default"]);
  });

  it("gives every write a higher resource version, in the object too", () => {
    using store = new Store(":memory:");
    const first = store.sandboxes.insert(sandbox("a"), created());
    const second = store.sandboxes.update(first, first.object, stopRequested(first.lifecycle));
    expect(second.resourceVersion).toBeGreaterThan(first.resourceVersion);
    const read = store.sandboxes.byName("default", "a");
    expect(read).toEqual(second);
    expect(read?.object.metadata?.resourceVersion).toBe(BigInt(second.resourceVersion));
    expect(first.object.metadata?.resourceVersion).toBe(BigInt(first.resourceVersion));
  });

  it("gives no version again that may have been seen before a loss of power", () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-store-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const path = join(directory, "store.db");
    const first = new Store(path);
    const { resourceVersion } = first.sandboxes.insert(sandbox("a"), created());
    first.close();
    using second = new Store(path);
    // More than the log holds before it is written out.
    expect(second.sandboxes.insert(sandbox("b"), created()).resourceVersion).toBeGreaterThan(resourceVersion + 500);
  });

  it("says that its disk is full, not that it could not take back what SQLite had taken back already", () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-store-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const database = openDatabase(join(directory, "store.db"));
    onTestFinished(() => database.close());
    const table = new SandboxTable(database);
    new WorkspaceTable(database).insert({ id: "w", name: "default", createdMs: 0, labels: {} });
    database.exec("PRAGMA max_page_count = 1");
    const large = { ...sandbox("a"), spec: create(openshell.SandboxSpecSchema, { command: ["x".repeat(400_000)] }) };
    const full = expect.objectContaining({
      code: "unavailable",
      message: "the gateway's store cannot be written: database or disk is full",
    });
    expect(() => table.insert(large, created())).toThrow(full);
    expect(() => table.insert(large, created())).toThrow(full);
    expect(table.insert(sandbox("b"), created()).name).toBe("b");
  });

  it("waits for the disk whenever what is wanted changes, and not for a status", () => {
    using store = new Store(":memory:");
    const said: string[] = [];
    const exec = vi.spyOn(DatabaseSync.prototype, "exec").mockImplementation(function (this: DatabaseSync, sql) {
      said.push(sql);
      this.prepare(sql).run();
    });
    onTestFinished(() => exec.mockRestore());
    const first = store.sandboxes.insert(sandbox("a"), created());
    const second = store.sandboxes.update(first, first.object, stopRequested(first.lifecycle));
    expect(said).toEqual(["BEGIN IMMEDIATE", "COMMIT", "BEGIN IMMEDIATE", "COMMIT"]);
    said.length = 0;
    const third = store.sandboxes.update(second, second.object, second.lifecycle);
    const derived = ["PRAGMA synchronous = NORMAL", "BEGIN IMMEDIATE", "COMMIT", "PRAGMA synchronous = FULL"];
    expect(said).toEqual(derived);
    said.length = 0;
    // Also after one that failed.
    expect(() => store.sandboxes.update(second, second.object, second.lifecycle)).toThrow(/changed by someone else/);
    expect(said).toEqual(derived.map((sql) => (sql === "COMMIT" ? "ROLLBACK" : sql)));
    expect(store.sandboxes.byName("default", "a")).toEqual(third);
  });

  it("refuses a write that is based on an older version", () => {
    using store = new Store(":memory:");
    const first = store.sandboxes.insert(sandbox("a"), created());
    store.sandboxes.update(first, first.object, first.lifecycle);
    expect(() => store.sandboxes.update(first, first.object, first.lifecycle)).toThrow(/changed by someone else/);
  });

  it("refuses a second sandbox of the same name in a workspace, and only there", () => {
    using store = new Store(":memory:");
    store.workspaces.insert({ id: "w", name: "other", createdMs: 0, labels: {} });
    store.sandboxes.insert(sandbox("a"), created());
    store.sandboxes.insert(sandbox("a", "other"), created());
    expect(() => store.sandboxes.insert(sandbox("a"), created())).toThrow(/already exists in workspace default/);
  });

  it("lists one workspace or all of them in order", () => {
    using store = new Store(":memory:");
    store.workspaces.insert({ id: "w", name: "other", createdMs: 0, labels: {} });
    for (const name of ["c", "a", "b"]) store.sandboxes.insert(sandbox(name), created());
    store.sandboxes.insert(sandbox("a", "other"), created());
    const names = (records: Iterable<{ workspace: string; name: string }>) =>
      Array.from(records, (one) => `${one.workspace}/${one.name}`);
    for (const { name } of store.sandboxes.list("default")) {
      // What somebody leaves is begun anew by the next.
      expect(name).toBe("a");
      break;
    }
    expect(names(store.sandboxes.list("default", { workspace: "default", name: "a" }))).toEqual([
      "default/b",
      "default/c",
    ]);
    expect(names(store.sandboxes.list(undefined, { workspace: "default", name: "b" }))).toEqual([
      "default/c",
      "other/a",
    ]);
  });

  it("keeps a workspace that holds sandboxes, and lets none into one that goes", () => {
    using store = new Store(":memory:");
    store.workspaces.insert({ id: "w", name: "other", createdMs: 0, labels: {} });
    const record = store.sandboxes.insert(sandbox("a", "other"), created());
    expect(() => store.workspaces.terminate("other")).toThrow("workspace other still holds 1 sandbox");
    store.sandboxes.delete(record.id);
    expect(store.workspaces.remove("other")).toBe(false);

    const before = store.workspaces.byName("other")?.resourceVersion ?? 0;
    expect(store.workspaces.terminate("other")?.resourceVersion).toBeGreaterThan(before);
    expect(() => store.sandboxes.insert(sandbox("b", "other"), created())).toThrow("workspace other is being deleted");
    expect(() => store.workspaces.insert({ id: "x", name: "other", createdMs: 0, labels: {} })).toThrow(
      /is still being deleted/,
    );
    expect(store.workspaces.terminating().map(({ name }) => name)).toEqual(["other"]);
    expect(store.workspaces.restore("other")?.terminating).toBe(false);
    expect(store.workspaces.terminate("other")?.terminating).toBe(true);
    expect(store.workspaces.remove("other")).toBe(true);
    expect(store.workspaces.terminate("other")).toBeUndefined();
    expect(() => store.sandboxes.insert(sandbox("b", "other"), created())).toThrow("workspace other not found");
  });

  it("forgets a supervisor's session with its sandbox", () => {
    using store = new Store(":memory:");
    const record = store.sandboxes.insert(sandbox("a"), created());
    const session = { sandboxId: record.id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false };
    store.sessions.put(session);
    store.sessions.markConnected(record.id, "another");
    expect(store.sessions.bySandbox(record.id)).toEqual(session);
    store.sessions.markConnected(record.id, "s1");
    expect(store.sessions.bySandbox(record.id)?.connected).toBe(true);
    store.sandboxes.delete(record.id);
    expect(store.sessions.bySandbox(record.id)).toBeUndefined();
  });

  it("remembers when a session's latest token was issued, and waits for no disk", () => {
    using store = new Store(":memory:");
    const { id } = store.sandboxes.insert(sandbox("a"), created());
    const session = { sandboxId: id, sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: false };
    store.sessions.put({ ...session, latestIssued: 1000 });
    const said: string[] = [];
    const exec = vi.spyOn(DatabaseSync.prototype, "exec").mockImplementation(function (this: DatabaseSync, sql) {
      said.push(sql);
      this.prepare(sql).run();
    });
    onTestFinished(() => exec.mockRestore());
    store.sessions.markLatest(id, "another", 3000);
    expect(store.sessions.bySandbox(id)?.latestIssued).toBe(1000);
    said.length = 0;
    store.sessions.markLatest(id, "s1", 2000);
    expect(store.sessions.bySandbox(id)?.latestIssued).toBe(2000);
    expect(said).toContain("PRAGMA synchronous = NORMAL");
  });

  it("keeps the sessions of an older release, whose latest token nobody knows", () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-store-"));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const path = join(directory, "store.db");
    const older = openDatabase(path, migrations.slice(0, 2));
    older.exec(`
      INSERT INTO workspaces VALUES ('w', 'default', 1, 0, '{}', 0);
      INSERT INTO sandboxes VALUES ('id-a', 'default', 'a', 1, x'', '{}');
      INSERT INTO supervisor_sessions VALUES ('id-a', 's1', 'r', 'pod', 1);
    `);
    older.close();
    using store = new Store(path);
    const session = { sandboxId: "id-a", sessionId: "s1", runtimeIdentity: "r", bearer: "pod", connected: true };
    expect(store.sessions.bySandbox("id-a")).toEqual(session);
  });

  it("remembers an answer for a day, for its caller and its request only", () => {
    using store = new Store(":memory:");
    store.replays.put("ann", "r1", "f", new Uint8Array([1]), 1000);
    expect(store.replays.find("ann", "r1", "f", 2000)).toEqual(new Uint8Array([1]));
    expect(store.replays.find("bob", "r1", "f", 2000)).toBeUndefined();
    expect(store.replays.find("ann", "r1", "f", 1000 + replayMs)).toBeUndefined();
    expect(() => store.replays.find("ann", "r1", "other", 2000)).toThrow(/already used for a different request/);
  });

  it("keeps of a caller's answers the newest, in number and in bytes, and at least one", () => {
    using store = new Store(":memory:");
    const kept = (caller: string, ids: readonly string[]) =>
      ids.filter((id) => store.replays.find(caller, id, "f", 10) !== undefined);
    const ids = Array.from({ length: 1_100 }, (_, index) => `r${index}`);
    for (const id of ids) store.replays.put("ann", id, "f", new Uint8Array(1), 5);
    const left = kept("ann", ids);
    expect(left.length).toBeGreaterThanOrEqual(1_000);
    expect(left.length).toBeLessThan(1_064);
    expect(left).toEqual(ids.slice(-left.length));
    const large = new Uint8Array(3 * 1024 * 1024);
    for (const id of ["a", "b", "c"]) store.replays.put("bob", id, "f", large, 5);
    expect(kept("bob", ["a", "b", "c"])).toEqual(["b", "c"]);
    store.replays.put("bob", "d", "f", new Uint8Array(9 * 1024 * 1024), 5);
    expect(kept("bob", ["a", "b", "c", "d"])).toEqual(["d"]);
    expect(kept("ann", ids)).toEqual(ids.slice(-1_000));
  });
});
