import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { retry } from "../../../src/common/async.ts";
import { hasCode } from "../../../src/common/errors.ts";
import { statusAnswer } from "../../support/api-proxy.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { said } from "../../support/outcome.ts";
import { phase, reason } from "../../support/waits.ts";

let bench: FaultSuite;

describe("without Agent Sandbox", { skip: !canBreak }, () => {
  beforeAll(async () => {
    bench = await FaultSuite.open();
  });

  afterAll(async () => bench?.[Symbol.asyncDispose]());

  it("a controller that stands still holds a create up, which says so and goes on with it (ControllerSilent)", async () => {
    const { suite, faults } = bench;
    await using stack = new AsyncDisposableStack();
    const stall = stack.use(await faults.stallAgentSandbox());
    const sandbox = stack.use(await suite.create());
    const seen = await sandbox.until(reason("ControllerSilent"));
    expect(said(seen)).toMatch(/PodsAdmitted ControllerSilent: the Agent Sandbox controller has not made the Pod yet/);
    expect(phase("PROVISIONING").test(seen)).toBe(true);
    stall[Symbol.dispose]();
    await sandbox.ready();
  }, 240_000);

  it("a gateway whose cluster does not serve the API refuses a create in words, and takes it once it is served (AgentSandboxUnavailable)", async () => {
    const { suite, proxy } = bench;
    {
      using _absent = proxy.breaking(async ({ path }, pass) =>
        path.startsWith("/apis/agents.x-k8s.io") ? statusAnswer(404, "NotFound", "page not found") : pass(),
      );
      await bench.crash();
      await expect(suite.create()).rejects.toMatchObject({
        code: "unavailable",
        message: expect.stringMatching(/does not serve sandboxes\.agents\.x-k8s\.io.*install Agent Sandbox/),
      });
    }
    await using sandbox = await retry(() => suite.create(), {
      attempts: 60,
      initialMs: 1_000,
      maxMs: 1_000,
      retryable: (error) => hasCode(error, "unavailable"),
    });
    await sandbox.ready();
  }, 300_000);
});
