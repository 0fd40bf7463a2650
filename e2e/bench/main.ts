/**
 * Measurements behind single decisions, each beside what it is compared with, in one run.
 *
 *   npm run bench -- NAME [options]
 *
 * A report goes to standard output as JSON and to standard error as a table; with --out also into files.
 */

/** What each is, in a line; the file of that name has its options. */
const benches: Readonly<Record<string, string>> = {
  driver: "a sandbox's life beside two bare Pods and beside a bare Sandbox, on a cluster",
  pair: "memory and CPU time of a pair at rest and at work, on a cluster",
  scale: "a thousand sandboxes on hollow nodes beside a bare client, on a cluster",
  bytes: "commands, copies and keys beside kubectl exec into the same Pod, on a cluster",
  chart: "synth of the chart, and helm template beside a chart without logic",
  runtime: "start, exec and bytes of the sandbox's runtime as images carry it",
  wire: "typed gRPC over grpc-js itself",
};

const [name = ""] = process.argv.splice(2, 1);
if (name in benches) await import(`./${name}.ts`);
else {
  const lines = Object.entries(benches).map(([each, what]) => `  ${each.padEnd(8)} ${what}\n`);
  process.stderr.write(`usage: npm run bench -- NAME [options]\n\n${lines.join("")}`);
  process.exitCode = 2;
}
