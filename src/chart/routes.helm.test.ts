import { describe, expect, it, vi } from "vitest";
import { find, helmPrograms, render, sentenceOf } from "./_helm.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const enabled = true;
/** Values under which TLS may end before the gateway. */
const unauthenticated = { "openshell.gateway.auth": { allow_unauthenticated_users: true } };
/** What the CustomResourceDefinitions of the Gateway API fill in: a route without it is never what Argo CD applied (argoproj/argo-cd#22151). */
const aGateway = { group: "gateway.networking.k8s.io", kind: "Gateway" };
const aService = { group: "", kind: "Service", weight: 1 };
const job = (values: unknown) => find(render(program, { values }), "Job").spec.template.spec.containers[0].args;

describeWithHelm("a route with TLS passed through", () => {
  it("is a TLSRoute to the gateway, and its names are in the certificate", () => {
    const values = {
      tlsRoute: {
        enabled,
        apiVersion: "v1alpha3",
        hostnames: ["gw.example.com"],
        gateway: { name: "edge", namespace: "infra" },
      },
    };
    const route = find(render(program, { values }), "TLSRoute");
    expect(route.apiVersion).toBe("gateway.networking.k8s.io/v1alpha3");
    expect(route.spec).toEqual({
      parentRefs: [{ ...aGateway, name: "edge", namespace: "infra" }],
      hostnames: ["gw.example.com"],
      rules: [{ backendRefs: [{ ...aService, name: "openshell", port: 8080 }] }],
    });
    expect(job(values)).toContain("--dns-name=gw.example.com");
  });

  it("is a TLSRoute of the newest version that the cluster serves", () => {
    const tlsRoute = { enabled, hostnames: ["gw.example.com"], gateway: { name: "edge" } };
    const known = ["apps/v1/Deployment", "agents.x-k8s.io/v1beta1/Sandbox"];
    const versionOf = (...served: readonly string[]) => {
      const apis = [...known, ...served.map((version) => `gateway.networking.k8s.io/${version}/TLSRoute`)];
      return find(render(program, { values: { tlsRoute }, apis }), "TLSRoute").apiVersion.split("/")[1];
    };
    expect(versionOf("v1")).toBe("v1");
    expect(versionOf("v1alpha2", "v1alpha3")).toBe("v1alpha3");
    expect(versionOf("v1alpha2")).toBe("v1alpha2");
    expect(find(render(program, { values: { tlsRoute } }), "TLSRoute").apiVersion).toMatch(/\/v1$/);
    const values = { tlsRoute: { ...tlsRoute, apiVersion: "v1alpha2" } };
    expect(sentenceOf(program, { values, apis: [...known, "gateway.networking.k8s.io/v1/TLSRoute"] })).toBe(
      "this cluster serves TLSRoute, but not in the version of tlsRoute.apiVersion; leave it empty, which is the newest that is served; or set preflight.enabled to false when the same sync installs it",
    );
  });

  it("is an OpenShift Route, and its host is in the certificate, cert-manager's too", () => {
    const openshiftRoute = { enabled, host: "gw.apps.example.com", annotations: { a: "b" } };
    const route = find(render(program, { values: { openshiftRoute } }), "Route");
    expect(route.metadata.annotations).toEqual({ a: "b" });
    expect(route.spec).toEqual({
      host: "gw.apps.example.com",
      port: { targetPort: "grpc" },
      tls: { termination: "passthrough" },
      to: { kind: "Service", name: "openshell", weight: 100 },
      wildcardPolicy: "None",
    });
    expect(job({ openshiftRoute })).toContain("--dns-name=gw.apps.example.com");
    const objects = render(program, { values: { openshiftRoute, certManager: { enabled } } });
    expect(find(objects, "Certificate", "openshell-server-cert").spec.dnsNames).toContain("gw.apps.example.com");
  });

  it("is an Ingress whose annotations say so", () => {
    const ingress = {
      enabled,
      className: "nginx",
      host: "gw.example.com",
      passthrough: true,
      annotations: { "nginx.ingress.kubernetes.io/ssl-passthrough": "true" },
    };
    const made = find(render(program, { values: { ingress } }), "Ingress");
    expect(made.metadata.annotations).toEqual(ingress.annotations);
    expect(made.spec).toMatchObject({
      ingressClassName: "nginx",
      tls: [{ hosts: ["gw.example.com"] }],
      rules: [{ host: "gw.example.com", http: { paths: [{ path: "/", pathType: "Prefix" }] } }],
    });
    expect(job({ ingress })).toContain("--dns-name=gw.example.com");
  });
});

describeWithHelm("a route that ends TLS", () => {
  it("is a GRPCRoute of a Gateway made for it, with TLS to the gateway behind", () => {
    const objects = render(program, {
      values: {
        gatewayConfig: unauthenticated,
        grpcRoute: {
          enabled,
          hostnames: ["gw.example.com"],
          gateway: { create: true, className: "eg", listener: { certificateSecretNames: ["edge-tls"] } },
          backendTLSPolicy: { enabled, caConfigMapName: "openshell-ca" },
        },
      },
    });
    expect(find(objects, "Gateway").spec).toEqual({
      gatewayClassName: "eg",
      listeners: [
        {
          name: "grpc",
          port: 443,
          protocol: "HTTPS",
          tls: { mode: "Terminate", certificateRefs: [{ group: "", kind: "Secret", name: "edge-tls" }] },
          allowedRoutes: { namespaces: { from: "Same" } },
        },
      ],
    });
    expect(find(objects, "GRPCRoute").spec).toEqual({
      parentRefs: [{ ...aGateway, name: "openshell", namespace: "openshell" }],
      hostnames: ["gw.example.com"],
      rules: [{ backendRefs: [{ ...aService, name: "openshell", port: 8080 }] }],
    });
    expect(find(objects, "BackendTLSPolicy").spec).toEqual({
      targetRefs: [{ group: "", kind: "Service", name: "openshell" }],
      validation: {
        hostname: "openshell.openshell.svc",
        caCertificateRefs: [{ group: "", kind: "ConfigMap", name: "openshell-ca" }],
      },
    });
  });

  it("is an Ingress with a certificate of its own", () => {
    const ingress = { enabled, host: "gw.example.com", tlsSecretName: "edge-tls" };
    const objects = render(program, { values: { ingress, gatewayConfig: unauthenticated } });
    expect(find(objects, "Ingress").spec.tls).toEqual([{ hosts: ["gw.example.com"], secretName: "edge-tls" }]);
    expect(job({ ingress, gatewayConfig: unauthenticated })).not.toContain("--dns-name=gw.example.com");
  });
});

describeWithHelm("a route that could not work", () => {
  const gateway = { name: "edge" };
  const backendTLSPolicy = { enabled, caConfigMapName: "ca" };
  const plain = { disableTls: true };
  it.each([
    [
      { grpcRoute: { enabled, gateway, backendTLSPolicy } },
      "grpcRoute.enabled, and ingress.enabled without ingress.passthrough, end TLS before OpenShell's gateway, so the client certificates that mtls_auth.enabled asks for never reach it; use tlsRoute, openshiftRoute, or ingress.passthrough with the annotations of your controller; or let users come from an OpenID provider (openshell.gateway.oidc) and set mtls_auth.enabled to false",
    ],
    [
      { grpcRoute: { enabled, backendTLSPolicy }, gatewayConfig: unauthenticated },
      "grpcRoute.gateway.name is empty: name the Gateway that takes the route, or have one made by grpcRoute.gateway.create, className and listener.certificateSecretNames",
    ],
    [
      { grpcRoute: { enabled, backendTLSPolicy, gateway: { create: true } }, gatewayConfig: unauthenticated },
      "grpcRoute.gateway.create is true: name the GatewayClass in grpcRoute.gateway.className, and the listener's certificates in grpcRoute.gateway.listener.certificateSecretNames",
    ],
    [
      {
        grpcRoute: { enabled, backendTLSPolicy, gateway: { create: true, className: "x", namespace: "y" } },
        gatewayConfig: unauthenticated,
      },
      "grpcRoute.gateway.create makes the Gateway in the release's namespace; remove grpcRoute.gateway.namespace, or, for one that exists, name it in grpcRoute.gateway.name and set grpcRoute.gateway.create to false",
    ],
    [
      {
        grpcRoute: { enabled, backendTLSPolicy, gateway: { create: true, className: "x" } },
        gatewayConfig: unauthenticated,
      },
      "grpcRoute.gateway.listener.protocol is HTTPS: name its certificates in grpcRoute.gateway.listener.certificateSecretNames",
    ],
    [
      { grpcRoute: { enabled, gateway }, gatewayConfig: unauthenticated },
      "grpcRoute.enabled has the Gateway speak plain text to a gateway that listens with TLS; set grpcRoute.backendTLSPolicy.enabled to true and name the authority's ConfigMap in grpcRoute.backendTLSPolicy.caConfigMapName, or set server.disableTls to true",
    ],
    [
      { grpcRoute: { enabled, gateway, backendTLSPolicy }, server: plain, gatewayConfig: unauthenticated },
      "grpcRoute.backendTLSPolicy.enabled has no effect unless grpcRoute.enabled is true and server.disableTls is false; set it to false, or change those",
    ],
    [
      { grpcRoute: { enabled, gateway, backendTLSPolicy: { enabled } }, gatewayConfig: unauthenticated },
      "grpcRoute.backendTLSPolicy.enabled is true: name the ConfigMap with the authority's ca.crt in grpcRoute.backendTLSPolicy.caConfigMapName",
    ],
    [
      { tlsRoute: { enabled, gateway } },
      "tlsRoute.enabled is true: give tlsRoute.hostnames, by which the Gateway tells connections apart, and tlsRoute.gateway.name",
    ],
    [
      { openshiftRoute: { enabled, host: "x.example.com" }, server: plain, gatewayConfig: unauthenticated },
      "tlsRoute, openshiftRoute and ingress.passthrough pass TLS through, but server.disableTls is true and the gateway speaks none; set server.disableTls to false, or use grpcRoute",
    ],
    [
      { ingress: { enabled, passthrough: true } },
      "ingress.enabled is true: give ingress.host, the name under which users reach the gateway",
    ],
    [
      { ingress: { enabled, passthrough: true, host: "x.example.com", tlsSecretName: "y" } },
      "ingress needs exactly one of ingress.passthrough and ingress.tlsSecretName: either the gateway ends TLS, or the controller does",
    ],
    [
      { ingress: { enabled, host: "x.example.com" }, gatewayConfig: unauthenticated },
      "ingress needs exactly one of ingress.passthrough and ingress.tlsSecretName: either the gateway ends TLS, or the controller does",
    ],
    [
      { openshiftRoute: { enabled } },
      "openshiftRoute.enabled is true: give openshiftRoute.host, because the gateway's certificate must name it",
    ],
  ])("is refused: %j", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });

  it.each([
    [
      { openshiftRoute: { enabled, host: "x.example.com" } },
      "this cluster does not serve Route of route.openshift.io/v1, which openshiftRoute.enabled asks for: use tlsRoute or ingress on a cluster that is not OpenShift; or set preflight.enabled to false when the same sync installs it",
    ],
    [
      { tlsRoute: { enabled, hostnames: ["x.example.com"], gateway } },
      "this cluster does not serve TLSRoute of gateway.networking.k8s.io/v1 or gateway.networking.k8s.io/v1alpha3 or gateway.networking.k8s.io/v1alpha2, which tlsRoute.enabled asks for: install the Gateway API 1.5 or later, or the experimental channel of an earlier one, or set tlsRoute.enabled to false; or set preflight.enabled to false when the same sync installs it",
    ],
    [
      { grpcRoute: { enabled, gateway }, server: plain, gatewayConfig: unauthenticated },
      "this cluster does not serve GRPCRoute of gateway.networking.k8s.io/v1, which grpcRoute.enabled asks for: install the Gateway API, or set grpcRoute.enabled to false; or set preflight.enabled to false when the same sync installs it",
    ],
  ])("is refused on a cluster that does not know it: %j", (values, sentence) => {
    expect(sentenceOf(program, { values, apis: ["apps/v1/Deployment", "agents.x-k8s.io/v1beta1/Sandbox"] })).toBe(
      sentence,
    );
  });

  it("is refused on a cluster whose Gateway API is too old for TLS to the gateway", () => {
    const grpcRoute = {
      enabled,
      hostnames: ["gw.example.com"],
      gateway: { name: "edge" },
      backendTLSPolicy: { enabled, caConfigMapName: "openshell-ca" },
    };
    const gatewayApi = "gateway.networking.k8s.io/v1/GRPCRoute";
    const apis = ["apps/v1/Deployment", "agents.x-k8s.io/v1beta1/Sandbox", gatewayApi];
    expect(sentenceOf(program, { values: { grpcRoute, gatewayConfig: unauthenticated }, apis })).toBe(
      "this cluster does not serve BackendTLSPolicy of gateway.networking.k8s.io/v1, which grpcRoute.backendTLSPolicy.enabled asks for: install the Gateway API 1.4 or later; or set preflight.enabled to false when the same sync installs it",
    );
  });
});
