import { sleep } from "../common/async.ts";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";
import { type Informer, type Live, type Namespace, namespaces } from "../kube/index.ts";
import { maxPublicNameLength } from "../manifests/index.ts";
import { isGone } from "./namespace-end.ts";
import { namespacesInFile, possibleWorkspaces } from "./namespace-list.ts";
import { requireRights, type WorkspacesOptions } from "./workspaces.ts";

/** The namespaces that an operator has given to this gateway; the list changes while it runs. */
export interface AllowedNamespaces {
  /** Resolves when the list is known. */
  start(signal: AbortSignal): Promise<void>;
  has(name: string): boolean;
  list(): string[];
  /** What an operator has to do to add one, in words. */
  remedy(name: string): string;
  /** As far as it is known without asking. */
  get(name: string): Live<Namespace> | undefined;
}

export interface AllowedNamespacesOptions extends WorkspacesOptions {
  readonly onAdded: (name: string) => void;
  /** The namespace itself is gone. */
  readonly onGone: (name: string) => void;
}

/** `operator_namespace_label`. */
export class LabelledNamespaces implements AllowedNamespaces {
  readonly #options: AllowedNamespacesOptions;
  readonly #informer: Informer<Namespace>;
  #signal: AbortSignal | undefined;

  constructor(options: AllowedNamespacesOptions) {
    this.#options = options;
    const { client, informers, settings, log, onAdded, onGone } = options;
    this.#informer = informers.of(namespaces, { labelSelector: settings.operator_namespace_label });
    this.#informer.on("added", ({ metadata }) => onAdded(metadata.name));
    this.#informer.on("deleted", async ({ metadata }) => {
      const { name } = metadata;
      // What this mode may do is list.
      const find = async (call: { readonly signal: AbortSignal }) =>
        (await client.list(namespaces, undefined, { ...call, fieldSelector: `metadata.name=${name}` })).items[0];
      if (await isGone(metadata, find, this.#signal)) return onGone(name);
      log.warn(
        `namespace "${name}" lost its label: no new sandboxes there; those that are there go on until the gateway is started again, which would take them for deleted: put the label back, or delete them before`,
      );
    });
  }

  async start(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    await requireRights(this.#options, signal);
    await this.#informer.synced;
  }

  has(name: string): boolean {
    const namespace = this.get(name);
    return namespace !== undefined && namespace.metadata.deletionTimestamp === undefined;
  }

  list(): string[] {
    return this.#informer.list().map(({ metadata }) => metadata.name);
  }

  remedy(name: string): string {
    return `label namespace "${name}" with ${this.#options.settings.operator_namespace_label}`;
  }

  get(name: string): Live<Namespace> | undefined {
    return this.#informer.get(undefined, name);
  }
}

/** A mounted ConfigMap changes by the exchange of a link, which no watch of the file sees everywhere. */
const readEveryMs = 5_000;

/** `operator_namespace_file`: a JSON array of names. */
export class NamespacesFromFile implements AllowedNamespaces {
  readonly #path: string;
  readonly #log: Logger;
  readonly #onAdded: (name: string) => void;
  readonly #everyMs: number;
  #names: readonly string[] = [];
  #complaint: string | undefined;
  #impossible: ReadonlySet<string> = new Set();

  constructor(options: Pick<AllowedNamespacesOptions, "settings" | "log" | "onAdded">, everyMs = readEveryMs) {
    this.#path = options.settings.operator_namespace_file;
    this.#log = options.log;
    this.#onAdded = options.onAdded;
    this.#everyMs = everyMs;
  }

  async start(signal: AbortSignal): Promise<void> {
    this.#names = await this.#read();
    void this.#follow(signal);
  }

  has(name: string): boolean {
    return this.#names.includes(name);
  }

  list(): string[] {
    return [...this.#names];
  }

  remedy(name: string): string {
    return `add "${name}" to ${this.#path}`;
  }

  get(): undefined {
    return undefined;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.#everyMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        const names = await this.#read();
        const added = names.filter((name) => !this.has(name));
        this.#names = names;
        this.#complaint = undefined;
        for (const name of added) this.#onAdded(name);
      } catch (error) {
        // A list that cannot be read takes no namespace away; it is said once.
        const { message } = OpenShellError.from(error);
        if (message !== this.#complaint)
          this.#log.error({ err: error }, `${message}; the namespaces stay as they were`);
        this.#complaint = message;
      }
    }
  }

  /** One name that can be no workspace's spoils no list; it is said once. */
  #possible(names: readonly string[]): string[] {
    const possible = possibleWorkspaces(names);
    const impossible = names.filter((name) => !possible.includes(name));
    for (const name of impossible.filter((each) => !this.#impossible.has(each))) {
      this.#log.error(
        `"${name}" in ${this.#path} can be no workspace, whose name has at most ${maxPublicNameLength} of a-z, 0-9 and single -; it is left out`,
      );
    }
    this.#impossible = new Set(impossible);
    return possible;
  }

  async #read(): Promise<string[]> {
    return this.#possible(await namespacesInFile(this.#path));
  }
}
