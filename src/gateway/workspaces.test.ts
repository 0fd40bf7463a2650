import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { datamodel, openshell } from "../wire/index.ts";
import { TestGateway } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";

const { ACTIVE, TERMINATING } = datamodel.WorkspacePhase;
const { ACCEPTED, COMPLETED, ALREADY_ABSENT } = openshell.DeletionOutcome;
const team = { name: "team" };
const inTeam = { selection: { case: "workspace", value: "team" } } as const;

async function phaseOf({ client }: TestGateway): Promise<datamodel.WorkspacePhase | undefined> {
  return (await client.getWorkspace(team)).workspace?.status?.phase;
}

/** Polls the store through the API; a workspace has no watch. */
async function gone(test: TestGateway): Promise<void> {
  for (;;) {
    const left = await test.client.getWorkspace(team).catch((error: unknown) => error);
    if (left instanceof OpenShellError && left.code === "not-found") return;
  }
}

describe("a workspace", () => {
  it("is deleted with its driver's part, once", async () => {
    await using test = await TestGateway.start();
    await test.client.createWorkspace(team);
    expect((await test.client.deleteWorkspace(team)).outcome).toBe(COMPLETED);
    expect(test.driver.calls).toContain("deleteWorkspace");
    await expect(test.client.deleteWorkspace(team)).rejects.toMatchObject({ code: "not-found" });
    expect((await test.client.deleteWorkspace({ ...team, allowMissing: true })).outcome).toBe(ALREADY_ABSENT);
    await expect(test.client.deleteWorkspace({ name: "default" })).rejects.toMatchObject({
      code: "failed-precondition",
    });
  });

  it("that holds a sandbox stays as it is", async () => {
    await using test = await TestGateway.start();
    await test.client.createWorkspace(team);
    await test.client.createSandbox({ workspaceScope: inTeam, name: "one" });
    await expect(test.client.deleteWorkspace(team)).rejects.toThrow("workspace team still holds 1 sandbox");
    expect(await phaseOf(test)).toBe(ACTIVE);
    expect(test.driver.calls).not.toContain("deleteWorkspace");
  });

  it("is active again when the driver refuses to delete it", async () => {
    await using test = await TestGateway.start();
    await test.client.createWorkspace(team);
    test.driver.refuse.set("deleteWorkspace", new OpenShellError("failed-precondition", "the namespace is in use"));
    await expect(test.client.deleteWorkspace(team)).rejects.toMatchObject({
      code: "failed-precondition",
      message: "the namespace is in use",
    });
    expect(await phaseOf(test)).toBe(ACTIVE);
    await test.client.createSandbox({ workspaceScope: inTeam, name: "one" });
  });

  it("says TERMINATING and takes no sandbox while the driver cannot delete it, until it can", async () => {
    const driver = new MemoryDriver();
    const back = Promise.withResolvers<void>();
    let asked = 0;
    Object.assign(driver.implementation, {
      deleteWorkspace: async () => {
        asked += 1;
        if (asked === 1) throw new OpenShellError("unavailable", "the cluster is away");
        await back.promise;
        return {};
      },
    });
    await using test = await TestGateway.start({ driver });
    await test.client.createWorkspace(team);
    expect((await test.client.deleteWorkspace(team)).outcome).toBe(ACCEPTED);
    expect(await phaseOf(test)).toBe(TERMINATING);
    await expect(test.client.createSandbox({ workspaceScope: inTeam, name: "one" })).rejects.toMatchObject({
      code: "failed-precondition",
      details: { reason: "WorkspaceTerminating" },
    });
    await expect(test.client.createWorkspace(team)).rejects.toThrow(/is still being deleted/);
    back.resolve();
    await gone(test);
    expect(asked).toBe(2);
  });

  it("whose deletion was cut off by the gateway's end is deleted by the next one", async () => {
    const directory = mkdtempSync(join(tmpdir(), "openshell-gateway-"));
    const databasePath = join(directory, "store.db");
    const driver = new MemoryDriver();
    try {
      {
        await using test = await TestGateway.start({ databasePath, driver });
        await test.client.createWorkspace(team);
        driver.refuse.set("deleteWorkspace", new OpenShellError("unavailable", "the cluster is away"));
        expect((await test.client.deleteWorkspace(team)).outcome).toBe(ACCEPTED);
      }
      await using test = await TestGateway.start({ databasePath, driver });
      await gone(test);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
