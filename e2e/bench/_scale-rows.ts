import type { Arrivals, tail } from "./_arrivals.ts";
import { bareName } from "./_place.ts";
import { median } from "./_report.ts";

type Tail = ReturnType<typeof tail>;
export type Reported = Tail & { readonly raw: Arrivals };

export interface Throughput {
  readonly pairsPerSecond: number;
  /** Of the whole machine, whoever spent it. */
  readonly cpuSecondsPerPair: number;
  /** Of these the API server's. */
  readonly apiServerCpuSecondsPerPair: number;
  /** Of these each program's, where they run on this machine. */
  readonly programCpuSecondsPerPair: Readonly<Record<string, number>>;
}

export interface OnHollowNodes {
  readonly sandboxes: number;
  /** Of each leg, by its name. */
  readonly rates: Readonly<Record<string, readonly Throughput[]>>;
  readonly gatewayCpuSecondsPerPair: number;
  readonly requestsPerPair: number;
  readonly atRate: { readonly ours: Reported; readonly bare: Reported };
  /** At one a second, among all sandboxes. */
  readonly calm: Reported;
  readonly reconcileSeconds: { readonly p50: number; readonly p99: number };
  /** Bytes. */
  readonly memory: { readonly empty: number; readonly full: number; readonly restarted: number };
  readonly idle: {
    readonly seconds: number;
    readonly requests: Readonly<Record<string, number>>;
    readonly ofSandboxes: number;
    readonly gatewayCpuSeconds: number;
  };
  readonly restart: {
    readonly ms: number;
    readonly requests: Readonly<Record<string, number>>;
    readonly writes: number;
  };
}

export interface OnRealNodes {
  readonly ours: { readonly scheduled: Tail; readonly running: Tail; readonly raw: Arrivals };
  readonly bare: { readonly scheduled: Tail; readonly running: Tail; readonly raw: Arrivals };
}

/** What of it stands in the rows. */
export interface Size {
  readonly sandboxes: number;
  readonly rate: number;
}

const verdict = (met: boolean) => (met ? "met" : "missed");
const seconds = (ms: number) => (Number.isFinite(ms) ? `${(ms / 1000).toFixed(2)} s` : "never");
const tailText = ({ p50, p90, p99, failed }: Tail) =>
  `${[p50, p90, p99].map(seconds).join(" / ")}${failed === 0 ? "" : `, ${failed} failed`}`;
const below = (mostMs: number, { p99 }: Tail) => `p99 below ${mostMs / 1000} s: ${verdict(p99 < mostMs)}`;
const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
const row = (what: string, ours: string, beside = "", ratio = "", target = "") =>
  `| ${what} | ${ours} | ${beside} | ${ratio} | ${target} |`;

export function hollowRows(result: OnHollowNodes, size: Size): string[] {
  const { rates, sandboxes: count, atRate, calm, reconcileSeconds, memory, idle, restart } = result;
  const each = (name: string) => (rates[name] ?? []).map(({ pairsPerSecond }) => pairsPerSecond);
  const cpu = (name: string) => median((rates[name] ?? []).map(({ cpuSecondsPerPair }) => cpuSecondsPerPair));
  const apiServer = (name: string) =>
    `the API server's ${median((rates[name] ?? []).map(({ apiServerCpuSecondsPerPair }) => apiServerCpuSecondsPerPair)).toFixed(2)} s`;
  const others = Object.keys(rates).filter((name) => name !== "ours");
  const program = (leg: string, name: string) =>
    median((rates[leg] ?? []).map(({ programCpuSecondsPerPair }) => programCpuSecondsPerPair[name] ?? 0));
  const programs = [...new Set((rates.ours ?? []).flatMap((each) => Object.keys(each.programCpuSecondsPerPair)))]
    .filter((name) => program("ours", name) >= 0.01)
    .sort((left, right) => program("ours", right) - program("ours", left));
  const perPair = (leg: string) => programs.map((name) => `${name} ${program(leg, name).toFixed(2)}`).join(", ");
  return [
    ...others.map((beside) => {
      const ratios = each("ours").map((rate, round) => rate / (each(beside)[round] ?? Number.NaN));
      const ratio = median(ratios);
      const range = `${ratio.toFixed(2)} (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`;
      const rate = (name: string) => median(each(name)).toFixed(1);
      const target = `at least 0.8: ${verdict(ratio >= 0.8)}`;
      return row("pairs/s until both Pods have a node", rate("ours"), `${rate(beside)}, ${beside}`, range, target);
    }),
    ...others.map((beside) =>
      row(
        "CPU of the whole machine per pair",
        `${cpu("ours").toFixed(2)} s, of it ${apiServer("ours")}, the gateway's ${result.gatewayCpuSecondsPerPair.toFixed(2)} s`,
        `${cpu(beside).toFixed(2)} s, of it ${apiServer(beside)}, ${beside}`,
        (cpu("ours") / cpu(beside)).toFixed(2),
      ),
    ),
    ...(programs.length === 0 ? [] : [row("seconds of it", perPair("ours"), perPair(bareName))]),
    row("requests of the driver per pair", result.requestsPerPair.toFixed(1), "", "", "9"),
    row(
      `create at ${size.rate}/s, p50 / p90 / p99`,
      tailText(atRate.ours),
      `${tailText(atRate.bare)}, with volume`,
      (atRate.ours.p99 / atRate.bare.p99).toFixed(2),
      below(5_000, atRate.ours),
    ),
    row(`create at 1/s among ${count} sandboxes, p50 / p90 / p99`, tailText(calm), "", "", below(5_000, calm)),
    row(
      "one reconcile meanwhile, p50 / p99",
      `${(reconcileSeconds.p50 * 1000).toFixed(0)} / ${(reconcileSeconds.p99 * 1000).toFixed(0)} ms`,
    ),
    row(
      `the gateway's resident memory: with 1 sandbox, with ${size.sandboxes}, after a restart with ${count}`,
      [memory.empty, memory.full, memory.restarted].map(mib).join(", "),
    ),
    row(
      `requests for ${count} idle sandboxes in ${idle.seconds} s`,
      String(idle.ofSandboxes),
      "",
      "",
      `0: ${verdict(idle.ofSandboxes === 0)}`,
    ),
    row(
      "writes when the gateway restarts with them",
      String(restart.writes),
      "",
      "",
      `0: ${verdict(restart.writes === 0)}`,
    ),
  ];
}

export function realRows({ ours, bare }: OnRealNodes): string[] {
  const both = (what: string, of: "scheduled" | "running", target?: string) =>
    row(
      `real nodes, create at 1/s, ${what}, p50 / p90 / p99`,
      tailText(ours[of]),
      `${tailText(bare[of])}, with volume`,
      (ours[of].p99 / bare[of].p99).toFixed(2),
      target,
    );
  return [both("both Pods have a node", "scheduled", below(5_000, ours.scheduled)), both("both Pods run", "running")];
}
