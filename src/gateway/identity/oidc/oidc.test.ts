import { createHmac, createPublicKey } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { decodeJwt, importJWK, type JWTPayload, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { OpenShellError } from "../../../common/errors.ts";
import { createLogger } from "../../../common/log.ts";
import { issueAuthority, issueLeaf } from "../../../pki/certificates.ts";
import { openshell } from "../../../wire/index.ts";
import { codeOf, inDefault, quiet, TestGateway } from "../../_testing.ts";
import { about } from "../../_testing-sandbox.ts";
import { ruleOf } from "../rules.ts";
import { type ClientName, clientRoles, oidcOf, scopes, TestProvider } from "./_test-provider.ts";
import { type OidcOptions, OidcUsers } from "./oidc-users.ts";

const methods = openshell.OpenShell.methods;
const usersMethods = methods.filter((method) => ["bearer", "dual"].includes(ruleOf(method).mode));

const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });

/** A gateway that knows users by the provider's tokens only. */
function gatewayOf(provider: TestProvider, more: Partial<OidcOptions> = {}): Promise<TestGateway> {
  return TestGateway.start({ oidc: oidcOf(provider, more), allowUnauthenticatedUsers: false });
}

/** Collects what is logged. */
function telling(told: string[]) {
  return createLogger({ name: "test", destination: { write: (line) => told.push(JSON.parse(line).msg) } });
}

/** A token that the provider did not issue as such: its key, other claims. */
async function forged(provider: TestProvider, claims: JWTPayload, header: { kid?: string; typ?: string } = {}) {
  const { kid, ...jwk } = provider.key;
  const now = Math.floor(Date.now() / 1000);
  const usual = { iss: provider.issuer, aud: "openshell-cli", sub: "ann", exp: now + 600, ...claims };
  const told = Object.fromEntries(Object.entries(usual).filter(([, value]) => value !== undefined));
  return new SignJWT(told)
    .setProtectedHeader({ alg: "RS256", ...(kid === undefined ? {} : { kid }), ...header })
    .sign(await importJWK(jwk as never, "RS256"));
}

describe("users by bearer token", () => {
  let provider: TestProvider;
  let test: TestGateway;

  beforeAll(async () => {
    provider = await TestProvider.start();
    test = await gatewayOf(provider);
  });
  afterAll(async () => {
    await test[Symbol.asyncDispose]();
    await provider[Symbol.asyncDispose]();
  });

  it("are who the token says, with the roles it lists", async () => {
    const who = async (client: ClientName) => test.client.getCurrentUser({}, bearer(await provider.token(client)));
    expect(await who("ann")).toMatchObject({ subject: "ann", roles: ["user"], scopes: [], identityProvider: "oidc" });
    expect(await who("root")).toMatchObject({ subject: "root", roles: ["platform-admin"] });
    expect(await who("nobody")).toMatchObject({ subject: "nobody", roles: [] });
  });

  it("are all administrators where the settings name no roles, which the log says loudly", async () => {
    const told: string[] = [];
    const anyone = { oidc: oidcOf(provider, { adminRole: "", userRole: "" }), allowUnauthenticatedUsers: false };
    await using open = await TestGateway.start({ ...anyone, log: telling(told) });
    const user = bearer(await provider.token("nobody"));
    expect(await open.client.getCurrentUser({}, user)).toMatchObject({ roles: ["platform-admin"] });
    expect(told).toContain(
      `oidc.admin_role and oidc.user_role are empty: whoever has a token of ${provider.issuer} for "openshell-cli" is a platform administrator`,
    );
  });

  it("may do exactly what the contract's roles allow, in every RPC for users", async () => {
    const level = { nobody: 0, ann: 1, root: 3 };
    for (const client of Object.keys(clientRoles) as ClientName[]) {
      const { headers } = bearer(await provider.token(client));
      for (const method of usersMethods) {
        const { workspaceRole, globalRole } = ruleOf(method);
        const needed = globalRole !== undefined ? 3 : workspaceRole === "admin" ? 2 : workspaceRole === "user" ? 1 : 0;
        const code = await codeOf(test.client, method.name, headers);
        expect(code === "permission-denied", `${client} calling ${method.name} got ${code}`).toBe(
          level[client] < needed,
        );
        expect(code, method.name).not.toBe("unauthenticated");
      }
    }
  }, 60_000);

  it("use a sandbox from its creation to its deletion, streams included", async () => {
    const { headers } = bearer(await provider.token("ann"));
    await test.client.createSandbox({ workspaceScope: inDefault, name: "box" }, { headers });
    const watched = test.client.watchSandbox({ workspaceScope: inDefault, sandbox: "box" }, { headers });
    for await (const { payload } of watched) {
      expect(payload.case).toBe("sandbox");
      break;
    }
    await test.client.deleteSandbox(about("box"), { headers });
  });

  it("and nobody else's are no users of RPCs for supervisors, operators and replicas", async () => {
    const { headers } = bearer(await provider.token("root"));
    for (const method of methods.filter((one) => !usersMethods.includes(one) && one.name !== "Health")) {
      const code = await codeOf(test.client, method.name, headers);
      expect(code, method.name).toBe(ruleOf(method).mode === "operator" ? "permission-denied" : "unauthenticated");
    }
  });

  it("live beside supervisors with their session tokens", async () => {
    const user = bearer(await provider.token("ann"));
    const { sandbox } = await test.client.createSandbox({ workspaceScope: inDefault, name: "one" }, user);
    const { token } = await test.client.issueSandboxToken({}, bearer(`projected.${sandbox?.metadata?.id}`));
    // The dual RPCs take either; whose a token is, is told by its issuer.
    for (const either of [user, bearer(token)]) {
      await expect(test.client.getDraftPolicy({}, either)).rejects.toMatchObject({ code: "unimplemented" });
    }
    await test.client.refreshSandboxToken({}, bearer(token));
    await expect(test.client.getSandbox(about("one"), bearer(token))).rejects.toMatchObject({
      code: "unauthenticated",
      message: "GetSandbox is for users; the bearer token is a supervisor's session token",
    });
    await test.client.deleteSandbox(about("one"), user);
  });

  it("are refused with a sentence that says why", async () => {
    const refusal = async (token: string, reason: string, sentence: string | RegExp) => {
      const error = await test.client.getCurrentUser({}, bearer(token)).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(OpenShellError);
      expect(error).toMatchObject({ code: "unauthenticated", details: { reason } });
      expect((error as OpenShellError).message).toMatch(sentence);
    };
    const now = Math.floor(Date.now() / 1000);
    await refusal(
      await provider.token("ann", { resource: "urn:other" }),
      "TokenAudience",
      /is for "urn:other", not for "openshell-cli"$/,
    );
    await refusal(await forged(provider, { exp: now - 61 }), "TokenExpired", /has expired: get a new one$/);
    await refusal(await forged(provider, { nbf: now + 90 }), "TokenNotYetValid", /does not count yet/);
    await refusal(
      await forged(provider, { iss: "https://evil.example.com" }),
      "TokenIssuer",
      /is of "https:\/\/evil.example.com", not of https:/,
    );
    await refusal(await forged(provider, { exp: undefined as never }), "TokenClaims", /has no usable exp claim$/);
    await refusal(await forged(provider, { sub: undefined as never }), "TokenClaims", /has no usable sub claim$/);
    await refusal(await forged(provider, { sub: " " }), "TokenClaims", /names no user/);
    await refusal(
      await forged(provider, {}, { typ: "logout+jwt" }),
      "TokenKind",
      /is a logout\+jwt, not an access token$/,
    );
    await refusal("opaque-token", "TokenMalformed", /is no signed JWT$/);
    const [head, body, signature = ""] = (await provider.token("ann")).split(".");
    const changed = `${head}.${body}.${signature.startsWith("A") ? "B" : "A"}${signature.slice(1)}`;
    await refusal(changed, "TokenSignature", /was not signed by https:/);
    await refusal(
      `${Buffer.from('{"alg":"none"}').toString("base64url")}.${body}.`,
      "TokenAlgorithm",
      /public-key algorithm$/,
    );
    // The classic: the public key taken for a shared secret.
    const { d: _, p: _p, q: _q, dp: _dp, dq: _dq, qi: _qi, ...open } = provider.key as Record<string, string>;
    const pem = createPublicKey({ key: open, format: "jwk" }).export({ type: "spki", format: "pem" });
    const hs = Buffer.from(JSON.stringify({ alg: "HS256", kid: provider.key.kid })).toString("base64url");
    const mac = createHmac("sha256", pem).update(`${hs}.${body}`).digest("base64url");
    await refusal(`${hs}.${body}.${mac}`, "TokenAlgorithm", /public-key algorithm$/);
  });

  it.each([
    [{ typ: "ID" }, "JWT", "is an ID token: show the access_token of the provider's answer, not its id_token"],
    [{ events: { "http://schemas.openid.net/event/backchannel-logout": {} } }, "JWT", "tells of an event"],
    [{ typ: "Bearer", nonce: "n" }, "JWT", undefined],
    // As Dex's access tokens are.
    [{ nonce: "n", at_hash: "h" }, undefined, undefined],
    [{}, "application/at+JWT", undefined],
  ])("come with access tokens: %j of type %s", async (claims, typ, why) => {
    const call = test.client.getCurrentUser(
      {},
      bearer(await forged(provider, claims, typ === undefined ? {} : { typ })),
    );
    if (why === undefined) expect(await call).toMatchObject({ subject: "ann" });
    else {
      await expect(call).rejects.toMatchObject({
        code: "unauthenticated",
        message: expect.stringContaining(why),
        details: { reason: "TokenKind" },
      });
    }
  });

  it("may come with an ID token where the gateway's audience is a client, and not where it is its own", async () => {
    const { access_token, id_token } = await provider.tokensOf("beth");
    expect(decodeJwt(id_token)).toMatchObject({ iss: provider.issuer, aud: "openshell-cli", sub: "beth" });
    const other = await provider.token("ann", { resource: "urn:other" });
    await using own = await gatewayOf(provider, { audience: "urn:other" });
    const codes = (client: TestGateway["client"]) =>
      Promise.all([access_token, id_token, other].map((one) => codeOf(client, "GetCurrentUser", bearer(one).headers)));
    expect(await codes(test.client)).toEqual(["ok", "ok", "unauthenticated"]);
    expect(await codes(own.client)).toEqual(["unauthenticated", "unauthenticated", "ok"]);
  });

  it("count within a minute of the provider's clock", async () => {
    const now = Math.floor(Date.now() / 1000);
    for (const claims of [{ exp: now - 30 }, { nbf: now + 30 }]) {
      await test.client.getCurrentUser({}, bearer(await forged(provider, claims)));
    }
  });

  it("are asked for a token where they show none, and for one in the right form", async () => {
    await expect(test.client.listSandboxes({ workspaceScope: inDefault })).rejects.toMatchObject({
      code: "unauthenticated",
      message: `ListSandboxes needs a bearer token of ${provider.issuer} (authorization: Bearer TOKEN)`,
      details: { reason: "CredentialMissing", metadata: { issuer: provider.issuer } },
    });
    const basic = { headers: { authorization: "Basic YTpi" } };
    await expect(test.client.getCurrentUser({}, basic)).rejects.toThrow(/not of the form: Bearer TOKEN/);
  });

  it("that have expired are over with their time, whoever holds the connection", async () => {
    let aheadMs = 0;
    await using later = await gatewayOf(provider, { now: () => Date.now() + aheadMs });
    const token = await provider.token("ann");
    await later.client.getCurrentUser({}, bearer(token));
    aheadMs = 600_000 + 61_000;
    await expect(later.client.getCurrentUser({}, bearer(token))).rejects.toMatchObject({
      details: { reason: "TokenExpired" },
    });
  });
});

describe("scopes", () => {
  it("of a token bound it to the RPCs that need them, where the settings name their claim", async () => {
    await using provider = await TestProvider.start();
    await using test = await gatewayOf(provider, { scopesClaim: "scope" });
    for (const scope of scopes) {
      const others = scopes.filter((one) => one !== scope && one !== "openshell:all").join(" ");
      const only = bearer(await provider.token("root", { scope })).headers;
      const without = bearer(await provider.token("root", { scope: others })).headers;
      for (const method of usersMethods) {
        const needed = ruleOf(method).scope;
        const isGranted = needed === undefined || needed === scope || scope === "openshell:all";
        expect((await codeOf(test.client, method.name, only)) !== "permission-denied", `${scope} ${method.name}`).toBe(
          isGranted,
        );
        if (needed === scope) expect(await codeOf(test.client, method.name, without)).toBe("permission-denied");
      }
    }
    const none = bearer(await provider.token("root"));
    await expect(test.client.listSandboxes({ workspaceScope: inDefault }, none)).rejects.toMatchObject({
      code: "permission-denied",
      message: "ListSandboxes needs the scope sandbox:read; the token of root has no scope",
      details: { reason: "ScopeMissing" },
    });
    const some = bearer(await provider.token("root", { scope: "sandbox:read" }));
    expect((await test.client.getCurrentUser({}, some)).scopes).toEqual(["sandbox:read"]);
  }, 60_000);
});

describe("the provider's keys", () => {
  it("are exchanged while the gateway runs", async () => {
    await using provider = await TestProvider.start();
    let aheadMs = 0;
    await using test = await gatewayOf(provider, { now: () => Date.now() + aheadMs });
    const before = await provider.token("ann");
    await test.client.getCurrentUser({}, bearer(before));
    expect(provider.keyFetches).toBe(1);

    await provider.rotate();
    const after = await provider.token("ann");
    aheadMs = 11_000;
    expect(await test.client.getCurrentUser({}, bearer(after))).toMatchObject({ subject: "ann" });
    expect(provider.keyFetches).toBe(2);
    // The provider no longer has the key of the tokens before.
    await expect(test.client.getCurrentUser({}, bearer(before))).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringMatching(/was not signed with a key that https:.* has now \(kid "key-/),
      details: { reason: "TokenKeyUnknown" },
    });
    await test.client.getCurrentUser({}, bearer(after));
    expect(provider.keyFetches).toBe(2);
  });

  it("are asked for once, however many tokens name keys that nobody knows", async () => {
    await using provider = await TestProvider.start();
    let aheadMs = 0;
    await using test = await gatewayOf(provider, { now: () => Date.now() + aheadMs });
    const good = bearer(await provider.token("ann"));
    await test.client.getCurrentUser({}, good);
    const flood = async () => {
      const tokens = await Promise.all(
        Array.from({ length: 200 }, (_, index) => forged(provider, {}, { kid: `unknown-${index}` })),
      );
      const codes = await Promise.all(
        tokens.map((token) => codeOf(test.client, "GetCurrentUser", bearer(token).headers)),
      );
      expect(new Set(codes)).toEqual(new Set(["unauthenticated"]));
    };
    await flood();
    expect(provider.keyFetches).toBe(1);
    for (const round of [2, 3]) {
      aheadMs += 10_000;
      await flood();
      expect(provider.keyFetches).toBe(round);
    }
    // Nor do tokens of others cost the provider anything.
    aheadMs += 10_000;
    const foreign = await forged(provider, { iss: "https://elsewhere.example.com" }, { kid: "unknown" });
    expect(await codeOf(test.client, "GetCurrentUser", bearer(foreign).headers)).toBe("unauthenticated");
    expect(provider.keyFetches).toBe(3);
    await test.client.getCurrentUser({}, good);
  });

  it("may come later than the gateway, which says so and needs no restart", async () => {
    await using provider = await TestProvider.start({ up: false });
    const told: string[] = [];
    await using test = await TestGateway.start({
      oidc: oidcOf(provider),
      allowUnauthenticatedUsers: false,
      metrics: { host: "127.0.0.1", port: 0 },
      log: telling(told),
    });
    await expect.poll(() => test.gateway.unready()).toBeUndefined();
    const token = await forged(provider, { realm_access: { roles: ["openshell-user"] } });
    await expect
      .poll(() => told)
      .toContain("the OIDC provider's keys cannot be fetched; users cannot come with its tokens until they can");
    await expect(test.client.getCurrentUser({}, bearer(token))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(
        /^the gateway cannot check bearer tokens now: cannot reach https:.*openid-configuration: .*ECONNREFUSED/,
      ),
      details: { reason: "OidcProviderUnreachable", retryAfterMs: 5_000 },
    });
    const metrics = async () => (await fetch(`http://127.0.0.1:${test.gateway.metricsPort}/metrics`)).text();
    expect(await metrics()).toContain("openshell_oidc_usable 0\n");
    await provider.up();
    const subject = () =>
      test.client.getCurrentUser({}, bearer(token)).then(
        ({ subject }) => subject,
        () => "",
      );
    await expect.poll(subject, { timeout: 10_000 }).toBe("ann");
    expect(told).toContain("the OIDC provider's keys are there; users can come with its tokens");
    expect(await metrics()).toMatch(
      /openshell_oidc_key_fetches_total\{outcome="ok"\} 1\n(.*\n)*openshell_oidc_usable 1\n/,
    );
  });

  it("count on while the provider is away, for no longer than twice their time", async () => {
    await using provider = await TestProvider.start();
    let aheadMs = 0;
    await using test = await gatewayOf(provider, { now: () => Date.now() + aheadMs, jwksTtlSeconds: 100_000 });
    const longLived = { exp: Math.floor(Date.now() / 1000) + 1_000_000 };
    const token = await forged(provider, longLived);
    await test.client.getCurrentUser({}, bearer(token));
    await provider.down();
    aheadMs = 199_000_000;
    await test.client.getCurrentUser({}, bearer(token));
    aheadMs = 200_001_000;
    await expect(test.client.getCurrentUser({}, bearer(token))).rejects.toMatchObject({ code: "unavailable" });
    await provider.up();
    aheadMs += 10_000;
    await test.client.getCurrentUser({}, bearer(token));
  });

  it("are waited for no longer than the call lasts", async () => {
    await using provider = await TestProvider.start();
    const users = new OidcUsers(oidcOf(provider), quiet);
    const token = await provider.token("ann");
    const asked = provider.hang();
    const call = new AbortController();
    const identified = users.identify(token, call.signal);
    await asked;
    call.abort();
    await expect(identified).rejects.toMatchObject({ code: "cancelled" });
  });

  it("come from nobody whose certificate is of an authority that is not trusted", async () => {
    await using provider = await TestProvider.start();
    const { caPath: _, ...untrusting } = oidcOf(provider);
    await using test = await TestGateway.start({ oidc: untrusting, allowUnauthenticatedUsers: false });
    await expect(test.client.getCurrentUser({}, bearer(await provider.token("ann")))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/cannot reach https:.*: (unable to|self-signed)/),
    });
    expect(provider.keyFetches).toBe(0);
  });
});

describe("a gateway with users of both kinds", () => {
  it("knows each, and takes the token where certificate and token are shown", async () => {
    await using provider = await TestProvider.start();
    const validity = { notBefore: new Date(Date.now() - 60_000), notAfter: new Date(Date.now() + 3_600_000) };
    const authority = await issueAuthority({ commonName: "CA", algorithm: "ecdsa-p256", ...validity });
    const issue = (commonName: string, usage: "server" | "client") =>
      issueLeaf({
        authority,
        commonName,
        organizationalUnits: ["admin"],
        ipAddresses: ["127.0.0.1"],
        usages: [usage],
        ...validity,
      });
    const directory = mkdtempSync(join(tmpdir(), "openshell-both-"));
    const file = (name: string, text: string) => {
      writeFileSync(join(directory, name), text);
      return join(directory, name);
    };
    const { certPem, keyPem } = await issue("gateway", "server");
    const ca = file("ca.crt", authority.certPem);
    await using test = await TestGateway.start({
      oidc: oidcOf(provider),
      mtlsUsers: true,
      allowUnauthenticatedUsers: false,
      tls: { cert: file("tls.crt", certPem), key: file("tls.key", keyPem), clientCa: ca },
    });
    rmSync(directory, { recursive: true });
    const pem = await issue("carl", "client");
    const buffers = [authority.certPem, pem.keyPem, pem.certPem].map((text) => Buffer.from(text));
    const withCertificate = test.connect(grpc.credentials.createSsl(buffers[0], buffers[1], buffers[2]));
    const without = test.connect(grpc.credentials.createSsl(buffers[0]));
    const token = bearer(await provider.token("ann"));
    const carl = { subject: "carl", roles: ["admin"], identityProvider: "mtls" };
    const ann = { subject: "ann", roles: ["user"], identityProvider: "oidc" };
    expect(await withCertificate.getCurrentUser({})).toMatchObject(carl);
    expect(await without.getCurrentUser({}, token)).toMatchObject(ann);
    expect(await withCertificate.getCurrentUser({}, token)).toMatchObject(ann);
    await expect(withCertificate.getCurrentUser({}, bearer("junk"))).rejects.toMatchObject({ code: "unauthenticated" });
    await expect(without.getCurrentUser({})).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringMatching(/needs a bearer token of https:.*, or a valid client certificate of this gateway/),
    });
  });

  it("ignores no token, not even where nobody needs one", async () => {
    await using provider = await TestProvider.start();
    await using test = await TestGateway.start({ oidc: oidcOf(provider), allowUnauthenticatedUsers: true });
    expect(await test.client.getCurrentUser({})).toMatchObject({ subject: "anonymous" });
    await expect(test.client.getCurrentUser({}, bearer("junk"))).rejects.toMatchObject({ code: "unauthenticated" });
  });
});
