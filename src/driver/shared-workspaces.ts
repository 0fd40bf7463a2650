import { OpenShellError } from "../common/errors.ts";
import { type Live, type Namespace, namespaces } from "../kube/index.ts";
import type { NamespaceFacts } from "./request.ts";
import { factsOfNamespace, type Workspaces, type WorkspacesOptions } from "./workspaces.ts";

/** `workspace_mode = "shared"`: every workspace in one namespace, which the chart owns. */
export class SharedWorkspaces implements Workspaces {
  readonly #options: WorkspacesOptions;
  #namespace: Live<Namespace> | undefined;

  constructor(options: WorkspacesOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { client, view, settings, log } = this.#options;
    const name = settings.namespace;
    try {
      this.#namespace = await client.find(namespaces, undefined, name);
      if (this.#namespace === undefined) log.error(`namespace "${name}" does not exist; sandboxes cannot be created`);
    } catch (error) {
      log.warn({ err: error }, `cannot read namespace "${name}"; its UID range, if any, is not used`);
    }
    await view.follow(name);
  }

  check(): void {}

  async ensure(workspace: string): Promise<string> {
    if (workspace === "") throw new OpenShellError("invalid-argument", "a workspace needs a name");
    return this.#options.settings.namespace;
  }

  async remove(): Promise<void> {}

  unseen(): string[] {
    return [];
  }

  refused(): void {}

  factsOf(): NamespaceFacts {
    return factsOfNamespace(this.#namespace);
  }
}
