import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { issueAuthority, issueLeaf } from "../../pki/certificates.ts";
import { openshell } from "../../wire/index.ts";
import { codeOf, inDefault, type OpenShell, TestGateway } from "../_testing.ts";
import { ruleOf } from "./rules.ts";

type Pem = Awaited<ReturnType<typeof issueAuthority>>;

const day = 24 * 3600 * 1000;
const validity = { notBefore: new Date(Date.now() - day), notAfter: new Date(Date.now() + day) };
const methods = openshell.OpenShell.methods;

let directory: string;
let test: TestGateway;
let authority: Pem;
let server: Pem;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "openshell-tls-"));
  authority = await issueAuthority({ commonName: "test CA", algorithm: "ecdsa-p256", ...validity });
  server = await serverCertificate();
  writeFiles();
  const path = (name: string) => join(directory, name);
  test = await TestGateway.start({
    mtlsUsers: true,
    allowUnauthenticatedUsers: false,
    tls: { cert: path("tls.crt"), key: path("tls.key"), clientCa: path("ca.crt") },
  });
});

afterAll(async () => {
  await test[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
});

function serverCertificate(): Promise<Pem> {
  return issueLeaf({ authority, commonName: "gateway", ipAddresses: ["127.0.0.1"], usages: ["server"], ...validity });
}

function writeFiles(): void {
  writeFileSync(join(directory, "tls.crt"), server.certPem);
  writeFileSync(join(directory, "tls.key"), server.keyPem);
  writeFileSync(join(directory, "ca.crt"), authority.certPem);
}

function user(roles: readonly string[], options: Partial<Parameters<typeof issueLeaf>[0]> = {}): Promise<Pem> {
  return issueLeaf({
    authority,
    commonName: "ann",
    organizationalUnits: [...roles],
    usages: ["client"],
    ...validity,
    ...options,
  });
}

function connect(as?: Pem): OpenShell {
  const key = as === undefined ? null : Buffer.from(as.keyPem);
  const cert = as === undefined ? null : Buffer.from(as.certPem);
  return test.connect(grpc.credentials.createSsl(Buffer.from(authority.certPem), key, cert));
}

const named = methods.map(({ name }) => name);
const wrongBearers = {
  junk: "Bearer junk",
  unsigned: `Bearer ${Buffer.from('{"alg":"none"}').toString("base64url")}.e30.`,
};

describe("every RPC", () => {
  it("is one of the contract's 84 and has a rule", () => {
    expect(methods).toHaveLength(84);
    const modes = methods.map((method) => ruleOf(method).mode);
    const count = (mode: string) => modes.filter((one) => one === mode).length;
    expect(["bearer", "sandbox", "peer", "dual", "operator", "unauthenticated"].map(count)).toEqual([
      60, 14, 5, 3, 1, 1,
    ]);
  });

  it.each(named)("%s is refused without a credential, unless it needs none", async (name) => {
    expect(await codeOf(connect(), name)).toBe(name === "Health" ? "ok" : "unauthenticated");
  });

  it.each(named)("%s is refused with a bearer token that is not valid", async (name) => {
    for (const authorization of Object.values(wrongBearers)) {
      expect(await codeOf(connect(), name, { authorization })).toBe(name === "Health" ? "ok" : "unauthenticated");
    }
  });

  it("is refused with a client certificate of another authority", async () => {
    const other = await issueAuthority({ commonName: "test CA", algorithm: "ecdsa-p256", ...validity });
    const client = connect(await user(["platform-admin"], { authority: other }));
    const codes = await Promise.all(named.map((name) => codeOf(client, name)));
    expect(new Set(codes.filter((_, index) => named[index] !== "Health"))).toEqual(new Set(["unauthenticated"]));
  });

  it("demands exactly the role of the contract from a user", async () => {
    const roles = { none: [], user: ["user"], admin: ["admin"], "platform-admin": ["platform-admin"] };
    for (const [role, units] of Object.entries(roles)) {
      const client = connect(await user(units));
      for (const method of methods) {
        const { mode, workspaceRole, globalRole } = ruleOf(method);
        if (mode !== "bearer" && mode !== "dual") continue;
        const needed = globalRole !== undefined ? 3 : workspaceRole === "admin" ? 2 : workspaceRole === "user" ? 1 : 0;
        const has = Object.keys(roles).indexOf(role);
        const code = await codeOf(client, method.name);
        expect(code === "permission-denied", `${role} calling ${method.name} got ${code}`).toBe(has < needed);
        expect(code).not.toBe("unauthenticated");
      }
    }
  }, 60_000);
});

describe("client certificates", () => {
  it("name the user and the roles", async () => {
    const client = connect(await user(["admin", "operator", "something-else"]));
    expect(await client.getCurrentUser({})).toMatchObject({
      subject: "ann",
      roles: ["admin", "operator"],
      identityProvider: "mtls",
    });
  });

  it("count only within their dates and for clients", async () => {
    const past = { notBefore: new Date(Date.now() - 2 * day), notAfter: new Date(Date.now() - day) };
    const unusable = [await user(["admin"], past), await user(["admin"], { usages: ["server"] })];
    for (const certificate of unusable) {
      await expect(connect(certificate).getCurrentUser({})).rejects.toMatchObject({
        code: "unauthenticated",
        details: { reason: "ClientCertificateMissing" },
      });
    }
  });

  it("with the role operator open GetProviderCredentials, which is then unimplemented", async () => {
    expect(await codeOf(connect(await user(["operator"])), "GetProviderCredentials")).toBe("unimplemented");
    expect(await codeOf(connect(await user(["platform-admin"])), "GetProviderCredentials")).toBe("permission-denied");
  });

  it("without platform-admin list one workspace, not all", async () => {
    const client = connect(await user(["user"]));
    await client.listSandboxes({ workspaceScope: inDefault });
    const all = { selection: { case: "allWorkspaces" as const, value: {} } };
    await expect(client.listSandboxes({ workspaceScope: all })).rejects.toMatchObject({ code: "permission-denied" });
  });

  it("are not confused with a supervisor's token on a user's RPC", async () => {
    const admin = connect(await user(["platform-admin"]));
    const { sandbox } = await admin.createSandbox({ workspaceScope: inDefault, name: "mixed" });
    const headers = { authorization: `Bearer projected.${sandbox?.metadata?.id}` };
    const { token } = await admin.issueSandboxToken({}, { headers });
    const asSupervisor = { headers: { authorization: `Bearer ${token}` } };
    await expect(
      connect().getSandbox({ workspaceScope: inDefault, name: "mixed" }, asSupervisor),
    ).rejects.toMatchObject({
      code: "unauthenticated",
    });
    await expect(connect().refreshSandboxToken({}, asSupervisor)).resolves.toMatchObject({ token: expect.any(String) });
    await expect(connect().getDraftPolicy({}, asSupervisor)).rejects.toMatchObject({ code: "unimplemented" });
  });
});

describe("the listener's certificate", () => {
  it("is exchanged without a restart, and a broken one changes nothing", async () => {
    const before = test.gateway.tls?.expires.getTime();
    writeFileSync(join(directory, "tls.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    expect(test.gateway.tls?.reload()).toBe(false);
    await connect().health({});

    authority = await issueAuthority({ commonName: "next CA", algorithm: "ecdsa-p256", ...validity });
    server = await issueLeaf({
      authority,
      commonName: "gateway",
      ipAddresses: ["127.0.0.1"],
      usages: ["server"],
      notBefore: validity.notBefore,
      notAfter: new Date(Date.now() + 2 * day),
    });
    writeFiles();
    expect(test.gateway.tls?.reload()).toBe(true);
    expect(test.gateway.tls?.expires.getTime()).not.toBe(before);
    // A client that trusts only the new CA gets through, with a certificate of the new CA.
    expect(await connect(await user(["user"])).getCurrentUser({})).toMatchObject({ subject: "ann" });
  });
});

describe("a bearer token that a gateway has no use for", () => {
  it("is refused with what users have to show there", async () => {
    const bearer = { headers: { authorization: "Bearer junk" } };
    const said = (client: OpenShell) => client.getCurrentUser({}, bearer);
    await expect(said(test.connect(grpc.credentials.createSsl(Buffer.from(authority.certPem))))).rejects.toMatchObject({
      code: "unauthenticated",
      message: "GetCurrentUser takes no bearer token at this gateway: users identify themselves by client certificate",
    });
    await using open = await TestGateway.start({ allowUnauthenticatedUsers: true });
    await expect(said(open.client)).rejects.toMatchObject({
      code: "unauthenticated",
      message: "GetCurrentUser takes no bearer token at this gateway: users need none, call without it",
    });
  });
});

describe("without any way to authenticate", () => {
  it("the gateway does not start", async () => {
    await expect(TestGateway.start({ mtlsUsers: false, allowUnauthenticatedUsers: false })).rejects.toThrow(
      /^nobody could authenticate: set mtls_auth.enabled/,
    );
    await expect(TestGateway.start({ mtlsUsers: true })).rejects.toThrow(/needs TLS and a client CA/);
  });
});
