import { cut, longestText } from "../../common/cut.ts";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import { hasServed } from "../sandbox/lifecycle.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";

/** When a client may expect a supervisor to be back, or a gateway that has begun to know its sandboxes, in milliseconds. */
const retryAfterMs = 2_000;

const onItsWay: Readonly<Record<string, string | undefined>> = {
  WaitingForDriver: "the gateway has just begun and has not heard of the sandbox yet",
  ReplacingSupervisor: "the sandbox is frozen until its supervisor is back",
};

/**
 * Refuses what needs a serving sandbox.
 * @throws unavailable with RetryInfo while a run that was READY before is on its way to serve again: frozen for a new supervisor, which comes
 * back step by step, or not heard of yet by a gateway that has just begun; failed-precondition in every other phase than READY
 */
export function requireServing(sandboxes: Sandboxes, record: SandboxRecord): void {
  const { row, status } = sandboxes.derive(record);
  if (row.phase === "READY") return;
  const ready = status.conditions.find(({ type }) => type === "Ready");
  const phase = openshell.SandboxPhase[status.phase];
  const message = cut(ready?.message ?? "", longestText);
  const why = message === "" ? "" : ` (${message})`;
  if (row.phase === "STARTING" && (row.reason === "ReplacingSupervisor" || hasServed(record.lifecycle))) {
    const told = onItsWay[row.reason] ?? `the sandbox does not serve again yet${why}`;
    throw new OpenShellError("unavailable", `${told}: try again shortly`, { reason: row.reason, retryAfterMs });
  }
  throw new OpenShellError("failed-precondition", `sandbox is not ready: it is ${phase}${why}`, {
    reason: "SandboxNotReady",
    metadata: {
      phase,
      reason: ready?.reason ?? "",
      message,
    },
  });
}
