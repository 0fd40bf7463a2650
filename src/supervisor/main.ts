/** `openshell-supervisor`: the trusted side of a sandbox, in the supervisor Pod. Takes no arguments; settings.ts says what it reads. */
import { OpenShellError } from "../common/errors.ts";
import { createLogger } from "../common/log.ts";
import { readSettings } from "./settings.ts";
import { type End, exitCodes } from "./state.ts";

/** Set at build time by images/build.ts. */
const build = process.env.OPENSHELL_BUILD ?? "development";

// Before the rest is loaded, which takes longest: as PID 1 this program gets no signal that it has no handler for.
const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort(signal));

const end = await run();
const log = createLogger({ name: "openshell-supervisor" });
log[end.reason === "Stopped" ? "info" : "error"]({ reason: end.reason }, `ended: ${end.message}`);
process.exit(exitCodes[end.reason]);

async function run(): Promise<End> {
  try {
    const settings = readSettings(process.env);
    const log = createLogger({ name: "openshell-supervisor", level: settings.logLevel });
    log.info(
      { build, sandbox: settings.sandboxId, generation: settings.generationId, pod: settings.podUid },
      "starting",
    );
    const { Supervisor } = await import("./supervisor.ts");
    return await new Supervisor({ settings, build, log }).run(stop.signal);
  } catch (error) {
    const { code, message } = OpenShellError.from(error);
    return { reason: code === "invalid-argument" ? "BadSettings" : "Unexpected", message };
  }
}
