import { ApiObject } from "cdk8s";
import type { Construct } from "constructs";
import { envOf, podSpecJson, resourcesOf } from "./_pod-spec.ts";
import type { OwnerReference, PairProps } from "./generation.ts";
import { labelsOf } from "./labels.ts";
import {
  bootstrapGate,
  boundaryHost,
  containers,
  paths,
  supervisorPodName,
  supervisorSecretName,
  tokenAudience,
  volumes,
} from "./names.ts";
import { affinityOf, supervisorTolerations } from "./placement.ts";
import { containerSecurityContext, emptiedEnvironment, podSecurityContext } from "./security.ts";

export interface SupervisorPodProps {
  readonly pair: PairProps;
  /** The CR, so that the Pod goes with it. Without controller and blockOwnerDeletion: the CR's controller owns the workload Pod only. */
  readonly owner: OwnerReference;
}

/** The trusted Pod of a pair: one Pod is one session, so it is never restarted in place. */
export class SupervisorPod extends ApiObject {
  constructor(scope: Construct, id: string, { pair, owner }: SupervisorPodProps) {
    const { settings, sandbox, generation } = pair;
    super(scope, id, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        name: supervisorPodName(sandbox.id, generation.session),
        namespace: settings.namespace,
        labels: { ...settings.supervisor_labels, ...labelsOf("supervisorPod", pair) },
        annotations: settings.supervisor_annotations,
        ownerReferences: [owner],
      },
      spec: supervisorPodSpec(pair),
    });
  }
}

/** What a caller can set appears nowhere in here. */
export function supervisorPodSpec(pair: PairProps): Record<string, unknown> {
  const { settings, gateway, sandbox, generation } = pair;
  const affinity = affinityOf(
    "supervisor",
    settings.sandbox_runtime.pod_anti_affinity,
    generation.id,
    settings.supervisor_affinity,
  );
  const port = settings.sandbox_runtime.boundary_port;
  const { uid, gid } =
    sandbox.supervisorUid === undefined ? sandbox : { uid: sandbox.supervisorUid, gid: sandbox.supervisorUid };
  return podSpecJson({
    serviceAccountName: settings.service_account_name,
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 30,
    // Not process 1, which the kernel spares every signal that it has no handler for: a TERM while Node boots would be lost, and the Pod stay.
    shareProcessNamespace: true,
    schedulingGates: [{ name: bootstrapGate }],
    securityContext: podSecurityContext(uid, gid),
    tolerations: supervisorTolerations(settings.supervisor_tolerations) as object[],
    ...(settings.image_pull_secrets.length > 0 && {
      imagePullSecrets: settings.image_pull_secrets.map((name) => ({ name })),
    }),
    ...(settings.supervisor_runtime_class_name !== "" && { runtimeClassName: settings.supervisor_runtime_class_name }),
    ...(settings.supervisor_priority_class_name !== "" && {
      priorityClassName: settings.supervisor_priority_class_name,
    }),
    ...(Object.keys(settings.supervisor_node_selector).length > 0 && {
      nodeSelector: settings.supervisor_node_selector,
    }),
    ...(affinity !== undefined && { affinity: affinity as object }),
    containers: [
      {
        name: containers.supervisor,
        image: settings.supervisor_image,
        ...(settings.supervisor_image_pull_policy !== "" && { imagePullPolicy: settings.supervisor_image_pull_policy }),
        env: [
          ...envOf({
            OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint,
            OPENSHELL_SANDBOX_ID: sandbox.id,
            OPENSHELL_GENERATION_ID: generation.id,
            OPENSHELL_SESSION: String(generation.session),
            OPENSHELL_BOUNDARY_ENDPOINT: `${boundaryHost(sandbox.id, settings.namespace)}:${port}`,
            OPENSHELL_LOG_LEVEL: sandbox.logLevel,
            ...emptiedEnvironment(),
          }),
          { name: "OPENSHELL_POD_UID", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.uid" } } },
        ],
        resources: resourcesOf(settings.supervisor_resources),
        securityContext: containerSecurityContext(uid, gid, { readOnlyRootFilesystem: true }),
        terminationMessagePolicy: "FallbackToLogsOnError",
        volumeMounts: [
          { name: volumes.supervisorSecret, mountPath: paths.supervisorSecret, readOnly: true },
          { name: volumes.token, mountPath: paths.tokenFolder, readOnly: true },
          { name: volumes.tmp, mountPath: "/tmp" },
        ],
      },
    ],
    volumes: [
      {
        name: volumes.supervisorSecret,
        secret: { secretName: supervisorSecretName(generation.id, generation.session), defaultMode: 0o440 },
      },
      {
        name: volumes.token,
        projected: {
          defaultMode: 0o440,
          sources: [
            {
              serviceAccountToken: {
                audience: tokenAudience(gateway.id),
                expirationSeconds: settings.sa_token_ttl_secs,
                path: "token",
              },
            },
          ],
        },
      },
      { name: volumes.tmp, emptyDir: {} },
    ],
  });
}
