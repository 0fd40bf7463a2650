import { Option } from "commander";
import { OpenShellError } from "../common/errors.ts";

/**
 * A flag that an environment variable may stand for. An empty variable says nothing: a container's environment is often written with all of
 * them, and what is empty must not take away what the file says.
 */
export function flagOrVariable(flags: string, variable: string, description?: string): Option {
  const option = new Option(flags, description);
  return process.env[variable] === "" ? option : option.env(variable);
}

/**
 * A switch in the environment, undefined when it says nothing. Commander would take "false" for set.
 * @throws invalid-argument when it says something else than yes or no
 */
export function switchOf(variable: string): boolean | undefined {
  const value = process.env[variable] ?? "";
  if (value === "") return undefined;
  if (/^(1|true)$/i.test(value)) return true;
  if (/^(0|false)$/i.test(value)) return false;
  throw new OpenShellError("invalid-argument", `${variable}: ${JSON.stringify(value)} is neither true nor false`);
}
