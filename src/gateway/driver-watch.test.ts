import { create } from "@bufbuild/protobuf";
import { pino } from "pino";
import { expect, test } from "vitest";
import type { BackoffOptions } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { type Client, compute } from "../wire/index.ts";
import { DriverWatch } from "./driver-watch.ts";
import type { Sandboxes } from "./sandbox/sandboxes.ts";

const inState = (state: string, deleting = false) => ({ lifecycle: { applied: { state, deleting } } });
const believed = (id: string) => ({ id, ...inState("running") });

async function* nothingHappens(_request: unknown, { signal }: { readonly signal: AbortSignal }) {
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}

test("of what the driver does not list, only what it says is not there is taken for deleted; it is asked again for the rest", async () => {
  const stop = new AbortController();
  const missing: string[] = [];
  const observed: string[] = [];
  const sandboxes = {
    all: () => ["listed", "gone", "unseen"].map(believed),
    byId: believed,
    observe: (id: string) => void observed.push(id),
    missing: (id: string) => void missing.push(id),
  } as unknown as Sandboxes;
  const sandbox = (id: string) => create(compute.DriverSandboxSchema, { id, status: {} });
  let isSeen = false;
  const driver = {
    watchSandboxes: nothingHappens,
    listSandboxes: async () => ({ sandboxes: [sandbox("listed")] }),
    getSandbox: async ({ sandboxId }: { sandboxId: string }) => {
      if (sandboxId === "gone") throw new OpenShellError("not-found", "no such sandbox");
      if (!isSeen) throw new OpenShellError("unavailable", "its namespace cannot be listed");
      return { sandbox: sandbox(sandboxId) };
    },
  } as unknown as Client<typeof compute.ComputeDriver>;
  const watch = new DriverWatch({ sandboxes, driver, log: pino({ level: "silent" }), signal: stop.signal });
  const running = watch.run();
  await expect.poll(() => watch.synced).toBe(true);
  expect(missing).toEqual(["gone"]);
  expect(observed).toEqual(["listed"]);
  isSeen = true;
  await expect.poll(() => observed, { timeout: 10_000 }).toEqual(["listed", "unseen"]);
  expect(missing).toEqual(["gone"]);
  stop.abort();
  await running;
});

test("what is being deleted is gone once the driver does not have it, also where no answer ever said that it was made", async () => {
  const stop = new AbortController();
  const missing: string[] = [];
  const sandboxes = {
    all: () => [
      { id: "being deleted", ...inState("absent", true) },
      { id: "not asked for yet", ...inState("absent") },
    ],
    missing: (id: string) => void missing.push(id),
  } as unknown as Sandboxes;
  const driver = {
    watchSandboxes: nothingHappens,
    listSandboxes: async () => ({ sandboxes: [] }),
    getSandbox: async () => {
      throw new OpenShellError("not-found", "no such sandbox");
    },
  } as unknown as Client<typeof compute.ComputeDriver>;
  const watch = new DriverWatch({ sandboxes, driver, log: pino({ level: "silent" }), signal: stop.signal });
  const running = watch.run();
  await expect.poll(() => watch.synced).toBe(true);
  expect(missing).toEqual(["being deleted"]);
  stop.abort();
  await running;
});

/** Follows a driver whose streams each live `livesMs` by the watch's clock and then report what the store does not take. */
async function openAgain(times: number, livesMs: number, backoff: BackoffOptions): Promise<void> {
  const stop = new AbortController();
  let opened = 0;
  let now = 0;
  const sandboxes = {
    all: () => [],
    byId: believed,
    observe: () => {
      throw new OpenShellError("internal", "the disk is full");
    },
  } as unknown as Sandboxes;
  const driver = {
    async *watchSandboxes() {
      opened += 1;
      if (opened > times) stop.abort();
      now += livesMs;
      const sandbox = create(compute.DriverSandboxSchema, { id: "one", status: {} });
      yield { payload: { case: "sandbox", value: { sandbox } } };
    },
    listSandboxes: async () => ({ sandboxes: [] }),
  } as unknown as Client<typeof compute.ComputeDriver>;
  const log = pino({ level: "silent" });
  await new DriverWatch({ sandboxes, driver, log, signal: stop.signal, backoff, now: () => now }).run();
}

test("a stream that does not live is opened again each time later, though it began to report", async () => {
  const begin = performance.now();
  await openAgain(8, 1_000, { initialMs: 2, random: () => 0 });
  expect(performance.now() - begin).toBeGreaterThan(1 + 2 + 4 + 8 + 16 + 32 + 64);
});

test("one that lived is opened again at once", async () => {
  await openAgain(8, 5_000, { initialMs: 2, factor: 100_000 });
});
