import { sleep } from "../../src/common/async.ts";
import { hasCode, OpenShellError } from "../../src/common/errors.ts";
import { type Client, openshell } from "../../src/wire/index.ts";

type Gateway = Client<typeof openshell.OpenShell>;
export type Sandbox = openshell.Sandbox;
const { SandboxPhase } = openshell;
export type PhaseName = keyof typeof SandboxPhase;

/** Something to wait for in a sandbox, as a value: printable, with its own bound. */
export interface SandboxWait {
  /** Completes the sentence "waited for …". */
  readonly what: string;
  readonly withinMs: number;
  /** True when it has come about; a sentence when it no longer can. */
  test(sandbox: Sandbox): boolean | string;
}

/** The phase that a user sees; fails at once in ERROR, unless that is waited for. */
export function phase(name: PhaseName, withinMs = 120_000): SandboxWait {
  return {
    what: `phase ${name}`,
    withinMs,
    test(sandbox) {
      const now = sandbox.status?.phase ?? SandboxPhase.UNSPECIFIED;
      if (now === SandboxPhase[name]) return true;
      return now === SandboxPhase.ERROR ? "the sandbox is in phase ERROR" : false;
    },
  };
}

/** A condition with this reason, in whatever phase. */
export function reason(word: string, withinMs = 60_000): SandboxWait {
  return {
    what: `a condition with reason ${word}`,
    withinMs,
    test: (sandbox) => (sandbox.status?.conditions ?? []).some((condition) => condition.reason === word),
  };
}

/** Either of two. */
export function either(first: SandboxWait, second: SandboxWait): SandboxWait {
  return {
    what: `${first.what} or ${second.what}`,
    withinMs: Math.max(first.withinMs, second.withinMs),
    test: (sandbox) => first.test(sandbox) === true || second.test(sandbox) === true,
  };
}

/** Watches a sandbox until `wait` has come about. A stream that breaks, for example because the gateway restarts, is opened again. */
export async function until(
  gateway: () => Gateway,
  workspace: string,
  name: string,
  wait: SandboxWait,
): Promise<Sandbox> {
  const signal = AbortSignal.timeout(wait.withinMs);
  let last: Sandbox | undefined;
  const fail = (why: string, cause?: unknown) =>
    new OpenShellError("deadline-exceeded", `waited for ${wait.what} of ${name}: ${why}\n${describe(last)}`, { cause });
  for (;;) {
    try {
      const scope = { selection: { case: "workspace" as const, value: workspace } };
      const request = { workspaceScope: scope, sandbox: name, followStatus: true };
      for await (const { payload } of gateway().watchSandbox(request, { signal })) {
        if (payload.case !== "sandbox") continue;
        last = payload.value;
        const verdict = wait.test(last);
        if (verdict === true) return last;
        if (typeof verdict === "string") throw fail(verdict);
      }
    } catch (error) {
      if (signal.aborted) throw fail(`not within ${wait.withinMs} ms`, error);
      if (!hasCode(error, "unavailable", "cancelled", "internal", "aborted", "unknown")) throw error;
    }
    if (signal.aborted) throw fail(`not within ${wait.withinMs} ms`);
    await sleep(200);
  }
}

/** Phase and conditions, for the reader of a failed test. */
export function describe(sandbox: Sandbox | undefined): string {
  if (sandbox === undefined) return "  (never seen)";
  const { conditions = [], exitCode, phase: now = 0 } = sandbox.status ?? {};
  const lines = conditions.map((one) => `  ${one.type}=${one.status} ${one.reason}: ${one.message}`);
  const exit = exitCode === undefined ? "" : ` exit code ${exitCode}`;
  return [`  phase ${SandboxPhase[now]}${exit}`, ...lines].join("\n");
}
