import type { k8s } from "cdk8s-plus-28";

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

/** Variables by which somebody could make our Node load their code, or write what it does where the agent reads. An image's own values are emptied by the Pod spec. */
export const emptiedVariables = [
  "NODE_OPTIONS",
  "NODE_PATH",
  "NODE_EXTRA_CA_CERTS",
  "NODE_TLS_REJECT_UNAUTHORIZED",
  "LD_PRELOAD",
  "LD_LIBRARY_PATH",
  "LD_AUDIT",
  "OPENSSL_CONF",
  "OPENSSL_MODULES",
  "NODE_COMPILE_CACHE",
  "NODE_V8_COVERAGE",
  "NODE_DEBUG",
  "NODE_DEBUG_NATIVE",
] as const;

export function emptiedEnvironment(): Record<string, string> {
  return Object.fromEntries(emptiedVariables.map((name) => [name, ""]));
}
