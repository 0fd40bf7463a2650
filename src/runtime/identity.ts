import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { OpenShellError } from "../common/errors.ts";

const identityFile = z.object({ sandboxId: z.string().min(1), generationId: z.string().min(1), podUid: z.string() });

/** Names of the files, as the workload Secret and `stage` have them. */
export const identityFiles = {
  certificate: "tls.crt",
  key: "tls.key",
  generationKey: "generation.pub",
  authority: "boundary-ca.crt",
  identity: "identity.json",
} as const;

/** Who this runtime is; held in memory only. */
export interface Identity {
  readonly sandboxId: string;
  readonly generationId: string;
  readonly certificate: string;
  readonly key: string;
  /** SPKI PEM; verifies session grants. */
  readonly generationKey: string;
  /** The generation's CA. */
  readonly authority: string;
}

/**
 * Reads the identity and unlinks its files, so that the agent finds none.
 * @throws failed-precondition when one is missing, e.g. since the container was started a second time
 */
export function takeIdentity(directory: string): Identity {
  try {
    const read = (name: string) => readFileSync(join(directory, name), "utf8");
    const { sandboxId, generationId } = identityFile.parse(JSON.parse(read(identityFiles.identity)));
    return {
      sandboxId,
      generationId,
      certificate: read(identityFiles.certificate),
      key: read(identityFiles.key),
      generationKey: read(identityFiles.generationKey),
      authority: read(identityFiles.authority),
    };
  } catch (cause) {
    throw new OpenShellError(
      "failed-precondition",
      `the identity in ${directory} is missing or damaged; it serves one start of one Pod, so start the sandbox again`,
      { cause },
    );
  } finally {
    for (const name of Object.values(identityFiles)) rmSync(join(directory, name), { force: true });
  }
}
