import { parseArgs } from "node:util";
import { OpenShellError } from "../../src/common/errors.ts";
import { stderrProgress } from "./progress.ts";
import type { ClusterProvider } from "./provider.ts";
import { selectProvider } from "./select.ts";

const usage = `usage: node e2e/cluster/main.ts COMMAND [--provider local|k3d|kubeconfig]

  up [--nodes N]     bring a cluster up, or go on where an earlier call stopped (default: 2 nodes)
  down               remove every trace of it
  kubeconfig         print the path of an administrator's kubeconfig
  load FILE REF      put an image archive on every node under the reference REF
  nodes              list the nodes
  add-node           add one
  remove-node NAME   take one away
  logs DIRECTORY     copy every log there
`;

async function main(argv: readonly string[], signal: AbortSignal): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      provider: { type: "string" },
      nodes: { type: "string", default: "2" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const [command, ...args] = positionals;
  if (values.help) {
    process.stdout.write(usage);
    return;
  }
  const execute = command === undefined ? undefined : commands[command];
  if (execute === undefined) throw new OpenShellError("invalid-argument", usage);
  await execute(await selectProvider(values.provider), args, { nodes: Number(values.nodes), signal });
}

type Command = (
  provider: ClusterProvider,
  args: readonly string[],
  options: { nodes: number; signal: AbortSignal },
) => Promise<void>;

const commands: Readonly<Record<string, Command>> = {
  up: async (provider, _args, options) => {
    await provider.up({ ...options, progress: stderrProgress() });
    print(await provider.kubeconfig());
  },
  down: (provider) => provider.down(stderrProgress()),
  kubeconfig: async (provider) => print(await provider.kubeconfig()),
  load: (provider, args) => provider.loadImage(argument(args, 0, "FILE"), argument(args, 1, "REF")),
  nodes: async (provider) => {
    for (const node of await provider.nodes()) print(describe(node));
  },
  "add-node": async (provider) => print(describe(await provider.addNode())),
  "remove-node": (provider, args) => provider.removeNode(argument(args, 0, "NAME")),
  logs: (provider, args) => provider.collectLogs(argument(args, 0, "DIRECTORY")),
};

function describe({ name, address, ready, schedulable }: Awaited<ReturnType<ClusterProvider["addNode"]>>): string {
  return `${name}\t${address}\t${ready ? "Ready" : "NotReady"}${schedulable ? "" : ",SchedulingDisabled"}`;
}

function argument(args: readonly string[], at: number, name: string): string {
  const value = args[at];
  if (value === undefined) throw new OpenShellError("invalid-argument", `${name} is missing\n\n${usage}`);
  return value;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
try {
  await main(process.argv.slice(2), interrupted.signal);
} catch (error) {
  const { message } = OpenShellError.from(error);
  process.stderr.write(`${message}\n`);
  if (process.env.DEBUG) console.error(error);
  process.exitCode = 1;
}
