import { dirname } from "node:path";
import { type Component, startComponent } from "../component.ts";
import type { Context } from "../context.ts";
import { nodeLayoutOf } from "../layout.ts";
import { programPath } from "../programs.ts";

const provisioner = "openshell.local/directory";

/** The default StorageClass: a directory of the node that the first consumer has. */
export function storageObjects(): readonly object[] {
  return [
    {
      apiVersion: "storage.k8s.io/v1",
      kind: "StorageClass",
      metadata: { name: "directory", annotations: { "storageclass.kubernetes.io/is-default-class": "true" } },
      provisioner,
      volumeBindingMode: "WaitForFirstConsumer",
      reclaimPolicy: "Delete",
    },
  ];
}

/** Starts what makes and removes the directories, which runs beside the nodes. */
export async function startStorage({ layout, place }: Context): Promise<void> {
  const component: Component = {
    name: "storage",
    cgroup: `${layout.prefix}/control`,
    command: programPath("storage"),
    args: [
      `--kubeconfig=${layout.files.adminKubeconfig}`,
      `--provisioner=${provisioner}`,
      `--nodes=${dirname(nodeLayoutOf(layout, 1).directory)}`,
      `--mounted=${layout.files.storage}`,
    ],
  };
  await startComponent(place, component);
}
