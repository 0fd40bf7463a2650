import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { OpenShellError } from "../../common/errors.ts";
import { afterAction, created, exitReported, type Lifecycle } from "../sandbox/lifecycle.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";
import { Exits } from "./exits.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("an exit that its supervisor never finalized is finalized by the gateway, also when the store fails at first", () => {
  let lifecycle = exitReported(afterAction(created(), "create"), "main", 0);
  let isFull = true;
  const change = (_id: string, transition: (before: Lifecycle) => Lifecycle) => {
    if (isFull) throw new OpenShellError("internal", "the disk is full");
    lifecycle = transition(lifecycle);
    return undefined;
  };
  const exits = new Exits({ change }, pino({ level: "silent" }));
  exits.review({ id: "one", lifecycle } as SandboxRecord);
  vi.advanceTimersByTime(30_000);
  expect(lifecycle.exit?.finalized).toBe(false);
  isFull = false;
  vi.advanceTimersByTime(30_000);
  expect(lifecycle).toMatchObject({ exit: { finalized: true }, desired: "ended" });
  expect(vi.getTimerCount()).toBe(0);
  exits.close();
});
