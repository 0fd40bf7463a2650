import { readFileSync } from "node:fs";
import { OpenShellError } from "../common/errors.ts";

/**
 * Text of a file that a setting names.
 * @throws invalid-argument naming the setting and the file
 */
export function readSecret(setting: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("invalid-argument", `${setting}: ${reason}`, { cause });
  }
}
