import type { MessageInitShape } from "@bufbuild/protobuf";
import { services } from "../../boundary/index.ts";
import { type BackoffOptions, backoffMs, failuresAfter, sleep } from "../../common/async.ts";
import { OpenShellError } from "../../common/errors.ts";
import { decodeFrames, encodeFrame } from "../../common/frames.ts";
import type { Logger } from "../../common/log.ts";
import { boundary, openshell } from "../../wire/index.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { RelayBroker } from "./relay-broker.ts";
import { withEvent } from "./view.ts";

export interface LaunchOptions {
  readonly sandboxId: string;
  readonly sandboxes: Sandboxes;
  readonly relays: RelayBroker;
  readonly log: Logger;
  /** Aborted when the session ends. */
  readonly signal: AbortSignal;
  /** Before the relay is opened again. */
  readonly backoff?: BackoffOptions;
  /** Milliseconds of a clock that nobody sets. @default performance.now */
  readonly now?: () => number;
}

/**
 * Keeps one launch relay open for as long as a session lives: tells the supervisor what to run, and learns from it where the boundary, the
 * fence and the main process stand. The environment of users travels here and nowhere else.
 */
export async function runLaunch(options: LaunchOptions): Promise<void> {
  const { sandboxId, sandboxes, relays, log, signal, backoff, now = () => performance.now() } = options;
  for (let attempt = 0; ; attempt += 1) {
    const spec = sandboxes.byId(sandboxId)?.object.spec;
    if (spec === undefined) throw new OpenShellError("cancelled", "the sandbox is gone");
    let openedAt: number | undefined;
    try {
      const channel = await relays.open(sandboxId, services.launch, signal);
      openedAt = now();
      const abort = () => channel.abort(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      try {
        await channel.write(encodeFrame(boundary.LaunchRequestSchema, { launch: launchOf(spec) }));
        for await (const event of decodeFrames(boundary.LaunchEventSchema, channel.readable)) {
          sandboxes.setSession(sandboxId, (view) => withEvent(view, event));
        }
      } finally {
        signal.removeEventListener("abort", abort);
        channel.end();
      }
    } catch (error) {
      if (signal.aborted) return;
      log.warn({ err: error, sandbox: sandboxId }, "the launch relay broke off; it is opened again");
    }
    if (openedAt !== undefined) attempt = failuresAfter(attempt, now() - openedAt);
    await sleep(backoffMs(attempt, { initialMs: 200, maxMs: 5_000, ...backoff }), signal);
  }
}

/** What the runtime is told of a sandbox's specification. */
export function launchOf(spec: openshell.SandboxSpec): MessageInitShape<typeof boundary.LaunchSchema> {
  return {
    command: spec.command,
    tty: spec.tty,
    restartPolicy: restartPolicies[spec.restartPolicy] ?? boundary.RestartPolicy.NEVER,
    baseEnvironment: { ...spec.template?.environment, ...spec.environment },
  };
}

const restartPolicies: Readonly<Partial<Record<openshell.SandboxRestartPolicy, boundary.RestartPolicy>>> = {
  [openshell.SandboxRestartPolicy.NEVER]: boundary.RestartPolicy.NEVER,
  [openshell.SandboxRestartPolicy.ON_FAILURE]: boundary.RestartPolicy.ON_FAILURE,
  [openshell.SandboxRestartPolicy.ALWAYS]: boundary.RestartPolicy.ALWAYS,
};
