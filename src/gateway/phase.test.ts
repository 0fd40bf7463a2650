import { describe, expect, it } from "vitest";
import {
  decidePhase,
  desires,
  driverStates,
  matches,
  outcomes,
  type PhaseInput,
  phaseTable,
  phaseTableMarkdown,
  runs,
  sessionStates,
} from "./phase.ts";

const everyInput: readonly PhaseInput[] = desires.flatMap((desired) =>
  outcomes.flatMap((outcome) =>
    driverStates.flatMap((driver) =>
      sessionStates.flatMap((session) => runs.map((run) => ({ desired, outcome, driver, session, run }))),
    ),
  ),
);

const base: PhaseInput = { desired: "running", outcome: "none", driver: "running", session: "up", run: "first" };
const phaseOf = (input: Partial<PhaseInput>) => decidePhase({ ...base, ...input }).phase;

describe("the phase table", () => {
  it("answers every combination", () => {
    expect(everyInput).toHaveLength(4 * 4 * 5 * 8 * 2);
    for (const input of everyInput) {
      expect(
        phaseTable.some((candidate) => matches(candidate, input)),
        JSON.stringify(input),
      ).toBe(true);
    }
  });

  it("has no row that never decides", () => {
    const deciding = new Set(everyInput.map(decidePhase));
    expect(phaseTable.filter((candidate) => !deciding.has(candidate))).toEqual([]);
  });

  it("is READY only with a running workload, a serving session and nothing that ended or is unwanted", () => {
    for (const input of everyInput.filter((one) => decidePhase(one).phase === "READY")) {
      expect(input).toMatchObject({ outcome: "none", driver: "running" });
      expect(["up", "ended"]).toContain(input.session);
      expect(["running", "ended"]).toContain(input.desired);
    }
  });

  it("leaves STOPPED with the start, before the driver says anything", () => {
    expect(phaseOf({ desired: "stopped", driver: "stopped", session: "none" })).toBe("STOPPED");
    expect(phaseOf({ desired: "running", driver: "stopped", session: "none", run: "again" })).toBe("STARTING");
  });

  it("waits in PROVISIONING in the first run and in STARTING afterwards", () => {
    for (const driver of ["unknown", "waiting"] as const) {
      expect(phaseOf({ driver })).toBe("PROVISIONING");
      expect(phaseOf({ driver, run: "again" })).toBe("STARTING");
    }
    expect(phaseOf({ session: "none" })).toBe("PROVISIONING");
  });

  it("calls a frozen workload STARTING with the reason ReplacingSupervisor", () => {
    expect(decidePhase({ ...base, session: "frozen" })).toMatchObject({
      phase: "STARTING",
      reason: "ReplacingSupervisor",
    });
  });

  it("says COMPLETED or ERROR by the exit, whatever the Pods do meanwhile", () => {
    for (const driver of driverStates) {
      expect(phaseOf({ desired: "ended", outcome: "completed", driver })).toBe("COMPLETED");
      expect(phaseOf({ desired: "ended", outcome: "failed", driver })).toBe("ERROR");
    }
  });

  it("is an ERROR where the cluster enforces no NetworkPolicy", () => {
    expect(decidePhase({ ...base, session: "not-enforced" })).toMatchObject({
      phase: "ERROR",
      reason: "NetworkPolicyNotEnforced",
    });
  });

  it("says that a sandbox is lost whatever else it was, unless it is being deleted", () => {
    for (const input of everyInput.filter(({ desired, outcome }) => outcome === "lost" && desired !== "deleted")) {
      expect(decidePhase(input)).toMatchObject({ phase: "ERROR", reason: "ResourceDeleted" });
    }
  });

  it("deletes whatever the state is", () => {
    for (const input of everyInput.filter((one) => one.desired === "deleted")) {
      expect(decidePhase(input).phase).toBe("DELETING");
    }
  });

  it("prints one line a row for the docs", () => {
    const lines = phaseTableMarkdown().trimEnd().split("\n");
    expect(lines).toHaveLength(phaseTable.length + 2);
    expect(lines[0]).toBe("| desired | outcome | driver | session | run | phase | Ready reason | meaning |");
    expect(lines[2]).toBe(
      "| `deleted` | any | any | any | any | **DELETING** | `Deleting` | the sandbox is being deleted |",
    );
  });
});
