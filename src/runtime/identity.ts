import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod/mini";
import { OpenShellError } from "../common/errors.ts";

const name = z.string().check(z.minLength(1));
const identityFile = z.object({ sandboxId: name, generationId: name });

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
    const read = (file: string) => readFileSync(join(directory, file), "utf8");
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
    for (const file of Object.values(identityFiles)) rmSync(join(directory, file), { force: true });
  }
}
