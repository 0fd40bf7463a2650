import { backoffMs, sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";

const longestPauseMs = 30_000;

export interface PatientFollowOptions {
  /** Resolves when the sandboxes of the namespace are known. Bounded in time. */
  readonly attempt: (namespace: string, signal: AbortSignal, isFirst: boolean) => Promise<void>;
  /** Whether its sandboxes are still to be known. */
  readonly isWanted: (namespace: string) => boolean;
  readonly log: Logger;
}

/** Follows namespaces until each is listed, however long one takes: none keeps the others waiting, and none is given up. */
export class PatientFollow {
  readonly #options: PatientFollowOptions;
  readonly #working = new Map<string, Promise<void>>();
  #signal = AbortSignal.abort();

  constructor(options: PatientFollowOptions) {
    this.#options = options;
  }

  /** Until then nothing is attempted. */
  start(signal: AbortSignal): void {
    this.#signal = signal;
  }

  /** Resolves after the first attempt, whatever came of it; further ones go on by themselves. */
  keep(namespace: string): Promise<void> {
    const known = this.#working.get(namespace);
    if (known !== undefined || this.#signal.aborted) return known ?? Promise.resolve();
    const first = Promise.withResolvers<void>();
    this.#working.set(namespace, first.promise);
    void this.#follow(namespace, first.resolve).finally(() => this.#working.delete(namespace));
    return first.promise;
  }

  async #follow(namespace: string, onFirst: () => void): Promise<void> {
    const { attempt, isWanted, log } = this.#options;
    const signal = this.#signal;
    let said: string | undefined;
    for (let tries = 0; !signal.aborted && isWanted(namespace); tries += 1) {
      try {
        await attempt(namespace, signal, tries === 0);
        break;
      } catch (error) {
        if (signal.aborted || !isWanted(namespace)) break;
        const { message } = OpenShellError.from(error);
        if (message !== said) log.error({ err: error, namespace }, `sandboxes in "${namespace}" are not seen yet`);
        said = message;
      }
      onFirst();
      await sleep(backoffMs(tries, { initialMs: 500, maxMs: longestPauseMs }), signal).catch(() => undefined);
    }
    onFirst();
  }
}
