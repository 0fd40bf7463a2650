/** The generated files of the repository that come from the chart and the settings: written, or compared with what is there. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { settingsReference } from "../config/index.ts";
import { synthesize } from "./chart.ts";
import { chartSettingsSay } from "./chart-settings.ts";
import { clusterReference } from "./cluster-reference.ts";
import { valuesReference } from "./values-reference.ts";
import { synthesizeWorkspace } from "./workspace/chart.ts";

const root = join(import.meta.dirname, "..", "..");
const charts = join(root, "charts");

const wanted = new Map([
  ...[...synthesize()].map(([path, content]) => [join(charts, "openshell", path), content] as const),
  ...[...synthesizeWorkspace()].map(([path, content]) => [join(charts, "openshell-workspace", path), content] as const),
  [join(root, "docs", "reference", "gateway-config.mdx"), settingsReference(chartSettingsSay)] as const,
  [join(root, "docs", "reference", "cluster.md"), clusterReference()] as const,
  [join(root, "docs", "reference", "values.md"), valuesReference()] as const,
]);

function existing(): string[] {
  try {
    const found = readdirSync(charts, { recursive: true, withFileTypes: true });
    return found.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  } catch {
    return [];
  }
}

function contentOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

export function writeFiles(): void {
  for (const path of existing()) if (!wanted.has(path)) rmSync(path);
  let changed = 0;
  for (const [path, content] of wanted) {
    if (contentOf(path) === content) continue;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    changed++;
  }
  process.stdout.write(`charts and their references: ${wanted.size} files, ${changed} changed\n`);
}

export function checkFiles(): void {
  const drifted = [
    ...[...wanted].filter(([path, content]) => contentOf(path) !== content).map(([path]) => path),
    ...existing().filter((path) => !wanted.has(path)),
  ].map((path) => relative(root, path));
  if (drifted.length === 0) return;
  process.stderr.write(
    `These generated files differ from their source; run \`npm run synth\` and commit:\n${drifted.map((path) => `  ${path}\n`).join("")}`,
  );
  process.exitCode = 1;
}
