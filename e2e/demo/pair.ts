/** The two Pods of a sandbox as a table for people. */
import { z } from "zod";
import { tableOf } from "../../src/cli/output.ts";
import { labels } from "../../src/manifests/names.ts";
import { kubectl } from "../cluster/clients.ts";

const podListSchema = z.object({
  items: z.array(
    z.object({
      metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()).default({}) }),
      spec: z.object({ nodeName: z.string().optional(), runtimeClassName: z.string().optional() }),
      status: z.object({ phase: z.string().optional(), qosClass: z.string().optional() }),
    }),
  ),
});

export interface PodRow {
  readonly role: string;
  readonly pod: string;
  readonly node: string;
  readonly runtimeClass: string;
  readonly qos: string;
  readonly phase: string;
}

/** Workload first. */
export async function pairOf(kubeconfig: string, namespace: string, sandboxId: string): Promise<PodRow[]> {
  const selector = `${labels.sandboxId}=${sandboxId}`;
  const text = await kubectl(kubeconfig, ["-n", namespace, "get", "pods", "-l", selector, "-o", "json"]);
  return podListSchema
    .parse(JSON.parse(text))
    .items.map(({ metadata, spec, status }) => ({
      role: metadata.labels[labels.boundaryRole] ?? "?",
      pod: metadata.name,
      node: spec.nodeName ?? "-",
      runtimeClass: spec.runtimeClassName ?? "(the nodes' default)",
      qos: status.qosClass ?? "-",
      phase: status.phase ?? "-",
    }))
    .sort((one, other) => other.role.localeCompare(one.role));
}

export function pairTable(rows: readonly PodRow[]): string {
  return tableOf(
    [
      { heading: "ROLE", cell: (row) => row.role },
      { heading: "POD", cell: (row) => row.pod },
      { heading: "NODE", cell: (row) => row.node },
      { heading: "RUNTIMECLASS", cell: (row) => row.runtimeClass },
      { heading: "QOS", cell: (row) => row.qos },
      { heading: "PHASE", cell: (row) => row.phase },
    ],
    rows,
  );
}
