import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, it } from "vitest";
import { requestJson } from "./https-json.ts";

let server: Server;
let port: number;

beforeEach(async () => {
  server = createServer((_, response) => response.end('{"a":1}'));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.address() as AddressInfo).port;
});

afterEach(() => {
  server.close();
});

it.each(["http", "HTTP"])("asks an address that begins with %s", async (scheme) => {
  await expect(requestJson(`${scheme}://127.0.0.1:${port}`)).resolves.toEqual({ status: 200, body: { a: 1 } });
});

it.each(["https", "HTTPS"])("speaks TLS to an address that begins with %s", async (scheme) => {
  const answer = requestJson(`${scheme}://127.0.0.1:${port}`);
  await expect(answer).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/wrong version number|packet length too long/),
  });
});

it("says that nobody can be reached at what is no address", async () => {
  await expect(requestJson("login.example.com")).rejects.toMatchObject({ code: "unavailable" });
});
