import type { AddressInfo } from "node:net";
import { createServer, type Server } from "node:tls";
import { pino } from "pino";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { type Authority, type Pair, testAuthority } from "./_test-certificates.ts";
import { gatewayDistrusted } from "./gateway-trust.ts";

let before: Authority;
let known: Pair;
let unknown: Pair;
let misnamed: Pair;
let server: Server;

beforeAll(async () => {
  before = await testAuthority();
  known = await before.issue("localhost");
  misnamed = await before.issue("elsewhere");
  // Of the same name, as an authority that was made anew has it.
  unknown = await (await testAuthority()).issue("localhost");
});

beforeEach(async () => {
  server = createServer({ ALPNProtocols: ["h2"] }, (socket) => socket.on("error", () => {}).resume());
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
});

afterEach(() => {
  server.close();
});

type Answer = "connected" | Pair | "away";

/**
 * What comes of a supervisor that finds these, one at each look; the last again and again.
 * @returns looks until its end; "waits" when there was none in 60
 */
async function looksUntilEnd(...answers: Answer[]): Promise<number | "waits"> {
  const stop = new AbortController();
  const { port } = server.address() as AddressInfo;
  let looks = 0;
  let answer: Answer | undefined;
  const end = gatewayDistrusted(
    {
      gateway: {
        get target() {
          return `localhost:${answer === "away" ? 1 : port}`;
        },
        ca: before.certificate,
      },
      isConnected: () => answer === "connected",
      log: pino({ level: "silent" }),
      random: () => 0.5,
      clock: {
        sleep: async (ms, signal) => {
          expect(ms).toBe(30_000);
          answer = answers[looks] ?? answers.at(-1);
          if (typeof answer === "object") server.setSecureContext({ cert: answer.certificate, key: answer.key });
          looks += 1;
          if (looks > 60) stop.abort(new Error("enough"));
          signal?.throwIfAborted();
        },
      },
    },
    stop.signal,
  );
  try {
    expect(await end).toMatchObject({ reason: "GatewayDistrusted" });
    return looks;
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    return "waits";
  }
}

it("ends a supervisor after ten minutes of certificates of another issuer", async () => {
  expect(await looksUntilEnd("connected", unknown)).toBe(1 + 20);
});

it("counts no time in which the gateway was away, and begins anew after a certificate that is known", async () => {
  expect(await looksUntilEnd("connected", unknown, "away", "away", unknown)).toBe(1 + 20 + 2);
  expect(await looksUntilEnd("connected", ...Array<Answer>(19).fill(unknown), known, unknown)).toBe(1 + 19 + 1 + 20);
  expect(await looksUntilEnd("connected", unknown, "connected", unknown)).toBe(1 + 1 + 1 + 20);
});

it.each<[string, () => Answer[]]>([
  ["that was never connected: another would not be, either", () => [unknown]],
  ["whose gateway is away", () => ["connected", "away"]],
  ["whose gateway has a known issuer's certificate, of another name", () => ["connected", misnamed]],
])("leaves a supervisor alone %s", async (_, answers) => {
  expect(await looksUntilEnd(...answers())).toBe("waits");
});
