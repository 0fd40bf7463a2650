/**
 * `npm run demo`: from nothing to a running agent pair whose two Pods are on different nodes. Every step can be repeated; a run that was
 * interrupted goes on where it stopped. `npm run demo -- --down` removes it all.
 */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { checkBuildMachine } from "../images/build.ts";
import { loadImages } from "../images/load.ts";
import { referenceOf } from "../images/references.ts";
import { sleep } from "../src/common/async.ts";
import { OpenShellError } from "../src/common/errors.ts";
import { cacheDirectory } from "./cluster/cache.ts";
import { applyObjects, deleteObjects, unpackClients } from "./cluster/clients.ts";
import { attempt, pasteable, run } from "./cluster/exec.ts";
import { type Progress, stderrProgress } from "./cluster/progress.ts";
import type { ClusterProvider } from "./cluster/provider.ts";
import { selectProvider } from "./cluster/select.ts";
import { BackgroundForward } from "./demo/forward.ts";
import { DemoHome } from "./demo/home.ts";
import { pairOf, pairTable } from "./demo/pair.ts";
import { imageValues, install, releaseNamed, uninstall } from "./support/release.ts";
import { runtimeClass } from "./support/runtime-class.ts";

const usage = `usage: npm run demo -- [options]

  --provider NAME  local, k3d or kubeconfig (default: the one of the demo that is up, $OPENSHELL_PROVIDER, else what this machine has)
  --down           remove the demo: sandbox, release, files, and the cluster where the demo made it; what was built stays in the cache
  --purge          with --down: the cache too
`;

const root = fileURLToPath(new URL("..", import.meta.url));
const release = releaseNamed("openshell-demo");
const sandbox = "demo";
const resources = ["--cpu", "100m", "--memory", "128Mi"];
/** Everything that the demo keeps on this machine besides the cluster and the cache. */
const directory = join(root, "dist", "demo");
const configHome = join(directory, "config");
const forward = new BackgroundForward(directory);
const home = new DemoHome(directory);

interface Demo {
  readonly provider: ClusterProvider;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

/** Runs the command line as a user would, shows what was typed, and gives what it printed. */
async function openshell(args: readonly string[], options: { readonly quiet?: boolean } = {}): Promise<string> {
  if (!options.quiet) process.stdout.write(`\n$ openshell ${args.map(shown).join(" ")}\n`);
  const { code, stdout, stderr } = await attempt(process.execPath, [join(root, "src/cli/main.ts"), ...args], {
    env: {
      XDG_CONFIG_HOME: configHome,
      OPENSHELL_GATEWAY: "",
      OPENSHELL_GATEWAY_ENDPOINT: "",
      OPENSHELL_WORKSPACE: "",
    },
    ...(options.quiet ? {} : { onLine: (line: string) => process.stdout.write(`${line}\n`) }),
  });
  if (code === 0) return stdout;
  const said = stderr.trim().split("\n").at(-1) ?? "";
  throw new OpenShellError("internal", `openshell ${args.map(shown).join(" ")} ended with code ${code}: ${said}`, {
    metadata: { code: String(code) },
  });
}

function shown(word: string): string {
  return pasteable(word, []);
}

async function up({ provider, progress, signal }: Demo): Promise<void> {
  const step = (name: string) => progress.note(`== ${name}`);

  checkBuildMachine();
  step(`a cluster of two nodes (${provider.name})`);
  await unpackClients(progress);
  await home.settle(provider);
  await provider.up({ nodes: 2, progress, signal });
  const kubeconfig = await provider.kubeconfig();

  step("the images");
  const images = await loadImages(provider, { note: (line) => progress.note(line) });
  signal.throwIfAborted();

  step("the chart, with pod_anti_affinity = required");
  const classes = await runtimeClasses(provider, kubeconfig);
  const gateway = images.find(({ name }) => name === "gateway");
  const gatewayConfig = {
    "openshell.drivers.kubernetes": {
      ...classes,
      default_image: referenceOf("busybox"),
      workspace_default_storage_size: "64Mi",
    },
  };
  const values = { ...imageValues(gateway?.digest ?? ""), gatewayConfig };
  await install({ kubeconfig, release, presets: ["conformance", "required-anti-affinity"], values });
  signal.throwIfAborted();

  step("a way to the gateway, and the gateway in the user's list");
  const port = await forward.start({ kubeconfig, namespace: release.namespace, service: release.name, port: 8080 });
  await addGateway(kubeconfig, port);
  await openshell(["status"]);
  signal.throwIfAborted();

  step("a sandbox");
  const id = await createSandbox();
  signal.throwIfAborted();

  step("a command in it, a file up and back");
  await openshell(["sandbox", "exec", sandbox, "--", "sh", "-c", 'echo "$GREETING from $(hostname), user $(id -u)"']);
  await carryFile();

  step("its two Pods");
  const rows = await pairOf(kubeconfig, release.sandboxNamespace, id);
  process.stdout.write(`\n${pairTable(rows)}\n`);
  const nodes = new Set(rows.map(({ node }) => node));
  if (rows.length !== 2 || nodes.size !== 2) {
    throw new OpenShellError(
      "internal",
      "a pair of two Pods on two nodes was required, and the table shows something else",
    );
  }
  const config = relative(process.cwd(), configHome);
  process.stdout.write(
    `\nThe demo stays up. Go on with, for example:\n  XDG_CONFIG_HOME=${config} npx openshell sandbox exec ${sandbox} -- sh\nRemove every trace with:\n  npm run demo -- --down\n`,
  );
}

const demoClasses = [runtimeClass("demo-agent", "crun"), runtimeClass("demo-supervisor", "runc")];

/** Two RuntimeClasses with different OCI runtimes where the nodes are known to have both. */
async function runtimeClasses(provider: ClusterProvider, kubeconfig: string): Promise<object> {
  if (provider.name !== "local") return {};
  await applyObjects(kubeconfig, demoClasses);
  return { default_runtime_class_name: "demo-agent", supervisor_runtime_class_name: "demo-supervisor" };
}

async function addGateway(kubeconfig: string, port: number): Promise<void> {
  const secret = join(directory, "client-tls.json");
  const name = `${release.name}-client-tls`;
  const get = ["-n", release.namespace, "get", "secret", name, "-o", "json"];
  const { kubectl } = await unpackClients({ note: () => {} });
  await mkdir(directory, { recursive: true });
  await writeFile(secret, await run(kubectl, [`--kubeconfig=${kubeconfig}`, ...get]), { mode: 0o600 });
  try {
    const endpoint = `https://127.0.0.1:${port}`;
    await openshell(["gateway", "add", "demo", "--endpoint", endpoint, "--from-secret", secret]);
  } finally {
    await rm(secret);
  }
}

/** The sandbox of an earlier run where that still can be used; else a new one. Gives its id. */
async function createSandbox(): Promise<string> {
  const phase = await settledPhase();
  if (phase === "READY") process.stdout.write(`\nThe sandbox ${sandbox} is READY since an earlier run.\n`);
  else if (phase === "STOPPED") await openshell(["sandbox", "start", sandbox]);
  else {
    if (phase !== undefined) await openshell(["sandbox", "delete", sandbox]);
    await openshell(["sandbox", "create", "--name", sandbox, "--env", "GREETING=hello", ...resources]);
  }
  return JSON.parse(await openshell(["sandbox", "get", sandbox, "-o", "json"], { quiet: true })).id;
}

/** Phase of the sandbox once it is on no way to another one; as it is after a minute; undefined when there is none. */
async function settledPhase(): Promise<string | undefined> {
  for (const deadline = performance.now() + 60_000; ; ) {
    const list = JSON.parse(await openshell(["sandbox", "list", "-o", "json"], { quiet: true }));
    const phase: string | undefined = list.find(({ name }: { name: string }) => name === sandbox)?.phase;
    const onItsWay = phase === "PROVISIONING" || phase === "STARTING" || phase === "STOPPING";
    if (!onItsWay || performance.now() > deadline) return phase;
    await sleep(1000);
  }
}

async function carryFile(): Promise<void> {
  const sent = `written at ${new Date().toISOString()}\n`;
  const file = join(directory, "note.txt");
  const back = join(directory, "note-back.txt");
  await writeFile(file, sent);
  await rm(back, { force: true });
  await openshell(["sandbox", "upload", sandbox, file]);
  await openshell(["sandbox", "exec", sandbox, "--", "cat", "note.txt"]);
  await openshell(["sandbox", "download", sandbox, "note.txt", back]);
  const read = await readFile(back, "utf8");
  if (read !== sent) throw new OpenShellError("data-loss", `the file came back different: ${read}`);
  process.stdout.write("The file came back as it went.\n");
}

async function down({ provider, progress }: Demo, purge: boolean): Promise<void> {
  const removal = await home.removal(provider);
  await forward.stop();
  if (removal === "cluster") await provider.down(progress);
  if (removal === "release") {
    await unpackClients(progress);
    progress.note(`removing the release ${release.name}`);
    const kubeconfig = await provider.kubeconfig();
    await uninstall(kubeconfig, release);
    await deleteObjects(kubeconfig, demoClasses);
  }
  await rm(directory, { recursive: true, force: true });
  if (purge) await rm(cacheDirectory, { recursive: true, force: true });
  progress.note(
    purge
      ? "everything of the demo is removed"
      : `everything of the demo is removed; built programs and images stay in ${cacheDirectory} (--purge removes them too)`,
  );
}

async function main(argv: readonly string[], signal: AbortSignal): Promise<void> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      provider: { type: "string" },
      down: { type: "boolean", default: false },
      purge: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return;
  }
  const wanted = values.provider ?? (await home.provider()) ?? process.env.OPENSHELL_PROVIDER;
  const provider = await selectProvider(wanted);
  const demo: Demo = { provider, progress: stderrProgress(), signal };
  if (values.down) await down(demo, values.purge);
  else await up(demo);
}

const interrupted = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => interrupted.abort());
try {
  await main(process.argv.slice(2), interrupted.signal);
} catch (error) {
  const message = interrupted.signal.aborted
    ? "interrupted; `npm run demo` goes on from here, `npm run demo -- --down` removes what is there"
    : error instanceof Error
      ? error.message
      : String(error);
  const isUsage = (error as NodeJS.ErrnoException).code?.startsWith("ERR_PARSE_ARGS") === true;
  process.stderr.write(`demo: ${message}\n${isUsage ? `\n${usage}` : ""}`);
  if (process.env.DEBUG) console.error(error);
  process.exitCode = interrupted.signal.aborted ? 130 : 1;
}
