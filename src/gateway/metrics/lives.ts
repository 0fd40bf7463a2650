import { openshell } from "../../wire/index.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";
import { Counter, Histogram } from "./meters.ts";
import type { Sample } from "./print.ts";
import { type Stage, stages } from "./table.ts";

const { SandboxPhase } = openshell;

interface Life {
  phase: openshell.SandboxPhase;
  /** While it comes up for the first time: when it was asked for, in milliseconds, and which stages it has passed. */
  rise: { readonly sinceMs: number; readonly passed: Set<Stage> } | undefined;
}

/** The condition that a stage is named after. */
const conditionOf: Partial<Record<Stage, string>> = {
  pods_admitted: "PodsAdmitted",
  scheduled: "Scheduled",
  workload_ready: "WorkloadReady",
  supervisor_connected: "SupervisorConnected",
  fenced: "Fenced",
};

/** Measures sandboxes by their changes: how many there are in which phase, how long creates take, and which runs fail. */
export class Lives {
  readonly failures = new Counter<{ readonly reason: string }>();
  readonly #stages = new Map(stages.map((stage) => [stage, new Histogram({ stage })]));
  readonly #lives = new Map<string, Life>();
  readonly #now: () => number;

  /**
   * @param known sandboxes from before this process; what became of them is not counted again
   * @param now in milliseconds; @default performance.now
   */
  constructor(known: Iterable<SandboxRecord>, now = () => performance.now()) {
    this.#now = now;
    for (const { id, object } of known) this.#lives.set(id, { phase: phaseOf(object), rise: undefined });
  }

  /** From memory: reading a thousand sandboxes out of the store would stop everybody at every scrape. */
  byPhase(): Sample[] {
    const counts = new Map<string, number>();
    for (const { phase } of this.#lives.values()) {
      const name = SandboxPhase[phase] ?? "UNKNOWN";
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    return [...counts].map(([phase, value]) => ({ labels: { phase }, value }));
  }

  createSeconds(): Sample[] {
    return [...this.#stages.values()].flatMap((stage) => stage.samples());
  }

  /** After every change of a sandbox, its creation included. */
  changed({ id, object, lifecycle }: SandboxRecord): void {
    const phase = phaseOf(object);
    const life = this.#lives.get(id) ?? {
      phase: SandboxPhase.UNSPECIFIED,
      rise: { sinceMs: this.#now(), passed: new Set<Stage>() },
    };
    this.#lives.set(id, life);
    if (phase === SandboxPhase.ERROR && life.phase !== SandboxPhase.ERROR) {
      this.failures.count({ reason: conditionIn(object, "Ready")?.reason ?? "Unknown" });
    }
    life.phase = phase;
    if (life.rise === undefined) return;
    for (const stage of stages) {
      if (!life.rise.passed.has(stage) && hasPassed(stage, object, lifecycle.applied.state === "running")) {
        life.rise.passed.add(stage);
        this.#stages.get(stage)?.observe((this.#now() - life.rise.sinceMs) / 1000);
      }
    }
    if (phase === SandboxPhase.READY || lifecycle.desired !== "running") life.rise = undefined;
  }

  removed(id: string): void {
    this.#lives.delete(id);
  }
}

function hasPassed(stage: Stage, object: openshell.Sandbox, isAccepted: boolean): boolean {
  if (stage === "accepted") return isAccepted;
  if (stage === "ready") return phaseOf(object) === SandboxPhase.READY;
  return conditionIn(object, conditionOf[stage] ?? "")?.status === "True";
}

function phaseOf(object: openshell.Sandbox): openshell.SandboxPhase {
  return object.status?.phase ?? SandboxPhase.UNSPECIFIED;
}

function conditionIn(object: openshell.Sandbox, type: string) {
  return object.status?.conditions.find((condition) => condition.type === type);
}
