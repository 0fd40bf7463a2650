import { OpenShellError } from "../common/errors.ts";
import type { CallOptions } from "../wire/index.ts";
import { parseSeconds } from "./arguments.ts";
import { type Connection, connect, type GatewayChoice, resolveTarget } from "./connection.ts";
import { configDirectory, GatewayDirectory } from "./gateways.ts";
import { type OutputFormat, outputFormats } from "./output.ts";
import { ProgressLine, type Terminal } from "./terminal.ts";

/** Options that every command takes, before or after its name. */
export interface GlobalOptions extends GatewayChoice {
  readonly workspace?: string;
  /** Seconds for one call that is not a stream, and for the gateway's first word before a stream. */
  readonly requestTimeout?: string;
  readonly verbose?: boolean;
}

/** What a command works with. */
export class CommandContext {
  readonly terminal: Terminal;
  readonly options: GlobalOptions;
  readonly progress: ProgressLine;

  constructor(terminal: Terminal, options: GlobalOptions) {
    this.terminal = terminal;
    this.options = options;
    this.progress = new ProgressLine(terminal);
  }

  /** Flag, $OPENSHELL_WORKSPACE, `default`. */
  get workspace(): string {
    return this.options.workspace ?? (this.terminal.env.OPENSHELL_WORKSPACE || "default");
  }

  get workspaceScope() {
    return { selection: { case: "workspace" as const, value: this.workspace } };
  }

  get gateways(): GatewayDirectory {
    return new GatewayDirectory(configDirectory(this.terminal.env));
  }

  /** Of a unary call: the deadline, and the interrupt from the keyboard. */
  get call(): CallOptions {
    return { signal: this.terminal.signal, ...this.callToEnd };
  }

  /** Of a unary call whose answer is awaited after an interrupt too: the deadline. */
  get callToEnd(): CallOptions {
    const timeoutMs = parseSeconds("--request-timeout", this.options.requestTimeout ?? "30");
    return timeoutMs === undefined ? {} : { timeoutMs };
  }

  async connect(): Promise<Connection> {
    const { timeoutMs } = this.callToEnd;
    return connect(await resolveTarget(this.options, this.terminal.env), timeoutMs);
  }
}

/** The value of `-o`. */
export function outputFormat(text: string | undefined): OutputFormat {
  const format = outputFormats.find((one) => one === (text ?? "table"));
  if (format !== undefined) return format;
  throw new OpenShellError("invalid-argument", `-o "${text}": expected one of ${outputFormats.join(", ")}`);
}
