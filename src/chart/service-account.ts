import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { HelmObject, type HelmObjectProps } from "./layer/index.ts";

export interface ServiceAccountProps {
  readonly when: NonNullable<HelmObjectProps<k8s.KubeServiceAccountProps>["when"]>;
  readonly metadata: k8s.ObjectMeta;
}

/** A ServiceAccount whose token no Pod has without asking for it. */
export class ServiceAccount extends Construct {
  constructor(scope: Construct, id: string, { when, metadata }: ServiceAccountProps) {
    super(scope, id);
    new HelmObject<k8s.KubeServiceAccountProps>(this, "service-account", {
      apiVersion: "v1",
      kind: "ServiceAccount",
      when,
      manifest: { metadata, automountServiceAccountToken: false },
    });
  }
}
