import type { openshell } from "../../wire/index.ts";
import { checkEnvironment } from "../sandbox/validate-maps.ts";
import { bytes, Violations } from "../sandbox/violations.ts";

/** Limits that existing clients were written against (contract, point 38). */
export const execLimits = {
  arguments: 1024,
  argumentBytes: 32 * 1024,
  commandBytes: 256 * 1024,
  environmentValueBytes: 32 * 1024,
  environmentBytes: 256 * 1024,
  workdirBytes: 4096,
  terminalSize: 65_535,
} as const;

/** Reserved variable that the SDK's exec_python sends. */
const pythonFunction = "OPENSHELL_PYFUNC_B64";

/** @throws invalid-argument with every violation */
export function validateExec(request: openshell.ExecSandboxRequest): void {
  const violations = new Violations();
  const limits = execLimits;
  const { command, environment, workdir } = request;
  violations.check(request.sandbox !== "", "sandbox", "names no sandbox");
  violations.check(command.length > 0 && command[0] !== "", "command", "names no program");
  violations.check(command.length <= limits.arguments, "command", "has more than 1024 arguments");
  for (const [index, argument] of command.entries()) {
    const word = `word ${index + 1} of the command`;
    violations.check(bytes(argument) <= limits.argumentBytes, `command[${index}]`, `${word} has more than 32 KiB`);
    violations.check(!argument.includes("\0"), `command[${index}]`, `${word} holds NUL`);
  }
  const total = command.reduce((sum, argument) => sum + bytes(argument), 0);
  violations.check(total <= limits.commandBytes, "command", "takes more than 256 KiB in all");
  checkEnvironment(violations, "environment", environment, {
    value: limits.environmentValueBytes,
    total: limits.environmentBytes,
    except: [pythonFunction],
  });
  violations.check(bytes(workdir) <= limits.workdirBytes, "workdir", "has more than 4096 bytes");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: refusing them is the point
  violations.check(!/[\0-\x1f\x7f]/.test(workdir), "workdir", "holds a control character");
  violations.check(request.cols <= limits.terminalSize, "cols", "is above 65535");
  violations.check(request.rows <= limits.terminalSize, "rows", "is above 65535");
  const timeout = request.executionTimeout;
  violations.check(timeout === undefined || timeout.seconds >= 0n, "execution_timeout", "is negative");
  violations.throwIfAny();
}
