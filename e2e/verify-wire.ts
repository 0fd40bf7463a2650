/** `npm run verify:wire`: exits 1 when src/wire/gen is not what proto/ generates. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { run } from "./cluster/exec.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const committed = join(root, "src", "wire", "gen");

const scratch = await mkdtemp(join(tmpdir(), "openshell-wire-"));
try {
  await run("buf", ["generate", "--output", scratch], { cwd: root });
  const generated = join(scratch, "src", "wire", "gen");
  const names = new Set([...(await readdir(generated)), ...(await readdir(committed))]);
  const different: string[] = [];
  for (const name of names) {
    const [fresh, kept] = await Promise.all([generated, committed].map((directory) => text(join(directory, name))));
    if (fresh !== kept) different.push(`src/wire/gen/${name}`);
  }
  if (different.length > 0) {
    process.stderr.write(
      `These differ from proto/; run \`npm run generate:wire\` and commit:\n  ${different.join("\n  ")}\n`,
    );
    process.exitCode = 1;
  }
} finally {
  await rm(scratch, { recursive: true, force: true });
}

function text(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}
