import { busyboxImage, localPathImage } from "../images.ts";
import type { Layout } from "../layout.ts";

const name = "local-path-provisioner";
const namespace = "local-path-storage";
/** The provisioner runs its helper Pods under this name whatever it runs under itself. */
const serviceAccount = "local-path-provisioner-service-account";

/** The default StorageClass: a directory on the node where the first consumer runs. */
export function localPathObjects(layout: Layout): readonly object[] {
  const rbac = "rbac.authorization.k8s.io/v1";
  const roleName = "openshell:local-path-provisioner";
  return [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: serviceAccount, namespace } },
    {
      apiVersion: rbac,
      kind: "ClusterRole",
      metadata: { name: roleName },
      rules: [
        {
          apiGroups: [""],
          resources: ["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"],
          verbs: ["get", "list", "watch"],
        },
        {
          apiGroups: [""],
          resources: ["persistentvolumes", "pods"],
          verbs: ["get", "list", "watch", "create", "patch", "update", "delete"],
        },
        { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create", "patch"] },
        { apiGroups: ["storage.k8s.io"], resources: ["storageclasses"], verbs: ["get", "list", "watch"] },
        {
          apiGroups: ["coordination.k8s.io"],
          resources: ["leases"],
          verbs: ["get", "list", "watch", "create", "update", "patch"],
        },
        { apiGroups: [""], resources: ["endpoints"], verbs: ["get", "list", "watch", "create", "update", "patch"] },
      ],
    },
    {
      apiVersion: rbac,
      kind: "ClusterRoleBinding",
      metadata: { name: roleName },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: roleName },
      subjects: [{ kind: "ServiceAccount", name: serviceAccount, namespace }],
    },
    {
      apiVersion: "storage.k8s.io/v1",
      kind: "StorageClass",
      metadata: { name: "local-path", annotations: { "storageclass.kubernetes.io/is-default-class": "true" } },
      provisioner: "rancher.io/local-path",
      volumeBindingMode: "WaitForFirstConsumer",
      reclaimPolicy: "Delete",
    },
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "local-path-config", namespace },
      data: configuration(layout),
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace },
      spec: {
        replicas: 1,
        strategy: { type: "Recreate" },
        selector: { matchLabels: { app: name } },
        template: { metadata: { labels: { app: name } }, spec: podSpec() },
      },
    },
  ];
}

function configuration(layout: Layout): Readonly<Record<string, string>> {
  return {
    "config.json": JSON.stringify({
      nodePathMap: [{ node: "DEFAULT_PATH_FOR_NON_LISTED_NODES", paths: [layout.files.storage] }],
    }),
    setup: '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n',
    teardown: '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
    "helperPod.yaml": JSON.stringify({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "helper-pod" },
      spec: {
        priorityClassName: "system-node-critical",
        tolerations: [{ operator: "Exists" }],
        // It makes or removes one directory, for each volume: no network of its own, no policy's concern and no token, which cost it most.
        hostNetwork: true,
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        containers: [{ name: "helper-pod", image: busyboxImage, imagePullPolicy: "IfNotPresent" }],
      },
    }),
  };
}

function podSpec(): object {
  return {
    serviceAccountName: serviceAccount,
    priorityClassName: "system-cluster-critical",
    containers: [
      {
        name,
        image: localPathImage,
        imagePullPolicy: "IfNotPresent",
        command: ["/local-path-provisioner", "start", "--config", "/etc/config/config.json"],
        env: [
          { name: "POD_NAMESPACE", valueFrom: { fieldRef: { fieldPath: "metadata.namespace" } } },
          { name: "CONFIG_MOUNT_PATH", value: "/etc/config/" },
        ],
        resources: { requests: { cpu: "10m", memory: "32Mi" } },
        volumeMounts: [{ name: "config", mountPath: "/etc/config/" }],
      },
    ],
    volumes: [{ name: "config", configMap: { name: "local-path-config" } }],
  };
}
