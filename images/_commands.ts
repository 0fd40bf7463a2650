import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { OpenShellError } from "../src/common/errors.ts";

const execute = promisify(execFile);

/**
 * Runs a build tool and returns its standard output.
 * @param remedy what to install when it is missing
 * @throws failed-precondition when it is missing, internal when it fails
 */
export async function tool(command: string, args: readonly string[], remedy: string): Promise<string> {
  try {
    const { stdout } = await execute(command, [...args], { maxBuffer: 64 * 1024 * 1024 });
    return stdout;
  } catch (cause) {
    const { code, stderr } = cause as { code?: unknown; stderr?: string };
    if (code === "ENOENT")
      throw new OpenShellError("failed-precondition", `${command} is not installed: ${remedy}`, { cause });
    throw new OpenShellError("internal", `${command} ${args.join(" ")} failed: ${(stderr ?? String(cause)).trim()}`, {
      cause,
    });
  }
}
