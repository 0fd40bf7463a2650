import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { gatewaySchema, settingRules } from "../config/index.ts";
import { openshell } from "../wire/index.ts";
import { configPath, loadSettings, readRegularFile } from "./config-file.ts";
import { readMasterSecret } from "./master-secret.ts";
import { oidcFlags } from "./oidc-flags.ts";
import { listenersOf, type Overrides, settingOverrides } from "./overrides.ts";
import { unknownField } from "./unknown-field.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-settings-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe("the configuration file", () => {
  it("is the one asked for, else the environment's, else the user's own", () => {
    const environment = { OPENSHELL_GATEWAY_CONFIG: "/env.toml", XDG_CONFIG_HOME: directory };
    expect(configPath("/flag.toml", environment)).toBe("/flag.toml");
    expect(configPath(undefined, environment)).toBe("/env.toml");
    expect(configPath(undefined, { XDG_CONFIG_HOME: directory })).toBeUndefined();
    mkdirSync(join(directory, "openshell"));
    writeFileSync(join(directory, "openshell", "gateway.toml"), "");
    expect(configPath(undefined, { XDG_CONFIG_HOME: directory })).toBe(join(directory, "openshell", "gateway.toml"));
  });

  it("has to be a regular file", () => {
    const file = join(directory, "gateway.toml");
    writeFileSync(file, "text");
    symlinkSync(file, join(directory, "link.toml"));
    expect(readRegularFile(file)).toBe("text");
    for (const [path, reason] of [
      [join(directory, "link.toml"), "non_regular_path"],
      [directory, "non_regular_path"],
      [join(directory, "none.toml"), "missing_path"],
    ] as const) {
      expect(() => readRegularFile(path)).toThrow(
        expect.objectContaining({ details: expect.objectContaining({ reason }) }),
      );
    }
  });

  it("without a version is refused", () => {
    const file = join(directory, "gateway.toml");
    writeFileSync(file, "");
    expect(() => loadSettings(file, "serve")).toThrow(
      expect.objectContaining({ details: expect.objectContaining({ reason: "missing_version" }) }),
    );
  });
});

describe("flags over the file", () => {
  const own = [
    'bind_address = "0.0.0.0:8080"',
    'health_bind_address = "0.0.0.0:8081"',
    'master_secret_path = "/keys/master"',
    "disable_tls = true",
    "[openshell.gateway.auth]",
    "allow_unauthenticated_users = true",
    "[openshell.gateway.gateway_jwt]",
    'signing_key_path = "/jwt/signing.pem"',
    'public_key_path = "/jwt/public.pem"',
    'kid_path = "/jwt/kid"',
  ];
  const tls = ["[openshell.gateway.tls]", 'cert_path = "/tls/crt"', 'key_path = "/tls/key"'];

  function read(given: Overrides, lines: readonly string[] = own, endpoint = "http://gateway:8080") {
    const driver = ["[openshell.drivers.kubernetes]", `grpc_endpoint = "${endpoint}"`];
    const file = join(directory, "gateway.toml");
    writeFileSync(file, ["[openshell]", "version = 2", "[openshell.gateway]", ...lines, ...driver, ""].join("\n"));
    return listenersOf(loadSettings(file, "serve", settingOverrides(given)));
  }
  const without = (...keys: string[]) => own.filter((line) => !keys.some((key) => line.startsWith(key)));

  it("change address and port separately", () => {
    expect(read({}).bind).toEqual({ host: "0.0.0.0", port: 8080 });
    expect(read({ port: "9" }).bind).toEqual({ host: "0.0.0.0", port: 9 });
    expect(read({ bindAddress: "127.0.0.1" }).bind).toEqual({ host: "127.0.0.1", port: 8080 });
    expect(read({ bindAddress: "::1" }).bind).toEqual({ host: "::1", port: 8080 });
    expect(read({ bindAddress: "[::1]:7", port: "9" }).bind).toEqual({ host: "::1", port: 9 });
    expect(read({ port: "9" }, without("bind_address")).bind).toEqual({ host: "127.0.0.1", port: 9 });
  });

  it("turn the health port off with 0 and put it on the main address", () => {
    expect(read({}).health).toEqual({ host: "0.0.0.0", port: 8081 });
    expect(read({ healthPort: "0" }).health).toBeUndefined();
    expect(read({ healthPort: "1", bindAddress: "127.0.0.1" }).health).toEqual({ host: "127.0.0.1", port: 1 });
  });

  it("that make no sense are refused by name", () => {
    expect(() => read({ port: "http" })).toThrow('--port: "http" is no port (0 to 65535)');
    expect(() => read({ bindAddress: "here" })).toThrow('--bind-address: "here" is no address like');
    expect(() => read({ logLevel: "loud" })).toThrow(/openshell\.gateway\.log_level \(--log-level\): /);
  });

  it("complete a file that would be refused without them", () => {
    const plain = without("disable_tls");
    expect(() => read({}, plain)).toThrow(/has no certificate/);
    expect(read({ disableTls: true }, plain).tls).toBeUndefined();
    const given = { tlsCert: "/other/crt", tlsKey: "/other/key" };
    expect(read(given, plain, "https://gateway:8080").tls).toMatchObject({ cert: "/other/crt", key: "/other/key" });
  });

  it("over a file's certificates replace the ones they name, and --disable-tls all of them", () => {
    const withTls = [...without("disable_tls"), ...tls];
    const https = "https://gateway:8080";
    expect(read({ tlsCert: "relative.crt" }, withTls, https).tls).toEqual({
      cert: join(process.cwd(), "relative.crt"),
      key: "/tls/key",
      clientCa: undefined,
    });
    expect(read({ disableTls: true }, withTls).tls).toBeUndefined();
    expect(() => read({ disableTls: true, tlsCert: "/a", tlsKey: "/b" }, withTls)).toThrow(/remove one of the two/);
  });

  it("are held to the rules between settings", () => {
    expect(() => read({ healthPort: "8080" })).toThrow(
      /health_bind_address \(--health-port\): health_bind_address and bind_address are the same address/,
    );
    expect(() => read({ disableTls: false })).toThrow(/has no certificate/);
    const mtls = [...without("disable_tls"), "[openshell.gateway.mtls_auth]", "enabled = true", ...tls];
    expect(() => read({ disableTls: true }, mtls)).toThrow(/mtls_auth\.enabled = true needs TLS/);
    expect(() => read({}, mtls, "https://gateway:8080")).toThrow(/needs tls\.client_ca_path/);
    expect(read({ tlsClientCa: "/ca" }, mtls, "https://gateway:8080").tls?.clientCa).toBe("/ca");
  });
});

describe("the flags of OIDC", () => {
  afterEach(() => vi.unstubAllEnvs());

  const read = (argv: readonly string[]) => {
    const command = new Command().exitOverride();
    for (const flag of oidcFlags()) command.addOption(flag);
    command.parse([...argv], { from: "user" });
    const file = join(directory, "gateway.toml");
    const oidc = ["[openshell.gateway.oidc]", 'issuer = "https://file.example.com"', 'scopes_claim = "scp"'];
    writeFileSync(file, ["[openshell]", "version = 2", ...oidc, ""].join("\n"));
    return loadSettings(file, "render", settingOverrides(command.opts())).gateway.oidc;
  };

  it("say every setting over the file", () => {
    const flags = [
      ["issuer", "http://127.0.0.1:9"],
      ["audience", "other"],
      ["jwks-ttl-secs", "60"],
      ["jwks-allowed-origins", "https://a.example.com, https://b.example.com"],
      ["ca-cert-path", "/ca.crt"],
      ["roles-claim", "groups"],
      ["admin-role", "admins"],
      ["user-role", "people"],
      ["scopes-claim", "scope"],
    ].map(([name, value]) => `--oidc-${name}=${value}`);
    expect(read([...flags, "--oidc-dangerously-allow-insecure-http"])).toEqual({
      issuer: "http://127.0.0.1:9",
      audience: "other",
      jwks_ttl_secs: 60,
      jwks_allowed_origins: ["https://a.example.com", "https://b.example.com"],
      dangerously_allow_insecure_http: true,
      ca_cert_path: "/ca.crt",
      roles_claim: "groups",
      admin_role: "admins",
      user_role: "people",
      scopes_claim: "scope",
    });
    expect(read([])).toMatchObject({ issuer: "https://file.example.com", scopes_claim: "scp" });
  });

  it("come from variables too, and what makes no sense is refused by the flag's name", () => {
    vi.stubEnv("OPENSHELL_OIDC_AUDIENCE", "from-the-environment");
    vi.stubEnv("OPENSHELL_OIDC_DANGEROUSLY_ALLOW_INSECURE_HTTP", "false");
    expect(read([])).toMatchObject({ audience: "from-the-environment", dangerously_allow_insecure_http: false });
    expect(() => read(["--oidc-jwks-ttl-secs", "soon"])).toThrow(/oidc\.jwks_ttl_secs \(--oidc-jwks-ttl-secs\): /);
  });

  it("say nothing by variables that are empty, which could make everyone an administrator; only a flag empties a setting", () => {
    for (const name of ["ADMIN_ROLE", "USER_ROLE", "SCOPES_CLAIM", "ISSUER", "JWKS_TTL_SECS", "JWKS_ALLOWED_ORIGINS"]) {
      vi.stubEnv(`OPENSHELL_OIDC_${name}`, "");
    }
    const settings = { issuer: "https://file.example.com", scopes_claim: "scp", jwks_ttl_secs: 3600 };
    expect(read([])).toMatchObject({ ...settings, admin_role: "openshell-admin", user_role: "openshell-user" });
    expect(read(["--oidc-admin-role=", "--oidc-user-role="])).toMatchObject({ admin_role: "", user_role: "" });
  });
});

describe("the master secret", () => {
  const secret = Buffer.alloc(32, 7);
  const written = (content: string | Uint8Array) => {
    const file = join(directory, "master-secret");
    writeFileSync(file, content);
    return file;
  };

  it("is 32 bytes in base64, with or without an end of line", () => {
    for (const end of ["", "\n"]) {
      expect(readMasterSecret(written(secret.toString("base64") + end))).toEqual(secret);
    }
  });

  it.each([
    ["nothing", ""],
    ["raw bytes", secret],
    ["too few bytes", Buffer.alloc(31).toString("base64")],
    ["too many bytes", Buffer.alloc(48).toString("base64")],
    ["hexadecimal", secret.toString("hex")],
    ["base64 with something in it that is none", `${secret.toString("base64").slice(0, 43)}!=`],
  ])("is refused when the file holds %s, and the error says what it should hold", (_, content) => {
    const file = written(content);
    expect(() => readMasterSecret(file)).toThrow(
      `master_secret_path: ${file} does not hold 32 random bytes in base64; "head -c 32 /dev/urandom | base64" prints such a secret`,
    );
  });

  it("that cannot be read is named with its setting", () => {
    expect(() => readMasterSecret(join(directory, "none"))).toThrow(/^master_secret_path: ENOENT/);
  });

  it("is described in the settings' help and in their rules as what the gateway reads", () => {
    const rule = settingRules.find(({ keys: [key] }) => key === "openshell.gateway.master_secret_path");
    expect(rule?.sentence).toContain("32 random bytes in base64");
    expect(gatewaySchema.shape.master_secret_path.meta()?.description).toContain("32 random bytes in base64");
  });
});

describe("a sandbox file's unknown field", () => {
  const find = (json: Parameters<typeof unknownField>[1]) => unknownField(openshell.CreateSandboxRequestSchema, json);

  it("is named by its path", () => {
    expect(find({ nam: "x" })).toBe("nam");
    expect(find({ spec: { template: { imagee: "x" } } })).toBe("spec.template.imagee");
    expect(
      find({ spec: { policy: { network_policies: { web: { endpoints: [{ host: "a" }, { hots: "b" }] } } } } }),
    ).toBe("spec.policy.network_policies[web].endpoints[1].hots");
  });

  it("does not exist in either spelling, in free maps or in structs", () => {
    expect(
      find({ workspace_scope: { workspace: "a" }, spec: { restartPolicy: 1, environment: { ANY: "1" } } }),
    ).toBeUndefined();
    expect(find({ spec: { template: { driver_config: { kubernetes: { anything: 1 } } } } })).toBeUndefined();
  });
});
