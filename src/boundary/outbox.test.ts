import { expect, it, vi } from "vitest";
import { Outbox } from "./outbox.ts";

it("is full for a peer that takes nothing, and never for one that takes what there is", async () => {
  const full = vi.fn();
  const outbox = new Outbox<number>(full);
  const taken = outbox[Symbol.asyncIterator]();
  for (let frame = 0; frame < 1_000; frame += 1) {
    outbox.offer(frame);
    expect((await taken.next()).value).toBe(frame);
  }
  for (let frame = 0; frame < 256; frame += 1) outbox.offer(frame);
  expect(full).not.toHaveBeenCalled();
  outbox.offer(256);
  expect(full).toHaveBeenCalledExactlyOnceWith("took none of 256 frames");
});

it("gives what waited before its end, and takes no more", async () => {
  const outbox = new Outbox<number>(() => {});
  outbox.offer(1);
  outbox.end();
  outbox.offer(2);
  const taken: number[] = [];
  for await (const frame of outbox) taken.push(frame);
  expect(taken).toEqual([1]);
});
