/** Test support: the API of each minor version of Kubernetes as JSON Schema, from the Python package `kubernetes-validate`. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { Ajv, type ValidateFunction } from "ajv";
import type { Rendered } from "./_helm.ts";

/** Every minor version that the chart supports and the package knows. */
export const minors = ["1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36"] as const;

const packageVersion = "1.37.0";
const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "openshell-dev");
const folder = join(cache, `kubernetes-schemas-${packageVersion}`);
const unpack = `
import sys, zipfile
wheel, target, *minors = sys.argv[1:]
wanted = tuple(f"kubernetes_validate/kubernetes-json-schema/v{minor}.0-local-strict/" for minor in minors)
archive = zipfile.ZipFile(wheel)
archive.extractall(target, [name for name in archive.namelist() if name.startswith(wanted)])
`;

function run(program: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: "utf8" });
  if (error) throw error;
  if (status !== 0) throw new Error(`${program} ${args.slice(0, 4).join(" ")}: ${stderr.slice(-2000)}`);
}

/** Brings the schemas, 22 MB, the first time. @throws when Python, pip or the package index cannot be had */
export function bringSchemas(): void {
  if (existsSync(folder)) return;
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(join(cache, "schemas-"));
  try {
    const download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", work];
    const wanted = `kubernetes-validate==${packageVersion}`;
    try {
      run("python3", [...download, wanted]);
    } catch {
      // A Python without pip may have venv, which brings one.
      run("python3", ["-m", "venv", join(work, "venv")]);
      run(join(work, "venv", "bin", "python"), [...download, wanted]);
    }
    const wheel = readdirSync(work).find((name) => name.endsWith(".whl")) ?? "";
    run("python3", ["-c", unpack, join(work, wheel), join(work, "unpacked"), ...minors]);
    renameSync(join(work, "unpacked", "kubernetes_validate", "kubernetes-json-schema"), folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** What a minor version of Kubernetes says about objects. */
export class KubernetesSchemas {
  readonly #folder: string;
  readonly #ajv: Ajv;
  readonly #known = new Map<string, ValidateFunction | undefined>();

  constructor(minor: (typeof minors)[number]) {
    this.#folder = join(folder, `v${minor}.0-local-strict`);
    // The package's formats and keywords are OpenAPI's.
    this.#ajv = new Ajv({
      strict: false,
      validateFormats: false,
      validateSchema: false,
      logger: false,
      allErrors: true,
    });
    this.#ajv.addSchema(
      JSON.parse(readFileSync(join(this.#folder, "_definitions.json"), "utf8")),
      "/api/_definitions.json",
    );
  }

  /** What is wrong with an object; undefined for a kind that is not Kubernetes' own. */
  violations({ apiVersion, kind, ...rest }: Rendered): string[] | undefined {
    const validate = this.#of(apiVersion, kind);
    if (validate === undefined) return undefined;
    validate({ apiVersion, kind, ...rest });
    return (validate.errors ?? []).map(
      ({ instancePath, message, params }) =>
        `${kind}/${rest.metadata.name}${instancePath} ${message}${"additionalProperty" in params ? `: ${params.additionalProperty}` : ""}`,
    );
  }

  #of(apiVersion: string, kind: string): ValidateFunction | undefined {
    const key = `${apiVersion}/${kind}`;
    if (!this.#known.has(key)) this.#known.set(key, this.#compile(apiVersion, kind));
    return this.#known.get(key);
  }

  #compile(apiVersion: string, kind: string): ValidateFunction | undefined {
    const [group = "", version = ""] = apiVersion.includes("/") ? apiVersion.split("/") : ["", apiVersion];
    // networking.k8s.io/v1 is networking-v1 there, apps/v1 apps-v1.
    const name = [kind.toLowerCase(), ...(group === "" ? [] : [group.split(".")[0]]), version].join("-");
    const file = join(this.#folder, `${name}.json`);
    if (!existsSync(file)) return undefined;
    return this.#ajv.compile(JSON.parse(readFileSync(file, "utf8")));
  }
}
