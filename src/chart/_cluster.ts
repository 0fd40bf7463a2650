/** Test support: a real cluster. Tests that need one skip themselves where OPENSHELL_TEST_KUBECONFIG names no kubeconfig. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { request } from "node:https";
import { homedir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe } from "vitest";
import { helmPrograms, type Rendered } from "./_helm.ts";

export const kubeconfig = process.env.OPENSHELL_TEST_KUBECONFIG;

/** A suite that needs a cluster and a Helm. */
export function describeOnCluster(name: string, tests: () => void): void {
  const why = kubeconfig === undefined ? "OPENSHELL_TEST_KUBECONFIG names no kubeconfig" : "no Helm";
  const isPossible = kubeconfig !== undefined && helmPrograms.length > 0;
  describe.skipIf(!isPossible)(isPossible ? name : `${name} (skipped: ${why})`, tests);
}

const cached = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "openshell-dev", "bin", "kubectl");
export const kubectlProgram = existsSync(cached) ? cached : "kubectl";

export interface Outcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A program with the cluster's kubeconfig; what it says and how it ends. */
export function onCluster(program: string, args: readonly string[], input?: string): Outcome {
  const { status, stdout, stderr, error } = spawnSync(program, [...args, "--kubeconfig", kubeconfig ?? ""], {
    encoding: "utf8",
    maxBuffer: 64 << 20,
    ...(input === undefined ? {} : { input }),
  });
  if (error) throw error;
  return { status, stdout, stderr };
}

/** As `onCluster`. @throws when the program fails */
export function mustRun(program: string, args: readonly string[], input?: string): string {
  const { status, stdout, stderr } = onCluster(program, args, input);
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stderr}${stdout}`);
  return stdout;
}

export const tryKubectl = (args: readonly string[], input?: string) =>
  onCluster(kubectlProgram, ["--request-timeout=60s", ...args], input);
export const kubectl = (args: readonly string[], input?: string) => mustRun(kubectlProgram, args, input);

/** For the end of a test, where one failure must not keep the rest from being cleaned up. */
export function cleanUp(...commands: readonly (() => unknown)[]): void {
  for (const command of commands) {
    try {
      command();
    } catch (error) {
      process.stderr.write(`${error}\n`);
    }
  }
}

export const list = (items: readonly Rendered[]) => JSON.stringify({ apiVersion: "v1", kind: "List", items });

/** Server-side apply, as GitOps tools do it. */
export const apply = (objects: readonly Rendered[], ...flags: string[]) =>
  tryKubectl(
    ["apply", "--server-side", "--force-conflicts", "--field-manager=openshell-chart-test", ...flags, "-f", "-"],
    list(objects),
  );

export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into objects of every kind
  readonly body: any;
}

export type Caller = (method: string, path: string, body?: unknown) => Promise<Answer>;

/** Talks to the API server as the holder of a token and of nothing else. */
export function callerWith(token: string): Caller {
  const { clusters } = JSON.parse(kubectl(["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]));
  const { server, "certificate-authority-data": ca } = clusters[0].cluster;
  return (method, path, body) =>
    new Promise((resolve, reject) => {
      const call = request(
        new URL(path, server),
        {
          method,
          ca: Buffer.from(ca, "base64"),
          headers: {
            authorization: `Bearer ${token}`,
            "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
          },
          signal: AbortSignal.timeout(30_000),
        },
        async (response) => {
          const said = await text(response);
          const isJson = response.headers["content-type"]?.startsWith("application/json") === true;
          resolve({ status: response.statusCode ?? 0, body: isJson ? JSON.parse(said) : said });
        },
      );
      call.on("error", reject);
      call.end(body === undefined ? undefined : JSON.stringify(body));
    });
}
