import { describe, expect, it, vi } from "vitest";
import { parseSettings } from "../config/index.ts";
import { find, helmPrograms, render, sentenceOf, testNames } from "./_helm.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const statefulSet = (values: unknown) => find(render(program, { values }), "StatefulSet").spec.template.spec;
const knowsCluster = "apps/v1/Deployment";

describeWithHelm("the gateway's Pod", () => {
  it("takes volumes, mounts, environment, hooks and probes of the operator beside its own", () => {
    const spec = statefulSet({
      extraVolumes: [{ name: "proxy-ca", configMap: { name: "proxy-ca" } }],
      extraVolumeMounts: [{ name: "proxy-ca", mountPath: "/etc/proxy-ca", readOnly: true }],
      extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/proxy-ca/ca.crt" }],
      lifecycle: { preStop: { sleep: { seconds: 5 } } },
      probes: { startup: { failureThreshold: 300 }, liveness: { timeoutSeconds: 9 }, readiness: { periodSeconds: 7 } },
      terminationGracePeriodSeconds: 90,
      priorityClassName: "platform",
    });
    const [container] = spec.containers;
    expect(spec.volumes).toHaveLength(8);
    expect(spec.volumes.at(-1)).toEqual({ name: "proxy-ca", configMap: { name: "proxy-ca" } });
    expect(container.volumeMounts.at(-1)).toEqual({ name: "proxy-ca", mountPath: "/etc/proxy-ca", readOnly: true });
    expect(container.env).toEqual([{ name: "NODE_EXTRA_CA_CERTS", value: "/etc/proxy-ca/ca.crt" }]);
    expect(container.lifecycle).toEqual({ preStop: { sleep: { seconds: 5 } } });
    expect(container.startupProbe).toMatchObject({ periodSeconds: 1, failureThreshold: 300 });
    expect(container.livenessProbe).toMatchObject({ periodSeconds: 10, timeoutSeconds: 9 });
    expect(container.readinessProbe).toMatchObject({ periodSeconds: 7, httpGet: { path: "/readyz", port: "health" } });
    expect(spec).toMatchObject({ terminationGracePeriodSeconds: 90, priorityClassName: "platform" });
  });

  it("is replaced by a better one though it never became ready (kubernetes/kubernetes#67250)", () => {
    expect(find(render(program), "StatefulSet").spec.podManagementPolicy).toBe("Parallel");
  });

  it("leaves its user to the cluster where that is asked, and stays non-root", () => {
    const objects = render(program, { values: { fixedUserIds: false } });
    for (const kind of ["StatefulSet", "Job"])
      expect(find(objects, kind).spec.template.spec.securityContext).toEqual({
        runAsNonRoot: true,
        seccompProfile: { type: "RuntimeDefault" },
      });
  });

  it("has the operator's security fields over its own, false and numbers included", () => {
    const spec = statefulSet({
      podSecurityContext: { fsGroup: 2_000_000_000, fsGroupChangePolicy: "OnRootMismatch" },
      securityContext: { readOnlyRootFilesystem: false, runAsUser: 1000 },
    });
    expect(spec.securityContext).toMatchObject({ fsGroup: 2_000_000_000, runAsUser: 65_532, runAsNonRoot: true });
    expect(spec.containers[0].securityContext).toEqual({
      readOnlyRootFilesystem: false,
      runAsUser: 1000,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
    });
  });

  it("has a disruption budget that cannot block a drain, when one is asked for", () => {
    const objects = render(program, { values: { podDisruptionBudget: { enabled: true } } });
    const { spec } = find(objects, "PodDisruptionBudget");
    expect(spec).toEqual({
      maxUnavailable: 1,
      unhealthyPodEvictionPolicy: "AlwaysAllow",
      selector: { matchLabels: find(objects, "StatefulSet").spec.selector.matchLabels },
    });
  });

  it("keeps its store on a volume of the size, class and mode that are asked for", () => {
    const persistence = {
      size: "20Gi",
      storageClassName: "fast",
      accessMode: "ReadWriteOncePod",
      annotations: { a: "b" },
    };
    const claim = find(render(program, { values: { persistence } }), "PersistentVolumeClaim");
    expect(claim.spec).toEqual({
      accessModes: ["ReadWriteOncePod"],
      storageClassName: "fast",
      resources: { requests: { storage: "20Gi" } },
    });
    expect(claim.metadata.annotations).toEqual({ a: "b", "helm.sh/resource-policy": "keep" });
  });
});

describeWithHelm("the gateway's Service", () => {
  it("is what its type allows", () => {
    const service = {
      type: "LoadBalancer",
      nodePort: 30_443,
      externalTrafficPolicy: "Local",
      loadBalancerClass: "example.com/internal",
      loadBalancerSourceRanges: ["10.0.0.0/8"],
      annotations: { "example.com/scheme": "internal" },
    };
    const made = find(render(program, { values: { service } }), "Service");
    expect(made.metadata.annotations).toEqual({ "example.com/scheme": "internal" });
    expect(made.spec).toMatchObject({
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      loadBalancerClass: "example.com/internal",
      loadBalancerSourceRanges: ["10.0.0.0/8"],
      ports: [{ name: "grpc", port: 8080, nodePort: 30_443, appProtocol: "https" }],
    });
  });

  it.each(["NodePort", "LoadBalancer"])(
    "of type %s opens nothing but service.port: metrics ask nobody who they are",
    (type) => {
      const services = render(program, { values: { service: { type, port: 443 } } }).filter(
        ({ kind }) => kind === "Service",
      );
      const open = services.filter(({ spec }) => spec.type !== "ClusterIP" && spec.clusterIP !== "None");
      expect(open.map(({ metadata }) => metadata.name)).toEqual(["openshell"]);
      expect(open[0]?.spec.ports.map(({ port }: { port: number }) => port)).toEqual([443]);
      expect(find(services, "Service", "openshell-metrics").spec.selector).toEqual(open[0]?.spec.selector);
    },
  );

  it("has any port, while the Pod listens where one without rights may (OpenShift, containerd 1)", () => {
    const objects = render(program, { values: { service: { port: 443 } } });
    expect(find(objects, "Service").spec.ports[0]).toMatchObject({ port: 443, targetPort: "grpc" });
    const [{ ports }] = find(objects, "StatefulSet").spec.template.spec.containers;
    expect(ports.map(({ containerPort }: { containerPort: number }) => containerPort)).toEqual([8080, 8081, 9090]);
    const { gateway, kubernetes } = parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml");
    expect(gateway.bind_address).toBe("0.0.0.0:8080");
    expect(kubernetes.grpc_endpoint).toMatch(/:443$/);
    const [{ ports: open }] = find(objects, "NetworkPolicy", "openshell").spec.ingress;
    expect(open.map(({ port }: { port: number }) => port)).toEqual([8080, 8081, 9090]);
    // The Pods of `helm test` ask the Service, and their policy lets them reach the Pod behind it.
    const { containers } = find(objects, "Pod", testNames.fence).spec;
    expect(containers[0].args[1]).toMatch(/:443$/);
    const { egress } = find(objects, "NetworkPolicy", testNames.fence).spec;
    expect(egress.at(-1).ports).toEqual([{ port: 8080, protocol: "TCP" }]);
  });

  it("tells proxies that the port speaks HTTP/2 in plain text when TLS is off", () => {
    const { spec } = find(render(program, { presets: ["development"] }), "Service");
    expect(spec.ports[0].appProtocol).toBe("kubernetes.io/h2c");
  });

  it("is scraped by a ServiceMonitor that selects it", () => {
    const objects = render(program, { values: { serviceMonitor: { enabled: true, labels: { release: "prom" } } } });
    const monitor = find(objects, "ServiceMonitor");
    expect(monitor.metadata.labels).toMatchObject({ release: "prom" });
    expect(monitor.spec.endpoints).toEqual([{ port: "metrics", interval: "30s", scrapeTimeout: "10s" }]);
    const scraped = objects.filter(
      ({ kind, metadata: { labels = {} } }) =>
        kind === "Service" &&
        Object.entries(monitor.spec.selector.matchLabels).every(([key, value]) => labels[key] === value),
    );
    expect(scraped.map(({ metadata }) => metadata.name)).toEqual(["openshell-metrics"]);
    expect(scraped[0]?.spec.ports).toMatchObject([{ name: "metrics", port: 9090, targetPort: "metrics" }]);
  });
});

describeWithHelm("a label or name that the chart writes itself", () => {
  it.each([
    [
      { commonLabels: { "helm.sh/chart": "x" } },
      "commonLabels: helm.sh/chart is written by the chart itself; remove it",
    ],
    [
      { commonLabels: { "pod-security.kubernetes.io/enforce": "privileged" } },
      "commonLabels: pod-security.kubernetes.io/enforce comes from sandboxNamespace.podSecurity; set that instead",
    ],
    [
      { podLabels: { "app.kubernetes.io/name": "x" } },
      "podLabels: app.kubernetes.io/name is written by the chart itself; remove it",
    ],
    [
      { podLabels: { "openshell.ai/pair-id": "x" } },
      "podLabels: openshell.ai/pair-id has a prefix that only OpenShell and Agent Sandbox write; choose another",
    ],
    [
      { podAnnotations: { "checksum/gateway-config": "x" } },
      "podAnnotations: checksum/gateway-config is written by the chart itself; remove it",
    ],
    [
      { persistence: { annotations: { "helm.sh/resource-policy": "x" } } },
      "persistence.annotations: helm.sh/resource-policy is written by the chart itself; remove it",
    ],
    [
      { serviceMonitor: { labels: { "app.kubernetes.io/instance": "x" } } },
      "serviceMonitor.labels: app.kubernetes.io/instance is written by the chart itself; remove it",
    ],
    [
      { serviceMonitor: { labels: { "agents.x-k8s.io/x": "x" } } },
      "serviceMonitor.labels: agents.x-k8s.io/x has a prefix that only OpenShell and Agent Sandbox write; choose another",
    ],
    [
      { sandboxNamespace: { labels: { "app.kubernetes.io/managed-by": "x" } } },
      "sandboxNamespace.labels: app.kubernetes.io/managed-by is written by the chart itself; remove it",
    ],
    [
      { sandboxNamespace: { labels: { "pod-security.kubernetes.io/enforce": "privileged" } } },
      "sandboxNamespace.labels: pod-security.kubernetes.io/enforce comes from sandboxNamespace.podSecurity; set that instead",
    ],
    [
      { extraEnv: [{ name: "OPENSHELL_LOG_LEVEL", value: "x" }] },
      "extraEnv: OPENSHELL_LOG_LEVEL would override what the chart and gatewayConfig decide; set it in gatewayConfig",
    ],
    [
      { extraVolumes: [{ name: "data", emptyDir: {} }] },
      "extraVolumes: data is the name of a volume of the chart; choose another",
    ],
  ])("is refused: %j", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });
});

describeWithHelm("a label that is given twice", () => {
  it("is the more particular one's, and stands there once", () => {
    const values = {
      commonLabels: { team: "all", more: "x" },
      podLabels: { team: "pods" },
      sandboxNamespace: { labels: { team: "sandboxes" } },
      serviceMonitor: { enabled: true, labels: { team: "metrics" } },
    };
    const objects = render(program, { values });
    expect(find(objects, "StatefulSet").spec.template.metadata.labels).toMatchObject({ team: "pods", more: "x" });
    expect(find(objects, "StatefulSet").metadata.labels).toMatchObject({ team: "all" });
    expect(find(objects, "Namespace").metadata.labels).toMatchObject({ team: "sandboxes", more: "x" });
    expect(find(objects, "ServiceMonitor").metadata.labels).toMatchObject({ team: "metrics", more: "x" });
  });
});

describeWithHelm("values of the Service that contradict each other", () => {
  it.each([
    [
      { service: { nodePort: 30_000 } },
      "service.nodePort has no effect while service.type is ClusterIP; set service.type to NodePort or LoadBalancer, or service.nodePort to 0",
    ],
    [
      { service: { externalTrafficPolicy: "Local" } },
      "service.externalTrafficPolicy has no effect while service.type is ClusterIP; set service.type to NodePort or LoadBalancer, or remove service.externalTrafficPolicy",
    ],
    [
      { service: { type: "NodePort", loadBalancerSourceRanges: ["10.0.0.0/8"] } },
      "service.loadBalancerClass and service.loadBalancerSourceRanges need service.type LoadBalancer; set it, or remove them",
    ],
    [
      { serviceMonitor: { enabled: true }, service: { metricsPort: 0 } },
      "serviceMonitor.enabled is true, but service.metricsPort is 0, so there is nothing to scrape; give service.metricsPort a port, or set serviceMonitor.enabled to false",
    ],
  ])("are refused: %j", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });
});

describeWithHelm("the preflight", () => {
  const withSandbox = [knowsCluster, "agents.x-k8s.io/v1alpha1/Sandbox"];

  it("refuses a cluster without Agent Sandbox, and takes either of its versions", () => {
    expect(sentenceOf(program, { apis: [knowsCluster] })).toBe(
      "this cluster does not serve Sandbox of agents.x-k8s.io/v1beta1 or agents.x-k8s.io/v1alpha1, from which every workload Pod comes: install Agent Sandbox first; or set preflight.enabled to false when the same sync installs it",
    );
    expect(sentenceOf(program, { apis: withSandbox })).toBeUndefined();
    expect(sentenceOf(program, { apis: [knowsCluster, "agents.x-k8s.io/v1beta1/Sandbox"] })).toBeUndefined();
  });

  it("says nothing where no cluster is known, or when it is switched off", () => {
    expect(sentenceOf(program, { apis: ["agents.x-k8s.io/v1beta1"] })).toBeUndefined();
    expect(sentenceOf(program, { apis: [knowsCluster], values: { preflight: { enabled: false } } })).toBeUndefined();
  });

  it("refuses what only some clusters have", () => {
    expect(sentenceOf(program, { apis: withSandbox, values: { serviceMonitor: { enabled: true } } })).toBe(
      "this cluster does not serve ServiceMonitor of monitoring.coreos.com/v1, which serviceMonitor.enabled asks for: install the Prometheus operator, or set serviceMonitor.enabled to false; or set preflight.enabled to false when the same sync installs it",
    );
  });
});
