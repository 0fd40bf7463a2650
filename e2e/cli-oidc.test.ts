/** The command line at a gateway whose users come with tokens of a real OpenID provider. */
import { mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { decodeJwt } from "jose";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { run } from "../src/cli/program.ts";
import { TestGateway } from "../src/gateway/_testing.ts";
import { approveDevice, oidcOf, publicClient, TestProvider } from "../src/gateway/identity/oidc/_test-provider.ts";

let home: string;
let provider: TestProvider;
let gateway: TestGateway;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "openshell-cli-oidc-"));
  provider = await TestProvider.start();
  gateway = await TestGateway.start({
    allowUnauthenticatedUsers: false,
    oidc: oidcOf(provider),
  });
});
afterEach(async () => {
  await gateway[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
  await rm(home, { recursive: true });
});

interface Options {
  readonly env?: Record<string, string>;
  /** Told of everything that is said on standard error. */
  readonly onSaid?: (text: string) => void;
}

async function openshell(line: string, { env = {}, onSaid = () => {} }: Options = {}) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said = { stdout: "", stderr: "" };
  stdout.on("data", (chunk: Buffer) => {
    said.stdout += chunk;
  });
  stderr.on("data", (chunk: Buffer) => {
    said.stderr += chunk;
    onSaid(String(chunk));
  });
  const signal = new AbortController().signal;
  const terminal = { stdin: new PassThrough(), stdout, stderr, env: { HOME: home, ...env }, signal };
  const code = await run(line.split(" "), terminal, "0.1.0");
  await new Promise((resolve) => setImmediate(resolve));
  return { code, ...said };
}

const add = (more = "") =>
  openshell(
    `gateway add g --endpoint http://127.0.0.1:${gateway.gateway.port} --oidc-issuer ${provider.issuer} --oidc-ca ${provider.caPath}${more}`,
  );
const files = () => join(home, ".config", "openshell", "gateways", "g");
const stored = async () => JSON.parse(await readFile(join(files(), "oidc_token.json"), "utf8"));
const secret = { OPENSHELL_OIDC_CLIENT_SECRET: "secret" };
const user = async (options: Options = {}) => JSON.parse((await openshell("status -o json", options)).stdout).user;

/** Changes the stored login, as time or another program would. */
async function change(changes: Record<string, unknown>) {
  await writeFile(join(files(), "oidc_token.json"), JSON.stringify({ ...(await stored()), ...changes }));
}

describe("a gateway with an OpenID provider", () => {
  it("is kept in the files that other clients read", async () => {
    expect(await add(" --oidc-client-id ann --oidc-scopes sandbox:read")).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(await readFile(join(files(), "metadata.json"), "utf8"))).toEqual({
      name: "g",
      gateway_endpoint: `http://127.0.0.1:${gateway.gateway.port}`,
      is_remote: false,
      gateway_port: gateway.gateway.port,
      auth_mode: "oidc",
      oidc_issuer: provider.issuer,
      oidc_client_id: "ann",
      oidc_scopes: "sandbox:read",
    });
    expect(await openshell("gateway login", { env: secret })).toEqual({
      code: 0,
      stdout: "Logged in to the gateway g.\n",
      stderr: "",
    });
    expect((await stat(join(files(), "oidc_token.json"))).mode & 0o777).toBe(0o600);
    expect(await stored()).toEqual({
      access_token: expect.any(String),
      expires_at: expect.any(Number),
      issuer: provider.issuer,
      client_id: "ann",
      client_credentials: true,
    });
  });

  it("knows a program by its secret, on every kind of call, and the token is renewed with the secret", async () => {
    await add(" --oidc-client-id ann");
    await openshell("gateway login g", { env: secret });
    expect(await user()).toBe("ann");
    expect((await openshell("sandbox create --name box --detach")).code).toBe(0);
    // A stream: create waits by watching.
    expect(await openshell("sandbox create --name other --timeout 0.2")).toMatchObject({ code: 4 });
    const { access_token: before } = await stored();
    await change({ expires_at: Math.floor(Date.now() / 1000) + 20 });
    expect(await openshell("status")).toMatchObject({
      code: 6,
      stderr: 'openshell: the login to the gateway "g" has ended: run "openshell gateway login g"\n',
    });
    expect(await user({ env: secret })).toBe("ann");
    expect((await stored()).access_token).not.toBe(before);
  });

  it("knows a person who said yes in a browser, and renews the login until it is over", async () => {
    await add();
    const approved = Promise.withResolvers<void>();
    const onSaid = (text: string) => {
      const [, code = ""] = /confirm the code (\S+)\.\n/.exec(text) ?? [];
      expect(text).toMatch(/^Open https:\/\/127\.0\.0\.1:\d+\/device\?user_code=\S+ in a browser/);
      approveDevice(provider, code, "beth").then(approved.resolve, approved.reject);
    };
    expect(await openshell("gateway login", { onSaid })).toMatchObject({ code: 0 });
    await approved.promise;
    const first = await stored();
    expect(first).toMatchObject({ refresh_token: expect.any(String), client_id: publicClient });
    expect(await user()).toBe("beth");

    await change({ expires_at: Math.floor(Date.now() / 1000) + 20 });
    expect(await user()).toBe("beth");
    const second = await stored();
    expect(decodeJwt(second.access_token).jti).not.toBe(decodeJwt(first.access_token).jti);
    // The refresh token was exchanged too: the one before is used up, and the provider ends the login of whoever shows it.
    await change({ ...first, expires_at: 1 });
    expect(await openshell("status")).toMatchObject({
      code: 6,
      stderr: 'openshell: the login to the gateway "g" has ended: run "openshell gateway login g"\n',
    });
    expect((await openshell("gateway logout")).stdout).toBe("Logged out of the gateway g.\n");
    expect(await openshell("status")).toMatchObject({
      code: 6,
      stderr: 'openshell: you are not logged in to the gateway "g": run "openshell gateway login g"\n',
    });
  }, 40_000);

  it("renews a login once, however many commands need it at the same time", async () => {
    await add();
    const onSaid = (text: string) => {
      const [, code = ""] = /confirm the code (\S+)\.\n/.exec(text) ?? [];
      void approveDevice(provider, code, "beth");
    };
    await openshell("gateway login", { onSaid });
    // The provider ends the login of whoever shows a refresh token twice, which the second round would notice.
    for (const _ of [1, 2]) {
      await change({ expires_at: Math.floor(Date.now() / 1000) + 20 });
      expect(await Promise.all([user(), user(), user()])).toEqual(["beth", "beth", "beth"]);
    }
    expect((await readdir(files())).sort()).toEqual(["metadata.json", "oidc_ca.crt", "oidc_token.json"]);
  }, 40_000);

  it("renews a login though a command that was about to is gone", async () => {
    await add(" --oidc-client-id ann");
    await openshell("gateway login g", { env: secret });
    await change({ expires_at: 1 });
    const lock = join(files(), "oidc_token.lock");
    await mkdir(lock);
    const longAgo = Date.now() / 1000 - 61;
    await utimes(lock, longAgo, longAgo);
    expect(await user({ env: secret })).toBe("ann");
  });

  it("with another provider starts without the login and the authority of the one before", async () => {
    await add(" --oidc-client-id ann");
    await openshell("gateway login g", { env: secret });
    const endpoint = `http://127.0.0.1:${gateway.gateway.port}`;
    await openshell(`gateway add g --endpoint ${endpoint} --oidc-issuer ${provider.issuer}/ --oidc-client-id ann`);
    expect(await user()).toBe("ann");
    expect((await openshell("gateway login g", { env: secret })).code).toBe(0);
    await openshell(`gateway add g --endpoint ${endpoint} --oidc-issuer https://other.example.com`);
    expect(await readdir(files())).toEqual(["metadata.json"]);
  });

  it("takes a token from a file or from the environment before the login", async () => {
    await add(" --oidc-client-id ann");
    await openshell("gateway login g", { env: secret });
    const file = join(home, "token");
    await writeFile(file, `${await provider.token("root")}\n`);
    expect(await user()).toBe("ann");
    expect(await user({ env: { OPENSHELL_BEARER_TOKEN_FILE: file } })).toBe("root");
    expect(await user({ env: { OPENSHELL_BEARER_TOKEN: await provider.token("nobody") } })).toBe("nobody");
    expect(JSON.parse((await openshell(`status -o json --bearer-token-file ${file}`)).stdout).user).toBe("root");
  });

  it("says which token it does not accept, and what to do", async () => {
    await add(" --oidc-client-id ann");
    const said = async (line: string, env = {}) => {
      const { code, stderr } = await openshell(line, { env });
      expect(stderr.trim().split("\n")).toHaveLength(1);
      return [code, stderr];
    };
    const other = await provider.token("ann", { resource: "urn:other" });
    expect(await said("status", { OPENSHELL_BEARER_TOKEN: other })).toEqual([
      6,
      'openshell: the gateway "g" does not accept the token (the bearer token is for "urn:other", not for "openshell-cli"): set $OPENSHELL_BEARER_TOKEN to a valid token\n',
    ]);
    expect(await said("status", { OPENSHELL_BEARER_TOKEN: "two words" })).toEqual([
      2,
      "openshell: $OPENSHELL_BEARER_TOKEN holds no bearer token: one word of letters, digits and -._~+/=\n",
    ]);
    expect(await said("status --bearer-token-file /no/file")).toEqual([
      3,
      expect.stringContaining("cannot read the bearer token: ENOENT"),
    ]);
    await openshell("gateway login g", { env: secret });
    await change({ access_token: other });
    expect(await said("sandbox list")).toEqual([6, expect.stringMatching(/: run "openshell gateway login g"\n$/)]);
    expect(await said("gateway login", { OPENSHELL_OIDC_CLIENT_SECRET: "wrong" })).toEqual([
      6,
      expect.stringMatching(/^openshell: https:.* refused the login: invalid_client/),
    ]);
    expect(await said("sandbox list", { OPENSHELL_BEARER_TOKEN: await provider.token("nobody") })).toEqual([
      6,
      "openshell: ListSandboxes needs the role user; nobody has no role\n",
    ]);
  });

  it("gets no login of another one, which is said", async () => {
    await openshell(
      `gateway add prod --endpoint https://127.0.0.1:1 --oidc-issuer ${provider.issuer} --oidc-client-id ann`,
    );
    await openshell("gateway login", { env: { ...secret, SSL_CERT_FILE: provider.caPath } });
    const endpoint = `http://127.0.0.1:${gateway.gateway.port}`;
    expect(await openshell(`status --gateway-endpoint ${endpoint}`)).toMatchObject({
      code: 6,
      stderr: `openshell: the gateway at ${endpoint} wants a token, and the login to "prod" goes to its own endpoint only: name it with --gateway prod to send it here\n`,
    });
    expect((await openshell(`status -o json --gateway prod --gateway-endpoint ${endpoint}`)).stdout).toContain('"ann"');
  });

  it("is not added where its tokens could be read on the way", async () => {
    const { code, stderr } = await openshell(`gateway add g --endpoint http://h:1 --oidc-issuer ${provider.issuer}`);
    expect([code, stderr]).toEqual([
      7,
      expect.stringContaining("openshell: http://h:1 is an endpoint without TLS, so that"),
    ]);
    expect((await openshell("gateway list -o json")).stdout).toBe("[]\n");
  });

  it("tells a user without a login that it wants one", async () => {
    const endpoint = `http://127.0.0.1:${gateway.gateway.port}`;
    await openshell(`gateway add plain --endpoint ${endpoint}`);
    expect(await openshell("status")).toMatchObject({
      code: 6,
      stderr: `openshell: the gateway "plain" wants a token of ${provider.issuer}: add it again with --oidc-issuer, and run "openshell gateway login plain"\n`,
    });
    expect(await openshell("gateway login")).toMatchObject({
      code: 7,
      stderr:
        'openshell: users of the gateway "plain" do not log in (auth_mode plaintext): add it again with --oidc-issuer\n',
    });
  });

  it("says that the provider cannot be reached, or is not the one that was meant", async () => {
    await openshell(`gateway add g --endpoint http://127.0.0.1:1 --oidc-issuer ${provider.issuer}`);
    expect(await openshell("gateway login g", { env: secret })).toMatchObject({
      code: 5,
      stderr: expect.stringMatching(/^openshell: cannot reach https:.*: (unable to|self-signed)/),
    });
    const env = { ...secret, SSL_CERT_FILE: provider.caPath };
    await openshell(
      `gateway add g --endpoint http://127.0.0.1:1 --oidc-issuer ${provider.issuer} --oidc-client-id root`,
    );
    expect((await openshell("gateway login g", { env })).code).toBe(0);
    await openshell(
      `gateway add g --endpoint http://127.0.0.1:1 --oidc-issuer ${provider.issuer}/realm --oidc-ca ${provider.caPath}`,
    );
    expect(await openshell("gateway login g", { env: secret })).toMatchObject({
      code: 7,
      stderr: expect.stringMatching(
        /openid-configuration answered 404: is the issuer written as the provider writes it\?\n$/,
      ),
    });
    await openshell("gateway add g --endpoint http://127.0.0.1:1 --oidc-issuer http://login.example.com");
    expect(await openshell("gateway login g", { env: secret })).toMatchObject({
      code: 2,
      stderr: 'openshell: "http://login.example.com" is no https:// URL; a login without TLS could be read by others\n',
    });
  });

  it.each([
    ["--oidc-audience a", "--oidc-… options are of no use without --oidc-issuer: name the provider"],
    ["--oidc-issuer login.example.com", '--oidc-issuer "login.example.com": write it as the provider does'],
    ["--oidc-issuer https://i --oidc-ca /etc/hostname", "the CA certificate of the OIDC provider is not PEM"],
  ])("is not added with %s", async (options, sentence) => {
    const { code, stderr } = await openshell(`gateway add g --endpoint https://h:1 ${options}`);
    expect([code, stderr]).toEqual([2, expect.stringContaining(sentence)]);
    expect((await openshell("gateway list -o json")).stdout).toBe("[]\n");
  });
});
