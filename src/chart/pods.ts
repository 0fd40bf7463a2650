import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { once, values } from "./_values.ts";
import {
  and,
  call,
  type Expr,
  entries,
  inserted,
  not,
  optional,
  Part,
  type Ref,
  render,
  renderPart,
} from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

/** The user of the gateway's image. */
const user = 65_532;

/** A field of a map that an operator may override: the chart's, unless theirs is there. */
const unlessGiven = <T>(given: Expr<Record<string, unknown>>, key: string, value: T): T =>
  optional(not(call("hasKey", given, key)), value);

/** What Pod Security `restricted` asks of a Pod, under the operator's own fields. */
const podSecurity: k8s.PodSecurityContext = {
  ...entries(values.podSecurityContext),
  runAsNonRoot: unlessGiven(values.podSecurityContext, "runAsNonRoot", true),
  ...Object.fromEntries(
    ["runAsUser", "runAsGroup", "fsGroup"].map((key) => [
      key,
      optional(and(values.fixedUserIds, not(call("hasKey", values.podSecurityContext, key))), user),
    ]),
  ),
  seccompProfile: unlessGiven(values.podSecurityContext, "seccompProfile", { type: "RuntimeDefault" }),
};

const containerSecurityPart = new Part("openshell.containerSecurity", {
  ...entries(values.securityContext),
  allowPrivilegeEscalation: unlessGiven(values.securityContext, "allowPrivilegeEscalation", false),
  capabilities: unlessGiven(values.securityContext, "capabilities", { drop: ["ALL"] }),
  readOnlyRootFilesystem: unlessGiven(values.securityContext, "readOnlyRootFilesystem", true),
});

/** What it asks of a container. */
export const containerSecurity = renderPart<k8s.SecurityContext>(
  once("containerSecurity", containerSecurityPart.lines),
);

/** A port of a manifest: the L1 class only wraps the number. */
export const port = (of: Expr<number> | number | string): k8s.IntOrString =>
  (typeof of === "object" ? render(of) : of) as unknown as k8s.IntOrString;

/** A quantity of a manifest: the L1 class only wraps the text. */
export const quantity = (of: Expr<string> | string): k8s.Quantity =>
  (typeof of === "object" ? render(of) : of) as unknown as k8s.Quantity;

/** A field that is left out when its value is empty. */
export function unlessEmpty<T>(value: Expr<T>): T {
  return optional(value, render(value));
}

export function resources(of: Ref<ChartValues["resources"]>): k8s.ResourceRequirements {
  return {
    requests: render(of.requests) as unknown as Record<string, k8s.Quantity>,
    limits: render(of.limits) as unknown as Record<string, k8s.Quantity>,
  };
}

/** As whom a Pod of the chart runs, and where: the hook follows the gateway. */
const podSettings = {
  securityContext: podSecurity,
  imagePullSecrets: unlessEmpty(values.imagePullSecrets) as k8s.LocalObjectReference[],
  nodeSelector: unlessEmpty(values.nodeSelector),
  tolerations: unlessEmpty(values.tolerations) as unknown as k8s.Toleration[],
  affinity: unlessEmpty(values.affinity) as k8s.Affinity,
  priorityClassName: unlessEmpty(values.priorityClassName),
} satisfies Partial<k8s.PodSpec>;
const podPart = new Part("openshell.pod", podSettings);
export const pod: Partial<k8s.PodSpec> = inserted(once("pod", podPart.lines));

export const podParts = [podPart, containerSecurityPart];

/** A Secret, or some of its keys, as a volume, readable by the Pod's group. */
export function secretVolume(name: string, secretName: Expr<string>, keys?: readonly string[]): k8s.Volume {
  const items = keys?.map((key) => ({ key, path: key }));
  return {
    name,
    secret: { secretName: render(secretName), defaultMode: 0o440, ...(items === undefined ? {} : { items }) },
  };
}
