import { randomInt } from "node:crypto";
import type { Violations } from "./violations.ts";

/** Longest name, so that three of them joined by "--" fit one DNS label. */
export const maxName = 19;
const shape = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** True for a DNS label of at most 19 characters without "--". */
export function isName(name: string): boolean {
  return name.length <= maxName && shape.test(name) && !name.includes("--");
}

export function checkName(violations: Violations, field: string, name: string): void {
  violations.check(
    isName(name),
    field,
    `${JSON.stringify(name.slice(0, 64))} is no valid name: 1 to ${maxName} characters of a-z, 0-9 and single "-", not at either end`,
  );
}

const tempers = "able bold brave bright calm clear cool deft early fair fast fine fond free glad good kind keen".split(
  " ",
);
const animals = "auk bat bee cat cod crab crow deer dove duck elk emu fox goat hare hawk ibex jay kite lark lynx".split(
  " ",
);

/** A name nobody chose: two words and three digits. */
export function generateName(): string {
  const word = (words: readonly string[]) => words[randomInt(words.length)] as string;
  return `${word(tempers)}-${word(animals)}-${randomInt(100, 1000)}`;
}
