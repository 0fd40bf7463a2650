import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { OpenShellError } from "../../src/common/errors.ts";
import type { ClusterProvider } from "../cluster/provider.ts";

const homeSchema = z.object({
  provider: z.string(),
  /** The cluster was there before the demo, and stays. */
  wasUp: z.boolean(),
});

type Home = z.infer<typeof homeSchema>;
type Provider = Pick<ClusterProvider, "name" | "exists">;

/** Where the demo is, kept in `directory` from its first step on, so that `--down` removes that and nothing else. */
export class DemoHome {
  readonly #directory: string;
  readonly #file: string;

  constructor(directory: string) {
    this.#directory = directory;
    this.#file = join(directory, "cluster.json");
  }

  /** The provider of the demo that is up. */
  async provider(): Promise<string | undefined> {
    return (await this.#read())?.provider;
  }

  /** Remembers the cluster before it is brought up. @throws failed-precondition while the demo is on another provider's */
  async settle(provider: Provider): Promise<void> {
    const home = await this.#readOf(provider);
    const exists = await provider.exists();
    // What is remembered of a cluster that somebody removed since holds no longer.
    if (home !== undefined && exists) return;
    await mkdir(this.#directory, { recursive: true });
    await writeFile(this.#file, JSON.stringify({ provider: provider.name, wasUp: exists } satisfies Home));
  }

  /**
   * What `--down` has to remove: the cluster that the demo brought up, or only what it put into one that is somebody's.
   *
   * @throws failed-precondition while the demo is on another provider's
   */
  async removal(provider: Provider): Promise<"cluster" | "release" | "nothing"> {
    const home = await this.#readOf(provider);
    if (home?.wasUp === false) return "cluster";
    return (await provider.exists()) ? "release" : "nothing";
  }

  async #readOf({ name }: Provider): Promise<Home | undefined> {
    const home = await this.#read();
    if (home === undefined || home.provider === name) return home;
    throw new OpenShellError(
      "failed-precondition",
      `the demo is on ${home.provider}, not ${name}: remove it with \`npm run demo -- --down\` first`,
    );
  }

  async #read(): Promise<Home | undefined> {
    const text = await readFile(this.#file, "utf8").catch(() => undefined);
    if (text === undefined) return undefined;
    try {
      return homeSchema.parse(JSON.parse(text));
    } catch (cause) {
      throw new OpenShellError(
        "data-loss",
        `${this.#file} no longer says where the demo is: remove the file and name the cluster with --provider`,
        { cause },
      );
    }
  }
}
