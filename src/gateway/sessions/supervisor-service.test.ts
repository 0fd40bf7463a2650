import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { openshell } from "../../wire/index.ts";
import { quiet } from "../_testing.ts";
import { classifyForTests } from "../_testing-driver.ts";
import type { BootstrapPrincipal, SandboxPrincipal } from "../identity/principal.ts";
import type { SessionTokens } from "../identity/session-tokens.ts";
import { afterAction, startRequested, stopRequested } from "../sandbox/lifecycle.ts";
import { Sandboxes } from "../sandbox/sandboxes.ts";
import { Store } from "../store/store.ts";
import { supervisorService } from "./supervisor-service.ts";
import { Supervisors } from "./supervisors.ts";

test.each(["has been started", "is being started"])(
  "the supervisor of a run that is over gets no session of the next one that %s while its token is signed",
  async (next) => {
    using store = new Store(":memory:");
    const sandboxes = new Sandboxes({ store, classify: classifyForTests });
    const metadata = { id: "id-1", name: "one", workspace: "default" };
    const { id } = sandboxes.create(create(openshell.SandboxSchema, { metadata }));
    sandboxes.change(id, (life) => afterAction(life, "create", "first"));
    const supervisors = new Supervisors({ store, sandboxes, log: quiet });
    const tokens = {
      issue: async () => {
        sandboxes.change(id, (life) => startRequested(stopRequested(life), "g2"));
        if (next === "has been started") sandboxes.change(id, (life) => afterAction(life, "start", "second"));
        return { token: "token", expiresMs: 0 };
      },
    } as unknown as SessionTokens;
    const service = supervisorService({ store, sandboxes, supervisors, tokens, log: quiet });
    const principal: BootstrapPrincipal = { kind: "bootstrap", sandboxId: id, runtimeIdentity: "first", bearer: "pod" };
    const asked = service.issueSandboxToken({} as never, { principal } as never);
    await expect(asked).rejects.toMatchObject({ code: "permission-denied" });
    expect(store.sessions.bySandbox(id)).toBeUndefined();
  },
);

test("an exit that comes when its run is over is not the next run's", async () => {
  using store = new Store(":memory:");
  const sandboxes = new Sandboxes({ store, classify: classifyForTests });
  const metadata = { id: "id-1", name: "one", workspace: "default" };
  const { id } = sandboxes.create(create(openshell.SandboxSchema, { metadata }));
  const supervisors = new Supervisors({ store, sandboxes, log: quiet });
  const service = supervisorService({ store, sandboxes, supervisors, tokens: undefined, log: quiet });
  const begin = (sessionId: string) => {
    store.sessions.put({ sandboxId: id, sessionId, runtimeIdentity: sessionId, bearer: "pod", connected: true });
    return { kind: "sandbox", sandboxId: id, sessionId } satisfies SandboxPrincipal;
  };
  // The headers of the call came, and its token was good.
  const principal = begin("first");
  sandboxes.change(id, (life) => startRequested(stopRequested(life), "g2"));
  const report = (by: SandboxPrincipal, exitCode: number) => {
    const request = create(openshell.ReportMainProcessExitRequestSchema, { sandboxId: id, instanceId: "m", exitCode });
    return service.reportMainProcessExit(request, { principal: by } as never);
  };
  const refused = { code: "unauthenticated", details: { reason: "SessionOver" } };
  await expect(report(principal, 7)).rejects.toMatchObject(refused);
  const next = begin("second");
  await expect(report(principal, 7)).rejects.toMatchObject(refused);
  await report(next, 3);
  const finalization = create(openshell.FinalizeMainProcessExitRequestSchema, { sandboxId: id, instanceId: "m" });
  const finalizing = service.finalizeMainProcessExit(finalization, { principal } as never);
  await expect(finalizing).rejects.toMatchObject(refused);
  expect(sandboxes.byId(id)?.lifecycle.exit).toEqual({ instanceId: "m", code: 3, finalized: false });
});
