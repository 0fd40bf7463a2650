import type { OpenShellError } from "../common/errors.ts";
import { inDefault, type TestGateway, untilPhase } from "./_testing.ts";
import { TestSupervisor, type TestSupervisorOptions } from "./_testing-supervisor.ts";

export type Spec = Parameters<TestGateway["client"]["createSandbox"]>[0]["spec"];

export async function create(test: TestGateway, name: string, spec: Spec = {}): Promise<string> {
  const { sandbox } = await test.client.createSandbox({ workspaceScope: inDefault, name, spec });
  return sandbox?.metadata?.id ?? "";
}

export async function supervise(test: TestGateway, sandboxId: string, options: Partial<TestSupervisorOptions> = {}) {
  const supervisor = new TestSupervisor({ client: test.client, sandboxId, ...options });
  await supervisor.authenticate();
  supervisor.connect();
  return supervisor;
}

/** A sandbox that is READY, and its supervisor. */
export async function ready(test: TestGateway, name: string, spec: Spec = {}, serve?: TestSupervisorOptions["serve"]) {
  const id = await create(test, name, spec);
  const supervisor = await supervise(test, id, serve === undefined ? {} : { serve });
  const launch = await supervisor.serveWorkload();
  await untilPhase(test.client, name, "READY");
  return { id, supervisor, launch };
}

export async function exec(test: TestGateway, name: string, stdin = "") {
  const seen = { stdout: "", stderr: "", exit: -1, largest: 0, events: [] as string[] };
  const request = { workspaceScope: inDefault, sandbox: name, command: ["say", "it"], stdin: Buffer.from(stdin) };
  for await (const { payload } of test.client.execSandbox(request)) {
    seen.events.push(String(payload.case));
    if (payload.case === "exit") seen.exit = payload.value.exitCode;
    else if (payload.case !== undefined) {
      seen.largest = Math.max(seen.largest, payload.value.data.length);
      seen[payload.case] += Buffer.from(payload.value.data).toString();
    }
  }
  return seen;
}

export const about = (name: string) => ({ workspaceScope: inDefault, name });

/** Connects a supervisor whose workload is up. */
export async function supervised(test: TestGateway, id: string, before: () => void = () => {}) {
  for (;;) {
    try {
      const supervisor = await supervise(test, id);
      before();
      await supervisor.serveWorkload();
      return supervisor;
    } catch (error) {
      // The driver is asked again after a while; until then it knows no such token.
      if ((error as OpenShellError).code !== "unauthenticated") throw error;
    }
  }
}
