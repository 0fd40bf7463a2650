import { closeSync, constants, existsSync, fstatSync, openSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import { parseSettings, type SettingOverride, type Settings, type SettingsPurpose } from "../config/index.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Which gateway.toml to read: the one asked for, else OPENSHELL_GATEWAY_CONFIG, else the user's own if there is one. Undefined: none, so
 * built-in defaults hold.
 */
export function configPath(asked: string | undefined, environment: Environment): string | undefined {
  if (asked !== undefined) return asked;
  const named = environment.OPENSHELL_GATEWAY_CONFIG;
  if (named !== undefined && named !== "") return named;
  const base = environment.XDG_CONFIG_HOME || join(homedir(), ".config");
  const own = join(base, "openshell", "gateway.toml");
  return existsSync(own) ? own : undefined;
}

/**
 * Reads the settings of a file, or the built-in ones.
 * @param overrides what flags say over it
 * @throws invalid-argument naming every problem
 */
export function loadSettings(
  path: string | undefined,
  purpose: SettingsPurpose,
  overrides: readonly SettingOverride[] = [],
): Settings {
  if (path === undefined) return parseSettings("[openshell]\nversion = 2\n", "built-in defaults", purpose, overrides);
  return parseSettings(readRegularFile(path), path, purpose, overrides);
}

/**
 * The text of a regular file. Links are not followed: what is read is what the operator named.
 * @throws invalid-argument with reason missing_path, non_regular_path or unreadable_path
 */
export function readRegularFile(path: string): string {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (!fstatSync(file).isFile()) throw refusal("non_regular_path", `${path} is not a regular file`);
    return readFileSync(file, "utf8");
  } catch (error) {
    throw error instanceof OpenShellError ? error : explained(path, error);
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function explained(path: string, error: unknown): OpenShellError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (code === "ENOENT") return refusal("missing_path", `${path} does not exist`, error);
  if (code === "ELOOP") {
    return refusal(
      "non_regular_path",
      `${path} is a symbolic link; name the file itself (mount a ConfigMap by subPath)`,
      error,
    );
  }
  return refusal("unreadable_path", `${path} cannot be read (${code || String(error)})`, error);
}

function refusal(reason: string, message: string, cause?: unknown): OpenShellError {
  return new OpenShellError("invalid-argument", message, { reason, cause });
}
