import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { CompactSign } from "jose";
import { describe, expect, it } from "vitest";
import { sessionGrantClaims, verifySessionGrant } from "./grant.ts";
import { checkVersion, protocolVersion } from "./protocol.ts";

const claims = { sandbox: "s", generation: "g", session: 1, pod: "p", tls: "a".repeat(64) };

function keys() {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return { privateKey, pem: publicKey.export({ type: "spki", format: "pem" }).toString() };
}

function sign(payload: unknown, key: KeyObject | Uint8Array, alg = "EdDSA"): Promise<string> {
  return new CompactSign(new TextEncoder().encode(JSON.stringify(payload))).setProtectedHeader({ alg }).sign(key);
}

describe("a session grant", () => {
  it("of the generation's key gives its claims", async () => {
    const { privateKey, pem } = keys();
    expect(await verifySessionGrant(await sign(claims, privateKey), pem)).toEqual(claims);
  });

  it("of another key, altered, of another algorithm, or no grant at all is refused", async () => {
    const { privateKey, pem } = keys();
    const [header = "", , signature = ""] = (await sign(claims, privateKey)).split(".");
    const altered = Buffer.from(JSON.stringify({ ...claims, session: 9 })).toString("base64url");
    const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
    const refused = [
      await sign(claims, keys().privateKey),
      `${header}.${altered}.${signature}`,
      `${none}.${altered}.`,
      await sign(claims, new TextEncoder().encode(pem), "HS256"),
      "",
      "a.b.c",
    ];
    for (const jws of refused) {
      await expect(verifySessionGrant(jws, pem)).rejects.toMatchObject({ code: "permission-denied" });
    }
  });

  it.each([
    ["no session", { session: undefined }],
    ["session 0", { session: 0 }],
    ["half a session", { session: 1.5 }],
    ["no Pod", { pod: "" }],
    ["an upper-case hash", { tls: "A".repeat(64) }],
  ])("with %s is no grant", (_name, change) => {
    expect(sessionGrantClaims.safeParse({ ...claims, ...change }).success).toBe(false);
  });
});

describe("a peer's protocol version", () => {
  const { major, minor } = protocolVersion;

  it.each([
    [major, minor],
    [major, minor + 1],
  ])("%i.%i is served", (peerMajor, peerMinor) => {
    expect(() => checkVersion({ major: peerMajor, minor: peerMinor, build: "x" }, "supervisor")).not.toThrow();
  });

  it.each([
    [major + 1, minor],
    [major, minor + 2],
    [0, 0],
  ])("%i.%i is a skew that names both sides", (peerMajor, peerMinor) => {
    expect(() => checkVersion({ major: peerMajor, minor: peerMinor, build: "9.8.7" }, "supervisor")).toThrow(
      `the supervisor (build 9.8.7) speaks openshell.boundary ${peerMajor}.${peerMinor}, this side speaks ${major}.${minor}`,
    );
  });

  it("that is not named is a skew", () => {
    expect(() => checkVersion(undefined, "supervisor")).toThrow(/names no protocol version/);
  });
});
