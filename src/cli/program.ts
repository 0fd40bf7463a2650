/** The command line: which commands and options there are. What they do is in commands/. */
import { Command, CommanderError, Option } from "commander";
import { OpenShellError } from "../common/errors.ts";
import { splitCommand } from "./arguments.ts";
import { execInSandbox } from "./commands/exec.ts";
import { downloadFiles, uploadFiles } from "./commands/files.ts";
import { addGateway, listGateways, logIn, logOut, removeGateway, useGateway } from "./commands/gateway.ts";
import {
  createGoals,
  createSandbox,
  deleteSandboxes,
  getSandbox,
  listSandboxes,
  startSandbox,
  stopSandbox,
} from "./commands/sandbox.ts";
import { showStatus } from "./commands/status.ts";
import { CommandContext, type GlobalOptions } from "./context.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import { restartPolicies } from "./spec.ts";
import { coloursFor, flushed, oneLine, printable, type Terminal } from "./terminal.ts";

/**
 * Runs one command line and says what went wrong in one line on standard error.
 * @param argv without the program's own name
 * @returns the exit code
 */
export async function run(argv: readonly string[], terminal: Terminal, version: string): Promise<number> {
  const { own, command } = splitCommand(argv);
  const outcome = { code: exitCodes.ok as number };
  const program = createProgram(terminal, version, command, outcome);
  const lends = lendsExitCode(wordsOf(program, own), own, command);
  const fail = (error: unknown) => {
    const known = OpenShellError.from(error);
    complain(terminal, sentenceOf(known));
    if (program.opts<GlobalOptions>().verbose) terminal.stderr.write(`${traceOf(error)}\n`);
    return lends ? exitCodes.execFailed : exitCodeOf(known);
  };
  const go = async () => {
    try {
      if (own.length === 0) return usage(program);
      await program.parseAsync([...own], { from: "user" });
      return outcome.code;
    } catch (error) {
      if (error instanceof CommanderError) {
        if (error.exitCode === 0) return exitCodes.ok;
        if (error.code === "commander.help") return exitCodes.usage;
        complain(terminal, error.message.replace(/^error: /, "").replace(/\n\((.*)\)$/, " ($1)"));
        return lends ? exitCodes.execFailed : exitCodes.usage;
      }
      return terminal.signal.aborted ? exitCodes.interrupted : fail(error);
    }
  };
  const code = await go();
  await flushed(terminal);
  const { reason } = terminal.signal;
  return reason instanceof OpenShellError ? fail(reason) : code;
}

/** What is no option, and no value of an option that stands before commands too. */
function wordsOf({ options }: Command, own: readonly string[]): string[] {
  const reader = new Command().exitOverride();
  for (const option of options) reader.addOption(option);
  // The empty word is the value of an option at the end that has none.
  const { operands, unknown } = reader.parseOptions([...own, ""]);
  return [...operands, ...unknown].filter((word) => !word.startsWith("-"));
}

/**
 * Whether the exit code is that of a command in a sandbox, so that every failure of our own needs a number that says so. Read from the words,
 * since a command line that cannot be parsed needs it too.
 */
function lendsExitCode(
  [noun, verb]: readonly string[],
  own: readonly string[],
  command: readonly string[] = [],
): boolean {
  if (noun !== "sandbox" && noun !== "sb") return false;
  if (verb !== "create") return verb === "exec";
  const until = own.indexOf("--until");
  const untilReady = own.includes("--until=ready") || (until >= 0 && own[until + 1] === "ready");
  return command.length > 0 && !untilReady && !own.includes("--detach");
}

/** @param outcome receives the exit code of a command that ran in a sandbox */
export function createProgram(
  terminal: Terminal,
  version: string,
  command: readonly string[] | undefined,
  outcome: { code: number },
): Command {
  const program = new Command("openshell")
    .description("Run autonomous agents in sandboxes on Kubernetes")
    .version(version, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .option("-g, --gateway <name>", "gateway to talk to ($OPENSHELL_GATEWAY; default: the one in use)")
    .option("--gateway-endpoint <url>", "its endpoint, in place of the known one ($OPENSHELL_GATEWAY_ENDPOINT)")
    .option("--gateway-insecure", "do not verify its certificate ($OPENSHELL_GATEWAY_INSECURE: true or false)")
    .option(
      "--bearer-token-file <file>",
      "file with the token that calls carry ($OPENSHELL_BEARER_TOKEN_FILE, or the token itself in $OPENSHELL_BEARER_TOKEN; default: the gateway's login)",
    )
    .option("-w, --workspace <name>", 'workspace ($OPENSHELL_WORKSPACE; default: "default")')
    .option(
      "--request-timeout <seconds>",
      "for one call to the gateway, or to connect to it; 0 for no limit (default: 30)",
    )
    .option("-v, --verbose", "say more when something fails")
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
      outputError: () => {},
    })
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: (one) => `${[one.name(), ...one.aliases()].join("|")} ${one.usage()}`,
    })
    .exitOverride()
    .showSuggestionAfterError();

  const context = () => new CommandContext(terminal, program.opts<GlobalOptions>());
  program.hook("preAction", (_program, action) => {
    refuseEmpty(action);
    if (command === undefined || action.name() === "create" || action.name() === "exec") return;
    throw new OpenShellError("invalid-argument", "only create and exec take a command after --");
  });

  const gateway = program.command("gateway").description("the gateways this user knows");
  gateway
    .command("add <name>")
    .description("add a gateway, or replace one")
    .requiredOption("--endpoint <url>", "https://HOST:PORT, or http://HOST:PORT for a gateway without TLS")
    .option("--from-kubernetes <namespace/secret>", "take the certificates from a Secret, through kubectl")
    .option("--from-secret <file>", "take them from a Secret that was saved as YAML or JSON")
    .option("--ca <file>", "CA certificate of the gateway, PEM")
    .option("--cert <file>", "client certificate, PEM")
    .option("--key <file>", "client key, PEM")
    .option("--oidc-issuer <url>", "its users log in to this OpenID provider")
    .option("--oidc-client-id <id>", "as this client of the provider (default: openshell-cli)")
    .option("--oidc-audience <name>", "asking for tokens for this audience, where the provider has to be told")
    .option("--oidc-scopes <scopes>", "and for these scopes, separated by spaces")
    .option("--oidc-ca <file>", "CA certificate of the provider, PEM, where it is not one that everyone knows")
    .action((name, options) => addGateway(context(), name, options));
  gateway
    .command("login [name]")
    .description(
      "log in to the gateway's OpenID provider: in a browser anywhere, or as a client with $OPENSHELL_OIDC_CLIENT_SECRET",
    )
    .action((name) => logIn(context(), name));
  gateway
    .command("logout [name]")
    .description("forget the login")
    .action((name) => logOut(context(), name));
  gateway
    .command("use <name>")
    .description("choose the gateway that commands talk to")
    .action((name) => useGateway(context(), name));
  gateway
    .command("list")
    .alias("ls")
    .description("list them")
    .addOption(output())
    .action((options) => listGateways(context(), options));
  gateway
    .command("remove <name>")
    .alias("rm")
    .description("forget a gateway and its certificates")
    .action((name) => removeGateway(context(), name));

  program
    .command("status")
    .description("whether the gateway answers, and who you are to it")
    .addOption(output())
    .action((options) => showStatus(context(), options));

  const sandbox = program.command("sandbox").alias("sb").description("sandboxes");
  sandbox
    .command("create")
    .usage("[options] [-- command...]")
    .description(
      "create a sandbox and wait until it is ready; the command after -- is its main process, which is waited for, and its exit code is this command's own",
    )
    .option("-n, --name <name>", "default: the gateway makes one up")
    .option("--from <image>", "container image (default: the operator's)")
    .option("--label <key=value>", "label; may be repeated", collect)
    .option("--env <key=value>", "environment variable of its processes; may be repeated", collect)
    .option("--cpu <amount>", "such as 500m or 2")
    .option("--memory <amount>", "such as 512Mi or 4Gi")
    .option("--gpu [count]", "one GPU, or as many as --gpu=COUNT says")
    .option("--runtime-class <name>", "RuntimeClass of the workload, where the operator allows it")
    .option("--driver-config-json <json>", "what the compute driver understands, by driver name")
    .addOption(new Option("--restart <policy>", "of the main process").choices(Object.keys(restartPolicies)))
    .option("--tty", "give the main process a terminal")
    .option("--no-tty", "give it none (default)")
    .option("--upload <local[:directory]>", "upload when it is ready, as sandbox upload does; may be repeated", collect)
    .option("--no-git-ignore", "upload also what git ignores")
    .option("--no-keep", "delete the sandbox when its command has ended, or when this command ends before it")
    .option("--detach", "do not wait; exit code 0 says that the sandbox was accepted")
    .addOption(
      new Option(
        "--until <state>",
        "what to wait for: ready, or that the main process has ended (default: ended with a command, else ready)",
      ).choices(createGoals),
    )
    .option(
      "--timeout <seconds>",
      "give up waiting after this time; 0 for never (default: 300 until it is ready, and as long as its command takes)",
    )
    .addOption(output())
    .action(async (options) => {
      outcome.code = await createSandbox(context(), options, command ?? []);
    });
  sandbox
    .command("list")
    .alias("ls")
    .description("list sandboxes")
    .addOption(new Option("--names", "only names, one a line").conflicts(["ids", "output"]))
    .addOption(new Option("--ids", "only ids, one a line").conflicts("output"))
    .option("-l, --selector <labels>", "such as team=a,stage=dev")
    .option("-A, --all-workspaces", "of every workspace")
    .addOption(output())
    .action((options) => listSandboxes(context(), options));
  sandbox
    .command("get <name>")
    .description("show one sandbox")
    .addOption(output())
    .action((name, options) => getSandbox(context(), name, options));
  sandbox
    .command("exec [words...]")
    .usage("[options] [name] -- command...")
    .description("run a command in a sandbox; its exit code is this command's own")
    .option("-n, --name <name>", "the sandbox, when it is not the first word")
    .option("--workdir <directory>", "default: the sandbox's home")
    .option("--env <key=value>", "may be repeated", collect)
    .option("--timeout <seconds>", "kill the command after this time, exit code 124; 0 for never (default)")
    .option("--tty", "with a terminal (default when this is run on one)")
    .option("--no-tty", "without")
    .option("--no-login-shell", "run it directly, not through a login shell")
    .action(async (words: string[], { name, ...options }) => {
      const [first, ...rest] = words;
      const target: string | undefined = name ?? first;
      if (!target) throw new OpenShellError("invalid-argument", "name the sandbox to run the command in");
      const prefix = name === undefined ? rest : words;
      outcome.code = await execInSandbox(context(), target, [...prefix, ...(command ?? [])], options);
    });
  sandbox
    .command("upload <name> <local> [directory]")
    .description(
      "copy a file or directory into a directory of the sandbox (default: its home); of a git work tree what git does not ignore",
    )
    .option("--no-git-ignore", "also what git ignores, and .git itself")
    .action((name, local, directory, options) => uploadFiles(context(), name, local, directory, options));
  sandbox
    .command("download <name> <path> [local]")
    .description("copy a file or directory of the sandbox to here, or to LOCAL")
    .action((name, path, local) => downloadFiles(context(), name, path, local));
  sandbox
    .command("stop <name>")
    .description("end its processes; its workspace stays")
    .addOption(noWait())
    .addOption(waitTimeout())
    .addOption(output())
    .action((name, options) => stopSandbox(context(), name, options));
  sandbox
    .command("start <name>")
    .description("run a stopped sandbox again")
    .addOption(noWait())
    .addOption(waitTimeout())
    .addOption(output())
    .action((name, options) => startSandbox(context(), name, options));
  sandbox
    .command("delete [names...]")
    .alias("rm")
    .description("delete sandboxes and their workspaces")
    .option("--all", "every sandbox of the workspace")
    .option("--ignore-missing", "a sandbox that is not there is no error")
    .addOption(noWait())
    .addOption(waitTimeout())
    .action((names, options) => deleteSandboxes(context(), names, options));

  for (const group of [program, gateway, sandbox]) addHelp(group);
  return program;
}

/** In place of commander's own, which shows the help of a group for that of a command in it, and for what there is not. */
function addHelp(group: Command): void {
  group
    .helpCommand(false)
    .command("help [command...]")
    .helpOption(false)
    .description("show help of a command")
    .action((words: string[]) => {
      let at = group;
      for (const word of words) {
        const next = at.commands.find((one) => [one.name(), ...one.aliases()].includes(word));
        at = next ?? at.error(`unknown command '${word}'`);
      }
      at.help();
    });
}

const output = () => new Option("-o, --output <format>", "table, json or yaml").default("table");
const noWait = () => new Option("--no-wait", "return at once").conflicts("timeout");
const waitTimeout = () =>
  new Option("--timeout <seconds>", "give up waiting after this time; 0 for never").default("300");

function collect(value: string, before: string[] = []): string[] {
  return [...before, value];
}

/** A word that is empty comes from a variable without a value; a default in its place would touch what nobody named. */
function refuseEmpty(action: Command): void {
  const { name } = action.opts<{ name?: string }>();
  if (name === "") {
    throw new OpenShellError("invalid-argument", "--name is empty: write a name, or leave the option out");
  }
  // What exec runs may have empty words.
  if (action.name() === "exec") return;
  const { registeredArguments, args } = action;
  const empty = args.indexOf("");
  if (empty < 0) return;
  const argument = registeredArguments[Math.min(empty, registeredArguments.length - 1)];
  throw new OpenShellError("invalid-argument", `the argument ${argument?.name()} is empty`);
}

function usage(program: Command): number {
  program.outputHelp({ error: true });
  return exitCodes.usage;
}

function complain(terminal: Terminal, sentence: string): void {
  const { red } = coloursFor(terminal.stderr, terminal.env);
  terminal.stderr.write(`${red("openshell:")} ${oneLine(sentence)}\n`);
}

/** The message, and every refused field that it does not name already. */
function sentenceOf({ message, details }: OpenShellError): string {
  const fields = (details.violations ?? [])
    .filter(({ field, description }) => !message.includes(description) || !message.includes(field))
    .map(({ field, description }) => (field === "" ? description : `${field}: ${description}`));
  return fields.length === 0 ? message : `${message} (${fields.join("; ")})`;
}

function traceOf(error: unknown): string {
  const lines: string[] = [];
  for (let at: unknown = error; at !== undefined; at = at instanceof Error ? at.cause : undefined) {
    lines.push(at instanceof Error ? (at.stack ?? at.message) : String(at));
  }
  return lines.join("\ncaused by: ").split("\n").map(printable).join("\n");
}
