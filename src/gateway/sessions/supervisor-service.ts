import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { cut, longestWord } from "../../common/cut.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { Logger } from "../../common/log.ts";
import type { CallContext, Implementation, openshell } from "../../wire/index.ts";
import { sessionOver } from "../identity/authenticator.ts";
import type { BootstrapPrincipal, Principal, SandboxPrincipal, TokenPrincipal } from "../identity/principal.ts";
import type { SessionTokens } from "../identity/session-tokens.ts";
import { exitFinalized, exitReported, isStarted, type Lifecycle } from "../sandbox/lifecycle.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import type { Store } from "../store/store.ts";
import type { Supervisors } from "./supervisors.ts";

export interface SupervisorServiceOptions {
  readonly store: Store;
  readonly sandboxes: Sandboxes;
  readonly supervisors: Supervisors;
  /** Undefined: no supervisor can authenticate, so none of these is reached. */
  readonly tokens: SessionTokens | undefined;
  readonly log: Logger;
}

type Methods =
  | "issueSandboxToken"
  | "refreshSandboxToken"
  | "connectSupervisor"
  | "relayStream"
  | "reportMainProcessExit"
  | "finalizeMainProcessExit";

/** The RPCs that supervisors call. */
export function supervisorService(
  options: SupervisorServiceOptions,
): Required<Pick<Implementation<typeof openshell.OpenShell, Principal>, Methods>> {
  const { store, sandboxes, supervisors, log } = options;

  const issue = async (sandboxId: string, sessionId: string) => {
    if (options.tokens === undefined) throw new OpenShellError("failed-precondition", "gateway_jwt is not configured");
    const { token, issued, expiresMs } = await options.tokens.issue({ sandboxId, sessionId });
    return { token, issued, expirationTime: timestampFromMs(expiresMs) };
  };

  /** A token is worth more than what is remembered of it: where that cannot be written, it counts beside the one before it. */
  const remember = (sandboxId: string, sessionId: string, issued: number) => {
    try {
      store.sessions.markLatest(sandboxId, sessionId, issued);
    } catch (error) {
      log.warn({ err: error, sandbox: sandboxId }, "which session token is the latest could not be written");
    }
  };

  return {
    async issueSandboxToken(_request, context) {
      const caller = context.principal as BootstrapPrincipal;
      const sessionId = crypto.randomUUID();
      // First of all: between the checks and the session a start could begin another run, whose session this would become.
      const { issued, ...token } = await issue(caller.sandboxId, sessionId);
      const record = sandboxes.byId(caller.sandboxId);
      if (record === undefined) throw new OpenShellError("permission-denied", "no such sandbox in this gateway");
      requireCurrent(record.lifecycle, caller.runtimeIdentity);
      const before = store.sessions.bySandbox(record.id);
      if (
        before?.connected === true &&
        before.bearer === caller.bearer &&
        before.runtimeIdentity === caller.runtimeIdentity
      ) {
        throw new OpenShellError(
          "permission-denied",
          "this supervisor has its session already: refresh its token instead",
          {
            reason: "SessionExists",
          },
        );
      }
      const { runtimeIdentity, bearer } = caller;
      const session = { sessionId, runtimeIdentity, bearer, connected: false, latestIssued: issued };
      store.sessions.put({ sandboxId: record.id, ...session });
      supervisors.review(record.id);
      log.info({ sandbox: record.id, session: sessionId, runtimeIdentity }, "a supervisor got its session token");
      return token;
    },

    async refreshSandboxToken(_request, context) {
      const { sandboxId, sessionId, expired } = context.principal as TokenPrincipal;
      const { token, issued, expirationTime } = await issue(sandboxId, sessionId);
      // One that lives can be shown again when this answer is lost. One that does not is all its holder has, until it connects.
      if (!expired) remember(sandboxId, sessionId, issued);
      else log.info({ sandbox: sandboxId, session: sessionId }, "a session token that had run out was renewed");
      return { token, expirationTime, sandboxToken: token, sandboxExpirationTime: expirationTime, sessionId };
    },

    connectSupervisor(requests, context) {
      const principal = context.principal as TokenPrincipal;
      const { sandboxId, sessionId, issued } = principal;
      const { latestIssued } = store.sessions.bySandbox(sandboxId) ?? {};
      if (latestIssued === undefined || issued > latestIssued) remember(sandboxId, sessionId, issued);
      return supervisors.connect(requests, principal, context.signal);
    },

    relayStream: (requests, context) =>
      supervisors.relays.serve(requests, (context.principal as SandboxPrincipal).sandboxId, context.signal),

    async reportMainProcessExit(request, context) {
      const { sandboxId } = ownSandbox(store, request, context);
      const instanceId = cut(request.instanceId, longestWord);
      const record = sandboxes.change(sandboxId, (life) => exitReported(life, instanceId, request.exitCode));
      if (record === undefined) throw new OpenShellError("not-found", "the sandbox is gone");
      return {};
    },

    async finalizeMainProcessExit(request, context) {
      const { sandboxId } = ownSandbox(store, request, context);
      const instanceId = cut(request.instanceId, longestWord);
      const record = sandboxes.change(sandboxId, (life) => exitFinalized(life, instanceId));
      if (record === undefined) throw new OpenShellError("not-found", "the sandbox is gone");
      return {};
    },
  };
}

/**
 * The pair that asks is the one that is wanted now. While a start's answer is on its way, the driver alone knows its identity; that it is not
 * the former run's is known here.
 */
function requireCurrent(lifecycle: Lifecycle, runtimeIdentity: string): void {
  if (lifecycle.desired !== "running") {
    throw new OpenShellError("permission-denied", "the sandbox is not meant to run now");
  }
  if (isStarted(lifecycle) !== (lifecycle.runtimeIdentity === runtimeIdentity)) {
    throw new OpenShellError("permission-denied", `the token belongs to ${runtimeIdentity}, which does not run now`);
  }
}

/** The sandbox that a supervisor speaks of. Its token was good when the call came; the message may have taken its time. */
function ownSandbox(
  { sessions }: Store,
  request: { readonly sandboxId: string },
  context: CallContext<Principal>,
): SandboxPrincipal {
  const principal = context.principal as SandboxPrincipal;
  if (request.sandboxId !== principal.sandboxId) {
    throw new OpenShellError("permission-denied", "the token is another sandbox's");
  }
  if (!sessions.isLive(principal)) throw sessionOver();
  return principal;
}
