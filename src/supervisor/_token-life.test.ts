import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { lifeOf } from "./_token-life.ts";

describe("the life of a token", () => {
  it("is the time between its iat and its exp, else its expiration, and ten minutes for anything else", () => {
    const token = (payload: string) => `h.${Buffer.from(payload).toString("base64url")}.s`;
    const at = (seconds: number) => timestampFromMs(seconds * 1000);
    expect(lifeOf(token('{"iat":10,"exp":12}'), at(99))).toBe(2_000);
    expect(lifeOf(token('{"iat":10}'), at(13))).toBe(3_000);
    const untold = ["", "opaque", token("no json"), token("{}"), token('{"exp":12}'), token('{"iat":12,"exp":12}')];
    for (const one of [...untold, token('{"iat":10,"exp":"12"}')]) expect(lifeOf(one, at(13))).toBe(600_000);
    expect(lifeOf(token('{"iat":10}'))).toBe(600_000);
  });
});
