import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { type ChartGuard, isEmpty } from "./_guard.ts";
import { and, call, entries, HelmObject, more, not, optional, or, type Ref, toJson } from "./layer/index.ts";
import { quantity, unlessEmpty } from "./pods.ts";
import type { ChartValues } from "./values-schema.ts";

/** Values that bound the sandboxes of a namespace. */
export type BoundsValues = Pick<Ref<ChartValues>, "resourceQuota" | "limitRange">;

/** Refusals of bounds that bound nothing, or the same twice. */
export const boundsGuards = ({ resourceQuota, limitRange }: BoundsValues): readonly ChartGuard[] => [
  {
    refusedWhen: and(
      not(resourceQuota.enabled),
      or(not(isEmpty(resourceQuota.hard)), more(resourceQuota.maxRunningSandboxes, 0)),
    ),
    sentence:
      "resourceQuota.maxRunningSandboxes and resourceQuota.hard have no effect while resourceQuota.enabled is false; set it to true, or remove them",
  },
  {
    refusedWhen: and(
      resourceQuota.enabled,
      isEmpty(resourceQuota.hard),
      not(more(resourceQuota.maxRunningSandboxes, 0)),
    ),
    sentence:
      "resourceQuota.enabled is true but bounds nothing; give resourceQuota.maxRunningSandboxes or resourceQuota.hard",
  },
  {
    refusedWhen: and(
      resourceQuota.enabled,
      call("hasKey", resourceQuota.hard, "pods"),
      more(resourceQuota.maxRunningSandboxes, 0),
    ),
    sentence:
      "resourceQuota.maxRunningSandboxes is the bound on Pods, two for each sandbox; remove pods from resourceQuota.hard, or set resourceQuota.maxRunningSandboxes to 0",
  },
  {
    refusedWhen: and(
      limitRange.enabled,
      isEmpty(limitRange.default),
      isEmpty(limitRange.defaultRequest),
      isEmpty(limitRange.min),
      isEmpty(limitRange.max),
    ),
    sentence:
      "limitRange.enabled is true but bounds nothing; give limitRange.default, limitRange.defaultRequest, limitRange.min or limitRange.max",
  },
];

export interface SandboxBoundsProps {
  readonly values: BoundsValues;
  readonly metadata: { readonly name: string; readonly namespace: string; readonly labels: Record<string, string> };
}

/** What sandboxes may use: all of them together, and each container. */
export class SandboxBounds extends Construct {
  constructor(scope: Construct, id: string, { metadata, values: { resourceQuota, limitRange } }: SandboxBoundsProps) {
    super(scope, id);
    new HelmObject<k8s.KubeResourceQuotaProps>(this, "quota", {
      apiVersion: "v1",
      kind: "ResourceQuota",
      when: resourceQuota.enabled,
      manifest: {
        metadata,
        spec: {
          hard: {
            ...(entries(resourceQuota.hard) as unknown as Record<string, k8s.Quantity>),
            pods: optional(
              more(resourceQuota.maxRunningSandboxes, 0),
              quantity(toJson(call("mul", 2, resourceQuota.maxRunningSandboxes))),
            ),
          },
        },
      },
    });
    const quantities = (of: Parameters<typeof unlessEmpty<Record<string, string>>>[0]) =>
      unlessEmpty(of) as unknown as Record<string, k8s.Quantity>;
    new HelmObject<k8s.KubeLimitRangeProps>(this, "limits", {
      apiVersion: "v1",
      kind: "LimitRange",
      when: limitRange.enabled,
      manifest: {
        metadata,
        spec: {
          limits: [
            {
              type: "Container",
              default: quantities(limitRange.default),
              defaultRequest: quantities(limitRange.defaultRequest),
              min: quantities(limitRange.min),
              max: quantities(limitRange.max),
            },
          ],
        },
      },
    });
  }
}
