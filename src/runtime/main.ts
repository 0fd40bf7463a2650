import { writeFileSync } from "node:fs";
import { EndSignals } from "../common/end-signals.ts";
import { OpenShellError } from "../common/errors.ts";
import { createLogger, type LogLevel, logLevels } from "../common/log.ts";
import { keepYoungGenerationSmall } from "../common/small-young-generation.ts";

/** Exit codes of sysexits(3) where there is one. */
const exitCodes = { usage: 64, software: 70, cannotCreate: 73, configuration: 78 } as const;

keepYoungGenerationSmall();
const signals = new EndSignals();

async function main(): Promise<number> {
  const [, , command] = process.argv;
  const log = createLogger({ name: "openshell-runtime", level: logLevel(process.env.OPENSHELL_LOG_LEVEL) });
  switch (command) {
    // Each loads what it needs: `stage` and `seed` hold up every start, and would take half as long again with all of PID 1's modules.
    case undefined:
      return (await import("./init.ts")).runAsInit(process.env, log, signals);
    case "stage":
      return (await import("./stage.ts")).stage(process.env, log);
    case "seed":
      return (await import("./seed.ts")).seed(process.env, log);
    default:
      process.stderr.write(
        `openshell-runtime: unknown command "${command}"; known are stage, seed, and none to run as PID 1\n`,
      );
      return exitCodes.usage;
  }
}

function logLevel(text: string | undefined): LogLevel {
  return logLevels.find((one) => one === text) ?? "info";
}

function exitCodeOf(error: OpenShellError): number {
  if (error.details.reason?.startsWith("Workspace")) return exitCodes.cannotCreate;
  return error.code === "internal" || error.code === "unknown" ? exitCodes.software : exitCodes.configuration;
}

/** The sentence that the driver reads from the Pod's status. */
function explain(error: OpenShellError): void {
  const reason = error.details.reason === undefined ? "" : `${error.details.reason}: `;
  const sentence = `${reason}${error.message}`;
  process.stderr.write(`openshell-runtime: ${sentence}\n`);
  try {
    writeFileSync("/dev/termination-log", sentence, { flag: "r+" });
  } catch {
    // Not in a Pod; standard error has it.
  }
}

// An error that nobody awaited is a defect; as PID 1 its end is the sandbox's, so at least it says why.
process.on("uncaughtException", (error) => {
  process.stderr.write(`${error.stack}\n`);
  explain(new OpenShellError("internal", `internal error: ${error.message}`, { cause: error }));
  process.exit(exitCodes.software);
});

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    const known = OpenShellError.from(error);
    explain(known);
    process.exit(exitCodeOf(known));
  },
);
