import { once } from "node:events";
import { parseArgs } from "node:util";
import { pino } from "pino";
import { stringify } from "yaml";
import { OpenShellError } from "../../../src/common/errors.ts";
import { createLogger, type LogLevel, logLevels } from "../../../src/common/log.ts";
import { type AgentSandboxVersion, agentSandboxVersions, createKubeClient } from "../../../src/kube/index.ts";
import { AgentSandboxController } from "./controller.ts";
import { sandboxDefinition } from "./crd.ts";
import { installDefinition } from "./install.ts";

const usage = `usage: node e2e/cluster/agent-sandbox/main.ts --kubeconfig FILE [--version v1beta1|v1alpha1]
       [--log-file FILE] [--log-level trace|debug|info|warn|error]
       node e2e/cluster/agent-sandbox/main.ts --print-definition [--version v1beta1|v1alpha1]

Installs the Agent Sandbox API and runs a controller for it until SIGTERM or SIGINT.
Prints "ready" when sandboxes can be made. With --print-definition prints the API's definition for kubectl. Test equipment: README.md says what it does not do.`;

function oneOf<T extends string>(what: string, allowed: readonly T[], value: string): T {
  const found = allowed.find((each) => each === value);
  if (found !== undefined) return found;
  throw new OpenShellError("invalid-argument", `${what} is one of ${allowed.join(", ")}, got "${value}"`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      kubeconfig: { type: "string" },
      version: { type: "string", default: "v1beta1" },
      "log-file": { type: "string" },
      "log-level": { type: "string", default: "info" },
      "print-definition": { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const version: AgentSandboxVersion = oneOf("--version", agentSandboxVersions, values.version);
  if (values["print-definition"]) {
    process.stdout.write(stringify(sandboxDefinition(version)));
    return;
  }
  if (values.help || values.kubeconfig === undefined) {
    console.log(usage);
    process.exitCode = values.help ? 0 : 2;
    return;
  }
  const level: LogLevel = oneOf("--log-level", logLevels, values["log-level"]);
  const file = values["log-file"];
  const destination = file === undefined ? {} : { destination: pino.destination({ dest: file, sync: true }) };
  const log = createLogger({ name: "agent-sandbox-controller", level, ...destination });

  const stop = new AbortController();
  const stopped = Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
  stopped.then(() => stop.abort());
  const client = await createKubeClient({ component: "agent-sandbox-controller", kubeconfig: values.kubeconfig });
  try {
    await installDefinition(client, version, stop.signal);
    await using controller = new AgentSandboxController({ client, version, log });
    await controller.ready;
    log.info({ version }, "ready");
    console.log("ready");
    await stopped;
    log.info("stopping");
  } finally {
    client.close();
  }
}

try {
  await main();
} catch (error) {
  console.error(error instanceof OpenShellError ? error.message : error);
  process.exitCode = 1;
}
