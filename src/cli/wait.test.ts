import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { type ErrorCode, OpenShellError } from "../common/errors.ts";
import { openshell } from "../wire/index.ts";
import type { GatewayClient } from "./connection.ts";
import type { ProgressLine } from "./terminal.ts";
import { untilReady, waitFor } from "./wait.ts";

/** Waits with watches that each show one state, live `livesMs` by the wait's clock and break; how many until READY, or until it gives up. */
async function watches(untilReadyAt: number, livesMs: number, code: ErrorCode = "unavailable") {
  const stop = new AbortController();
  let opened = 0;
  let now = 0;
  const client = {
    async *watchSandbox() {
      opened += 1;
      if (opened > 100) stop.abort();
      const phase = openshell.SandboxPhase[opened === untilReadyAt ? "READY" : "PROVISIONING"];
      const value = create(openshell.SandboxSchema, { metadata: { id: "id-1", name: "one" }, status: { phase } });
      yield { payload: { case: "sandbox", value } };
      now += livesMs;
      throw new OpenShellError(code, "the connection was lost");
    },
  } as unknown as GatewayClient;
  const end = await waitFor(untilReady, {
    client,
    workspace: "default",
    name: "one",
    id: "id-1",
    progress: { show: () => {}, clear: () => {} } as unknown as ProgressLine,
    signal: stop.signal,
    backoff: { initialMs: 1, maxMs: 1 },
    now: () => now,
  }).catch((error: unknown) => error);
  return { opened, end };
}

test("a wait whose watches break as soon as they show a state is given up after ten in a row", async () => {
  expect(await watches(50, 1_000)).toMatchObject({ opened: 11, end: { code: "unavailable" } });
});

test("one whose watches live goes on however often they break", async () => {
  expect(await watches(50, 5_000)).toMatchObject({ opened: 50, end: { phase: "READY" } });
});

test("one whose gateway takes too long to speak again goes on as well", async () => {
  expect(await watches(3, 1_000, "deadline-exceeded")).toMatchObject({ opened: 3, end: { phase: "READY" } });
});
