import { OpenShellError } from "../../common/errors.ts";
import type { Lifecycle } from "../sandbox/lifecycle.ts";
import type { SupervisorSessionRecord } from "../store/supervisor-sessions.ts";
import type { ReadToken } from "./session-tokens.ts";

/**
 * Demands of a token that has run out what lets it be renewed once more (docs/adr/0023-a-session-outlives-its-gateways-absence.md): it is
 * the latest of its session as far as the gateway remembers, and the sandbox is meant to run.
 *
 * One that was issued after the latest that is remembered counts as well: a loss of power or a full disk makes the gateway forget one.
 *
 * @param session the sandbox's, which is the token's
 * @param desired of the sandbox; undefined when it is gone
 * @throws unauthenticated
 */
export function requireRenewable(
  { issued }: ReadToken,
  { latestIssued }: SupervisorSessionRecord,
  desired: Lifecycle["desired"] | undefined,
): void {
  if (latestIssued === undefined || issued < latestIssued) {
    throw hasRunOut("it is not the latest of its session", "SessionTokenInvalid");
  }
  // A stop leaves the session in the store, so that what is under way can be brought to its end: its tokens are to end as well.
  if (desired !== "running") throw hasRunOut("its sandbox is not meant to run now", "SessionOver");
}

function hasRunOut(why: string, reason: string): OpenShellError {
  return new OpenShellError("unauthenticated", `the session token has run out, and ${why}`, { reason });
}
