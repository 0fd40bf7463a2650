import { cut, longestText } from "../../common/cut.ts";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";

/** When a client may expect a supervisor to be back, or a gateway that has begun to know its sandboxes, in milliseconds. */
const retryAfterMs = 2_000;

/**
 * Refuses what needs a serving sandbox.
 * @throws unavailable with RetryInfo while the workload is frozen for a new supervisor, and while a gateway that has just begun has not heard
 * of one that was READY before; failed-precondition in every other phase than READY
 */
export function requireServing(sandboxes: Sandboxes, record: SandboxRecord): void {
  const { row, status } = sandboxes.derive(record);
  if (row.phase === "READY") return;
  const isUnheardOf = row.reason === "WaitingForDriver" && sandboxes.session(record.id).frozen;
  if (row.reason === "ReplacingSupervisor" || isUnheardOf) {
    const why = isUnheardOf
      ? "the gateway has just begun and has not heard of the sandbox yet"
      : "the sandbox is frozen until its supervisor is back";
    throw new OpenShellError("unavailable", `${why}: try again shortly`, { reason: row.reason, retryAfterMs });
  }
  const ready = status.conditions.find(({ type }) => type === "Ready");
  const phase = openshell.SandboxPhase[status.phase];
  const message = cut(ready?.message ?? "", longestText);
  const why = message === "" ? "" : ` (${message})`;
  throw new OpenShellError("failed-precondition", `sandbox is not ready: it is ${phase}${why}`, {
    reason: "SandboxNotReady",
    metadata: {
      phase,
      reason: ready?.reason ?? "",
      message,
    },
  });
}
