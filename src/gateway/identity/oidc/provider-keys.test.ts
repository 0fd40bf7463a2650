import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, jwtVerify, SignJWT } from "jose";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { quiet } from "../../_testing.ts";
import { ProviderKeys, type ProviderKeysOptions } from "./provider-keys.ts";

let origin: string;
let handler: RequestListener;
const server = createServer((request, response) => handler(request, response));

beforeEach(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
});

/** Answers by path; a function makes the answer when it is asked. */
function answering(answers: Readonly<Record<string, unknown>>): void {
  handler = (request, response) => {
    const answer = answers[request.url ?? ""];
    if (answer === undefined) response.writeHead(404).end("{}");
    else response.end(typeof answer === "string" ? answer : JSON.stringify(answer));
  };
}

const discovery = "/.well-known/openid-configuration";

async function keyPair(kid?: string) {
  const { privateKey, publicKey } = await generateKeyPair("ES256");
  const jwk = { ...(await exportJWK(publicKey)), alg: "ES256", ...(kid === undefined ? {} : { kid }) };
  const token = (named = kid) =>
    new SignJWT({})
      .setProtectedHeader({ alg: "ES256", ...(named === undefined ? {} : { kid: named }) })
      .sign(privateKey);
  return { jwk, token };
}

function keysOf(more: Partial<ProviderKeysOptions> = {}): ProviderKeys {
  return new ProviderKeys({
    issuer: origin,
    ttlMs: 60_000,
    allowedOrigins: [],
    allowInsecureHttp: true,
    ca: () => undefined,
    log: quiet.child({}, { level: "silent" }),
    ...more,
  });
}

describe("a provider's keys", () => {
  it("are found by the provider's own document", async () => {
    const { jwk, token } = await keyPair("a");
    answering({ [discovery]: { issuer: `${origin}/`, jwks_uri: `${origin}/keys` }, "/keys": { keys: [jwk] } });
    const keys = keysOf();
    expect(keys.usable).toBe(false);
    await jwtVerify(await token(), keys.key);
    expect([keys.usable, keys.fetches]).toEqual([true, { ok: 1, failed: 0 }]);
  });

  it("are neither old nor asked for later when the gateway's clock is set", async () => {
    const [before, after] = [await keyPair("a"), await keyPair("b")];
    let served = [before.jwk];
    answering({ [discovery]: { issuer: origin, jwks_uri: `${origin}/keys` } });
    const answer = handler;
    handler = (request, response) =>
      request.url === "/keys" ? response.end(JSON.stringify({ keys: served })) : answer(request, response);
    const keys = keysOf({ cooldownMs: 0 });
    await jwtVerify(await before.token(), keys.key);
    const clock = vi.spyOn(Date, "now");
    try {
      clock.mockReturnValue(Date.now() + 86_400_000);
      expect(keys.usable).toBe(true);
      clock.mockReturnValue(Date.now() - 2 * 86_400_000);
      served = [after.jwk];
      await jwtVerify(await after.token(), keys.key);
    } finally {
      clock.mockRestore();
    }
    expect(keys.fetches).toEqual({ ok: 2, failed: 0 });
  });

  it("need no name where there is one", async () => {
    const { jwk, token } = await keyPair();
    answering({ [discovery]: { issuer: origin, jwks_uri: `${origin}/keys` }, "/keys": { keys: [jwk] } });
    await jwtVerify(await token(), keysOf().key);
  });

  const elsewhere = "https://10.0.0.1:6443/keys";
  it.each([
    [
      "a provider that is somebody else",
      () => ({ [discovery]: { issuer: "https://other.example.com", jwks_uri: `${origin}/keys` } }),
      /is the document of https:\/\/other.example.com, not of http:/,
    ],
    ["a document without keys", () => ({ [discovery]: { issuer: origin } }), /names no jwks_uri/],
    ["a document that is none", () => ({ [discovery]: { issuer: 7 } }), /is no document of an OpenID provider/],
    ["an answer that is no JSON", () => ({ [discovery]: "<html>" }), /answered 200 and no JSON/],
    ["no answer at the address", () => ({}), /answered 404/],
    ["an answer without an end", () => ({ [discovery]: " ".repeat(1024 ** 2 + 1) }), /more than 1 MiB/],
    [
      "keys at another origin",
      () => ({ [discovery]: { issuer: origin, jwks_uri: elsewhere } }),
      /keeps its keys at https:\/\/10.0.0.1:6443\/keys, which is another origin: if that is right, add https:\/\/10.0.0.1:6443 to oidc.jwks_allowed_origins/,
    ],
    [
      "keys that are none",
      () => ({ [discovery]: { issuer: origin, jwks_uri: `${origin}/keys` }, "/keys": { keys: "no" } }),
      /answered 200 and no key set/,
    ],
  ])("are not had from %s, and the reason is said", async (_, answers, why) => {
    answering(answers());
    const keys = keysOf();
    const { token } = await keyPair("a");
    await expect(jwtVerify(await token(), keys.key)).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(why),
    });
    expect(keys.fetches).toEqual({ ok: 0, failed: 1 });
  });

  it("are not fetched where a redirect leads", async () => {
    let followed = false;
    handler = (request, response) => {
      if (request.url === "/inside") followed = true;
      response.writeHead(302, { location: "/inside" }).end("{}");
    };
    const { token } = await keyPair("a");
    await expect(jwtVerify(await token(), keysOf().key)).rejects.toThrow(/answered 302/);
    expect(followed).toBe(false);
  });

  it("come without TLS only where that is allowed, and from the issuer's own origin", async () => {
    const { jwk, token } = await keyPair("a");
    answering({ [discovery]: { issuer: origin, jwks_uri: `${origin}/keys` }, "/keys": { keys: [jwk] } });
    await expect(jwtVerify(await token(), keysOf({ allowInsecureHttp: false }).key)).rejects.toThrow(/another origin/);
  });

  it("are tried for again and again while they cannot be had, and fetched once for many at a time", async () => {
    let requests = 0;
    handler = (_, response) => {
      requests += 1;
      response.writeHead(500).end("{}");
    };
    let now = 0;
    const keys = keysOf({ now: () => now });
    const { token } = await keyPair("a");
    const signed = await token();
    const ask = () => Promise.allSettled(Array.from({ length: 50 }, () => jwtVerify(signed, keys.key)));
    await ask();
    expect(requests).toBe(1);
    await ask();
    expect(requests).toBe(1);
    now = 10_000;
    await ask();
    expect(requests).toBe(2);
  });

  it("are waited for no longer than a caller has patience, and come to those after it", async () => {
    const { jwk, token } = await keyPair("a");
    const asked = Promise.withResolvers<() => void>();
    answering({ "/keys": { keys: [jwk] } });
    const others = handler;
    handler = (request, response) => {
      if (request.url !== discovery) others(request, response);
      else asked.resolve(() => response.end(JSON.stringify({ issuer: origin, jwks_uri: `${origin}/keys` })));
    };
    const keys = keysOf({ patienceMs: 1 });
    await expect(jwtVerify(await token(), keys.key)).rejects.toMatchObject({
      code: "unavailable",
      message: `the gateway cannot check bearer tokens now: ${origin} takes long to say which keys it signs with`,
      details: { retryAfterMs: 5_000 },
    });
    (await asked.promise)();
    await expect.poll(() => keys.usable).toBe(true);
    await jwtVerify(await token(), keys.key);
    expect(keys.fetches).toEqual({ ok: 1, failed: 0 });
  });

  it("are kept fresh in the background until the gateway stops", async () => {
    const { jwk } = await keyPair("a");
    answering({ [discovery]: { issuer: origin, jwks_uri: `${origin}/keys` }, "/keys": { keys: [jwk] } });
    const keys = keysOf({ ttlMs: 5 });
    const stop = new AbortController();
    const running = keys.run(stop.signal);
    await expect.poll(() => keys.fetches.ok).toBeGreaterThan(2);
    stop.abort();
    await running;
  });
});
