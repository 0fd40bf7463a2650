import type { Sample } from "./print.ts";

type Labels = Readonly<Record<string, string>>;

/** A counter for every combination of labels that was counted. Callers keep their number small: it grows with what happens, not with who. */
export class Counter<L extends Labels> {
  readonly #counts = new Map<string, { readonly labels: L; value: number }>();

  /** @param known combinations that are shown, as 0, before anything was counted */
  constructor(known: readonly L[] = []) {
    for (const labels of known) this.#entry(labels);
  }

  count(labels: L): void {
    this.#entry(labels).value += 1;
  }

  samples(): Sample[] {
    return [...this.#counts.values()].map(({ labels, value }) => ({ labels, value }));
  }

  #entry(labels: L) {
    const key = JSON.stringify(labels);
    const entry = this.#counts.get(key) ?? { labels, value: 0 };
    this.#counts.set(key, entry);
    return entry;
  }
}

/** Upper bounds in seconds: from one that only reads memory to a sandbox whose image is pulled. */
export const secondsBuckets = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300,
] as const;

/** How often something took how long. */
export class Histogram {
  readonly #labels: Labels;
  readonly #buckets = secondsBuckets.map(() => 0);
  #count = 0;
  #sum = 0;

  constructor(labels: Labels = {}) {
    this.#labels = labels;
  }

  observe(seconds: number): void {
    this.#count += 1;
    this.#sum += seconds;
    const bucket = secondsBuckets.findIndex((bound) => seconds <= bound);
    if (bucket >= 0) this.#buckets[bucket] = (this.#buckets[bucket] ?? 0) + 1;
  }

  samples(): Sample[] {
    let below = 0;
    const buckets = secondsBuckets.map((bound, index) => {
      below += this.#buckets[index] ?? 0;
      return bucket(this.#labels, String(bound), below);
    });
    return [
      ...buckets,
      bucket(this.#labels, "+Inf", this.#count),
      { suffix: "_sum", labels: this.#labels, value: this.#sum },
      { suffix: "_count", labels: this.#labels, value: this.#count },
    ];
  }
}

function bucket(labels: Labels, le: string, value: number): Sample {
  return { suffix: "_bucket", labels: { ...labels, le }, value };
}
