import type { MessageInitShape } from "@bufbuild/protobuf";
import { AsyncQueue } from "../../src/common/async.ts";
import { hasCode, OpenShellError } from "../../src/common/errors.ts";
import type { Client, openshell } from "../../src/wire/index.ts";
import { phase, type Sandbox, type SandboxWait, until } from "./waits.ts";

type Gateway = Client<typeof openshell.OpenShell>;
type Spec = MessageInitShape<typeof openshell.SandboxSpecSchema>;

export interface ExecOptions {
  readonly stdin?: string | Uint8Array;
  readonly environment?: Readonly<Record<string, string>>;
  readonly workdir?: string;
  readonly timeoutSeconds?: number;
  readonly noLoginShell?: boolean;
  readonly tty?: { readonly columns: number; readonly rows: number };
}

export interface ExecOutcome {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A sandbox of a test; it is deleted, and seen gone, when the test's block ends. */
export class TestSandbox implements AsyncDisposable {
  readonly #gateway: () => Gateway;
  readonly id: string;
  readonly name: string;
  readonly workspace: string;

  private constructor(gateway: () => Gateway, sandbox: Sandbox) {
    this.#gateway = gateway;
    this.id = sandbox.metadata?.id ?? "";
    this.name = sandbox.metadata?.name ?? "";
    this.workspace = sandbox.metadata?.workspace || "default";
  }

  static async create(gateway: () => Gateway, name: string, spec: Spec, workspace = "default"): Promise<TestSandbox> {
    const workspaceScope = { selection: { case: "workspace" as const, value: workspace } };
    const { sandbox } = await gateway().createSandbox({ workspaceScope, name, spec }, { timeoutMs: 30_000 });
    if (sandbox === undefined) throw new OpenShellError("internal", "CreateSandbox answered without a sandbox");
    return new TestSandbox(gateway, sandbox);
  }

  static async find(gateway: () => Gateway, name: string, workspace: string): Promise<TestSandbox> {
    const workspaceScope = { selection: { case: "workspace" as const, value: workspace } };
    const { sandbox } = await gateway().getSandbox({ workspaceScope, name }, { timeoutMs: 10_000 });
    if (sandbox === undefined) throw new OpenShellError("internal", "GetSandbox answered without a sandbox");
    return new TestSandbox(gateway, sandbox);
  }

  /** The Sandbox resource's and the workload Pod's name. */
  get resourceName(): string {
    return `${this.workspace}--${this.name}`;
  }

  until(wait: SandboxWait): Promise<Sandbox> {
    return until(this.#gateway, this.workspace, this.name, wait);
  }

  ready(): Promise<Sandbox> {
    return this.until(phase("READY"));
  }

  async get(): Promise<Sandbox> {
    const { sandbox } = await this.#gateway().getSandbox({ ...this.#address() }, { timeoutMs: 10_000 });
    if (sandbox === undefined) throw new OpenShellError("internal", "GetSandbox answered without a sandbox");
    return sandbox;
  }

  async stop(): Promise<void> {
    await this.#gateway().stopSandbox(this.#address(), { timeoutMs: 30_000 });
  }

  async start(): Promise<void> {
    await this.#gateway().startSandbox(this.#address(), { timeoutMs: 30_000 });
  }

  async delete(): Promise<void> {
    await this.#gateway().deleteSandbox({ ...this.#address(), allowMissing: true }, { timeoutMs: 30_000 });
  }

  /** Runs a command to its end; without TTY and stdin in one call, as the SDK does. */
  async exec(command: readonly string[], options: ExecOptions = {}): Promise<ExecOutcome> {
    const request = this.#execRequest(command, options);
    const timeoutMs = 30_000 + (options.timeoutSeconds ?? 0) * 1000;
    return collect(this.#gateway().execSandbox(request, { timeoutMs }));
  }

  /** Runs a command with a stream of input: chunks of stdin and window sizes. */
  execInteractive(command: readonly string[], options: ExecOptions = {}): Interactive {
    const input = new AsyncQueue<MessageInitShape<typeof openshell.ExecSandboxInputSchema>>();
    input.offer({ payload: { case: "start", value: this.#execRequest(command, options) } });
    const outcome = collect(this.#gateway().execSandboxInteractive(input, { timeoutMs: 60_000 }));
    return {
      outcome,
      write: (text) => void input.offer({ payload: { case: "stdin", value: Buffer.from(text) } }),
      resize: (cols, rows) => void input.offer({ payload: { case: "resize", value: { cols, rows } } }),
      end: () => input.end(),
    };
  }

  /** Deletes the sandbox and waits until the gateway no longer knows it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
    await this.gone();
  }

  /** Returns when GetSandbox answers that there is none. */
  async gone(withinMs = 60_000): Promise<void> {
    const never: SandboxWait = { what: "deletion", withinMs, test: () => false };
    try {
      await this.until(never);
    } catch (error) {
      if (hasCode(error, "not-found")) return;
      throw error;
    }
  }

  #address() {
    return { workspaceScope: { selection: { case: "workspace" as const, value: this.workspace } }, name: this.name };
  }

  #execRequest(command: readonly string[], options: ExecOptions) {
    const { stdin, environment = {}, workdir = "", timeoutSeconds, noLoginShell = false, tty } = options;
    return {
      workspaceScope: this.#address().workspaceScope,
      sandbox: this.name,
      command: [...command],
      environment: { ...environment },
      workdir,
      noLoginShell,
      ...(stdin === undefined ? {} : { stdin: Buffer.from(stdin) }),
      ...(timeoutSeconds === undefined ? {} : { executionTimeout: { seconds: BigInt(timeoutSeconds), nanos: 0 } }),
      ...(tty === undefined ? {} : { tty: true, cols: tty.columns, rows: tty.rows }),
    };
  }
}

export interface Interactive {
  readonly outcome: Promise<ExecOutcome>;
  write(text: string): void;
  resize(columns: number, rows: number): void;
  /** No more input. */
  end(): void;
}

async function collect(events: AsyncIterable<openshell.ExecSandboxEvent>): Promise<ExecOutcome> {
  const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let exitCode: number | undefined;
  for await (const { payload } of events) {
    if (payload.case === "stdout" || payload.case === "stderr") output[payload.case].push(payload.value.data);
    else if (payload.case === "exit") exitCode = payload.value.exitCode;
  }
  if (exitCode === undefined) throw new OpenShellError("data-loss", "the exec ended without an exit event");
  const text = (chunks: Uint8Array[]) => Buffer.concat(chunks).toString("utf8");
  return { exitCode, stdout: text(output.stdout), stderr: text(output.stderr) };
}
