import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  afterAction,
  created,
  deleteRequested,
  exitFinalized,
  exitReported,
  failed,
  failedInDriver,
  found,
  type Lifecycle,
  nextAction,
  startRequested,
  stopRequested,
  vanished,
} from "./lifecycle.ts";

/** Tells the driver everything, and what it was told. */
function converge(from: Lifecycle): { readonly to: Lifecycle; readonly calls: readonly string[] } {
  const calls: string[] = [];
  let to = from;
  for (let action = nextAction(to); action !== undefined; action = nextAction(to)) {
    calls.push(action);
    if (calls.length > 5) break;
    to = afterAction(to, action, "identity");
  }
  return { to, calls };
}

const running = converge(created()).to;

describe("a sandbox's lifecycle", () => {
  it("creates once", () => {
    expect(converge(created()).calls).toEqual(["create"]);
    expect(nextAction(running)).toBeUndefined();
  });

  it("stops, then starts a new generation", () => {
    const stopped = converge(stopRequested(running));
    expect(stopped.calls).toEqual(["stop"]);
    const started = converge(startRequested(stopped.to, "g2"));
    expect(started.calls).toEqual(["start"]);
    expect(started.to.applied).toMatchObject({ state: "running", generationId: "g2" });
  });

  it("stops the old pair before a start that overtook the stop", () => {
    expect(converge(startRequested(stopRequested(running), "g2")).calls).toEqual(["stop", "start"]);
  });

  it("starts nothing new when it runs already", () => {
    expect(startRequested(running, "g2")).toBe(running);
  });

  it("stops the pair once the main process is finalized, and keeps the exit code", () => {
    const reported = exitReported(running, "main-1", 3);
    expect(nextAction(reported)).toBeUndefined();
    const ended = exitFinalized(reported, "main-1");
    expect(nextAction(ended)).toBe("stop");
    expect(exitReported(ended, "main-1", 0).exit?.code).toBe(3);
    expect(startRequested(ended, "g2").exit).toBeUndefined();
  });

  it("ignores a finalization of another instance", () => {
    expect(exitFinalized(exitReported(running, "main-1", 0), "main-2").desired).toBe("running");
  });

  it("leaves a run that the driver ended to itself until it is started or stopped", () => {
    const ended = failedInDriver(running, "QuotaExceeded", "quota");
    expect(nextAction(ended)).toBeUndefined();
    expect(converge(startRequested(ended, "g2")).calls).toEqual(["start"]);
    expect(converge(stopRequested(ended)).calls).toEqual(["stop"]);
  });

  it("creates anew when started after its resource vanished", () => {
    const gone = vanished(running);
    expect(gone.failure?.reason).toBe("ResourceDeleted");
    expect(nextAction(gone)).toBeUndefined();
    expect(converge(startRequested(gone, "g2")).calls).toEqual(["create"]);
    // Also when the run had failed, or was stopped, before that.
    const failedBefore = vanished(failedInDriver(running, "OutOfMemory", "sentence"));
    expect(failedBefore.failure).toMatchObject({
      reason: "ResourceDeleted",
      message: expect.stringMatching(/^the sandbox's resource was deleted.*; before that: sentence$/),
    });
    for (const before of [failedBefore, vanished(converge(stopRequested(running)).to)]) {
      expect(converge(startRequested(before, "g2")).calls).toEqual(["create"]);
    }
  });

  it("stops what the driver turns out to have when the answer of its create was lost, or when it seemed to be gone", () => {
    expect(converge(found(vanished(running), false)).calls).toEqual(["stop"]);
    expect(converge(found(stopRequested(created()), false)).calls).toEqual(["stop"]);
    expect(converge(found(failed(created(), "DriverRefused", "sentence"), false)).calls).toEqual(["stop"]);
    for (const known of [created(), running, deleteRequested(created()), converge(stopRequested(running)).to]) {
      expect(found(known, false)).toBe(known);
    }
  });

  it("stops what somebody else started after it had been stopped, or had ended", () => {
    for (const over of [stopRequested(running), failedInDriver(running, "QuotaExceeded", "quota")]) {
      const { to } = converge(over);
      expect(converge(found(to, true)).calls).toEqual(["stop"]);
      expect(found(to, false)).toBe(to);
    }
    expect(found(running, true)).toBe(running);
  });

  it("is never created again once deletion was asked for, and settles whatever happened before", () => {
    const step = fc.constantFrom<(life: Lifecycle) => Lifecycle>(
      stopRequested,
      (life) => startRequested(life, "next"),
      (life) => exitReported(life, "main", 1),
      (life) => exitFinalized(life, "main"),
      (life) => failed(life, "Reason", "sentence"),
      (life) => failedInDriver(life, "Reason", "sentence"),
      (life) => found(life, false),
      (life) => found(life, true),
      vanished,
      (life) => converge(life).to,
      (life) => {
        const action = nextAction(life);
        return action === undefined ? life : afterAction(life, action);
      },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const before = steps.reduce((life, apply) => apply(life), created());
        expect(converge(before).calls.length).toBeLessThanOrEqual(2);
        const after = converge(deleteRequested(before));
        expect(after.calls).toEqual(["delete"]);
        expect(steps.reduce((life, apply) => apply(life), after.to).applied.deleting).toBe(true);
      }),
    );
  });
});
