import packageJson from "../../package.json" with { type: "json" };
import { OpenShellError } from "../common/errors.ts";
import { exitCodes } from "./exit-codes.ts";
import { run } from "./program.ts";

// gRPC's library names an IP address as TLS server name, which Node.js remarks on; standard error belongs to the command.
process.noDeprecation = true;

const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  // The first asks for an orderly end, the second is the system's own.
  process.once(signal, () => interrupted.abort());
}
// When a terminal closes, the shell sends one and the kernel another.
process.on("SIGHUP", () => interrupted.abort());
let unread = false;
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // The terminal was closed: SIGHUP says so, too.
  if (error.code === "EIO") return;
  // `openshell … | head`: the reader has seen enough.
  unread ||= error.code === "EPIPE";
  const message = `standard output cannot be written: ${error.message}`;
  interrupted.abort(unread ? undefined : new OpenShellError("resource-exhausted", message, { cause: error }));
});
// What is said there is commentary, and the command goes on without it: a reader that left, a terminal that was closed, a full disk.
process.stderr.on("error", () => {});

const code = await run(
  process.argv.slice(2),
  {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    signal: interrupted.signal,
  },
  packageJson.version,
);
// Standard input may still be open for reading: nothing waits for it any more.
process.exit(unread ? exitCodes.unread : code);
