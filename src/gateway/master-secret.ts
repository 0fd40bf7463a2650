import { OpenShellError } from "../common/errors.ts";
import { readSecret } from "./secret-file.ts";

/**
 * The secret from which every generation's keys are derived: 32 random bytes, written in base64 (RFC 4648, section 4).
 * @throws invalid-argument when the file cannot be read or holds anything else
 */
export function readMasterSecret(path: string): Uint8Array {
  const text = readSecret("master_secret_path", path).trim();
  // Buffer.from skips what is no base64, and would take half a secret for a whole one.
  const canonical = /^[A-Za-z0-9+/]{43}=$/.test(text);
  const secret = Buffer.from(canonical ? text : "", "base64");
  if (secret.length === 32) return secret;
  throw new OpenShellError(
    "invalid-argument",
    `master_secret_path: ${path} does not hold 32 random bytes in base64; "head -c 32 /dev/urandom | base64" prints such a secret`,
  );
}
