import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { parseTargets } from "./fence-probe.ts";
import { closedUntil, writeSpan } from "./fence-span.ts";
import { identityFiles } from "./identity.ts";

/**
 * The first init container, in the runtime image: brings the relocatable bundle and the identity to where the workload's containers
 * find them. Safe to repeat. `OPENSHELL_STAGE=identity` leaves the bundle out, where an image volume delivers it; that volume
 * is read-only and the same for every sandbox, so there is no passwd and no group with the sandbox's user in it then. Programs that insist on
 * a user name (ssh, some shells' prompts) need an image that has one, or delivery by copy.
 */
export async function stage(environment: NodeJS.ProcessEnv, log: Logger): Promise<number> {
  // A Pod that an earlier gateway made names none.
  const targets = parseTargets(environment.OPENSHELL_FENCE_TARGETS ?? "");
  const staged = new AbortController();
  const closed = targets.length === 0 ? undefined : closedUntil(targets, staged.signal);
  try {
    const directory = await stageFiles(environment, log);
    staged.abort();
    const span = await closed;
    if (span === undefined) return 0;
    writeSpan(directory, span);
    log.info({ milliseconds: Math.round(span.until - span.since) }, "the fence was closed so far");
  } finally {
    staged.abort();
  }
  return 0;
}

/** @returns the directory of the identity */
async function stageFiles(environment: NodeJS.ProcessEnv, log: Logger): Promise<string> {
  const parts = environment.OPENSHELL_STAGE || "all";
  if (parts !== "all" && parts !== "identity") {
    throw new OpenShellError("invalid-argument", `OPENSHELL_STAGE is "all" or "identity", not "${parts}"`);
  }
  if (parts === "all") {
    const source = environment.OPENSHELL_BUNDLE_SOURCE ?? "/opt/openshell";
    const target = environment.OPENSHELL_BUNDLE_TARGET ?? "/openshell";
    await inWords(`the runtime cannot be copied from ${source} to ${target}`, async () => {
      await cp(source, target, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
      writeAccounts(join(target, "etc"));
    });
    log.info({ source, target }, "the runtime is staged");
  }
  const source = environment.OPENSHELL_IDENTITY_SOURCE ?? "/etc/openshell/workload";
  const target = environment.OPENSHELL_IDENTITY_TARGET ?? "/run/openshell/identity";
  await inWords(`the identity cannot be copied from ${source} to ${target}`, async () => copyIdentity(source, target));
  log.info("the identity is staged");
  return target;
}

/** Memory-backed, and only our user reads it: the runtime, before anything of the agent's runs. */
function copyIdentity(source: string, target: string): void {
  mkdirSync(target, { recursive: true });
  for (const name of Object.values(identityFiles)) {
    const file = join(target, name);
    writeFileSync(file, readFileSync(join(source, name)), { mode: 0o600 });
    chmodSync(file, 0o600);
  }
}

/** passwd and group with our user in them, to be mounted where an image knows nobody of that number (ssh, git and others fail then). */
function writeAccounts(directory: string): void {
  const uid = process.getuid?.() ?? 0;
  const gid = process.getgid?.() ?? 0;
  const users = [
    ["root", 0, 0, "/root"],
    ["sandbox", uid, gid, "/sandbox"],
    ["nobody", 65_534, 65_534, "/nonexistent"],
  ] as const;
  const passwd = users.map(([name, user, group, home]) => `${name}:x:${user}:${group}::${home}:/bin/sh\n`);
  const groups = users.map(([name, , group]) => `${name}:x:${group}:\n`);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "passwd"), passwd.join(""), { mode: 0o644 });
  writeFileSync(join(directory, "group"), groups.join(""), { mode: 0o644 });
}

async function inWords(what: string, operation: () => Promise<void>): Promise<void> {
  try {
    await operation();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("failed-precondition", `${what}: ${why}`, { reason: "StagingFailed", cause });
  }
}
