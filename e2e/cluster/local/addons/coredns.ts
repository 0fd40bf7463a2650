import { corednsImage } from "../images.ts";
import type { Layout } from "../layout.ts";

const name = "coredns";
const namespace = "kube-system";
const labels = { "k8s-app": "kube-dns" };

/**
 * Names outside of the cluster do not exist: answering so at once spares every client its timeouts. That needs a server block of its own,
 * because within one block `template` answers before `kubernetes` whatever their order in the file.
 */
const corefile = `cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    health {
        lameduck 1s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    loadbalance
}
.:53 {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`;

/** Cluster DNS, as Pods behind the Service `kube-dns`. */
export function corednsObjects(layout: Layout): readonly object[] {
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace } },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "openshell:coredns" },
      rules: [
        { apiGroups: [""], resources: ["services", "pods", "namespaces"], verbs: ["list", "watch"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "openshell:coredns" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "openshell:coredns" },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace }, data: { Corefile: corefile } },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "kube-dns", namespace, labels },
      spec: {
        clusterIP: layout.dnsAddress,
        selector: labels,
        ports: [
          { name: "dns", port: 53, protocol: "UDP" },
          { name: "dns-tcp", port: 53, protocol: "TCP" },
        ],
      },
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace, labels },
      spec: {
        replicas: 1,
        selector: { matchLabels: labels },
        // A changed Corefile makes new Pods, or the old answers would stay.
        template: { metadata: { labels, annotations: { "openshell.local/corefile": corefile } }, spec: podSpec() },
      },
    },
  ];
}

function podSpec(): object {
  return {
    serviceAccountName: name,
    priorityClassName: "system-cluster-critical",
    dnsPolicy: "Default",
    // A lost node must not take the cluster's names with it for five minutes.
    tolerations: ["not-ready", "unreachable"].map((state) => ({
      key: `node.kubernetes.io/${state}`,
      operator: "Exists",
      effect: "NoExecute",
      tolerationSeconds: 10,
    })),
    containers: [
      {
        name,
        image: corednsImage,
        imagePullPolicy: "IfNotPresent",
        args: ["-conf", "/etc/coredns/Corefile"],
        resources: { requests: { cpu: "10m", memory: "32Mi" }, limits: { memory: "170Mi" } },
        readinessProbe: { httpGet: { path: "/ready", port: 8181 }, periodSeconds: 1 },
        livenessProbe: { httpGet: { path: "/health", port: 8080 }, initialDelaySeconds: 10 },
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ["ALL"], add: ["NET_BIND_SERVICE"] },
          readOnlyRootFilesystem: true,
        },
        volumeMounts: [{ name: "config", mountPath: "/etc/coredns", readOnly: true }],
      },
    ],
    volumes: [{ name: "config", configMap: { name } }],
  };
}
