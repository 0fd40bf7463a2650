/** Whoever does what a refusal says, and nothing else, is not refused again. */
import { describe, expect, it, vi } from "vitest";
import { helmPrograms } from "./_helm.ts";
import { merge } from "./_leaves.ts";
import { refusalsOfMany } from "./_many.ts";
import { guardSentences, settingSentences } from "./guards.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
type Values = Readonly<Record<string, unknown>>;

const enabled = true;
const set = (table: string, settings: Values): Values => ({ gatewayConfig: { [`openshell.${table}`]: settings } });
const driver = (settings: Values) => set("drivers.kubernetes", settings);
const oidc = (settings: Values) => set("gateway.oidc", settings);
const mtls = (isEnabled: boolean) => set("gateway.mtls_auth", { enabled: isEnabled });
const everyone = set("gateway.auth", { allow_unauthenticated_users: true });
const all = (...parts: readonly Values[]) => parts.reduce(merge, {});
const issuer = "https://login.example.com/realms/main";

const plain: Values = { server: { disableTls: true } };
const withTls: Values = { server: { disableTls: false } };
const tls = { certSecretName: "a", clientCaSecretName: "b" };
const keys = { jwtSecretName: "c", keysSecretName: "d" };
const noHook = { pkiInitJob: { enabled: false } };
const hook = { pkiInitJob: { enabled } };
const certManager = (values: Values = {}) => ({ certManager: { enabled, ...values } });
const service = (values: Values) => ({ service: values });
const host = "gateway.example.com";
const gateway = { name: "edge" };
const backendTLSPolicy = { enabled, caConfigMapName: "authority" };
const listener = { certificateSecretNames: ["edge-tls"] };
const grpcRoute = (values: Values) => ({ grpcRoute: { enabled, ...values } });
const tlsRoute = { tlsRoute: { enabled, hostnames: [host], gateway } };
const noGrpcRoute = { grpcRoute: { enabled: false, backendTLSPolicy: { enabled: false } } };
const ingress = (values: Values) => ({ ingress: { enabled, ...values } });
const openshiftRoute = { openshiftRoute: { enabled, host } };
const quota = (values: Values) => ({ resourceQuota: { enabled, ...values } });
const limitRange = (values: Values) => ({ limitRange: { enabled, ...values } });
const resources = (part: string, quantities: Values) =>
  driver({ supervisor_resources: { [part]: quantities }, workload_resources: { [part]: quantities } });

/** How a sentence begins, values that it refuses, and each of its advices. */
const table: readonly (readonly [start: string, refused: Values, ...advice: readonly Values[]])[] = [
  ["the names of the release", { fullnameOverride: "agentGateway" }, { fullnameOverride: "agent-gateway" }],
  ["replicaCount must be 1", { replicaCount: 2 }, { replicaCount: 1 }],
  ["service.healthPort", service({ healthPort: 8080 }), service({ healthPort: 8082 })],
  [
    "service.metricsPort is 8080",
    service({ metricsPort: 8081 }),
    service({ metricsPort: 9091 }),
    service({ metricsPort: 0 }),
  ],
  [
    "service.metricsPort is below",
    service({ metricsPort: 443 }),
    service({ metricsPort: 1024 }),
    service({ metricsPort: 0 }),
  ],
  ["serviceAccount.create", { serviceAccount: { create: false } }, { serviceAccount: { name: "given" } }],
  [
    "service.nodePort",
    service({ nodePort: 30_000 }),
    ...[{ type: "NodePort" }, { type: "LoadBalancer" }, { nodePort: 0 }].map(service),
  ],
  [
    "service.externalTrafficPolicy",
    service({ externalTrafficPolicy: "Local" }),
    ...[{ type: "NodePort" }, { type: "LoadBalancer" }, { externalTrafficPolicy: "" }].map(service),
  ],
  [
    "service.loadBalancerClass",
    service({ loadBalancerClass: "example.com/internal" }),
    ...[{ type: "LoadBalancer" }, { loadBalancerClass: "" }].map(service),
  ],
  [
    "global.image.registry",
    { global: { image: { registry: "" } } },
    { global: { image: { registry: "registry.example.com" } } },
    Object.fromEntries(
      ["gateway", "supervisor", "sandboxRuntime"].map((name) => [name, { image: { repository: "r.example.com/x" } }]),
    ),
  ],
  [
    "serviceMonitor.scrapeTimeout",
    { serviceMonitor: { enabled, interval: "5s" } },
    { serviceMonitor: { scrapeTimeout: "5s" } },
    { serviceMonitor: { interval: "10s" } },
  ],
  [
    "serviceMonitor.enabled",
    { serviceMonitor: { enabled }, ...service({ metricsPort: 0 }) },
    service({ metricsPort: 9090 }),
    { serviceMonitor: { enabled: false } },
  ],
  ["pkiInitJob.enabled is false, so nothing makes certificates or keys", noHook, hook, { server: { tls, ...keys } }],
  [
    "pkiInitJob.enabled is false, so nothing makes certificates:",
    all(noHook, { server: keys }),
    hook,
    { server: { tls } },
  ],
  ["pkiInitJob.enabled is false, so nothing makes keys:", all(noHook, { server: { tls } }), hook, { server: keys }],
  [
    "pkiInitJob.renewalSchedule",
    { pkiInitJob: { renewalSchedule: "never" } },
    ...["17 4 * * *", "@weekly", ""].map((renewalSchedule) => ({ pkiInitJob: { renewalSchedule } })),
  ],
  [
    "certManager.enabled makes certificates, but",
    all(certManager(), plain, everyone),
    { certManager: { enabled: false } },
    withTls,
  ],
  [
    "certManager.enabled makes the certificates, but",
    all(certManager(), { server: { tls } }),
    { certManager: { enabled: false } },
    { server: { tls: { certSecretName: "", clientCaSecretName: "" } } },
  ],
  [
    "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while server.tls",
    { server: { tls: { certSecretName: "a" } }, pkiInitJob: { serverDnsNames: [host] } },
    { pkiInitJob: { serverDnsNames: [] } },
    { server: { tls: { certSecretName: "" } } },
  ],
  [
    "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while certManager",
    all(certManager(), { pkiInitJob: { serverDnsNames: [host] } }),
    all(certManager({ serverDnsNames: [host] }), { pkiInitJob: { serverDnsNames: [] } }),
  ],
  [
    "certManager.serverIssuerRef.name",
    { certManager: { serverIssuerRef: { name: "given" } } },
    certManager(),
    { certManager: { serverIssuerRef: { name: "" } } },
  ],
  [
    "certManager.certificateDuration",
    certManager({ certificateDuration: "30m", certificateRenewBefore: "1m" }),
    certManager({ certificateDuration: "1h", certificateRenewBefore: "5m" }),
  ],
  [
    "server.tls.certSecretName and",
    all(plain, everyone, { server: { tls: { certSecretName: "a" } } }),
    withTls,
    { server: { tls: { certSecretName: "" } } },
  ],
  [
    "certManager.internalNames is false and",
    certManager({ internalNames: false }),
    certManager({ internalNames: true }),
    all(certManager({ serverDnsNames: [host] }), driver({ grpc_endpoint: `https://${host}` })),
  ],
  [
    "certManager.internalNames is false, so supervisors",
    certManager({ internalNames: false, serverDnsNames: [host] }),
    driver({ grpc_endpoint: `https://${host}` }),
  ],
  [
    "certManager.certificateRenewBefore",
    certManager({ certificateDuration: "24h", certificateRenewBefore: "720h" }),
    certManager({ certificateRenewBefore: "8h" }),
    certManager({ certificateDuration: "720h1m" }),
  ],
  [
    "grpcRoute.enabled, and ingress.enabled",
    grpcRoute({ gateway, backendTLSPolicy }),
    all(noGrpcRoute, tlsRoute),
    all(noGrpcRoute, openshiftRoute),
    all(noGrpcRoute, ingress({ host, passthrough: true })),
    all(oidc({ issuer }), mtls(false)),
  ],
  [
    "grpcRoute.gateway.name is empty",
    all(grpcRoute({ backendTLSPolicy }), everyone),
    grpcRoute({ gateway }),
    grpcRoute({ gateway: { create: true, className: "edge", listener } }),
  ],
  [
    "grpcRoute.gateway.create is true",
    all(grpcRoute({ backendTLSPolicy, gateway: { create: true } }), everyone),
    grpcRoute({ gateway: { className: "edge", listener } }),
  ],
  [
    "grpcRoute.gateway.create makes",
    all(
      grpcRoute({ backendTLSPolicy, gateway: { create: true, className: "edge", namespace: "edge", listener } }),
      everyone,
    ),
    grpcRoute({ gateway: { namespace: "" } }),
    grpcRoute({ gateway: { name: "edge", create: false } }),
  ],
  [
    "grpcRoute.gateway.listener.protocol",
    all(grpcRoute({ backendTLSPolicy, gateway: { create: true, className: "edge" } }), everyone),
    grpcRoute({ gateway: { listener } }),
  ],
  ["grpcRoute.enabled has the Gateway", all(grpcRoute({ gateway }), everyone), grpcRoute({ backendTLSPolicy }), plain],
  [
    "grpcRoute.backendTLSPolicy.enabled has no effect",
    all(grpcRoute({ gateway, backendTLSPolicy }), plain, everyone),
    grpcRoute({ backendTLSPolicy: { enabled: false } }),
    withTls,
  ],
  [
    "grpcRoute.backendTLSPolicy.enabled is true",
    all(grpcRoute({ gateway, backendTLSPolicy: { enabled } }), everyone),
    grpcRoute({ backendTLSPolicy }),
  ],
  ["tlsRoute.enabled", { tlsRoute: { enabled } }, tlsRoute],
  [
    "tlsRoute, openshiftRoute",
    all(tlsRoute, plain, everyone),
    withTls,
    all({ tlsRoute: { enabled: false } }, grpcRoute({ gateway })),
  ],
  ["ingress.enabled", ingress({ passthrough: true }), ingress({ host })],
  [
    "ingress needs exactly one",
    all(ingress({ host, passthrough: true, tlsSecretName: "edge-tls" }), everyone),
    ingress({ passthrough: false }),
    ingress({ tlsSecretName: "" }),
  ],
  ["openshiftRoute.enabled", { openshiftRoute: { enabled } }, openshiftRoute],
  ["resourceQuota.enabled", quota({}), quota({ maxRunningSandboxes: 3 }), quota({ hard: { services: "9" } })],
  [
    "resourceQuota.maxRunningSandboxes and",
    { resourceQuota: { maxRunningSandboxes: 3 } },
    { resourceQuota: { enabled } },
    { resourceQuota: { maxRunningSandboxes: null } },
  ],
  [
    "resourceQuota.maxRunningSandboxes is",
    quota({ maxRunningSandboxes: 2, hard: { pods: "3" } }),
    quota({ maxRunningSandboxes: 0 }),
    quota({ hard: { pods: null } }),
  ],
  [
    "limitRange.enabled",
    limitRange({}),
    ...["default", "defaultRequest", "min", "max"].map((part) => limitRange({ [part]: { cpu: "50m" } })),
  ],
  [
    "resourceQuota.hard bounds limits.cpu",
    quota({ hard: { "limits.cpu": "40" } }),
    resources("limits", { cpu: "1" }),
    limitRange({ default: { cpu: "1" } }),
  ],
  [
    "resourceQuota.hard bounds limits.memory",
    all(quota({ hard: { "limits.memory": "40Gi" } }), resources("limits", { memory: "" })),
    resources("limits", { memory: "1Gi" }),
    limitRange({ default: { memory: "1Gi" } }),
  ],
  ...["cpu", "memory"].map((resource): (typeof table)[number] => [
    `resourceQuota.hard bounds requests.${resource}`,
    all(
      quota({ hard: { [`requests.${resource}`]: "9Gi" } }),
      driver({ workload_resources: { requests: { [resource]: "" } } }),
    ),
    resources("requests", { [resource]: "100M" }),
    limitRange({ defaultRequest: { [resource]: "100M" } }),
  ]),
  [
    "admissionPolicy.enabled",
    { admissionPolicy: { enabled, agentSandboxUsers: [] } },
    { admissionPolicy: { agentSandboxUsers: ["system:serviceaccount:a:b"] } },
  ],
  ["mtls_auth.enabled = true needs TLS", all(mtls(true), plain, everyone), withTls],
  ["no user could connect: ", mtls(false), mtls(true), oidc({ issuer }), everyone],
  ["no user could connect, because", plain, withTls, oidc({ issuer }), everyone],
  [
    "oidc.issuer is an http:// address",
    oidc({ issuer: "http://127.0.0.1:9" }),
    oidc({ issuer }),
    oidc({ dangerously_allow_insecure_http: true }),
  ],
  [
    "oidc.admin_role and oidc.user_role",
    oidc({ issuer, user_role: "" }),
    oidc({ user_role: "user" }),
    oidc({ admin_role: "" }),
  ],
  ["the settings of [openshell.gateway.oidc]", oidc({ audience: "a" }), oidc({ issuer }), oidc({ audience: null })],
  [
    "gateway_jwt.gateway_id",
    set("gateway.gateway_jwt", { gateway_id: "other" }),
    driver({ gateway_id: "other" }),
    set("gateway.gateway_jwt", { gateway_id: null }),
  ],
  [
    'workspace_mode = "operator"',
    driver({ workspace_mode: "operator" }),
    driver({ operator_namespace_label: "team" }),
    driver({ operator_namespace_file: "/list" }),
  ],
  [
    "operator_namespace_file and",
    driver({ workspace_mode: "operator", operator_namespace_label: "team", operator_namespace_file: "/list" }),
    driver({ operator_namespace_label: null }),
    driver({ operator_namespace_file: null }),
  ],
  [
    "operator_namespace_label and",
    driver({ operator_namespace_label: "team" }),
    driver({ operator_namespace_label: null }),
    driver({ workspace_mode: "operator" }),
  ],
  [
    "image_pull_secrets",
    driver({ workspace_mode: "managed", image_pull_secrets: ["registry"] }),
    driver({ image_pull_secrets: [] }),
    driver({ workspace_mode: "operator", operator_namespace_label: "team" }),
  ],
  ["grpc_endpoint is an http://", driver({ grpc_endpoint: "http://g:1" }), driver({ grpc_endpoint: "https://g:1" })],
];

/** Rules that no values break, because the chart itself writes what they ask for. */
const ofTheGatewayOnly = [
  "disable_tls = true listens",
  "the gateway listens with TLS",
  "mtls_auth.enabled = true needs tls.client_ca_path",
  "no supervisor could connect",
  "the keys of sandboxes",
  "health_bind_address and",
  "metrics_bind_address and bind_address",
  "metrics_bind_address and health_bind_address",
  "supervisors need grpc_endpoint",
];

const sentences = [...guardSentences.filter((each) => !each.startsWith("this cluster")), ...settingSentences];
/** As Helm takes a key away that is null in the values given last. */
const withoutNull = (values: Values): Values =>
  JSON.parse(JSON.stringify(values, (_, value: unknown) => (value === null ? undefined : value)));
const words = (sentence = "") => sentence.replace(/^gatewayConfig: \S+: /, "");

describe.skipIf(helmPrograms.length === 0)("what a refusal advises", () => {
  it("is enough by itself", () => {
    const cases = table.flatMap(([, refused, ...advice]) => [refused, ...advice.map((each) => merge(refused, each))]);
    const refusals = refusalsOfMany(program, cases.map(withoutNull));
    const found = table.map(([start, , ...advice]) => {
      const [first, ...others] = refusals.splice(0, 1 + advice.length);
      const isFirst = words(first?.[0]).startsWith(start);
      return [start, isFirst ? "refused" : first, ...others.map((each) => (each.length === 0 ? "accepted" : each))];
    });
    expect(found).toEqual(
      table.map(([start, , ...advice]) => [start, "refused", ...advice.map(() => "accepted")] as const),
    );
  });

  it("is looked at for every sentence", () => {
    const starts = [...table.map(([start]) => start), ...ofTheGatewayOnly];
    const without = sentences.filter((each) => starts.filter((start) => words(each).startsWith(start)).length !== 1);
    expect(without).toEqual([]);
    expect(starts).toHaveLength(sentences.length);
  });
});
