import { z } from "zod";
import { setting } from "../../config/index.ts";
import { labelMap, namePart, quantityMap } from "./_types.ts";

/** The namespace of sandboxes, and what bounds it. */
export const sandboxValues = {
  sandboxNamespace: setting(
    z
      .strictObject({
        name: setting(namePart(), "Its name; empty: <release namespace>-sandboxes."),
        create: setting(
          z.boolean().default(true),
          "Make the namespace, with Pod Security labels. It is kept on uninstall. False: it exists already.",
        ),
        podSecurity: setting(
          z.enum(["restricted", "baseline", "privileged"]).default("restricted"),
          "Pod Security level that the namespace enforces.",
        ),
        labels: setting(labelMap(), "More labels of the namespace."),
      })
      .prefault({}),
    "Where sandboxes run, apart from the gateway and its keys: all of them in workspace_mode shared, the default. In the modes managed and operator each workspace has a namespace of its own, and this one keeps the sandboxes that shared made.",
  ),
  resourceQuota: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(false),
          "Make a ResourceQuota. False: the values below are refused, since they would bind nothing.",
        ),
        maxRunningSandboxes: setting(
          z.int().min(0).default(0),
          "How many sandboxes may run at once: twice as many Pods, because each is a pair. 0: not bounded by number.",
        ),
        hard: setting(
          quantityMap(),
          "More bounds. They count both Pods of a pair: what is bounded must be set for supervisors and workloads alike.",
          { example: { "requests.cpu": "20", "requests.memory": "64Gi" } },
        ),
      })
      .prefault({}),
    "What all sandboxes together may use, in sandboxNamespace only: the namespace of a workspace (workspace_mode managed or operator) has a quota by charts/openshell-workspace, where an operator makes it, or none.",
  ),
  limitRange: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make a LimitRange."),
        default: setting(
          quantityMap(),
          "Limits of containers that have none. A request above such a limit is refused by the cluster.",
          { example: { memory: "1Gi" } },
        ),
        defaultRequest: setting(quantityMap(), "Requests of containers that have none.", {
          example: { memory: "128Mi" },
        }),
        min: setting(quantityMap(), "Least request of a container; supervisors and runtimes included.", {
          example: { memory: "64Mi" },
        }),
        max: setting(quantityMap(), "Greatest limit of a container.", { example: { memory: "4Gi" } }),
      })
      .prefault({}),
    "What one container of a sandbox may use, in sandboxNamespace only, as with resourceQuota.",
  ),
  admissionPolicy: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(false),
          "Make a ValidatingAdmissionPolicy: labels of Pods that decide over a sandbox's network are written by the gateway and Agent Sandbox only. Without it the gateway notices a change and restores the labels.",
        ),
        agentSandboxUsers: setting(
          z.array(z.string()).default(["system:serviceaccount:agent-sandbox-system:agent-sandbox-controller"]),
          "User names of the Agent Sandbox controller, which makes the workload Pods.",
        ),
      })
      .prefault({}),
    "Guard of the sandboxes' labels, in sandboxNamespace only; in the namespaces of workspaces the gateway restores them.",
  ),
} as const;
