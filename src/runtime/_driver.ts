/** For tests and benchmarks: a real runtime process, and a supervisor that drives it over real TLS. */

import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, type KeyObject, randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { ChannelCredentials } from "@grpc/grpc-js";
import { CompactSign } from "jose";
import {
  type ByteChannel,
  type ExecCommand,
  type ExecInputEvent,
  localVersion,
  openChannel,
  runExec,
  runtimeServerName,
  type ServiceId,
  services,
  tlsKeyHash,
} from "../boundary/index.ts";
import { AsyncQueue } from "../common/async.ts";
import { boundary, createChannel as createConnection, grpcClient } from "../wire/index.ts";
import { type CertificateAndKey, createAuthority, type TestAuthority } from "./_certificates.ts";
import { placeRuntime, type RuntimeProgram } from "./_program.ts";
import { buildNative } from "./native/build.ts";
import type { RuntimeFrame } from "./status-frames.ts";

const here = dirname(fileURLToPath(import.meta.url));

/** A PID namespace, another user and another root directory take root; without it the runtime runs as a plain process. */
export const isRoot = process.getuid?.() === 0;

/** The native part, built once. */
export const nativePath = buildNative();

/** Keys and certificates of one generation. */
export class Generation {
  readonly id: string;
  readonly sandboxId = `sbx-${randomUUID()}`;
  readonly signingKey: KeyObject;
  readonly publicKeyPem: string;
  readonly authority: TestAuthority;
  readonly runtime: CertificateAndKey;

  private constructor(
    id: string,
    signingKey: KeyObject,
    publicKeyPem: string,
    authority: TestAuthority,
    runtime: CertificateAndKey,
  ) {
    this.id = id;
    this.signingKey = signingKey;
    this.publicKeyPem = publicKeyPem;
    this.authority = authority;
    this.runtime = runtime;
  }

  static async create(): Promise<Generation> {
    const id = `gen-${randomUUID()}`;
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const authority = await createAuthority(id);
    const runtime = await authority.issue(runtimeServerName(id));
    const pem = publicKey.export({ type: "spki", format: "pem" }).toString();
    return new Generation(id, privateKey, pem, authority, runtime);
  }

  /** A client certificate of this generation's authority. */
  supervisorCertificate(): Promise<CertificateAndKey> {
    return this.authority.issue("supervisor");
  }

  grant(session: number, certificate: string, change: Record<string, unknown> = {}): Promise<string> {
    const claims = {
      sandbox: this.sandboxId,
      generation: this.id,
      session,
      pod: `pod-${session}`,
      tls: tlsKeyHash(certificate),
      ...change,
    };
    return new CompactSign(new TextEncoder().encode(JSON.stringify(claims)))
      .setProtectedHeader({ alg: "EdDSA" })
      .sign(this.signingKey);
  }
}

const { NODE_COMPILE_CACHE } = process.env;
const compileCache = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };

export interface RuntimeProcessOptions {
  readonly environment?: Readonly<Record<string, string>>;
  /** As PID 1 of a PID namespace of its own. @default true */
  readonly init?: boolean;
  /** Runs as this user. @default root */
  readonly uid?: number;
  /** Puts into its home what an earlier run left there. @default nothing */
  readonly furnish?: (home: string) => void;
  /** The program, when it is not the source tree's. */
  readonly bundle?: string;
  /** Root directory of an image, with the relocatable bundle in /openshell. @default none: this machine's files */
  readonly root?: string;
}

/** A runtime that listens. */
export class RuntimeProcess implements AsyncDisposable {
  readonly generation: Generation;
  readonly home: string;
  readonly port: number;
  readonly directory: string;
  readonly #process: ChildProcess;
  readonly #exited: Promise<number>;
  readonly log: string[];

  private constructor(
    generation: Generation,
    directory: string,
    port: number,
    child: ChildProcess,
    exited: Promise<number>,
    log: string[],
  ) {
    this.generation = generation;
    this.directory = directory;
    this.home = join(directory, "home");
    this.port = port;
    this.#process = child;
    this.#exited = exited;
    this.log = log;
  }

  static async start(options: RuntimeProcessOptions = {}): Promise<RuntimeProcess> {
    const generation = await Generation.create();
    const directory = mkdtempSync(join(options.root ?? tmpdir(), "openshell-runtime-"));
    const seen = options.root === undefined ? directory : directory.slice(options.root.length);
    chmodSync(directory, 0o777);
    const identity = join(directory, "identity");
    mkdirSync(identity);
    mkdirSync(join(directory, "home"));
    chmodSync(identity, 0o777);
    chmodSync(join(directory, "home"), 0o777);
    options.furnish?.(join(directory, "home"));
    const files: Record<string, string> = {
      "tls.crt": generation.runtime.certPem,
      "tls.key": generation.runtime.keyPem,
      "generation.pub": generation.publicKeyPem,
      "boundary-ca.crt": generation.authority.certPem,
      "identity.json": JSON.stringify({ sandboxId: generation.sandboxId, generationId: generation.id, podUid: "pod" }),
    };
    for (const [name, content] of Object.entries(files)) {
      writeFileSync(join(identity, name), content);
      chmodSync(join(identity, name), 0o644);
    }

    const program = await programFor(options, join(directory, "program"));
    const [file = "", ...argv] = commandOf(program, options);
    const child = spawn(file, argv, {
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env.PATH ?? "",
        LANG: "C.UTF-8",
        NODE_OPTIONS: "",
        ...(options.root === undefined ? compileCache : {}),
        OPENSHELL_BOUNDARY_PORT: "0",
        OPENSHELL_FENCE_CHECK: "off",
        OPENSHELL_IDENTITY_DIR: join(seen, "identity"),
        OPENSHELL_HOME: join(seen, "home"),
        OPENSHELL_NATIVE: options.root === undefined && options.uid === undefined ? nativePath : "",
        OPENSHELL_LOG_LEVEL: "debug",
        ...options.environment,
      },
    });
    const exited = once(child, "close").then(([code]) => code as number);
    const log: string[] = [];
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => log.push(line));
    const port = await new Promise<number>((resolve, reject) => {
      createInterface({ input: child.stderr as NodeJS.ReadableStream }).on("line", (line) => {
        log.push(line);
        const port = /"port":(\d+)/.exec(line)?.[1];
        if (port !== undefined) resolve(Number(port));
      });
      void exited.then((code) =>
        reject(new Error(`the runtime ended with ${code} before it listened:\n${log.join("\n")}`)),
      );
    });
    return new RuntimeProcess(generation, directory, port, child, exited, log);
  }

  /** Pid of the runtime as this namespace sees it. */
  get pid(): number {
    return this.#process.pid ?? 0;
  }

  get exited(): Promise<number> {
    return this.#exited;
  }

  /** True while the identity can still be found on disk. */
  get identityIsLeft(): boolean {
    return existsSync(join(this.directory, "identity", "tls.key"));
  }

  async supervisor(session = 1, options: SupervisorOptions = {}): Promise<TestSupervisor> {
    const generation = options.generation ?? this.generation;
    const certificate = options.certificate ?? (await generation.supervisorCertificate());
    const grant = options.grant ?? (await this.generation.grant(session, certificate.certPem));
    return new TestSupervisor(this, certificate, grant, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#exited;
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** The source tree's, or, for a user who may not enter the folder of the clone, one of its own. */
async function programFor(options: RuntimeProcessOptions, directory: string): Promise<RuntimeProgram> {
  if (options.uid !== undefined) return placeRuntime(directory);
  return { node: process.execPath, main: options.bundle ?? join(here, "main.ts") };
}

function commandOf({ node, main }: RuntimeProgram, { init, uid, root }: RuntimeProcessOptions): string[] {
  const user =
    uid === undefined ? [] : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "--pdeathsig=KILL"];
  if (root !== undefined) {
    const mounts = `mount -t proc proc "${root}/proc" && mount --rbind /dev "${root}/dev"`;
    return [
      "unshare",
      "--pid",
      "--fork",
      "--mount",
      "--kill-child",
      "sh",
      "-c",
      `${mounts} && exec chroot "${root}" "$@"`,
      "sh",
      ...relocated,
    ];
  }
  const program = [...user, node, "--disable-sigusr1", main];
  return init === false || !isRoot
    ? program
    : ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", ...program];
}

/** How a workload Pod starts the runtime. */
const relocated = [
  "/openshell/lib/ld-linux-x86-64.so.2",
  "--library-path",
  "/openshell/lib",
  "/openshell/bin/node",
  "--disable-sigusr1",
  "/openshell/runtime.mjs",
];

export interface SupervisorOptions {
  readonly generation?: Generation;
  readonly certificate?: CertificateAndKey;
  readonly grant?: string;
  readonly instanceId?: string;
  readonly version?: { readonly major: number; readonly minor: number; readonly build: string };
}

type SupervisorPayload = { case: "launch" | "terminate" | "exitAcknowledged"; value: Record<string, unknown> };

/** The other end of the boundary. */
export class TestSupervisor implements AsyncDisposable {
  readonly #connection;
  readonly #client;
  readonly #outgoing = new AsyncQueue<unknown>();
  readonly #stop = new AbortController();
  readonly #options: SupervisorOptions;
  readonly #grant: string;
  /** Everything the runtime said. */
  readonly frames: RuntimeFrame["payload"][] = [];
  readonly #waiting = new Set<() => void>();
  #over = false;
  #beat: NodeJS.Timeout | undefined;

  constructor(runtime: RuntimeProcess, certificate: CertificateAndKey, grant: string, options: SupervisorOptions) {
    this.#options = options;
    this.#grant = grant;
    this.#connection = createConnection(
      `127.0.0.1:${runtime.port}`,
      ChannelCredentials.createSsl(
        Buffer.from(runtime.generation.authority.certPem),
        Buffer.from(certificate.keyPem),
        Buffer.from(certificate.certPem),
      ),
      {
        "grpc.ssl_target_name_override": runtimeServerName(runtime.generation.id),
        "grpc.default_authority": runtimeServerName(runtime.generation.id),
      },
    );
    this.#client = grpcClient(boundary.Boundary, this.#connection);
  }

  /** Opens the session; resolves with the runtime's first frame. */
  async connect() {
    const { version = localVersion("test"), instanceId = randomUUID() } = this.#options;
    this.#outgoing.offer({ payload: { case: "hello", value: { version, sessionGrant: this.#grant, instanceId } } });
    const responses = this.#client.session(this.#outgoing as never, { signal: this.#stop.signal });
    const first = Promise.withResolvers<boundary.RuntimeFrame["payload"]>();
    void (async () => {
      try {
        for await (const frame of responses) {
          if (this.frames.length === 0) first.resolve(frame.payload);
          this.frames.push(frame.payload);
          for (const wake of this.#waiting) wake();
        }
        first.reject(new Error("the session ended without a frame"));
      } catch (error) {
        first.reject(error);
      } finally {
        this.#over = true;
        for (const wake of this.#waiting) wake();
      }
    })();
    const payload = await first.promise;
    this.#beat = setInterval(
      () => this.#outgoing.offer({ payload: { case: "heartbeat", value: { sequence: 1n } } }),
      2_000,
    );
    return payload;
  }

  send(payload: SupervisorPayload): void {
    this.#outgoing.offer({ payload });
  }

  launch(launch: Partial<Record<keyof boundary.Launch, unknown>> = {}): void {
    this.send({ case: "launch", value: launch });
  }

  /** The first frame, past or to come, for which `accept` gives something. */
  async seen<T>(accept: (payload: NonNullable<RuntimeFrame["payload"]>) => T | undefined): Promise<T> {
    for (let index = 0; ; index += 1) {
      while (index >= this.frames.length) {
        if (this.#over) throw new Error(`the session ended; seen: ${JSON.stringify(this.frames, printable)}`);
        await new Promise<void>((resolve) => {
          const wake = () => {
            this.#waiting.delete(wake);
            resolve();
          };
          this.#waiting.add(wake);
        });
      }
      const payload = this.frames[index];
      const found = payload === undefined ? undefined : accept(payload);
      if (found !== undefined) return found;
    }
  }

  channel(serviceId: ServiceId, signal?: AbortSignal): Promise<ByteChannel> {
    return openChannel(this.#client.channel, serviceId, signal);
  }

  /** Runs a command to its end. */
  async exec(
    command: readonly string[],
    options: Partial<ExecCommand> & { readonly input?: AsyncIterable<ExecInputEvent> } = {},
  ) {
    const { input, ...start } = options;
    const channel = await this.channel(services.exec);
    const output = { stdout: "", stderr: "", code: -1 };
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    for await (const event of runExec(channel, { ...start, command }, input)) {
      if (event.kind === "exit") output.code = event.code;
      else output[event.kind] += decoders[event.kind].decode(event.data, { stream: true });
    }
    return output;
  }

  /** Ends the session's call only; the connection stays. */
  disconnect(): void {
    clearInterval(this.#beat);
    this.#stop.abort(new Error("the test left"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect();
    this.#outgoing.end();
    this.#connection.close();
  }
}

function printable(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}

export async function* typed(...chunks: readonly string[]): AsyncGenerator<ExecInputEvent, void, undefined> {
  for (const chunk of chunks) yield { kind: "stdin", data: new TextEncoder().encode(chunk) };
}
