import { backoffMs, sleep } from "../common/async.ts";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { boundary, type Client, type openshell } from "../wire/index.ts";

type Gateway = Pick<Client<typeof openshell.OpenShell>, "reportMainProcessExit" | "finalizeMainProcessExit">;

export interface ExitReportOptions {
  readonly gateway: { readonly client: Gateway };
  readonly sandboxId: string;
  headers(): Record<string, string>;
  readonly log: Logger;
}

const { MainProcessStatus_State: State } = boundary;
const callTimeoutMs = 10_000;

/** Exit code of a main process that will not run again; undefined while it may. */
export function finalExitCode(status: Pick<boundary.MainProcessStatus, "state" | "exitCode">): number | undefined {
  if (status.state !== State.EXITED && status.state !== State.FAILED_TO_START) return undefined;
  return status.exitCode ?? (status.state === State.FAILED_TO_START ? 127 : 0);
}

/** Tells the gateway, until it has heard it, that the main process ended and that nothing of its output is left to carry. */
export async function reportExit(
  instanceId: string,
  exitCode: number,
  options: ExitReportOptions,
  signal: AbortSignal,
): Promise<void> {
  const { gateway, sandboxId, log } = options;
  const calls = {
    report: () => gateway.client.reportMainProcessExit({ sandboxId, instanceId, exitCode }, callOptions()),
    finalize: () => gateway.client.finalizeMainProcessExit({ sandboxId, instanceId }, callOptions()),
  };
  const callOptions = () => ({ headers: options.headers(), timeoutMs: callTimeoutMs, signal });
  for (const name of ["report", "finalize"] as const) {
    for (let attempt = 0; ; attempt += 1) {
      try {
        await calls[name]();
        break;
      } catch (error) {
        signal.throwIfAborted();
        const { message } = OpenShellError.from(error);
        if (hasCode(error, "not-found", "invalid-argument", "failed-precondition")) {
          log.warn({ exitCode }, `the gateway does not take the exit of the main process: ${message}`);
          return;
        }
        log[attempt % 20 === 0 ? "warn" : "debug"]({ attempt }, `exit of the main process, ${name}: ${message}`);
        await sleep(backoffMs(attempt, { initialMs: 100, maxMs: 5000 }), signal);
      }
    }
  }
  log.info({ exitCode }, "exit of the main process reported");
}
