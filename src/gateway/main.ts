// Before all others: the schema of the settings, which is made where it is imported, would have it grow.
import "./_at-start.ts";
import { Command, CommanderError, Option } from "commander";
import { EndSignals, endAtOnce } from "../common/end-signals.ts";
import { OpenShellError } from "../common/errors.ts";
import { createLogger } from "../common/log.ts";
import { configPath, loadSettings } from "./config-file.ts";
import { flagOrVariable, switchOf } from "./flags.ts";
import { oidcFlags } from "./oidc-flags.ts";
import { version } from "./version.ts";

/** Exit codes: 0 done as asked, 1 could not start or had to give up, 2 wrong usage or settings. */
const failure = 1;
const misuse = 2;

const signals = new EndSignals();

const program = new Command("openshell-gateway")
  .description("The OpenShell gateway: serves the API and runs sandboxes.")
  .version(version)
  .exitOverride()
  .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "openshell-gateway: ")) });

const config = () => flagOrVariable("--config <file>", "OPENSHELL_GATEWAY_CONFIG", "gateway.toml");

const serveCommand = program
  .command("serve", { isDefault: true })
  .description("serve until SIGTERM")
  .addOption(config())
  .addOption(flagOrVariable("--db-url <url>", "OPENSHELL_DB_URL", "store, sqlite:/path"))
  .addOption(flagOrVariable("--bind-address <ip[:port]>", "OPENSHELL_BIND_ADDRESS", "gRPC listener"))
  .addOption(flagOrVariable("--port <port>", "OPENSHELL_SERVER_PORT", "port of the gRPC listener"))
  .addOption(flagOrVariable("--health-port <port>", "OPENSHELL_HEALTH_PORT", "0 for none"))
  .addOption(flagOrVariable("--metrics-port <port>", "OPENSHELL_METRICS_PORT", "0 for none"))
  .addOption(flagOrVariable("--log-level <level>", "OPENSHELL_LOG_LEVEL"))
  .option("--disable-tls", "plain text, for development (env: OPENSHELL_DISABLE_TLS=true)")
  .addOption(flagOrVariable("--tls-cert <file>", "OPENSHELL_TLS_CERT"))
  .addOption(flagOrVariable("--tls-key <file>", "OPENSHELL_TLS_KEY"))
  .addOption(flagOrVariable("--tls-client-ca <file>", "OPENSHELL_TLS_CLIENT_CA"))
  .addOption(new Option("--kubeconfig <file>", "for development outside a cluster"))
  .action(async (options) => {
    const { serve } = await import("./serve.ts");
    const { gateway, log } = await serve({ disableTls: switchOf("OPENSHELL_DISABLE_TLS"), ...options });
    const stopped = Promise.withResolvers<void>();
    signals.handledBy((signal) => {
      signals.handledBy(endAtOnce);
      log.info({ signal }, "shutting down");
      gateway.stop().then(stopped.resolve, stopped.reject);
    });
    try {
      await Promise.race([stopped.promise, gateway.closed]);
      await stopped.promise;
    } catch (error) {
      await gateway.stop();
      throw error;
    }
  });

for (const flag of oidcFlags()) serveCommand.addOption(flag);

program
  .command("render")
  .description("print what a sandbox would put into the cluster; needs no cluster")
  .addOption(config())
  .requiredOption("--sandbox <file>", "CreateSandboxRequest or SandboxSpec as YAML or JSON")
  .action(async (options) => {
    const { render } = await import("./render.ts");
    process.stdout.write(render(options));
  });

program
  .command("config")
  .description("look at a configuration")
  .command("preflight")
  .description("check a gateway.toml without changing anything")
  .option("--path <file>", "gateway.toml; default as for serve")
  .action((options: { readonly path?: string }) => {
    const path = configPath(options.path, process.env);
    loadSettings(path, "serve");
    process.stdout.write(`ok: ${path ?? "built-in defaults"}\n`);
  });

program
  .command("pki")
  .description("certificates and keys of a release")
  .command("converge")
  .description("make the release's Secrets what they should be")
  .requiredOption("--namespace <namespace>")
  .requiredOption("--prefix <fullname>", "begins the name of every Secret")
  .option("--dns-name <name...>", "names of the gateway's certificate", [])
  .option("--ip-address <address...>", "addresses of the gateway's certificate", [])
  .option("--skip <secret...>", "Secrets that an operator gives", [])
  .action(async ({ namespace, prefix, dnsName, ipAddress, skip }) => {
    const { convergePki } = await import("../pki/index.ts");
    const log = createLogger({ name: "openshell-gateway" });
    const secrets = await convergePki({ namespace, prefix, dnsNames: dnsName, ipAddresses: ipAddress, skip, log });
    for (const { name, outcome } of secrets) process.stdout.write(`${name}: ${outcome}\n`);
  });

program
  .command("selftest")
  .description("look at an installed gateway and its rights from inside the cluster; what `helm test` runs")
  .requiredOption("--endpoint <host:port>", "the gateway's listener")
  .option("--tls", "the listener has TLS")
  .option("--server-name <name>", "name in its certificate, where that is not the endpoint's host")
  .option("--ca <file>", "authority of its certificate; where there is no such file, those that everyone knows")
  .option("--namespace <namespace>", "review the driver's rights in the sandboxes' namespace")
  .option("--gateway-id <id>", "whose objects the rights are confined to", "openshell")
  .addOption(
    new Option("--workspace-mode <mode>", "review the rights of this mode, in each namespace of a workspace")
      .choices(["shared", "managed", "operator"])
      .default("shared"),
  )
  .option("--operator-namespace-label <label>", "which namespaces are workspaces in mode operator")
  .option("--operator-namespace-file <file>", "in place of the label: a JSON array of their names")
  .option("--fenced <host:port>", "an open port that a NetworkPolicy keeps this Pod from")
  .action(async (options) => {
    const { printFindings, selfTest } = await import("./selftest.ts");
    const findings = await selfTest(options);
    process.stdout.write(printFindings(findings));
    if (findings.some(({ problem }) => problem !== undefined)) process.exitCode = failure;
  });

try {
  await program.parseAsync();
} catch (thrown) {
  if (thrown instanceof CommanderError) {
    // Commander has printed its sentence; help and version are no failure.
    process.exitCode = thrown.exitCode === 0 ? 0 : misuse;
  } else {
    const error = OpenShellError.from(thrown);
    const category = error.details.reason === undefined ? "" : `${error.details.reason}: `;
    process.stderr.write(`openshell-gateway: ${category}${error.message}\n`);
    process.exitCode = error.code === "invalid-argument" ? misuse : failure;
  }
}
