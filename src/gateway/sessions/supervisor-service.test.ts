import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { openshell } from "../../wire/index.ts";
import { quiet } from "../_testing.ts";
import { classifyForTests } from "../_testing-driver.ts";
import type { BootstrapPrincipal } from "../identity/principal.ts";
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
