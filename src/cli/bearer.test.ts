import { execFileSync } from "node:child_process";
import { readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { TestUser } from "./_test-gateway.ts";
import { type Bearer, givenBearer, storedBearer } from "./bearer.ts";
import { configDirectory, GatewayDirectory, parseEndpoint } from "./gateways.ts";

/** The refresh of a token is asked for, and answered when the test says so. */
let refresh: { readonly asked: PromiseWithResolvers<void>; readonly answered: PromiseWithResolvers<void> };

const server = createServer(async (request, response) => {
  const issuer = issuerOf();
  if (request.url?.startsWith("/.well-known/")) {
    response.end(JSON.stringify({ issuer, token_endpoint: `${issuer}/token` }));
    return;
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk as Uint8Array);
  const form = new URLSearchParams(Buffer.concat(chunks).toString());
  if (form.get("grant_type") === "client_credentials") {
    response.end(JSON.stringify({ access_token: "bob", expires_in: 600 }));
    return;
  }
  refresh.asked.resolve();
  await refresh.answered.promise;
  response.end(JSON.stringify({ access_token: "alice-renewed", refresh_token: "alice-2", expires_in: 600 }));
});

const issuerOf = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

let user: TestUser;
let directory: GatewayDirectory;
let alice: Bearer;

/** Alice is logged in to the gateway "prod", and her token ends soon. */
beforeEach(async () => {
  refresh = { asked: Promise.withResolvers(), answered: Promise.withResolvers() };
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = issuerOf();
  user = await TestUser.create();
  directory = new GatewayDirectory(configDirectory({ XDG_CONFIG_HOME: join(user.home, "config") }));
  await directory.add("prod", parseEndpoint("https://gateway.example.com"), undefined, { issuer });
  await directory.storeToken("prod", { access_token: "alice", refresh_token: "alice-1", expires_at: 1, issuer });
  alice = storedBearer(directory, "prod", { issuer, clientId: "openshell-cli" }, {});
});
afterEach(async () => {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
  await user[Symbol.asyncDispose]();
});

const never = new AbortController().signal;
const accessToken = async () => (await directory.token("prod"))?.access_token;
const tokenPath = () => join(directory.path, "gateways", "prod", "oidc_token.json");

describe("a token in a file", () => {
  it("is read for each call, and once where it is no regular file", async () => {
    const file = join(user.home, "token");
    await writeFile(file, "first\n");
    const renewed = givenBearer(file, {});
    expect(await renewed?.token(never)).toBe("first");
    await writeFile(file, "second\n");
    expect(await renewed?.token(never)).toBe("second");
    // As a shell makes it of <(command).
    const pipe = join(user.home, "pipe");
    execFileSync("mkfifo", [pipe]);
    const once = givenBearer(pipe, {});
    const [, token] = await Promise.all([writeFile(pipe, "piped\n"), once?.token(never)]);
    expect([token, await once?.token(never)]).toEqual(["piped", "piped"]);
  });
});

describe("a login that is being renewed", () => {
  it("is renewed once for all who ask", async () => {
    const other = storedBearer(directory, "prod", { issuer: issuerOf(), clientId: "openshell-cli" }, {});
    const tokens = Promise.all([alice.token(never), alice.token(never), other.token(never)]);
    await refresh.asked.promise;
    refresh.answered.resolve();
    expect(await tokens).toEqual(["alice-renewed", "alice-renewed", "alice-renewed"]);
    expect(await directory.token("prod")).toMatchObject({ access_token: "alice-renewed", refresh_token: "alice-2" });
    expect((await readdir(join(directory.path, "gateways", "prod"))).sort()).toEqual([
      "metadata.json",
      "oidc_token.json",
    ]);
  });

  describe.each([
    ["logout", ["gateway", "logout", "prod"], undefined, "Logged out of the gateway prod.\n"],
    ["login", ["gateway", "login", "prod"], "bob", "Logged in to the gateway prod.\n"],
    ["remove", ["gateway", "remove", "prod"], undefined, "Gateway prod removed.\n"],
  ])("meanwhile", (what, line, expected, sentence) => {
    it(`${what} waits for the renewal, and what it did stays`, async () => {
      const renewal = alice.token(never);
      await refresh.asked.promise;
      const command = user.openshell(line, { env: { OPENSHELL_OIDC_CLIENT_SECRET: "s" } });
      // Time enough for a command that does not wait.
      await Promise.race([command, delay(300)]);
      refresh.answered.resolve();
      expect(await command).toEqual({ code: 0, stdout: sentence, stderr: "" });
      expect(await renewal).toBe("alice-renewed");
      expect(await accessToken()).toBe(expected);
      expect(await readdir(join(directory.path, "gateways"))).toEqual(what === "remove" ? [] : ["prod"]);
    });

    it(`${what} ends at an interrupt while it waits`, async () => {
      await using _lock = await directory.lockToken("prod", never);
      const signal = AbortSignal.timeout(300);
      expect(await user.openshell(line, { signal, env: { OPENSHELL_OIDC_CLIENT_SECRET: "s" } })).toMatchObject({
        code: 130,
        stdout: "",
      });
      expect(await accessToken()).toBe("alice");
    });
  });

  it("is not given up for a new one that could not be stored", async () => {
    const asked = vi.fn();
    void refresh.asked.promise.then(asked);
    const full = vi
      .spyOn(directory, "checkStorable")
      .mockRejectedValue(new OpenShellError("failed-precondition", "no space"));
    try {
      await expect(alice.token(never)).rejects.toMatchObject({ message: "no space" });
    } finally {
      full.mockRestore();
    }
    expect(asked).not.toHaveBeenCalled();
    await rm(directory.path, { recursive: true });
    await expect(directory.checkStorable("prod", { access_token: "x" })).rejects.toMatchObject({ code: "not-found" });
  });

  it("is over when a client that knows no lock logged out meanwhile", async () => {
    const renewal = alice.token(never);
    await refresh.asked.promise;
    await rm(tokenPath());
    refresh.answered.resolve();
    await expect(renewal).rejects.toMatchObject({
      code: "unauthenticated",
      message: 'the login to the gateway "prod" has ended: run "openshell gateway login prod"',
    });
    expect(await accessToken()).toBeUndefined();
  });

  it("gives way to one that such a client stored meanwhile", async () => {
    const renewal = alice.token(never);
    await refresh.asked.promise;
    await writeFile(tokenPath(), JSON.stringify({ access_token: "carol", issuer: issuerOf() }));
    refresh.answered.resolve();
    expect(await renewal).toBe("carol");
    expect(await accessToken()).toBe("carol");
  });

  it("does not bring back a gateway that such a client removed meanwhile", async () => {
    const renewal = alice.token(never);
    await refresh.asked.promise;
    await rm(join(directory.path, "gateways", "prod"), { recursive: true });
    refresh.answered.resolve();
    await expect(renewal).rejects.toMatchObject({ code: "unauthenticated" });
    await expect(directory.storeToken("prod", { access_token: "late" })).rejects.toMatchObject({
      code: "not-found",
      message: expect.stringMatching(/^there is no gateway "prod": add it with/),
    });
    expect(await readdir(join(directory.path, "gateways"))).toEqual([]);
  });
});
