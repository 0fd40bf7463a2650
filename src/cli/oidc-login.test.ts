import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { clientLogin, deviceLogin, type OidcClient, refreshLogin } from "./oidc-login.ts";

type Answer = readonly [number, unknown] | "hang up";

let client: OidcClient;
let document: Record<string, unknown>;
/** Answers of the token endpoint, one after the other; the last one for ever. */
let answers: Answer[];
let device: readonly [number, unknown];
let asked: URLSearchParams[];

const server = createServer(async (request, response) => {
  const given = await answer(request);
  if (given === "hang up") request.socket.destroy();
  else response.writeHead(given[0]).end(JSON.stringify(given[1]));
});

async function answer(request: IncomingMessage): Promise<Answer> {
  if (request.url?.startsWith("/.well-known/")) return [200, document];
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk as Uint8Array);
  asked.push(new URLSearchParams(Buffer.concat(chunks).toString()));
  if (request.url === "/device") return device;
  const [first = [500, {}] as Answer] = answers;
  if (answers.length > 1) answers.shift();
  return first;
}

beforeEach(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  client = { issuer, clientId: "cli", audience: "gateway", scopes: "sandbox:read" };
  document = { issuer, token_endpoint: `${issuer}/token`, device_authorization_endpoint: `${issuer}/device` };
  device = [
    200,
    { device_code: "d", user_code: "U-1", verification_uri: "https://v", expires_in: 600, interval: 0.001 },
  ];
  answers = [];
  asked = [];
});
afterEach(async () => {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
});

const never = new AbortController().signal;
const granted: Answer = [200, { access_token: "t", expires_in: 60 }];
const error = (name: string): Answer => [400, { error: name }];

describe("a login by device code", () => {
  it("shows where to go, and asks until the user has said yes", async () => {
    answers = [error("authorization_pending"), error("authorization_pending"), granted];
    const shown: unknown[] = [];
    const token = await deviceLogin(client, (prompt) => shown.push(prompt), never);
    expect(shown).toEqual([{ url: "https://v", code: "U-1" }]);
    expect(token).toMatchObject({ access_token: "t", issuer: client.issuer, client_id: "cli" });
    expect(asked.map((form) => Object.fromEntries(form))).toEqual([
      { client_id: "cli", scope: "openid offline_access sandbox:read", audience: "gateway" },
      ...Array.from({ length: 3 }, () => ({
        grant_type: "urn:ietf:params:oauth:grant-type:device_code",
        client_id: "cli",
        device_code: "d",
      })),
    ]);
  });

  it.each([
    ["access_denied", "permission-denied", "the login was refused in the browser"],
    ["expired_token", "deadline-exceeded", "nobody completed the login in time; run it again"],
    ["invalid_client", "unauthenticated", "refused the login: invalid_client"],
  ])("ends when the provider says %s", async (name, code, sentence) => {
    answers = [error("authorization_pending"), error(name)];
    await expect(deviceLogin(client, () => {}, never)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(sentence),
    });
  });

  it("goes on after answers that a provider in trouble gives, and after none at all", async () => {
    const trouble: Answer[] = [[503, {}], [502, "<html>"], [500, { error: "server_error" }], [429, {}], "hang up"];
    answers = [error("authorization_pending"), ...trouble, granted];
    expect(await deviceLogin(client, () => {}, never)).toMatchObject({ access_token: "t" });
    expect(asked).toHaveLength(8);
  });

  it("says what the trouble was when it lasts until the code is over", async () => {
    device = [200, { ...(device[1] as object), expires_in: 0.03 }];
    answers = [[503, {}]];
    await expect(deviceLogin(client, () => {}, never)).rejects.toMatchObject({
      code: "unavailable",
      message: `${client.issuer} cannot log anybody in now: status 503`,
    });
  });

  it("is asked for at no endpoint without TLS elsewhere", async () => {
    document.device_authorization_endpoint = "http://login.example.com/device";
    await expect(deviceLogin(client, () => {}, never)).rejects.toThrow(
      /"http:\/\/login.example.com\/device" is no https/,
    );
    expect(asked).toEqual([]);
  });

  it("ends at an interrupt", async () => {
    answers = [error("authorization_pending")];
    const interrupt = new AbortController();
    const login = deviceLogin(client, () => interrupt.abort(), interrupt.signal);
    await expect(login).rejects.toMatchObject({ name: "AbortError" });
  });

  it("is not possible where the provider has none, which is said with what is", async () => {
    document.device_authorization_endpoint = undefined;
    await expect(deviceLogin(client, () => {}, never)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringMatching(/offers no login by device code; set \$OPENSHELL_OIDC_CLIENT_SECRET/),
    });
  });
});

describe("a token", () => {
  it("ends when the provider says, in whichever way it says it", async () => {
    const now = Math.floor(Date.now() / 1000);
    answers = [[200, { access_token: "t", expires_at: now + 7.9 }]];
    expect((await clientLogin(client, "s", never)).expires_at).toBe(now + 7);
    answers = [[200, { access_token: "t" }]];
    expect(await clientLogin(client, "s", never)).not.toHaveProperty("expires_at");
  });

  it("that is renewed keeps its refresh token where the provider gives no new one", async () => {
    answers = [granted];
    const stored = { access_token: "old", refresh_token: "r" };
    expect(await refreshLogin(client, stored, never)).toMatchObject({ access_token: "t", refresh_token: "r" });
    answers = [[200, { access_token: "t", refresh_token: "r2" }]];
    expect(await refreshLogin(client, stored, never)).toMatchObject({ refresh_token: "r2" });
    answers = [error("invalid_grant")];
    await expect(refreshLogin(client, stored, never)).rejects.toMatchObject({ details: { reason: "LoginOver" } });
  });

  it.each([
    [[503, {}], "unavailable", "cannot log anybody in now: status 503"],
    [[500, { error: "server_error" }], "unavailable", "cannot log anybody in now: server_error"],
    [[429, {}], "unavailable", "cannot log anybody in now: status 429"],
    [[401, { error: "invalid_client" }], "unauthenticated", "refused the login: invalid_client"],
    [[404, {}], "unauthenticated", "refused the login: status 404"],
  ] as const)("is not had for an answer of %j, which is %s", async (answer, code, sentence) => {
    answers = [answer];
    const failure = { code, message: expect.stringContaining(sentence) };
    await expect(clientLogin(client, "s", never)).rejects.toMatchObject(failure);
    await expect(refreshLogin(client, { access_token: "old", refresh_token: "r" }, never)).rejects.toMatchObject(
      failure,
    );
  });

  it("is not asked for at an endpoint without TLS elsewhere", async () => {
    document.token_endpoint = "http://login.example.com/token";
    await expect(clientLogin(client, "secret", never)).rejects.toThrow(/is no https:\/\/ URL/);
    expect(asked).toEqual([]);
  });
});
