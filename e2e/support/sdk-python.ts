import { access, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { OpenShellError } from "../../src/common/errors.ts";
import { cacheDirectory } from "../cluster/cache.ts";
import { run } from "../cluster/exec.ts";

/** The version that the gateway promises to serve unmodified. */
export const sdkVersion = "0.1.5";

/** A Python that has the SDK, made once. */
export async function sdkPython(): Promise<string> {
  const directory = join(cacheDirectory, "sdk", `openshell-${sdkVersion}`);
  const program = join(directory, "bin/python");
  const known = await access(join(directory, ".complete")).then(
    () => true,
    () => false,
  );
  if (known) return program;
  await rm(directory, { recursive: true, force: true });
  await mkdir(join(cacheDirectory, "sdk"), { recursive: true });
  const remedy = "The SDK's test needs Python 3.10 or newer with venv: apt-get install python3-venv";
  await run("python3", ["-m", "venv", directory], { remedy });
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", `openshell==${sdkVersion}`];
  await run(program, pip, { remedy: "The SDK is installed from the Python package index that pip is configured for." });
  await writeFile(join(directory, ".complete"), "");
  return program;
}

/** The same where a machine need not have one; in CI it has to. @returns no program and why, in one line */
export async function sdkPythonOr(): Promise<{ readonly python: string; readonly missing?: string }> {
  try {
    return { python: await sdkPython() };
  } catch (error) {
    if (/^(1|true)$/i.test(process.env.CI ?? "")) throw error;
    // The last line says what is needed; the ones before it are what the command printed.
    return { python: "", missing: OpenShellError.from(error).message.trim().split("\n").at(-1) ?? "" };
  }
}
