/**
 * Bytes and commands by the `openshell` command line beside `kubectl exec` into the same Pod: a command that does nothing, a large file and many
 * small ones in and out, and a key's echo on a terminal. The two take turns, A B B A, each as whole programs from their start to their end;
 * what came is compared with what was sent. A copy of ours that is not whole ends the run, one of the peer's is counted.
 *
 *   npm run bench -- bytes [--rounds 3] [--mebibytes 128] [--files 2000] [--commands 10] [--keys 200] [--provider NAME] [--out DIRECTORY]
 *
 *   --rounds     of A B B A for each kind of copy; a ratio is of two neighbours, so that there are twice as many
 *   --commands   rounds of A B B A for the command that does nothing
 *   --only       kinds whose name begins so
 *
 * The gateway is called at its Service's address where this machine has a way there, as it has on the local cluster. `kubectl port-forward`, the
 * way elsewhere, is itself what `kubectl exec` is made of, and costs as much again.
 * Prints JSON, and Markdown to standard error; with --out also writes bytes.json and bytes.md. The cluster and the release stay.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { services } from "../../src/kube/index.ts";
import { createChannel, grpcClient, openshell } from "../../src/wire/index.ts";
import { clients } from "../cluster/clients.ts";
import { stderrProgress } from "../cluster/progress.ts";
import { percentile } from "./_arrivals.ts";
import { openBenchGateway } from "./_bench-gateway.ts";
import { machineCpuSeconds } from "./_counts.ts";
import { machine, machineLine, median, publish, timed } from "./_report.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    mebibytes: { type: "string", default: "128" },
    files: { type: "string", default: "2000" },
    commands: { type: "string", default: "10" },
    keys: { type: "string", default: "200" },
    only: { type: "string", default: "" },
    provider: { type: "string" },
    out: { type: "string" },
  },
});
const [rounds, mebibytes, files] = [Number(values.rounds), Number(values.mebibytes), Number(values.files)];
const [commands, keys] = [Number(values.commands), Number(values.keys)];
if (![rounds, mebibytes, files, commands, keys].every((count) => Number.isInteger(count) && count >= 1)) {
  throw new Error("--rounds, --mebibytes, --files, --commands and --keys are whole numbers of at least 1");
}
const gatewayPort = 8080;

await using undo = new AsyncDisposableStack();
const progress = stderrProgress();
const bench = undo.use(await openBenchGateway(values.provider, progress));
const { provider, kubeconfig, kube, release, gateway } = bench;
const sandbox = undo.use(await bench.create());
await sandbox.ready();

const here = mkdtempSync(join(tmpdir(), "openshell-bench-"));
undo.defer(() => rmSync(here, { recursive: true, force: true }));
/** The sandbox's home, where its volume is. */
const there = "/sandbox/bench";

const service = await kube.get(services, release.namespace, release.name);
const address = service.spec?.clusterIP ?? "";
const isDirect = await answers(address, gatewayPort);
const endpoint = isDirect ? `https://${address}:${gatewayPort}` : gateway.endpoint;

function answers(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port, timeout: 2_000 });
  return new Promise<boolean>((resolve) => {
    socket.once("connect", () => resolve(true));
    for (const event of ["error", "timeout"]) socket.once(event, () => resolve(false));
  }).finally(() => socket.destroy());
}

const { certificate } = gateway;
if (certificate === undefined) throw new Error("the release was installed without TLS");
const pem = { ca: certificate.ca, cert: certificate.certificate, key: certificate.key };
for (const [name, content] of Object.entries(pem)) writeFileSync(join(here, name), content, { mode: 0o600 });

/** Words of a shell's command line. */
const quoted = (...words: readonly string[]) => words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
const program = fileURLToPath(new URL("../../src/cli/openshell.mjs", import.meta.url));
const openshellCommand = (...words: readonly string[]) => quoted(process.execPath, program, ...words);
const inPod = ["--kubeconfig", kubeconfig, "-n", release.sandboxNamespace, "exec", sandbox.resourceName, "-c", "agent"];
const kubectlExec = (flags: readonly string[], ...words: readonly string[]) =>
  quoted(clients.kubectl, ...inPod, ...flags, "--", ...words);
const ourExec = (flags: readonly string[], ...words: readonly string[]) =>
  openshellCommand("sandbox", "exec", sandbox.name, "--no-login-shell", ...flags, "--", ...words);

const environment = {
  PATH: process.env.PATH ?? "",
  HOME: here,
  TERM: "xterm",
  // The certificate is for the Service's names, and this machine has only its address.
  ...(isDirect ? { OPENSHELL_GATEWAY_INSECURE: "1" } : {}),
};

/** Runs a shell's command line to its end and fails as it does. */
async function shell(script: string): Promise<string> {
  const child = spawn("bash", ["-o", "pipefail", "-c", script], {
    env: environment,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { out: "", err: "" };
  child.stdout.on("data", (data) => {
    said.out += data;
  });
  child.stderr.on("data", (data) => {
    said.err = `${said.err}${data}`.slice(-2_000);
  });
  const [code] = (await once(child, "close")) as [number];
  if (code !== 0) throw new Error(`${script}\nended with ${code}: ${said.err}`);
  return said.out;
}

await shell(openshellCommand("gateway", "add", "bench", "--endpoint", endpoint, ...pemFlags()));

function pemFlags(): string[] {
  return ["ca", "cert", "key"].flatMap((name) => [`--${name}`, join(here, name)]);
}

/** What is copied: one file that does not compress, and small ones as source trees have them. */
function makeSources(): void {
  for (const side of ["ours", "peer"]) mkdirSync(join(here, side));
  const block = 1024 * 1024;
  writeFileSync(join(here, "big"), "");
  for (let made = 0; made < mebibytes; made += 1) writeFileSync(join(here, "big"), randomBytes(block), { flag: "a" });
  for (let made = 0; made < files; made += 1) {
    const directory = join(here, "many", `d${made % 20}`);
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `f${made}.txt`), randomBytes(50 + ((made * 37) % 3_000)).toString("base64"));
  }
}

/** SHA-256 of a file, or of the sorted list of a tree's files, each with its own. */
async function hashHere(path: string): Promise<string> {
  const one = async (file: string) => {
    const hash = createHash("sha256");
    for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
    return hash.digest("hex");
  };
  const names = readdirSync(join(path, "."), { recursive: true, withFileTypes: true });
  const lines: string[] = [];
  for (const entry of names.filter((found) => found.isFile())) {
    const file = join(entry.parentPath, entry.name);
    lines.push(`${await one(file)}  .${file.slice(path.length)}\n`);
  }
  return createHash("sha256")
    .update(
      lines.sort((left, right) => Buffer.compare(Buffer.from(left.slice(66)), Buffer.from(right.slice(66)))).join(""),
    )
    .digest("hex");
}

async function hashThere(path: string): Promise<string> {
  const script = `cd ${path} && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum`;
  const { stdout, exitCode } = await sandbox.exec(["sh", "-c", script], { timeoutSeconds: 120 });
  if (exitCode !== 0) throw new Error(`${path} cannot be read in the sandbox`);
  return stdout.slice(0, 64);
}

type Side = "ours" | "peer";

interface Kind {
  readonly name: string;
  readonly beside: string;
  readonly unit: "MiB/s" | "files/s" | "ms";
  /** Rounds of A B B A. */
  readonly rounds: number;
  readonly command: Readonly<Record<Side, string>>;
  /** What it brought, to be compared and taken away. */
  readonly brought?: "here" | "there";
  /** Below `here`, of what has to have come. */
  readonly source?: "big" | "many";
}

const at = (side: Side) => `${there}/${side}`;
const local = (side: Side) => join(here, side);

const uploadOf = (source: "big" | "many", name: string, unit: Kind["unit"]): Kind => ({
  name,
  beside: "tar into kubectl exec -i -- tar x",
  unit,
  rounds,
  brought: "there",
  source,
  command: {
    ours: openshellCommand("sandbox", "upload", sandbox.name, join(here, source), at("ours")),
    peer: `tar c -C ${here} ${source} | ${kubectlExec(["-i"], "tar", "x", "-f", "-", "-C", at("peer"))}`,
  },
});

const kinds: readonly Kind[] = [
  {
    name: "start of the program",
    beside: "kubectl version --client",
    unit: "ms",
    rounds: commands,
    command: { ours: openshellCommand("--version"), peer: quoted(clients.kubectl, "version", "--client") },
  },
  {
    name: "exec of true",
    beside: "kubectl exec",
    unit: "ms",
    rounds: commands,
    command: { ours: ourExec([], "true"), peer: kubectlExec([], "true") },
  },
  uploadOf("big", "file in, upload", "MiB/s"),
  {
    name: "file in, exec of cat",
    beside: "kubectl exec -i -- cat",
    unit: "MiB/s",
    rounds,
    brought: "there",
    source: "big",
    command: {
      ours: `${ourExec([], "sh", "-c", `cat > ${at("ours")}/big`)} < ${here}/big`,
      peer: `${kubectlExec(["-i"], "sh", "-c", `cat > ${at("peer")}/big`)} < ${here}/big`,
    },
  },
  {
    name: "file out, download",
    beside: "kubectl exec -- cat",
    unit: "MiB/s",
    rounds,
    brought: "here",
    source: "big",
    command: {
      ours: openshellCommand("sandbox", "download", sandbox.name, `${there}/big`, `${local("ours")}/`),
      peer: `${kubectlExec([], "cat", `${there}/big`)} > ${local("peer")}/big`,
    },
  },
  {
    name: "file out, exec of cat",
    beside: "kubectl exec -- cat",
    unit: "MiB/s",
    rounds,
    brought: "here",
    source: "big",
    command: {
      ours: `${ourExec([], "cat", `${there}/big`)} > ${local("ours")}/big`,
      peer: `${kubectlExec([], "cat", `${there}/big`)} > ${local("peer")}/big`,
    },
  },
  uploadOf("many", "small files in, upload", "files/s"),
  {
    name: "small files out, download",
    beside: "kubectl exec -- tar c into tar x",
    unit: "files/s",
    rounds,
    brought: "here",
    source: "many",
    command: {
      ours: openshellCommand("sandbox", "download", sandbox.name, `${there}/many`, `${local("ours")}/`),
      peer: `${kubectlExec([], "tar", "c", "-f", "-", "-C", there, "many")} | tar x -C ${local("peer")}`,
    },
  },
];

interface Run {
  readonly ms: number;
  readonly cpuMs: number;
  /** What came is what was sent. Of ours it has to be. */
  readonly isWhole: boolean;
}

/** Empty places for what is brought, on both sides. */
async function clear(): Promise<void> {
  for (const side of ["ours", "peer"] as const) {
    rmSync(local(side), { recursive: true, force: true });
    mkdirSync(local(side));
  }
  const script = `rm -rf ${at("ours")} ${at("peer")} && mkdir -p ${at("ours")} ${at("peer")}`;
  const { exitCode, stderr } = await sandbox.exec(["sh", "-c", script]);
  if (exitCode !== 0) throw new Error(`${there} cannot be cleared: ${stderr}`);
}

async function runOnce({ command, brought, source }: Kind, side: Side): Promise<Run> {
  if (brought !== undefined) await clear();
  const before = machineCpuSeconds() * 1000;
  const ms = await timed(() => shell(command[side]));
  const run = { ms, cpuMs: machineCpuSeconds() * 1000 - before, isWhole: true };
  if (brought === undefined || source === undefined) return run;
  const came = brought === "here" ? await hashHere(local(side)) : await hashThere(at(side));
  const isWhole = came === (await expected(source));
  if (!isWhole && side === "ours") throw new Error(`${command[side]}: what came is not what was sent`);
  return { ...run, isWhole };
}

const sums = new Map<string, string>();

/** What a directory with nothing but the source in it sums to. */
async function expected(source: "big" | "many"): Promise<string> {
  let sum = sums.get(source);
  if (sum === undefined) {
    const alone = join(here, "alone", source);
    mkdirSync(alone, { recursive: true });
    await shell(`cp -r ${join(here, source)} ${alone}`);
    sum = await hashHere(alone);
    rmSync(join(here, "alone"), { recursive: true });
    sums.set(source, sum);
  }
  return sum;
}

const unmeasured: Run = { ms: Number.NaN, cpuMs: Number.NaN, isWhole: false };

async function measure(kind: Kind) {
  progress.note(kind.name);
  // The first of each pays for what only it needs: a compile cache, a page cache.
  for (const side of ["ours", "peer"] as const) await runOnce(kind, side);
  const runs: Readonly<Record<Side, Run[]>> = { ours: [], peer: [] };
  for (let round = 0; round < kind.rounds; round += 1) {
    for (const side of ["ours", "peer", "peer", "ours"] as const) runs[side].push(await runOnce(kind, side));
  }
  const amount = kind.unit === "ms" ? undefined : kind.unit === "MiB/s" ? mebibytes : files;
  const figure = (side: Side) => {
    const ms = median(runs[side].map((run) => run.ms));
    return amount === undefined ? ms : (amount * 1000) / ms;
  };
  const ratios = (of: (run: Run) => number) =>
    runs.ours.map((run, index) => of(run) / of(runs.peer[index] ?? unmeasured));
  // A rate is the better the larger it is, a time the smaller.
  const ofTime = ratios(({ ms }) => ms).map((ratio) => (amount === undefined ? ratio : 1 / ratio));
  const { name, beside, unit } = kind;
  return {
    name,
    beside,
    unit,
    ours: figure("ours"),
    peer: figure("peer"),
    ratio: spread(ofTime),
    cpuRatio: spread(ratios(({ cpuMs }) => cpuMs)),
    brokenOfPeer: runs.peer.filter(({ isWhole }) => !isWhole).length,
    cpuMs: { ours: median(runs.ours.map((run) => run.cpuMs)), peer: median(runs.peer.map((run) => run.cpuMs)) },
    runs,
  };
}

function spread(numbers: readonly number[]) {
  return { median: median(numbers), least: Math.min(...numbers), most: Math.max(...numbers) };
}

/** Commands one after the other over one connection, as an SDK has it; `kubectl exec` has no such thing. */
async function openConnection(): Promise<number[]> {
  const { ca, cert, key } = pem;
  const credentials = grpc.credentials.createSsl(ca, key, cert);
  const target = isDirect ? `${address}:${gatewayPort}` : endpoint.slice("https://".length);
  const channel = createChannel(target, credentials, { "grpc.ssl_target_name_override": "localhost" });
  try {
    const client = grpcClient(openshell.OpenShell, channel);
    const workspaceScope = { selection: { case: "workspace" as const, value: sandbox.workspace } };
    const request = { workspaceScope, sandbox: sandbox.name, command: ["true"], noLoginShell: true };
    const run = async () => {
      for await (const { payload } of client.execSandbox(request)) {
        if (payload.case === "exit" && payload.value.exitCode !== 0) throw new Error("true failed");
      }
    };
    for (let warm = 0; warm < 10; warm += 1) await run();
    const times: number[] = [];
    for (let index = 0; index < 10 * commands; index += 1) times.push(await timed(run));
    return times;
  } finally {
    channel.close();
  }
}

/** A command on a terminal of its own, whose keys come from here. */
function onTerminal(command: string): ChildProcess {
  return spawn("script", ["-q", "-f", "-e", "-c", `exec ${command}`, "/dev/null"], {
    env: environment,
    stdio: ["pipe", "pipe", "ignore"],
  });
}

/** Milliseconds from each key to its echo by the sandbox's terminal. */
async function echoes(command: string): Promise<number[]> {
  const child = onTerminal(command);
  try {
    let heard = Promise.withResolvers<void>();
    child.stdout?.on("data", (data: Buffer) => {
      if (data.includes("x")) heard.resolve();
    });
    const press = async (withinMs: number): Promise<boolean> => {
      heard = Promise.withResolvers();
      child.stdin?.write("x");
      return Promise.race([heard.promise.then(() => true), sleep(withinMs, false)]);
    };
    // Only the other side's terminal answers once the command has taken over this one; what is typed before is echoed here, at once.
    await sleep(3_000);
    if (!(await press(20_000))) throw new Error(`${command}: no key was echoed`);
    const times: number[] = [];
    for (let index = 0; index < keys; index += 1) {
      await sleep(15);
      times.push(await timed(() => press(5_000)));
    }
    child.stdin?.write("\n\u0004");
    const ended = once(child, "close");
    await Promise.race([ended, sleep(5_000)]);
    return times;
  } finally {
    child.kill("SIGKILL");
  }
}

makeSources();
const state = machine();
await clear();
await shell(`tar c -C ${here} big many | ${kubectlExec(["-i"], "tar", "x", "-f", "-", "-C", there)}`);

const wanted = (name: string) => name.startsWith(values.only);
const rows = [];
for (const kind of kinds) if (wanted(kind.name)) rows.push(await measure(kind));
const open = wanted("exec of true") ? await openConnection() : [];
const echo: Record<Side, number[]> = { ours: [], peer: [] };
if (wanted("key")) {
  progress.note("a key's echo");
  const command = { ours: ourExec(["--tty"], "cat"), peer: kubectlExec(["-i", "-t"], "cat") };
  for (const side of ["ours", "peer", "peer", "ours"] as const) echo[side].push(...(await echoes(command[side])));
}

const number = (value: number) => (value < 10 ? value.toFixed(1) : value.toFixed(0));
const range = ({ median: middle, least, most }: ReturnType<typeof spread>) =>
  `${middle.toFixed(2)} (${least.toFixed(2)} to ${most.toFixed(2)})`;
/** Of copies that came broken a rate says nothing. */
const cells = rows.map(({ name, beside, unit, ours, peer, ratio, cpuRatio, brokenOfPeer, runs }) => {
  const broken = `${brokenOfPeer} of ${runs.peer.length} came broken`;
  const theirs = brokenOfPeer > 0 ? `${broken}, ${beside}` : `${number(peer)} ${unit}, ${beside}`;
  const ratios = brokenOfPeer > 0 ? "| |" : `${range(ratio)} | ${range(cpuRatio)} |`;
  return `| ${name} | ${number(ours)} ${unit} | ${theirs} | ${ratios}`;
});
const tails = (times: readonly number[]) =>
  [0.5, 0.9, 0.99, 1].map((share) => number(percentile(times, share))).join(" / ");
if (open.length > 0) cells.push(`| exec of true, connection open, p50 / p90 / p99 / worst | ${tails(open)} ms | | | |`);
if (echo.ours.length > 0) {
  cells.push(
    `| a key's echo, p50 / p90 / p99 / worst | ${tails(echo.ours)} ms | ${tails(echo.peer)} ms, kubectl exec -it | ${(median(echo.ours) / median(echo.peer)).toFixed(2)} | |`,
  );
}
const markdown = `
A file of ${mebibytes} MiB, ${files} small files; ${rounds} rounds A B B A, ${commands} of the command that does nothing. The gateway was called ${isDirect ? "at its Service's address" : "through kubectl port-forward"}. ${machineLine(state)}; cluster ${provider.name}.

| what | ours | beside | ratio (range) | CPU time of the whole machine, ratio (range) |
|---|--:|--:|--:|--:|
${cells.join("\n")}
`;
const report = {
  machine: state,
  provider: provider.name,
  isDirect,
  mebibytes,
  files,
  rounds,
  commands,
  rows,
  open,
  echo,
};
publish("bytes", report, markdown, values.out);
