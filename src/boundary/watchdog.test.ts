import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Watchdog } from "./watchdog.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

it("takes for silence only what is still silent once all that waited has been read, and tells it once", async () => {
  const silences = vi.fn();
  const watchdog = new Watchdog(1_000, silences);
  vi.advanceTimersByTime(1_000);
  watchdog.touch();
  await turn();
  expect(silences).not.toHaveBeenCalled();
  vi.advanceTimersByTime(999);
  watchdog.touch();
  vi.advanceTimersByTime(1_000);
  await turn();
  vi.advanceTimersByTime(10_000);
  await turn();
  expect(silences).toHaveBeenCalledTimes(1);
});

it("tells nothing any more when it was cleared, also after its time", async () => {
  const silences = vi.fn();
  const watchdog = new Watchdog(1_000, silences);
  vi.advanceTimersByTime(1_000);
  watchdog.clear();
  await turn();
  vi.advanceTimersByTime(10_000);
  await turn();
  expect(silences).not.toHaveBeenCalled();
});
