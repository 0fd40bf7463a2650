import { type Deferred, deadline } from "../../src/common/async.ts";
import { OpenShellError } from "../../src/common/errors.ts";
import type { Fault } from "./api-proxy.ts";
import type { SandboxWrites } from "./sandbox-writes.ts";

/**
 * Lets of each sandbox's writes the first few through, and holds everything after: the answer of the last one that was let through, too. A
 * writer that is killed when all are reached has died at as many different steps at once.
 */
export class Breakpoints implements Disposable {
  readonly #points: ReadonlyMap<string, number>;
  readonly #counts = new Map<string, number>();
  readonly #waiting: Set<string>;
  readonly #reached = Promise.withResolvers<void>();
  readonly #end: Deferred<undefined> = Promise.withResolvers<undefined>();
  readonly fault: Fault;

  /** @param points how many writes are let through, by the name of the Sandbox resource */
  constructor(writes: SandboxWrites, points: ReadonlyMap<string, number>) {
    this.#points = points;
    this.#waiting = new Set(points.keys());
    this.fault = async (request, pass) => {
      const sandbox = writes.sandboxOf(request);
      const point = sandbox === undefined ? undefined : this.#points.get(sandbox);
      if (sandbox === undefined || point === undefined) return pass();
      const count = (this.#counts.get(sandbox) ?? 0) + 1;
      this.#counts.set(sandbox, count);
      if (count < point) return pass();
      if (count === point) await pass();
      this.#waiting.delete(sandbox);
      if (this.#waiting.size === 0) this.#reached.resolve();
      return this.#end.promise;
    };
  }

  /** Resolves when every sandbox is held. */
  async reached(withinMs = 120_000): Promise<void> {
    const end = deadline(withinMs);
    end.addEventListener("abort", () => {
      const left = [...this.#waiting].map((name) => `${name} after ${this.#points.get(name)} writes`);
      this.#reached.reject(new OpenShellError("deadline-exceeded", `these were not held: ${left.join(", ")}`));
    });
    await this.#reached.promise;
  }

  /** Breaks the connections of what is held. */
  [Symbol.dispose](): void {
    this.#end.resolve(undefined);
  }
}
