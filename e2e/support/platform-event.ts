import { OpenShellError } from "../../src/common/errors.ts";
import type { openshell } from "../../src/wire/index.ts";
import type { Conformance } from "./conformance.ts";
import type { TestSandbox } from "./test-sandbox.ts";

/** What a client that follows a sandbox's events was told, or is by and by. */
export async function platformEvent(
  suite: Conformance,
  sandbox: TestSandbox,
  reason: string,
  text: RegExp,
): Promise<openshell.PlatformEvent> {
  const signal = AbortSignal.timeout(30_000);
  const workspaceScope = { selection: { case: "workspace" as const, value: sandbox.workspace } };
  const others = new Set<string>();
  const request = { workspaceScope, sandbox: sandbox.name, followEvents: true };
  let cause: unknown;
  try {
    for await (const { payload } of suite.gateway.client.watchSandbox(request, { signal })) {
      if (payload.case !== "event") continue;
      const { value } = payload;
      if (value.reason === reason && text.test(value.message)) return value;
      others.add(`${value.source} ${value.reason}: ${value.message}`);
    }
  } catch (error) {
    cause = error;
  }
  const told = [...others].join("\n  ");
  throw new OpenShellError("deadline-exceeded", `no event ${reason} ${text} of ${sandbox.name}, but:\n  ${told}`, {
    cause,
  });
}
