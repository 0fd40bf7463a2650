import fc from "fast-check";
import { importPKCS8, SignJWT } from "jose";
import { describe, expect, it, vi } from "vitest";
import { OpenShellError } from "../../common/errors.ts";
import { tokenKeys } from "../_testing.ts";
import { deleteRequested, failed, stopRequested } from "../sandbox/lifecycle.ts";
import { claimsOf, gatewayId, keys, sandboxId, TokenGateway, ttlSeconds } from "./_testing-renewal.ts";

const refused = (reason: string) => ({ code: "unauthenticated", details: { reason } });
const invalid = refused("SessionTokenInvalid");
const outage = 30 * 24 * 3600;

/** A gateway, and the token with which its supervisor is connected. */
async function connected(lives?: { readonly ttlSeconds?: number }) {
  const gateway = await TokenGateway.start(lives);
  const token = await gateway.issue();
  await gateway.connect(token);
  return { gateway, token };
}

describe("a session token that has run out", () => {
  it("is renewed when it is the latest of its session, however long ago it ran out", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(outage);
    const next = await gateway.renew(token);
    await gateway.use(next);
    expect(claimsOf(next)).toMatchObject({ sid: claimsOf(token).sid, exp: gateway.now + ttlSeconds });
  });

  it("is taken by no RPC but the one that renews it", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(ttlSeconds - 1);
    await gateway.use(token);
    gateway.pass(1);
    await expect(gateway.use(token)).rejects.toMatchObject(invalid);
    await expect(gateway.connect(token)).rejects.toMatchObject(invalid);
    await gateway.renew(token);
    await expect(gateway.use(token)).rejects.toMatchObject(invalid);
  });

  it("is refused when a later one was given for it while it lived, though the answer may have been lost", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(2400);
    const lost = await gateway.renew(token);
    const next = await gateway.renew(token);
    expect(next).not.toBe(lost);
    gateway.pass(outage);
    await expect(gateway.renew(token)).rejects.toMatchObject({
      ...invalid,
      message: "the session token has run out, and it is not the latest of its session",
    });
    await gateway.renew(next);
  });

  it("is renewed again when the answer was lost, until the supervisor connects with a later one", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(outage);
    const lost = await gateway.renew(token);
    gateway.pass(10);
    const next = await gateway.renew(token);
    await gateway.connect(next);
    await expect(gateway.renew(token)).rejects.toMatchObject(invalid);
    gateway.pass(outage);
    await expect(gateway.renew(lost)).rejects.toMatchObject(invalid);
    await gateway.renew(next);
  });

  it("is renewed when a loss of power took along that it was issued", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    const before = gateway.store.sessions.bySandbox(sandboxId);
    gateway.pass(2400);
    const next = await gateway.renew(token);
    if (before !== undefined) gateway.store.sessions.put(before);
    gateway.pass(outage);
    await gateway.connect(await gateway.renew(next));
    await expect(gateway.renew(token)).rejects.toMatchObject(invalid);
  });

  it.each([
    ["renewed", (gateway: TokenGateway, token: string) => gateway.renew(token)],
    [
      "connected",
      async (gateway: TokenGateway, token: string) => {
        await gateway.connect(token);
        return token;
      },
    ],
  ])("is refused when an older gateway issued it and it was not %s since", async (_what, come) => {
    const { gateway, token } = await connected();
    using _ = gateway;
    const sessionId = claimsOf(token).sid ?? "";
    const older = { sandboxId, sessionId, runtimeIdentity: "first", bearer: "pod", connected: true };
    gateway.store.sessions.put(older);
    gateway.pass(ttlSeconds);
    await expect(gateway.renew(token)).rejects.toMatchObject(invalid);
    gateway.pass(-1);
    const next = await come(gateway, token);
    gateway.pass(outage);
    await gateway.renew(next);
  });

  it("is renewed after the gateway's clock was set back", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(-10 * ttlSeconds);
    const next = await gateway.renew(token);
    await gateway.connect(next);
    gateway.pass(2 * ttlSeconds);
    await gateway.renew(next);
  });

  it("is refused when another supervisor has the session", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(outage);
    gateway.pod = "pod-2";
    await gateway.issue();
    await expect(gateway.renew(token)).rejects.toMatchObject(refused("SessionOver"));
  });

  it.each([
    ["was stopped", stopRequested],
    ["was deleted", deleteRequested],
    ["failed", (life: Parameters<typeof failed>[0]) => failed(life, "Reason", "message")],
  ])("is refused when its sandbox %s, which a live one is not", async (_what, transition) => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.sandboxes.change(sandboxId, transition);
    gateway.pass(ttlSeconds - 1);
    const live = await gateway.renew(token);
    gateway.pass(outage);
    await expect(gateway.renew(live)).rejects.toMatchObject({
      ...refused("SessionOver"),
      message: "the session token has run out, and its sandbox is not meant to run now",
    });
  });

  it("gives its Pod no second session", async () => {
    const { gateway } = await connected();
    using _ = gateway;
    gateway.pass(outage);
    await expect(gateway.issue()).rejects.toMatchObject({ code: "permission-denied" });
  });
});

describe("a token that this gateway never issued", () => {
  const foreign = tokenKeys();
  const name = `openshell-gateway:${gatewayId}`;
  /** What the test's gateway would issue, at a time that is over, changed. */
  const forgeries: Readonly<Record<string, Readonly<Record<string, unknown>> & { readonly by?: string }>> = {
    "has another's signature": { by: foreign.signingPem },
    "is another gateway's": { iss: "openshell-gateway:other", aud: "openshell-gateway:other" },
    "is another gateway's, for this one": { iss: "openshell-gateway:other" },
    "is this one's, for another gateway": { aud: "openshell-gateway:other" },
    "counts from a moment that is to come": { nbf: Number.MAX_SAFE_INTEGER },
    "was issued in the future": { iat: Number.MAX_SAFE_INTEGER },
    "does not say when it was issued": { iat: undefined },
    "says in words when it ended": { exp: "long ago" },
    "ended at no time that is one": { exp: -1e300 },
    "is nobody's": { sub: undefined },
    "is of no session": { sid: undefined },
  };

  it.each(Object.entries(forgeries))("is not renewed: it %s", async (_what, { by = keys.signingPem, ...changed }) => {
    const { gateway, token } = await connected();
    using _ = gateway;
    gateway.pass(outage);
    const claims = { ...claimsOf(token), iss: name, aud: name, sub: `sandbox:${sandboxId}` };
    const signed = async (payload: Record<string, unknown>) =>
      new SignJWT(payload).setProtectedHeader({ alg: "EdDSA" }).sign(await importPKCS8(by, "EdDSA"));
    await expect(gateway.renew(await signed({ ...claims, ...changed }))).rejects.toMatchObject({
      ...invalid,
      message: "the bearer token is not a valid session token of this gateway",
    });
    // It is the change that is refused.
    if (by === keys.signingPem) await gateway.renew(await signed(claims));
  });
});

describe("a session token", () => {
  it("that lives for ever is renewed at any time", async () => {
    const { gateway, token } = await connected({});
    using _ = gateway;
    gateway.pass(outage);
    const next = await gateway.renew(token);
    gateway.pass(outage);
    for (const one of [token, next]) await gateway.use(await gateway.renew(one));
  });

  it("is renewed when the store cannot remember it", async () => {
    const { gateway, token } = await connected();
    using _ = gateway;
    const full = vi.spyOn(gateway.store.sessions, "markLatest").mockImplementation(() => {
      throw new OpenShellError("internal", "the disk is full");
    });
    const warned = vi.spyOn(gateway.log, "warn").mockReturnValue(undefined);
    const next = await gateway.renew(token);
    expect(warned).toHaveBeenCalledOnce();
    full.mockRestore();
    gateway.pass(outage);
    await gateway.renew(next);
  });

  it("outlives any outage where its holder connects with what it gets, and no older one does", async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constantFrom("renewed", "lost"), seconds: fc.integer({ min: 1, max: 3 * ttlSeconds }) }),
      fc.record({ kind: fc.constant("restarted without the disk"), seconds: fc.constant(1) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        const { gateway, token } = await connected();
        using _ = gateway;
        let held = token;
        const past: string[] = [];
        let kept = gateway.store.sessions.bySandbox(sandboxId);
        for (const { kind, seconds } of steps) {
          gateway.pass(seconds);
          const lives = gateway.now < (claimsOf(held).exp ?? 0);
          // Of a live one the answer may be lost as long as it is renewed in time, as a supervisor does.
          if (kind === "lost" && !lives) past.push(await gateway.renew(held));
          if (kind === "restarted without the disk" && kept !== undefined) gateway.store.sessions.put(kept);
          if (kind !== "renewed") continue;
          kept = gateway.store.sessions.bySandbox(sandboxId);
          past.push(held);
          held = await gateway.renew(held);
          await gateway.connect(held);
        }
        gateway.pass(1);
        const last = await gateway.renew(held);
        await gateway.connect(last);
        gateway.pass(2 * ttlSeconds);
        for (const one of past) await expect(gateway.renew(one)).rejects.toMatchObject(invalid);
        await gateway.renew(last);
      }),
      { numRuns: 50 },
    );
  });
});
