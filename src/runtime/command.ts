import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import { OpenShellError } from "../common/errors.ts";
import type { Environment } from "./environment.ts";

/** What a user asked to run. */
export interface CommandRequest {
  readonly command: readonly string[];
  readonly environment: Environment;
  /** Relative to the home; empty: the home. */
  readonly workdir: string;
  readonly noLoginShell: boolean;
}

/** What execve gets. */
export interface ResolvedCommand {
  readonly file: string;
  readonly argv: readonly string[];
  readonly environment: Environment;
  readonly workdir: string;
}

const shell = "/bin/sh";

/**
 * How a command is started: through the image's login shell, which sets up what users expect and gives 126 and 127, or directly where
 * there is no shell or none is wanted.
 * @throws invalid-argument for a command that no system call can take
 */
export function resolveCommand(request: CommandRequest, base: Environment): ResolvedCommand {
  const { command, noLoginShell } = request;
  const [program] = command;
  if (program === undefined || program === "") throw new OpenShellError("invalid-argument", "the command is empty");
  const environment = { ...base, ...request.environment };
  for (const [name, value] of Object.entries(environment)) {
    if (name === "" || /[=\0]/.test(name) || value.includes("\0")) {
      throw new OpenShellError("invalid-argument", `"${name}" cannot be an environment variable`);
    }
  }
  if ([...command, request.workdir].some((one) => one.includes("\0"))) {
    throw new OpenShellError("invalid-argument", "a command cannot hold NUL bytes");
  }
  const home = base.HOME ?? "/";
  const workdir = resolve(home, request.workdir);
  if (!noLoginShell && isExecutable(shell)) {
    return { file: shell, argv: ["sh", "-lc", 'exec "$@"', "sh", ...command], environment, workdir };
  }
  return { file: findProgram(program, environment.PATH ?? "", workdir), argv: command, environment, workdir };
}

/** Looks a program up as execvp does; a name that is nowhere is given back, so that execve explains it. */
function findProgram(program: string, path: string, workdir: string): string {
  if (program.includes("/")) return isAbsolute(program) ? program : join(workdir, program);
  let seen: string | undefined;
  for (const directory of path.split(":")) {
    const file = resolve(workdir, directory, program);
    if (isExecutable(file)) return file;
    if (seen === undefined && isRefused(file)) seen = file;
  }
  // Something of that name that may not be executed, or not be looked for, is 126; nothing at all is 127.
  return seen ?? `/nonexistent/${program}`;
}

/** Whether execve says of what is not executable that it may not be executed, and not that it is not there. */
function isRefused(file: string): boolean {
  try {
    return statSync(file).isFile();
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EACCES";
  }
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
