/** A gateway in memory for the tests of the command line: real gRPC on the loopback, no cluster. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { type Server, ServerCredentials } from "@grpc/grpc-js";
import { AsyncQueue } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { addService, boundary, createServer, type Implementation, openshell } from "../wire/index.ts";
import { run } from "./program.ts";
import type { Terminal } from "./terminal.ts";

type Gateway = Implementation<typeof openshell.OpenShell, string>;

/** Name of a phase without its prefix. */
export type PhaseName = keyof typeof openshell.SandboxPhase;

/** What a test gateway holds and how it behaves; tests change it as they need. */
export class TestGateway implements AsyncDisposable {
  readonly sandboxes = new Map<string, openshell.Sandbox>();
  readonly requests: { readonly method: string; readonly request: unknown }[] = [];
  /** Phases that a created sandbox goes through, each with the reason it gives. */
  script: (readonly [PhaseName, string?])[] = [["PROVISIONING", "Unschedulable: no node fits"], ["READY"]];
  /** What files uploads brought, as tar bytes, by destination. */
  readonly uploads = new Map<string, Buffer>();
  /** What a download of a path gives: tar bytes. */
  readonly downloads = new Map<string, Buffer>();
  /** What a download of a path is refused with, in the words of the sandbox. */
  readonly failures = new Map<string, string>();
  /** Set to take over a method. */
  override: Gateway = {};
  endpoint = "";
  #server: Server | undefined;
  readonly #changes = new Set<AsyncQueue<openshell.Sandbox>>();

  async start(): Promise<this> {
    const server = createServer();
    this.#server = server;
    addService(server, openshell.OpenShell, { ...this.#implementation(), ...this.override }, () => "user");
    const port = await new Promise<number>((resolve, reject) =>
      server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      ),
    );
    this.endpoint = `http://127.0.0.1:${port}`;
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const queue of this.#changes) queue.end();
    this.#server?.forceShutdown();
  }

  get watchers(): number {
    return this.#changes.size;
  }

  /** Puts a sandbox in a phase and tells the watchers. */
  put(name: string, phase: PhaseName, reason = "", exitCode?: number): openshell.Sandbox {
    const before = this.sandboxes.get(name);
    const [word = "", message = ""] = reason.split(": ");
    const conditions = reason === "" ? [] : [{ type: "Ready", status: "False", reason: word, message }];
    const sandbox = create(openshell.SandboxSchema, {
      metadata: before?.metadata ?? { id: `id-${name}`, name, workspace: "default", resourceVersion: 3n },
      ...(before?.spec === undefined ? {} : { spec: before.spec }),
      status: { phase: openshell.SandboxPhase[phase], conditions, ...(exitCode === undefined ? {} : { exitCode }) },
    });
    this.sandboxes.set(name, sandbox);
    for (const queue of this.#changes) queue.offer(sandbox);
    return sandbox;
  }

  remove(name: string): void {
    this.sandboxes.delete(name);
    for (const queue of this.#changes) queue.end();
  }

  #find(name: string): openshell.Sandbox {
    const found = this.sandboxes.get(name);
    if (found === undefined) throw new OpenShellError("not-found", `sandbox ${name} not found`);
    return found;
  }

  #note(method: string, request: unknown): void {
    this.requests.push({ method, request });
  }

  #implementation(): Gateway {
    const gateway = this;
    return {
      health: async () => ({ status: openshell.ServiceStatus.HEALTHY, version: "0.1.0" }),
      getCurrentUser: async () => ({ subject: "ada", roles: ["user"] }),
      getGatewayInfo: async () => {
        throw new OpenShellError("permission-denied", "only for platform administrators");
      },
      async createSandbox(request) {
        gateway.#note("createSandbox", request);
        const name = request.name || "made-up";
        if (gateway.sandboxes.has(name)) throw new OpenShellError("already-exists", `sandbox ${name} exists`);
        const [first = ["READY"], ...rest] = gateway.script;
        const sandbox = gateway.put(name, ...first);
        if (request.spec !== undefined) sandbox.spec = request.spec;
        setImmediate(() => {
          for (const [phase, reason] of rest) gateway.put(name, phase, reason, phase === "ERROR" ? 3 : undefined);
        });
        return { sandbox };
      },
      getSandbox: async ({ name }) => ({ sandbox: gateway.#find(name) }),
      async listSandboxes(request) {
        gateway.#note("listSandboxes", request);
        const all = [...gateway.sandboxes.values()];
        const from = Number(request.pageToken || 0);
        const next = from + 2;
        return { sandboxes: all.slice(from, next), nextPageToken: next < all.length ? String(next) : "" };
      },
      async stopSandbox({ name }) {
        gateway.#find(name);
        setImmediate(() => gateway.put(name, "STOPPED"));
        return { sandbox: gateway.put(name, "STOPPING") };
      },
      async startSandbox({ name }) {
        gateway.#find(name);
        setImmediate(() => gateway.put(name, "READY"));
        return { sandbox: gateway.put(name, "STARTING") };
      },
      async deleteSandbox({ name, allowMissing }) {
        if (!gateway.sandboxes.has(name) && allowMissing) return { outcome: openshell.DeletionOutcome.ALREADY_ABSENT };
        const { metadata } = gateway.#find(name);
        gateway.put(name, "DELETING");
        setImmediate(() => gateway.remove(name));
        return { outcome: openshell.DeletionOutcome.ACCEPTED, sandboxId: metadata?.id ?? "" };
      },
      async *watchSandbox({ sandbox: name }) {
        yield { payload: { case: "sandbox", value: gateway.#find(name) } };
        const queue = new AsyncQueue<openshell.Sandbox>(100);
        gateway.#changes.add(queue);
        try {
          for await (const value of queue) yield { payload: { case: "sandbox", value } };
        } finally {
          gateway.#changes.delete(queue);
        }
      },
      async *execSandbox(request) {
        gateway.#note("execSandbox", request);
        yield { payload: { case: "stdout", value: { data: Buffer.from(request.command.join(" ")) } } };
        yield { payload: { case: "stderr", value: { data: Buffer.from("warned") } } };
        yield { payload: { case: "exit", value: { exitCode: 42 } } };
      },
      async *execSandboxInteractive(requests) {
        for await (const { payload } of requests) {
          if (payload.case === "start") gateway.#note("execSandboxInteractive", payload.value);
          if (payload.case === "resize") gateway.#note("resize", payload.value);
          if (payload.case === "stdin") {
            yield { payload: { case: "stdout", value: { data: Buffer.from(payload.value).reverse() } } };
            if (Buffer.from(payload.value).includes(4)) break;
          }
        }
        yield { payload: { case: "exit", value: { exitCode: 7 } } };
      },
      async *forwardTcp(frames) {
        const iterator = frames[Symbol.asyncIterator]();
        const first = await iterator.next();
        if (first.value?.payload.case === "init") gateway.#note("forwardTcp", first.value.payload.value);
        async function* bytes() {
          for (;;) {
            const next = await iterator.next();
            if (next.done) return;
            if (next.value.payload.case === "data") yield next.value.payload.value;
          }
        }
        for await (const value of gateway.#files(bytes())) yield { payload: { case: "data", value } };
      },
    };
  }

  async *#files(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const reply = (payload: unknown) => encodeFrame(boundary.FilesReplySchema, { payload } as never);
    const chunks: Uint8Array[] = [];
    let destination = "";
    for await (const { payload } of decodeFrames(boundary.FilesRequestSchema, bytes)) {
      if (payload.case === "upload") {
        ({ destination } = payload.value);
        this.#note("upload", payload.value);
      }
      if (payload.case === "data") chunks.push(payload.value);
      if (payload.case === "end") {
        this.uploads.set(destination, Buffer.concat(chunks));
        yield reply({ case: "summary", value: { files: 1n, bytes: 5n, path: `/sandbox/${destination}` } });
        return;
      }
      if (payload.case === "download") {
        const tar = this.downloads.get(payload.value.source);
        const failure = this.failures.get(payload.value.source);
        if (failure !== undefined) {
          yield reply({ case: "failure", value: { code: 9, message: failure } });
          return;
        }
        if (tar === undefined) {
          yield reply({ case: "failure", value: { code: 5, message: `there is no ${payload.value.source}` } });
          return;
        }
        yield reply({ case: "data", value: tar });
        yield reply({ case: "summary", value: { files: 1n, bytes: 5n, path: payload.value.source } });
        return;
      }
    }
  }
}

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

type Input = Terminal["stdin"];

export interface RunOptions {
  readonly env?: Record<string, string>;
  /** What is piped in. @default standard input is a terminal on which nobody types */
  readonly stdin?: string;
  /** Standard input as a terminal that a test types on. */
  readonly keyboard?: Input;
  /** Standard output and error are terminals. @default false */
  readonly tty?: boolean;
  readonly signal?: AbortSignal;
  readonly stdout?: Terminal["stdout"];
}

/** A user's home and the command line in it. */
export class TestUser implements AsyncDisposable {
  readonly home: string;

  private constructor(home: string) {
    this.home = home;
  }

  static async create(): Promise<TestUser> {
    return new TestUser(await mkdtemp(join(tmpdir(), "openshell-cli-")));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.home, { recursive: true });
  }

  async openshell(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
    const output = (stream: PassThrough) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      return { stream: Object.assign(stream, { isTTY: options.tty ?? false, columns: 80, rows: 24 }), chunks };
    };
    const out = output(new PassThrough());
    const err = output(new PassThrough());
    const stdin: Input = options.keyboard ?? Object.assign(new PassThrough(), { isTTY: options.stdin === undefined });
    if (options.stdin !== undefined) (stdin as PassThrough).end(options.stdin);
    const code = await run(
      args,
      {
        stdin,
        stdout: options.stdout ?? out.stream,
        stderr: err.stream,
        env: { HOME: this.home, XDG_CONFIG_HOME: join(this.home, "config"), ...options.env },
        signal: options.signal ?? new AbortController().signal,
      },
      "0.1.0",
    );
    // What is piped through a PassThrough arrives one turn later.
    await new Promise((resolve) => setImmediate(resolve));
    return { code, stdout: Buffer.concat(out.chunks).toString(), stderr: Buffer.concat(err.chunks).toString() };
  }
}
