/** A port of this machine that leads to the gateway and stays when the demo has ended, until `--down`. */
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { sleep } from "../../src/common/async.ts";
import { OpenShellError } from "../../src/common/errors.ts";
import { clients } from "../cluster/clients.ts";
import { attempt } from "../cluster/exec.ts";

const stateSchema = z.object({ pid: z.int(), port: z.int(), command: z.string() });
type State = z.infer<typeof stateSchema>;

export interface ForwardTarget {
  readonly kubeconfig: string;
  readonly namespace: string;
  readonly service: string;
  readonly port: number;
}

/** Remembers one background `kubectl port-forward` in `directory`. */
export class BackgroundForward {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Starts it, in place of one that ran before: a Pod that was replaced ends its forward without a word. Gives the local port. */
  async start(target: ForwardTarget): Promise<number> {
    const before = await this.stop();
    await mkdir(this.#directory, { recursive: true });
    const log = join(this.#directory, "port-forward.log");
    await writeFile(log, "");
    const output = openSync(log, "a");
    // The same local port as before when it is free, so that the gateway's entry stays right.
    for (const port of before === undefined ? [0] : [before.port, 0]) {
      const found = await this.#launch(target, port, output, log);
      if (found !== undefined) {
        closeSync(output);
        return found;
      }
    }
    closeSync(output);
    throw new OpenShellError(
      "unavailable",
      `the port forward to the gateway ended: ${(await readFile(log, "utf8")).trim()}`,
    );
  }

  /** Ends it. Gives what is known of it, or undefined when there was none. */
  async stop(): Promise<State | undefined> {
    const state = await this.#read();
    if (state === undefined) return undefined;
    // The number may belong to another process by now.
    if ((await commandOf(state.pid)) === state.command) process.kill(state.pid, "SIGTERM");
    await rm(this.#statePath, { force: true });
    return state;
  }

  get #statePath(): string {
    return join(this.#directory, "port-forward.json");
  }

  async #launch(target: ForwardTarget, port: number, output: number, log: string): Promise<number | undefined> {
    const { kubeconfig, namespace, service } = target;
    const ports = port === 0 ? `:${target.port}` : `${port}:${target.port}`;
    const where = [`--kubeconfig=${kubeconfig}`, "-n", namespace];
    const args = [...where, "port-forward", "--address=127.0.0.1", `svc/${service}`, ports];
    const child = spawn(clients.kubectl, args, { detached: true, stdio: ["ignore", output, output] });
    const ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
    child.unref();
    let running = true;
    void ended.then(() => {
      running = false;
    });
    for (const deadline = performance.now() + 20_000; running && performance.now() < deadline; ) {
      const found = [...(await readFile(log, "utf8")).matchAll(/Forwarding from 127\.0\.0\.1:(\d+)/g)].at(-1)?.[1];
      if (found !== undefined && child.pid !== undefined) {
        const state: State = { pid: child.pid, port: Number(found), command: [clients.kubectl, ...args].join(" ") };
        await writeFile(this.#statePath, JSON.stringify(state));
        return state.port;
      }
      await sleep(50);
    }
    child.kill("SIGTERM");
    return undefined;
  }

  async #read(): Promise<State | undefined> {
    const text = await readFile(this.#statePath, "utf8").catch(() => undefined);
    if (text === undefined) return undefined;
    try {
      return stateSchema.parse(JSON.parse(text));
    } catch {
      // Cut short by a full disk, or somebody's: the forward that it spoke of, if any, ends with its Pod.
      return undefined;
    }
  }
}

/** Command line of a process, from Linux's own files where there are any; a minimal system has no ps. */
async function commandOf(pid: number): Promise<string> {
  const words = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => undefined);
  if (words !== undefined) return words.replaceAll("\0", " ").trim();
  const shown = await attempt("ps", ["-ww", "-o", "command=", "-p", String(pid)]).catch(() => undefined);
  return shown?.stdout.trim() ?? "";
}
