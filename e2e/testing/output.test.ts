import { expect, it } from "vitest";
import { HeldOutput } from "./output.ts";

it("is held back until it is released, and comes at once from then on", () => {
  const shown: string[] = [];
  const output = new HeldOutput({ write: (text) => void shown.push(text) });
  output.write("a");
  output.write("b");
  expect(shown).toEqual([]);
  output.release();
  output.write("c");
  expect(shown).toEqual(["a", "b", "c"]);
});
