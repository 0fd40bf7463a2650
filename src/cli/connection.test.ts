import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { explained, type GatewayChoice, resolveTarget } from "./connection.ts";
import { configDirectory, GatewayDirectory, parseEndpoint } from "./gateways.ts";

const prod = "https://gateway.example.com";
const issuer = "https://login.example.com";

let env: { readonly XDG_CONFIG_HOME: string; readonly [name: string]: string };
let directory: GatewayDirectory;

/** A user who is logged in to "prod", which is in use. */
beforeEach(async () => {
  env = { XDG_CONFIG_HOME: await mkdtemp(join(tmpdir(), "openshell-connection-")) };
  directory = new GatewayDirectory(configDirectory(env));
  await add("prod", prod);
  await directory.use("prod");
});
afterEach(() => rm(env.XDG_CONFIG_HOME, { recursive: true }));

async function add(name: string, endpoint: string) {
  await directory.add(name, parseEndpoint(endpoint), undefined, { issuer });
  await directory.storeToken(name, { access_token: `${name}-login`, issuer });
}

/** The token that calls would carry. */
async function sent(choice: GatewayChoice, more: Record<string, string> = {}): Promise<string | undefined> {
  const { bearer } = await resolveTarget(choice, { ...env, ...more });
  return bearer?.token(new AbortController().signal);
}

describe("the login of a gateway", () => {
  const other = "https://elsewhere.example.com:8080";

  it("goes to the gateway's own endpoint, however that was chosen", async () => {
    expect(await sent({})).toBe("prod-login");
    expect(await sent({ gateway: "prod" })).toBe("prod-login");
    expect(await sent({ gatewayEndpoint: `${prod}:443/` })).toBe("prod-login");
    expect(await sent({}, { OPENSHELL_GATEWAY_ENDPOINT: prod })).toBe("prod-login");
  });

  it.each([
    ["by flag", { gatewayEndpoint: other }, {}],
    ["by variable", {}, { OPENSHELL_GATEWAY_ENDPOINT: other }],
    ["by flag, with the gateway in a variable", { gatewayEndpoint: other }, { OPENSHELL_GATEWAY: "prod" }],
    ["on another port", { gatewayEndpoint: `${prod}:8080` }, {}],
    ["without TLS", { gatewayEndpoint: "http://gateway.example.com:443" }, {}],
    ["on this machine", { gatewayEndpoint: "http://127.0.0.1:8080" }, {}],
  ])("goes to no other endpoint that is given %s", async (_, choice, more) => {
    expect(await sent(choice, more)).toBeUndefined();
    expect(await resolveTarget(choice, { ...env, ...more })).toMatchObject({ withheld: "prod" });
  });

  it("goes to another endpoint when its gateway is named for it", async () => {
    expect(await sent({ gateway: "prod", gatewayEndpoint: other })).toBe("prod-login");
  });
});

describe("a token", () => {
  const given = { OPENSHELL_BEARER_TOKEN: "given" };

  it("that is given goes where the call goes", async () => {
    expect(await sent({ gatewayEndpoint: "https://elsewhere.example.com" }, given)).toBe("given");
    for (const host of ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"]) {
      expect(await sent({ gatewayEndpoint: `http://${host}:8080` }, given)).toBe("given");
      expect(await sent({ gatewayEndpoint: `https://${host}:8080`, gatewayInsecure: true }, given)).toBe("given");
    }
  });

  it.each(["gateway.example.com", "10.0.0.7", "127.0.0.1.example.com", "[::2]"])(
    "does not go to %s where others could read it",
    async (host) => {
      await expect(sent({ gatewayEndpoint: `http://${host}:8080` }, given)).rejects.toMatchObject({
        code: "failed-precondition",
        message: `http://${host}:8080 is an endpoint without TLS, so that others could read the token that calls carry; no token is sent there: write https://, or forward a local port to it`,
      });
      const insecure = { gatewayEndpoint: `https://${host}:8080`, gatewayInsecure: true };
      await expect(sent(insecure, given)).rejects.toMatchObject({
        code: "failed-precondition",
        message: `the certificate of https://${host}:8080 is not to be verified, so that anybody could be there and take the token that calls carry; no token is sent there: leave out --gateway-insecure, and add the gateway with --ca`,
      });
    },
  );

  it("of a login neither", async () => {
    await add("plain", "http://gateway.example.com");
    await expect(sent({ gateway: "plain" })).rejects.toThrow(/is an endpoint without TLS/);
    await expect(sent({ gatewayInsecure: true })).rejects.toThrow(/is not to be verified/);
    await expect(sent({}, { OPENSHELL_GATEWAY_INSECURE: "1" })).rejects.toThrow(/is not to be verified/);
  });
});

describe("$OPENSHELL_GATEWAY_INSECURE", () => {
  const insecure = async (word: string, choice: GatewayChoice = {}) => {
    const none = { ...env, XDG_CONFIG_HOME: join(env.XDG_CONFIG_HOME, "none") };
    const all = { gatewayEndpoint: prod, ...choice };
    return (await resolveTarget(all, { ...none, OPENSHELL_GATEWAY_INSECURE: word })).insecure;
  };

  it.each([
    ["true", true],
    ["Yes", true],
    ["1", true],
    ["false", false],
    ["no", false],
    ["0", false],
    ["", false],
  ])("of %j is %s", async (word, expected) => {
    expect(await insecure(word)).toBe(expected);
  });

  it.each(["on", "truely"])("of %j is refused where no option says it", async (word) => {
    await expect(insecure(word)).rejects.toMatchObject({
      code: "invalid-argument",
      message: `$OPENSHELL_GATEWAY_INSECURE "${word}": expected true or false`,
    });
    expect(await insecure(word, { gatewayInsecure: true })).toBe(true);
  });
});

describe("a connection", () => {
  const failed = async (message: string) =>
    explained(new OpenShellError("unavailable", message), await resolveTarget({}, env));

  it.each(["Connection dropped", "read ECONNRESET", "socket hang up", "Received RST_STREAM with code 2 (by a proxy)"])(
    "that was there and is lost (%s) says nothing of how the endpoint begins",
    async (message) => {
      expect(await failed(message)).toMatchObject({
        code: "unavailable",
        message: `the connection to the gateway "prod" at ${prod} was lost; is the gateway running, and the port forward to it open?`,
      });
    },
  );

  it("that never was asks how the endpoint begins", async () => {
    const message = "No connection established. Last error: Error: read ECONNRESET";
    expect(await failed(message)).toMatchObject({
      message: expect.stringMatching(/^cannot reach .*: the connection was closed; does its endpoint begin with https/),
    });
  });

  it.each([
    [
      "certificate is not yet valid",
      "its certificate is not valid yet; are the clocks of this machine and of the gateway's right?",
    ],
    ["unsuitable certificate purpose", "its certificate is not one for a server"],
    [
      "something new",
      "the connection was closed; does its endpoint begin with https:// (TLS) or http:// (none)? (something new)",
    ],
  ])("that could not be made says why: %s", async (last, sentence) => {
    expect(await failed(`No connection established. Last error: Error: ${last}. Resolution note: `)).toMatchObject({
      message: `cannot reach the gateway "prod" at ${prod}: ${sentence}`,
    });
  });

  it.each([
    "the gateway cannot check bearer tokens now: cannot reach https://login.example.com: connect ECONNREFUSED 10.0.0.9:443",
    'namespace "openshell-alerts" of workspace "alerts" is still being made',
    "the supervisor's connection was lost: read ECONNRESET",
  ])("is none of what an answer of the gateway tells of: %s", async (message) => {
    expect(await failed(message)).toMatchObject({ code: "unavailable", message });
  });
});
