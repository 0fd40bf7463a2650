import type { k8s } from "cdk8s-plus-28";
import { emptiedVariables } from "../common/emptied-variables.ts";

/** Nothing more than Pod Security `restricted` allows, for both Pods and every container in them. */
export function podSecurityContext(uid: number, gid: number): k8s.PodSecurityContext {
  return {
    runAsNonRoot: true,
    runAsUser: uid,
    runAsGroup: gid,
    fsGroup: gid,
    fsGroupChangePolicy: "OnRootMismatch",
    seccompProfile: { type: "RuntimeDefault" },
  };
}

/** User and group are said again on each container: a later Pod-level default of somebody else's admission cannot take their place. */
export function containerSecurityContext(
  uid: number,
  gid: number,
  options: { readonly readOnlyRootFilesystem: boolean },
): k8s.SecurityContext {
  return {
    allowPrivilegeEscalation: false,
    capabilities: { drop: ["ALL"] },
    privileged: false,
    readOnlyRootFilesystem: options.readOnlyRootFilesystem,
    runAsNonRoot: true,
    runAsUser: uid,
    runAsGroup: gid,
    seccompProfile: { type: "RuntimeDefault" },
  };
}

/** An image's own values of them are emptied by the Pod spec. */
export function emptiedEnvironment(): Record<string, string> {
  return Object.fromEntries(emptiedVariables.map((name) => [name, ""]));
}
