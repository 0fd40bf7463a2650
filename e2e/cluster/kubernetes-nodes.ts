import { z } from "zod";
import { clients } from "./clients.ts";
import { run } from "./exec.ts";
import type { NodeInfo } from "./provider.ts";

const nodeListSchema = z.object({
  items: z.array(
    z.object({
      metadata: z.object({ name: z.string() }),
      spec: z.object({
        unschedulable: z.boolean().optional(),
        taints: z.array(z.object({ key: z.string(), effect: z.string() })).optional(),
      }),
      status: z.object({
        addresses: z.array(z.object({ type: z.string(), address: z.string() })).optional(),
        conditions: z.array(z.object({ type: z.string(), status: z.string() })).optional(),
      }),
    }),
  ),
});

/** Nodes that take ordinary Pods, as the API server knows them. A control plane's node counts only where it is not tainted. */
export async function kubernetesNodes(
  kubeconfig: string,
  runCommand: (command: string, args: readonly string[]) => Promise<string> = run,
): Promise<readonly NodeInfo[]> {
  const listed = await runCommand(clients.kubectl, [`--kubeconfig=${kubeconfig}`, "get", "nodes", "-o", "json"]);
  const { items } = nodeListSchema.parse(JSON.parse(listed));
  return items
    .filter(
      ({ spec }) =>
        !spec.taints?.some(({ key, effect }) => key.startsWith("node-role.kubernetes.io/") && effect === "NoSchedule"),
    )
    .map(({ metadata, spec, status }) => ({
      name: metadata.name,
      address: status.addresses?.find(({ type }) => type === "InternalIP")?.address ?? "",
      ready: status.conditions?.some(({ type, status: value }) => type === "Ready" && value === "True") ?? false,
      schedulable: spec.unschedulable !== true,
    }));
}
