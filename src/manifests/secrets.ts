import { k8s } from "cdk8s-plus-28";
import type { Construct } from "constructs";
import type { OwnerReference, PairProps } from "./generation.ts";
import { labelsOf } from "./labels.ts";
import {
  type supervisorSecretFiles,
  supervisorSecretName,
  type workloadSecretFiles,
  workloadSecretName,
} from "./names.ts";

export type WorkloadSecretFiles = Readonly<
  Record<(typeof workloadSecretFiles)[keyof typeof workloadSecretFiles], string>
>;
type SupervisorFile = (typeof supervisorSecretFiles)[keyof typeof supervisorSecretFiles];
/** Without `gateway-ca.crt` the supervisor trusts the system's roots, or speaks plaintext when the endpoint says so. */
export type SupervisorSecretFiles = Readonly<
  Record<Exclude<SupervisorFile, "gateway-ca.crt">, string> & Partial<Record<"gateway-ca.crt", string>>
>;

export interface WorkloadSecretProps {
  readonly pair: PairProps;
  /** The Pod that uses it, so that the Secret goes with it. */
  readonly owner: OwnerReference;
  readonly files: WorkloadSecretFiles;
}

export interface SupervisorSecretProps extends Omit<WorkloadSecretProps, "files"> {
  readonly files: SupervisorSecretFiles;
}

/** The runtime's identity in one generation. It names no supervisor, so that a later session needs no new one. */
export class WorkloadSecret extends k8s.KubeSecret {
  constructor(scope: Construct, id: string, { pair, owner, files }: WorkloadSecretProps) {
    super(scope, id, {
      metadata: {
        name: workloadSecretName(pair.generation.id),
        namespace: pair.settings.namespace,
        labels: labelsOf("workloadSecret", pair),
        ownerReferences: [owner],
      },
      type: "Opaque",
      immutable: true,
      stringData: { ...files },
    });
  }
}

/** One session's authority over a generation. */
export class SupervisorSecret extends k8s.KubeSecret {
  constructor(scope: Construct, id: string, { pair, owner, files }: SupervisorSecretProps) {
    super(scope, id, {
      metadata: {
        name: supervisorSecretName(pair.generation.id, pair.generation.session),
        namespace: pair.settings.namespace,
        labels: labelsOf("supervisorSecret", pair),
        ownerReferences: [owner],
      },
      type: "Opaque",
      immutable: true,
      stringData: { ...files },
    });
  }
}
