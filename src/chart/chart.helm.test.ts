import { readdirSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { parse } from "smol-toml";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { parseSettings } from "../config/index.ts";
import { managedNamespacesPolicySpec } from "../manifests/managed-namespaces-policy.ts";
import {
  clusterPermissions,
  type Permission,
  sandboxNamespacePermissions,
  workspaceModePermissions,
  workspaceNamespacePermissions,
} from "../manifests/permissions.ts";
import {
  chartDirectory,
  find,
  helm,
  helmPrograms,
  objectsOf,
  podsOf,
  type Rendered,
  refusal,
  refusalsBySchema,
  render,
  repository,
  sentenceOf,
  template,
  templateAnew,
  testNames,
} from "./_helm.ts";
import { defaultValues } from "./values-schema.ts";

// Each rendering starts a process; on a busy machine that takes a second.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 });

const presets = readdirSync(join(repository, "values")).map((name) => name.replace(/\.yaml$/, ""));
const [program = ""] = helmPrograms;
const isRequired = process.env.CI === "true";

if (isRequired && helmPrograms.length === 0) {
  it("finds a Helm", () => expect.fail("no Helm: set OPENSHELL_HELM or let `npm test` install one"));
}

const describeWithHelm = describe.skipIf(helmPrograms.length === 0);

function toml(objects: readonly Rendered[]): string {
  return find(objects, "ConfigMap").data["gateway.toml"];
}

describeWithHelm.each(helmPrograms.map((path) => [path.split("/").at(-1), path]))("%s", (_, path) => {
  const installed = path ?? "";

  // What lint looks at beyond rendering is the same in every Helm, so the older one sees two.
  const linted = installed === program ? [undefined, ...presets] : [undefined, "production"];

  it.each(linted)("lints preset %s without a warning", (preset) => {
    const result = helm(
      installed,
      "lint",
      "--strict",
      chartDirectory,
      ...(preset === undefined ? [] : ["-f", join(repository, "values", `${preset}.yaml`)]),
    );
    expect(result.stdout + result.stderr).toContain("0 chart(s) failed");
    expect(result.ok).toBe(true);
  });

  it("renders twice to the same bytes", () => {
    expect(templateAnew(installed, { presets: ["production"] })).toBe(
      templateAnew(installed, { presets: ["production"] }),
    );
  });

  it("refuses wrong values with their path", () => {
    expect(refusal(installed, { values: { service: { port: "x" } } })).toMatch(/service[./]port.*(integer|string)/s);
    expect(refusal(installed, { values: { gatewayConfig: { "openshell.gateway": { log_levell: "x" } } } })).toMatch(
      /log_levell/,
    );
    expect(refusal(installed, { values: { nothing: 1 } })).toMatch(/nothing/);
  });

  const driver = (settings: object) => ({ gatewayConfig: { "openshell.drivers.kubernetes": settings } });
  const inNode = (requirement: object) => ({
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions: [requirement] }] },
    },
  });
  const saysOf = (path: string, rule: string) => new RegExp(`at '/${path}': .*${rule}`);
  const matches = (path: string) => saysOf(path, "does not match pattern '");
  const wrong: readonly [Record<string, unknown>, RegExp][] = [
    // What only the gateway refused would take a working one down with the upgrade.
    [driver({ supervisor_resources: { requests: { cpu: "-1" } } }), /supervisor_resources[./]requests[./]cpu/],
    [driver({ supervisor_resources: { requests: { cpu: "0" } } }), /supervisor_resources[./]requests[./]cpu/],
    [driver({ workspace_default_storage_size: "-1Gi" }), /workspace_default_storage_size/],
    [driver({ workload_node_selector: { "bad key!": "x" } }), /bad key!/],
    [driver({ workload_node_selector: { zone: "x y" } }), /workload_node_selector[./]zone/],
    [driver({ supervisor_tolerations: [{ key: "a", efect: "NoSchedule" }] }), /supervisor_tolerations[./]0.*efect/],
    // What only the cluster refused would leave a release half done.
    [{ gateway: { image: { digest: "abc" } } }, /gateway[./]image[./]digest/],
    [{ sandboxRuntime: { image: { digest: `sha256:${"A".repeat(64)}` } } }, /sandboxRuntime[./]image[./]digest/],
    [{ fullnameOverride: "Foo_Bar" }, /fullnameOverride/],
    [{ fullnameOverride: "1st" }, /fullnameOverride/],
    [{ nameOverride: "foo.bar" }, /nameOverride/],
    [{ sandboxNamespace: { name: "Foo" } }, /sandboxNamespace[./]name/],
    [{ podLabels: { "a b": "x" } }, /podLabels.*a b/],
    [{ podLabels: { a: "b c" } }, /podLabels[./]a/],
    [{ commonLabels: { "-": "x" } }, /commonLabels/],
    [{ sandboxNamespace: { labels: { a: "b/c" } } }, /sandboxNamespace[./]labels[./]a/],
    [{ serviceMonitor: { labels: { "a/b/c": "x" } } }, /serviceMonitor[./]labels/],
    [{ nodeSelector: { "": "x" } }, /nodeSelector/],
    [{ tolerations: [{ key: "a", efect: "NoSchedule" }] }, /tolerations[./]0.*efect/],
    [{ tolerations: [{ key: "a", operator: "Exists", value: "b" }] }, /tolerations[./]0[./]value/],
    [driver({ workload_tolerations: [{ effect: "NoSchedule" }] }), /workload_tolerations[./]0.*key/],
    [driver({ grpc_endpoint: "gateway.example.com:8080" }), /grpc_endpoint/],
    [driver({ operator_namespace_label: "a=b=c" }), /operator_namespace_label/],
    [driver({ gpu_resource_name: "gpu" }), /gpu_resource_name/],
    [driver({ workload_tolerations: [{ key: "a", tolerationSeconds: 5 }] }), /workload_tolerations[./]0.*effect/],
    [driver({ workload_resources: { limits: { "nvidia.com/gpu": "0.5" } } }), /workload_resources[./]limits.*nvidia/],
    [driver({ provisioning_timeout: "0s" }), /provisioning_timeout/],
    [driver({ workload_affinity: inNode({ key: "a b", operator: "Exists" }) }), /matchExpressions[./]0[./]key/],
    [driver({ workload_affinity: inNode({ key: "a", operator: "In" }) }), /matchExpressions[./]0.*values/],
    [
      driver({ workload_affinity: inNode({ key: "a", operator: "Exists", values: ["b"] }) }),
      /matchExpressions[./]0[./]values/,
    ],
    [{ certManager: { certificateDuration: "90d" } }, /certManager[./]certificateDuration/],
    // Helm says where and by which rule.
    [
      { pkiInitJob: { serverIpAddresses: ["192.0.2.300"] } },
      saysOf("pkiInitJob/serverIpAddresses/0", "is not valid ipv4"),
    ],
    [
      { certManager: { serverIpAddresses: ["2001:db8::x"] } },
      saysOf("certManager/serverIpAddresses/0", "is not valid ipv6"),
    ],
    [{ pkiInitJob: { serverDnsNames: ["https://gw.example.com"] } }, matches("pkiInitJob/serverDnsNames/0")],
    [{ certManager: { serverDnsNames: ["192.0.2.1"] } }, matches("certManager/serverDnsNames/0")],
    [{ service: { loadBalancerSourceRanges: ["192.0.2.0/33"] } }, matches("service/loadBalancerSourceRanges/0")],
    [{ service: { loadBalancerClass: "my class" } }, matches("service/loadBalancerClass")],
    [{ tlsRoute: { hostnames: ["gw.*.example.com"] } }, matches("tlsRoute/hostnames/0")],
    [{ grpcRoute: { hostnames: ["gw.example.com:443"] } }, matches("grpcRoute/hostnames/0")],
    [
      { grpcRoute: { backendTLSPolicy: { hostname: "*.example.com" } } },
      matches("grpcRoute/backendTLSPolicy/hostname"),
    ],
    [{ ingress: { host: "gw.example.com/path" } }, matches("ingress/host")],
    [{ openshiftRoute: { host: "Gw.example.com" } }, matches("openshiftRoute/host")],
    [{ server: { tls: { certSecretName: "my_tls" } } }, matches("server/tls/certSecretName")],
    [{ server: { keysSecretName: "n".repeat(254) } }, saysOf("server/keysSecretName", "maxLength: got 254, want 253")],
    [{ imagePullSecrets: [{ name: "" }] }, matches("imagePullSecrets/0/name")],
    [
      { ingress: { annotations: { "a b": "c" } } },
      saysOf("ingress/annotations", "additional properties 'a b' not allowed"),
    ],
    [{ service: { healthPort: 443 } }, /service[./]healthPort/],
  ];

  describe("refuses by its path", () => {
    let said: readonly (string | undefined)[];
    beforeAll(() => {
      said = refusalsBySchema(
        installed,
        wrong.map(([values]) => values),
      );
    });

    it.each(wrong.map(([values, path], index) => ({ values: JSON.stringify(values), path, index })))(
      "$values",
      ({ path, index }) => {
        expect(said[index]).toMatch(path);
      },
    );
  });

  const onlyOurs = "has a prefix that only OpenShell and Agent Sandbox write; choose another";
  it.each([
    [{ supervisor_labels: { "openshell.ai/x": "y" } }, `supervisor_labels: openshell.ai/x ${onlyOurs}`],
    [{ workload_annotations: { "agents.x-k8s.io/x": "y" } }, `workload_annotations: agents.x-k8s.io/x ${onlyOurs}`],
    [
      { managed_namespaces: { labels: { "internal.openshell.ai/x": "y" } } },
      `managed_namespaces.labels: internal.openshell.ai/x ${onlyOurs}`,
    ],
    [
      { managed_namespaces: { labels: { "pod-security.kubernetes.io/enforce-version": "v1.30" } } },
      "managed_namespaces.labels: pod-security.kubernetes.io/enforce-version is decided by managed_namespaces.pod_security; set that instead",
    ],
  ])("refuses %j with a sentence", (kubernetes, sentence) => {
    expect(sentenceOf(installed, { values: driver(kubernetes) })).toBe(
      `gatewayConfig: openshell.drivers.kubernetes.${sentence}`,
    );
  });
});

describeWithHelm("every Helm", () => {
  it.each([undefined, ...presets])(
    "renders preset %s to the same bytes, with settings that the gateway accepts",
    (preset) => {
      const options = { presets: preset === undefined ? [] : [preset] };
      const [first = "", ...others] = helmPrograms.map((each) => template(each, options));
      for (const other of others) expect(other).toBe(first);
      const settings = parseSettings(toml(objectsOf(first)), "gateway.toml");
      expect(settings.kubernetes.namespace).toBe("openshell-sandboxes");
    },
  );
});

describeWithHelm("a rendered chart", () => {
  let objects: Rendered[];
  beforeAll(() => {
    objects = render(program, { presets: ["conformance"] });
  });

  it("has the names that others rely on", () => {
    const named = objects
      .filter((object) => !isTest(object))
      .map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? "-"}/${metadata.name}`)
      .sort();
    expect(named).toEqual(
      [
        "ClusterRole -/openshell-driver-openshell",
        "ClusterRoleBinding -/openshell-driver-openshell",
        "ConfigMap openshell/openshell-config",
        "CronJob openshell/openshell-renew",
        "Job openshell/openshell-pki",
        "Namespace -/openshell-sandboxes",
        "NetworkPolicy openshell/openshell",
        "PersistentVolumeClaim openshell/openshell-data",
        "Role openshell-sandboxes/openshell-driver",
        "Role openshell/openshell.pki",
        "Role openshell/openshell-renew",
        "RoleBinding openshell-sandboxes/openshell-driver",
        "RoleBinding openshell/openshell.pki",
        "RoleBinding openshell/openshell-renew",
        "Service openshell/openshell",
        "Service openshell/openshell-metrics",
        "ServiceAccount openshell-sandboxes/openshell-sandbox",
        "ServiceAccount openshell/openshell",
        "ServiceAccount openshell/openshell.pki",
        "ServiceAccount openshell/openshell-renew",
        "StatefulSet openshell/openshell",
      ].sort(),
    );
  });

  it("has for `helm test` what is gone, but for its Pods, when the test ends", () => {
    const named = objects.filter(isTest).map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    expect(named.sort()).toEqual(
      [
        `NetworkPolicy ${testNames.fence}`,
        `Pod ${testNames.rights}`,
        `Pod ${testNames.fence}`,
        `Service ${testNames.rights}`,
      ].sort(),
    );
    expect(find(objects, "Pod", testNames.rights).spec).toMatchObject({
      serviceAccountName: "openshell",
      containers: [
        {
          args: [
            "selftest",
            "--endpoint=openshell.openshell.svc:8080",
            "--tls",
            "--ca=/etc/openshell-tls/authority/ca.crt",
            "--namespace=openshell-sandboxes",
            "--gateway-id=openshell",
            "--workspace-mode=shared",
          ],
        },
      ],
    });
    expect(find(objects, "Pod", testNames.fence).spec).toMatchObject({
      automountServiceAccountToken: false,
      containers: [{ args: expect.arrayContaining([`--fenced=${testNames.rights}.openshell.svc:8081`]) }],
    });
    // The fenced Pod may reach the gateway's port, which proves that it is connected at all, and names; nothing else.
    const [dns, gateway, ...others] = find(objects, "NetworkPolicy", testNames.fence).spec.egress;
    expect(dns).toEqual({
      ports: [53, 5353].flatMap((port) => ["UDP", "TCP"].map((protocol) => ({ port, protocol }))),
    });
    expect(gateway.to).toEqual([{ podSelector: find(objects, "StatefulSet").spec.selector }]);
    expect(others).toEqual([]);
    const without = render(program, { values: { selfTest: { enabled: false } } });
    expect(without.filter(isTest)).toEqual([]);
  });

  it("asks for no name that depends on the cluster's domain", () => {
    const others = template(program, { presets: ["conformance"] })
      .split("\n")
      .filter((line) => line.includes("cluster.local") && !line.includes("--dns-name="));
    expect(others).toEqual([]);
  });

  it("has for every object of `helm test` a Pod of its name, or `helm test --logs` would fail for want of it", () => {
    const tests = objects.filter(isTest);
    const pods = tests.filter(({ kind }) => kind === "Pod").map(({ metadata }) => metadata.name);
    expect(tests.filter(({ metadata }) => !pods.includes(metadata.name))).toEqual([]);
  });

  it("has `helm test` verify the name that supervisors do, where the certificate may lack the Service's", () => {
    const named = (values: object) => {
      const tests = render(program, { values }).filter(({ kind }) => kind === "Pod");
      return tests.map(({ spec }) => spec.containers[0].args.filter((one: string) => one.startsWith("--server-name=")));
    };
    const gatewayConfig = { "openshell.drivers.kubernetes": { grpc_endpoint: "https://gw.example.com:443" } };
    const byIssuer = { enabled: true, internalNames: false, serverDnsNames: ["gw.example.com"] };
    const public_ = ["--server-name=gw.example.com"];
    expect(named({ certManager: byIssuer, gatewayConfig })).toEqual([public_, public_]);
    expect(named({ server: { tls: { certSecretName: "given" } }, gatewayConfig })).toEqual([public_, public_]);
    expect(named({ gatewayConfig })).toEqual([[], []]);
  });

  it("tells `helm test` the workspace mode, and gives it the list of namespaces that the gateway reads", () => {
    const podOf = (driver: object, more: object = {}) => {
      const values = { gatewayConfig: { "openshell.drivers.kubernetes": driver }, ...more };
      return find(render(program, { values }), "Pod", testNames.rights).spec;
    };
    const modeArgs = (pod: ReturnType<typeof podOf>) =>
      pod.containers[0].args.filter((argument: string) => /^--(workspace|operator)/.test(argument));
    expect(modeArgs(podOf({ workspace_mode: "managed" }))).toEqual(["--workspace-mode=managed"]);
    const label = { workspace_mode: "operator", operator_namespace_label: "team=a" };
    expect(modeArgs(podOf(label))).toEqual(["--workspace-mode=operator", "--operator-namespace-label=team=a"]);
    const file = "/etc/workspaces/namespaces.json";
    const mount = (name: string, mountPath: string) => ({ name, mountPath });
    const mounted = podOf(
      { workspace_mode: "operator", operator_namespace_file: file },
      {
        extraVolumes: ["other", "list"].map((name) => ({ name, configMap: { name } })),
        extraVolumeMounts: [mount("other", "/etc/work"), mount("list", "/etc/workspaces/")],
      },
    );
    expect(modeArgs(mounted)).toEqual(["--workspace-mode=operator", `--operator-namespace-file=${file}`]);
    const namesOf = (entries: readonly { name: string }[]) => entries.map(({ name }) => name);
    expect(namesOf(mounted.containers[0].volumeMounts)).toEqual(["authority", "list"]);
    expect(namesOf(mounted.volumes)).toEqual(["authority", "list"]);
  });

  it("keeps every Pod within Pod Security `restricted`, in every preset", () => {
    for (const preset of presets) {
      const pods = render(program, { presets: [preset] }).flatMap((object) => podsOf(object));
      expect(pods.length).toBeGreaterThanOrEqual(1);
      for (const pod of pods) expect(restrictedViolations(pod), preset).toEqual([]);
    }
  });

  it("gives every container requests, and no Pod the environment of the Services", () => {
    for (const pod of objects.flatMap((object) => podsOf(object))) {
      expect(pod.enableServiceLinks).toBe(false);
      for (const container of pod.containers)
        expect(container.resources.requests).toMatchObject({ cpu: expect.any(String), memory: expect.any(String) });
    }
  });

  const printed = (rules: Rendered["rules"]) =>
    rules.map(({ apiGroups, ...rule }: { apiGroups: string[] }) => ({ group: apiGroups.join(), ...rule }));
  const wanted = (table: readonly Permission[]) =>
    table.map(({ group, resources, verbs, names }) => ({
      group,
      resources,
      verbs,
      ...(names === undefined ? {} : { resourceNames: names("blue") }),
    }));
  const rightsOf = (mode: object) => {
    const gatewayConfig = { "openshell.drivers.kubernetes": { gateway_id: "blue", ...mode } };
    return render(program, { values: { gatewayConfig } });
  };

  it("grants exactly the table of src/manifests", () => {
    const objects = rightsOf({});
    expect(printed(find(objects, "Role", "openshell-driver").rules)).toEqual(wanted(sandboxNamespacePermissions));
    expect(printed(find(objects, "ClusterRole").rules)).toEqual(wanted(clusterPermissions));
    const bound = objects
      .filter(({ kind }) => kind.endsWith("RoleBinding"))
      .map(({ roleRef }) => `${roleRef.kind}/${roleRef.name}`);
    expect(bound.sort()).toEqual([
      "ClusterRole/openshell-driver-openshell",
      "Role/openshell-driver",
      "Role/openshell-renew",
      "Role/openshell.pki",
    ]);
  });

  it.each([
    ["managed", { managed_namespaces: { pod_security: "baseline" } }],
    ["operator", { operator_namespace_label: "team" }],
    ["operator", { operator_namespace_file: "/etc/workspaces/namespaces.json" }],
  ] as const)(
    "grants in workspace_mode %s with %j what that mode needs, and the rest only where it is bound",
    (mode, settings) => {
      const objects = rightsOf({ workspace_mode: mode, ...settings });
      const [role, bound] = ["openshell-driver-openshell", "openshell-workspace-blue"].map((name) =>
        find(objects, "ClusterRole", name),
      );
      const isFileRead = "operator_namespace_file" in settings;
      const ofMode = isFileRead ? [] : workspaceModePermissions[mode];
      expect(printed(role?.rules)).toEqual(wanted([...clusterPermissions, ...ofMode]));
      expect(printed(bound?.rules)).toEqual(wanted(workspaceNamespacePermissions[mode]));
      expect(objects.filter(({ roleRef }) => roleRef?.name === "openshell-workspace-blue")).toEqual([]);
      const policies = objects.filter(({ kind }) => kind === "ValidatingAdmissionPolicy");
      const username = "system:serviceaccount:openshell:openshell";
      expect(policies.map(({ spec }) => spec)).toEqual(
        mode === "managed"
          ? [managedNamespacesPolicySpec({ gatewayId: "blue", username, podSecurity: "baseline" })]
          : [],
      );
    },
  );

  it.each([
    {},
    { workspace_mode: "managed", gateway_id: "" },
    { workspace_mode: "operator", gateway_id: "", operator_namespace_label: "team" },
  ])("shares no object of the cluster with a release of its name in another namespace, in %j", (settings) => {
    const ofCluster = (namespace: string) => {
      // As the help of gateway_id says.
      const driver = { ...settings, ...("gateway_id" in settings ? { gateway_id: namespace } : {}) };
      const values = {
        admissionPolicy: { enabled: true },
        gatewayConfig: { "openshell.drivers.kubernetes": driver },
      };
      return render(program, { namespace, values })
        .filter(({ metadata }) => metadata.namespace === undefined)
        .map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    };
    const prod = ofCluster("prod");
    expect(prod.length).toBeGreaterThan(4);
    expect(ofCluster("dev").filter((name) => prod.includes(name))).toEqual([]);
  });

  it("rolls the gateway when a setting changes, and only then", () => {
    const checksum = (values: unknown) =>
      find(render(program, { presets: ["conformance"], values }), "StatefulSet").spec.template.metadata.annotations[
        "checksum/gateway-config"
      ];
    const unchanged = checksum({});
    expect(checksum({ service: { annotations: { a: "b" } } })).toBe(unchanged);
    expect(checksum({ gatewayConfig: { "openshell.gateway": { log_level: "warn" } } })).not.toBe(unchanged);
  });

  it("mounts gateway.toml as a regular file", () => {
    const [container] = find(objects, "StatefulSet").spec.template.spec.containers;
    expect(container.volumeMounts).toContainEqual({
      name: "config",
      mountPath: "/etc/openshell/gateway.toml",
      subPath: "gateway.toml",
      readOnly: true,
    });
  });

  it("keeps the sandboxes' namespace and the store on uninstall", () => {
    for (const kind of ["Namespace", "PersistentVolumeClaim"])
      expect(find(objects, kind).metadata.annotations).toMatchObject({ "helm.sh/resource-policy": "keep" });
  });

  it("mounts no certificates where TLS is off", () => {
    const plain = render(program, { presets: ["development"] });
    const { volumes } = find(plain, "StatefulSet").spec.template.spec;
    expect(volumes.map(({ name }: { name: string }) => name)).toEqual(["config", "jwt", "keys", "data", "tmp"]);
    expect(parseSettings(toml(plain), "x")).toMatchObject({
      gateway: { disable_tls: true, mtls_auth: { enabled: false } },
      kubernetes: { grpc_endpoint: "http://openshell.openshell.svc:8080" },
    });
  });
});

describeWithHelm("images", () => {
  const image = (values: unknown) =>
    find(render(program, { values }), "StatefulSet").spec.template.spec.containers[0].image;
  it.each([
    [{}, "openshell.local/openshell/gateway:0.1.0"],
    [{ global: { image: { registry: "r.example.com/x/", tag: "1" } } }, "r.example.com/x/openshell/gateway:1"],
    [
      {
        global: { image: { registry: "" } },
        gateway: { image: { repository: "own.example.com/gw" } },
        supervisor: { image: { registry: "own.example.com" } },
        sandboxRuntime: { image: { repository: "localhost/runtime" } },
      },
      "own.example.com/gw:0.1.0",
    ],
    [{ gateway: { image: { registry: "own.example.com", repository: "gw", tag: "2" } } }, "own.example.com/gw:2"],
    [
      { gateway: { image: { tag: "2", digest: `sha256:${"a".repeat(64)}` } } },
      `openshell.local/openshell/gateway@sha256:${"a".repeat(64)}`,
    ],
  ])("of %j", (values, expected) => {
    expect(image(values)).toBe(expected);
  });
});

describeWithHelm("gatewayConfig", () => {
  const effective = (gatewayConfig: unknown, skipSchema = false) =>
    parse(toml(render(program, { values: { gatewayConfig }, skipSchema }))) as Record<
      string,
      Record<string, Record<string, unknown>>
    >;

  it("of any kind comes out of TOML as it went into YAML", () => {
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom(
        "{{ .Release.Name }}",
        '"',
        "\\",
        "\n",
        "\u007f\u0085\ufeff\u2028",
        "a\r\nb",
        "'''",
        "# x",
        "=",
        "",
      ),
    );
    const wellFormed = text.map((value) => value.toWellFormed().replaceAll("\u0000", ""));
    const whole = fc.oneof(
      fc.integer(),
      fc.maxSafeInteger(),
      fc.constantFrom(0, 9, 2_000_000_000, 2 ** 53 - 1, -(2 ** 53 - 1)),
    );
    const { table } = fc.letrec<{ any: unknown; table: Record<string, unknown> }>((tie) => ({
      any: fc.oneof(
        { depthSize: "small" },
        wellFormed,
        whole,
        fc.boolean(),
        fc.constantFrom(0.5, -1.25, 1e-7),
        fc.constant(null),
        fc.array(fc.oneof(wellFormed, whole), { maxLength: 3 }),
        fc.array(tie("table"), { maxLength: 2 }),
        tie("table"),
      ),
      table: fc.dictionary(
        wellFormed.filter((key) => key !== "database_url" && key !== "__proto__"),
        tie("any"),
        { maxKeys: 4 },
      ),
    }));
    fc.assert(
      fc.property(fc.array(table, { minLength: 20, maxLength: 40 }), (configs) => {
        // Many in one rendering, because each costs the start of a process.
        const given = Object.fromEntries(configs.map((config, index) => [`openshell.any.t${index}`, config]));
        const rendered = effective(given, true).openshell?.any ?? {};
        for (const [index, config] of configs.entries()) expect(rendered[`t${index}`]).toEqual(withoutNull(config));
      }),
      { numRuns: 4, endOnFailure: true },
    );
  });

  it("takes a table by its own name or nested in its parent, and both for different settings", () => {
    const runtime = { pod_anti_affinity: "required", boundary_port: 6000 };
    for (const config of [
      { "openshell.drivers.kubernetes.sandbox_runtime": runtime },
      { "openshell.drivers.kubernetes": { sandbox_runtime: runtime } },
      {
        "openshell.drivers.kubernetes": { sandbox_runtime: { boundary_port: 6000 } },
        "openshell.drivers.kubernetes.sandbox_runtime": { pod_anti_affinity: "required" },
      },
    ]) {
      expect(effective(config).openshell?.drivers?.kubernetes).toMatchObject({ sandbox_runtime: runtime });
    }
  });

  it("leaves null out, so that the gateway's default holds", () => {
    expect(effective({ "openshell.gateway": { log_level: null } }).openshell?.gateway).not.toHaveProperty("log_level");
    expect(effective({ "openshell.gateway": null }).openshell?.gateway).toHaveProperty("bind_address");
  });

  it("takes a list under a table's name for an array of tables, in its order", () => {
    const gatewayConfig = {
      "openshell.x.hooks": [
        { name: "b", nested: { c: [1, 2] } },
        { name: "a", left: null },
      ],
      "openshell.x": { other: true },
    };
    const text = toml(render(program, { values: { gatewayConfig }, skipSchema: true }));
    expect(parse(text).openshell).toMatchObject({
      x: { other: true, hooks: [{ name: "b", nested: { c: [1, 2] } }, { name: "a" }] },
    });
  });

  it("cannot change what the chart owns", () => {
    const { openshell } = effective({
      "openshell.gateway": {
        bind_address: "127.0.0.1:1",
        disable_tls: true,
        master_secret_path: "/x",
        tls: { cert_path: "/x", key_path: "/x" },
      },
      "openshell.gateway.gateway_jwt": { signing_key_path: "/x", ttl_secs: 600 },
      "openshell.drivers.kubernetes": { namespace: "kube-system", service_account_name: "x" },
    });
    expect(openshell?.gateway).toMatchObject({
      bind_address: "0.0.0.0:8080",
      disable_tls: false,
      master_secret_path: "/etc/openshell-keys/master-secret",
      tls: { cert_path: "/etc/openshell-tls/server/tls.crt" },
      gateway_jwt: { signing_key_path: "/etc/openshell-jwt/signing.pem", ttl_secs: 600 },
    });
    expect(openshell?.drivers?.kubernetes).toMatchObject({
      namespace: "openshell-sandboxes",
      service_account_name: "openshell-sandbox",
    });
  });

  it("wins over what the chart only fills in", () => {
    const { openshell } = effective({
      "openshell.gateway": { name: "mine" },
      "openshell.drivers.kubernetes": {
        gateway_id: "mine",
        supervisor_image: "r/x:1",
        grpc_endpoint: "https://gw.example.com",
      },
    });
    expect(openshell?.gateway).toMatchObject({ name: "mine", gateway_jwt: { gateway_id: "mine" } });
    expect(openshell?.drivers?.kubernetes).toMatchObject({
      supervisor_image: "r/x:1",
      grpc_endpoint: "https://gw.example.com",
    });
  });

  it.each([
    [
      { "openshell.gateway": { name: "-----BEGIN EC PRIVATE KEY-----\nx" } },
      "gatewayConfig: openshell.gateway.name: a private key does not belong into a ConfigMap; put it into a Secret and name the Secret in server.tls, server.jwtSecretName or server.keysSecretName",
    ],
    [
      { "openshell.x": { a: [{ b: "see postgres://user@host/db" }] } },
      "gatewayConfig: openshell.x.a[0].b: an address with a user or password does not belong into a ConfigMap; write it without what stands before the @",
    ],
    [
      { "openshell.x": { a: { database_url: "x" } } },
      "gatewayConfig: openshell.x.a.database_url: the database address may hold a password and does not belong into a ConfigMap; the chart gives it to the gateway itself",
    ],
    [{ "openshell..x": {} }, "gatewayConfig: openshell..x has an empty part between two dots"],
    [{ "openshell.x": "y" }, "gatewayConfig: openshell.x must be a map, or a list of maps, got string"],
    [
      { openshell: { gateway: {} } },
      "gatewayConfig.openshell: the keys of gatewayConfig are whole table names; with --set escape their dots: --set 'gatewayConfig.openshell\\.gateway.log_level=debug'",
    ],
    [
      {
        "openshell.drivers.kubernetes": { sandbox_runtime: { delivery: "copy" } },
        "openshell.drivers.kubernetes.sandbox_runtime": { delivery: "copy" },
      },
      "gatewayConfig: openshell.drivers.kubernetes.sandbox_runtime.delivery is given twice: nested in its parent table and by a table name of its own; keep one of them",
    ],
    [{ "openshell.x": [{ a: 1 }, "y"] }, "gatewayConfig: openshell.x[1] must be a map, got string"],
    [
      { "openshell.x": { list: [{ a: 1 }] }, "openshell.x.list": [{ a: 2 }] },
      "gatewayConfig: openshell.x.list is given twice: nested in its parent table and by a table name of its own; keep one of them",
    ],
    [
      { "openshell.x": [{ key: "-----BEGIN PRIVATE KEY-----" }] },
      "gatewayConfig: openshell.x[0].key: a private key does not belong into a ConfigMap",
    ],
    [{ "openshell.x": { a: ["b", null] } }, "gatewayConfig: null inside a list means nothing; remove the entry"],
  ])("%j is refused with a sentence", (gatewayConfig, sentence) => {
    expect(refusal(program, { values: { gatewayConfig }, skipSchema: true })).toContain(sentence);
  });

  it("explains unescaped dots of --set even though the schema comes first", () => {
    expect(
      refusal(program, { values: { gatewayConfig: { openshell: { gateway: { log_level: "debug" } } } } }),
    ).toContain("escape their dots");
  });
});

describeWithHelm("a guard", () => {
  it.each([
    [{ replicaCount: 2 }, "replicaCount must be 1: the gateway keeps its store in a file that one process owns"],
    [
      { service: { healthPort: 8080 } },
      "service.healthPort is 8080, where the gateway listens for users; give it another port",
    ],
    [
      { service: { metricsPort: 8080 } },
      "service.metricsPort is 8080, where the gateway listens for users, or the same as service.healthPort; give it another port, or 0 for none",
    ],
    [
      { service: { metricsPort: 8081 } },
      "service.metricsPort is 8080, where the gateway listens for users, or the same as service.healthPort; give it another port, or 0 for none",
    ],
    [
      { service: { metricsPort: 443 } },
      "service.metricsPort is below 1024, where only root may listen on some nodes; give it a port of 1024 or higher, or 0 for none",
    ],
    [
      { serviceAccount: { create: false } },
      "serviceAccount.create is false: name the existing ServiceAccount in serviceAccount.name, or the namespace's default would get the gateway's rights",
    ],
    [
      { global: { image: { registry: "" } }, gateway: { image: { repository: "own.example.com/gw" } } },
      "global.image.registry is empty, so nodes would take OpenShell's images from docker.io, where they are somebody else's; name a registry, or begin each repository with one",
    ],
    [
      { serviceMonitor: { enabled: true, interval: "5s" } },
      "serviceMonitor.scrapeTimeout is longer than serviceMonitor.interval, so the Prometheus operator would reject the ServiceMonitor; lower the first, or raise the second",
    ],
    [
      { gatewayConfig: { "openshell.gateway.mtls_auth": { enabled: true } }, server: { disableTls: true } },
      "mtls_auth.enabled = true needs TLS, but server.disableTls turns it off; set server.disableTls to false",
    ],
    [
      { gatewayConfig: { "openshell.gateway.mtls_auth": { enabled: false } } },
      "no user could connect: set mtls_auth.enabled = true, give [openshell.gateway.oidc] an issuer, or, for development, set auth.allow_unauthenticated_users = true",
    ],
    [
      { server: { disableTls: true } },
      "no user could connect, because without TLS nobody shows a certificate: set server.disableTls to false, give [openshell.gateway.oidc] an issuer, or, for development, set auth.allow_unauthenticated_users = true",
    ],
    [
      { gatewayConfig: { "openshell.gateway.gateway_jwt": { gateway_id: "other" } } },
      "gateway_jwt.gateway_id and gateway_id of [openshell.drivers.kubernetes] name the same gateway; give both the same value",
    ],
    [
      { gatewayConfig: { "openshell.drivers.kubernetes": { grpc_endpoint: "http://gw:1" } } },
      "grpc_endpoint is an http:// address, but the gateway listens with TLS; write https://",
    ],
  ])("refuses %j", (values, sentence) => {
    expect(refusal(program, { values })).toContain(sentence);
  });
});

describeWithHelm("values that are absent or null", () => {
  it("mean the default, wherever they are", () => {
    const whole = template(program);
    // Null for one entry of an open map removes that entry, as Helm's users expect.
    const isInOpenMap = (path: readonly string[]) => ["requests", "limits"].includes(path.at(-2) ?? "");
    const paths = pathsOf(defaultValues).filter((path) => !isInOpenMap(path));
    fc.assert(
      fc.property(fc.subarray(paths, { minLength: 1, maxLength: 8 }), (nulled) => {
        const values = {};
        for (const path of nulled) put(values, path, null);
        expect(template(program, { values })).toBe(whole);
      }),
      { numRuns: 10, endOnFailure: true },
    );
  });

  it("keep false, 0 and the empty text as they are given", () => {
    const objects = render(program, {
      values: {
        selfTest: { enabled: false },
        networkPolicy: { enabled: false },
        service: { metricsPort: 0 },
        rbac: { create: false },
      },
    });
    expect(objects.filter(({ kind }) => kind === "NetworkPolicy" || kind === "ClusterRole")).toEqual([]);
    expect(objects.filter(({ kind }) => kind === "Service").map(({ metadata }) => metadata.name)).toEqual([
      "openshell",
    ]);
  });
});

const isTest = ({ metadata }: Rendered) => metadata.annotations?.["helm.sh/hook"] === "test";

function withoutNull(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNull);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, inner]) => inner !== null)
      .map(([key, inner]) => [key, withoutNull(inner)]),
  );
}

function pathsOf(value: unknown, path: readonly string[] = []): string[][] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  return Object.entries(value).flatMap(([key, inner]) => [[...path, key], ...pathsOf(inner, [...path, key])]);
}

function put(target: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [step = "", ...rest] = path;
  if (rest.length === 0) target[step] = value;
  else {
    if (target[step] === null) return;
    target[step] ??= {};
    put(target[step] as Record<string, unknown>, rest, value);
  }
}

/** The rules of the Pod Security Standard `restricted` that a Pod of the chart could break. */
// biome-ignore lint/suspicious/noExplicitAny: a rendered Pod spec
function restrictedViolations(spec: any): string[] {
  const violations: string[] = [];
  const check = (ok: boolean, sentence: string) => {
    if (!ok) violations.push(sentence);
  };
  check(!spec.hostNetwork && !spec.hostPID && !spec.hostIPC, "host namespaces");
  check(spec.securityContext?.runAsNonRoot === true, "runAsNonRoot");
  check(spec.securityContext?.runAsUser !== 0, "runAsUser 0");
  check(["RuntimeDefault", "Localhost"].includes(spec.securityContext?.seccompProfile?.type), "seccompProfile");
  const allowed = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
  ];
  for (const { name, ...source } of spec.volumes ?? [])
    check(
      Object.keys(source).every((kind) => allowed.includes(kind)),
      `volume ${name}`,
    );
  for (const container of [...(spec.containers ?? []), ...(spec.initContainers ?? [])]) {
    const context = container.securityContext ?? {};
    check(context.allowPrivilegeEscalation === false, `${container.name}: allowPrivilegeEscalation`);
    check(JSON.stringify(context.capabilities) === '{"drop":["ALL"]}', `${container.name}: capabilities`);
    check(context.readOnlyRootFilesystem === true, `${container.name}: readOnlyRootFilesystem`);
    check(!context.privileged, `${container.name}: privileged`);
    check(
      (container.ports ?? []).every(({ hostPort }: { hostPort?: number }) => hostPort === undefined),
      `${container.name}: hostPort`,
    );
  }
  return violations;
}
