import { join, relative } from "node:path";
import { hasCode, OpenShellError } from "../../src/common/errors.ts";
import { type Progress, progressTo } from "../cluster/progress.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { selectProvider } from "../cluster/select.ts";
import { removeLeftovers, takeTurn } from "../support/leftovers.ts";
import type { Case } from "./results.ts";
import { isCi, minute, type Run } from "./run.ts";
import { listed, vitest } from "./vitest-run.ts";

export interface TestClusterOptions {
  /** @default the first that this machine has */
  readonly provider: string | undefined;
  /** Only files whose path contains this. */
  readonly filter: string | undefined;
  /** Leave up what this run brought up. */
  readonly keep: boolean;
}

/** What it works with; tests put their own in its place. */
const parts = { selectProvider, removeLeftovers, takeTurn };

/** The cluster that the conformance tests run on, found by the first that wants it and left as it was found. */
export class TestCluster implements AsyncDisposable {
  readonly #options: TestClusterOptions;
  readonly #parts: typeof parts;
  #provider: Promise<ClusterProvider> | undefined;
  /** A cluster that was there before this run is somebody's; only what this run brought up does it take down. */
  #wasThere: Promise<boolean> | undefined;
  #count = 0;

  constructor(options: TestClusterOptions, given: Partial<typeof parts> = {}) {
    this.#options = options;
    this.#parts = { ...parts, ...given };
  }

  /** Tests of all projects so far. */
  get count(): number {
    return this.#count;
  }

  /** Runs the tests of one project of e2e/vitest.config.ts. */
  async tests(run: Run, project: string): Promise<Case[]> {
    const cases = await this.#tests(run, project);
    this.#count += cases.length;
    return cases;
  }

  async #tests(run: Run, project: string): Promise<Case[]> {
    const { filter, provider: wanted } = this.#options;
    const args = [
      "--config",
      "e2e/vitest.config.ts",
      `--project=${project}`,
      ...(filter === undefined ? [] : [filter]),
    ];
    // A filter of one project finds nothing in the others.
    if (filter !== undefined) args.push("--passWithNoTests");
    this.#provider ??= this.#parts.selectProvider(wanted);
    let provider: ClusterProvider;
    try {
      provider = await this.#provider;
    } catch (error) {
      if (hasCode(error, "invalid-argument")) throw error;
      return withoutCluster(run, args, OpenShellError.from(error).message);
    }
    this.#wasThere ??= provider.exists();
    await this.#wasThere;
    run.facts.Cluster = provider.name;
    const env = { OPENSHELL_PROVIDER: provider.name };
    const timeoutMs = (project === "faults" ? 60 : 35) * minute;
    const cases = await vitest(run, `conformance-${project}`, args, timeoutMs, env);
    if (cases.some(({ outcome }) => outcome === "failed")) {
      const progress = progressTo(run.output);
      const logs = join(run.reports, `cluster-logs-${project}`);
      await provider.collectLogs(logs).then(
        () => progress.note(`the cluster's logs are in ${logs}`),
        (error: unknown) => progress.note(`the cluster's logs cannot be had: ${OpenShellError.from(error).message}`),
      );
    }
    return cases;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const provider = await this.#provider?.catch(() => undefined);
    const wasThere = await this.#wasThere?.catch(() => undefined);
    if (provider === undefined || wasThere === undefined) return;
    const progress = progressTo(process.stderr);
    if (!wasThere && !this.#options.keep) return provider.down(progress);
    if (wasThere) progress.note("the cluster was there before and stays");
    else progress.note("the cluster stays up; `npm run cluster -- down` removes it");
    // A run that was interrupted or took too long has nobody else any more who cleans up after it.
    await this.#removeLeftovers(provider, progress).catch((error: unknown) => {
      progress.note(`what the run left in it stays, until the next run: ${OpenShellError.from(error).message}`);
    });
  }

  async #removeLeftovers(provider: ClusterProvider, progress: Progress): Promise<void> {
    // Another run that waited for this one is at work by now, and has removed them.
    await using _turn = await this.#parts.takeTurn(progress, AbortSignal.timeout(5000));
    await this.#parts.removeLeftovers(await provider.kubeconfig(), progress);
  }
}

/** One line, and every test that would have run counts as skipped; in CI, where a cluster is promised, as one failure. */
async function withoutCluster(run: Run, args: readonly string[], why: string): Promise<Case[]> {
  run.facts.Cluster = "none";
  run.output.write(`  no cluster, so these tests are skipped: ${why}\n`);
  if (isCi) {
    return [{ suite: "e2e/suites", name: "a cluster can be had", outcome: "failed", seconds: 0, detail: why }];
  }
  const skipped = await listed(run, args);
  return skipped.map(({ name, file }) => ({
    suite: relative(run.root, file),
    name,
    outcome: "skipped",
    seconds: 0,
    detail: why,
  }));
}
