import type { compute } from "../../wire/index.ts";
import type { PhaseInput } from "../phase.ts";

/** What a reason of the driver means for the phase; the driver's door has the table. */
export type ClassifyReason = (reason: string) => "ok" | "waiting" | "failed" | "stopped" | undefined;

export interface DriverView {
  readonly state: PhaseInput["driver"];
  /** The condition that says why; absent when everything is as wanted or nothing was heard. */
  readonly because?: compute.DriverCondition;
}

/** The driver's column of the phase table, read from its conditions by the class of their reasons, never by their messages. */
export function driverView(status: compute.DriverSandboxStatus | undefined, classify: ClassifyReason): DriverView {
  if (status === undefined || status.conditions.length === 0) return { state: "unknown" };
  const classOf = (condition: compute.DriverCondition) =>
    classify(condition.reason) ?? (condition.status === "True" ? "ok" : "waiting");
  const first = (wanted: ReturnType<ClassifyReason>) => status.conditions.find((one) => classOf(one) === wanted);
  const failure = status.conditions.find((one) => classOf(one) === "failed" && one.reason !== "GenerationFailed");
  const because = failure ?? first("failed");
  if (because !== undefined) return { state: "failed", because };
  // "Stopping" is of the same class as "Stopped"; only when every Pod is gone do all conditions say the latter.
  const stopped = first("stopped");
  if (stopped !== undefined) {
    const gone = status.conditions.every((one) => one.reason === "Stopped");
    return { state: gone ? "stopped" : "waiting", because: stopped };
  }
  const waiting = first("waiting");
  return waiting === undefined ? { state: "running" } : { state: "waiting", because: waiting };
}
