import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { type ChartGuard, checksApis, isEmpty, needsApi } from "./_guard.ts";
import { values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import {
  and,
  choose,
  each,
  equal,
  HelmObject,
  helm,
  type Input,
  type Manifest,
  not,
  optional,
  or,
  orElse,
  render,
  serves,
  text,
} from "./layer/index.ts";
import { fullname, objectLabels, serviceHost } from "./names.ts";
import { unlessEmpty } from "./pods.ts";
import { tlsRouteVersions } from "./values/routes.ts";

const { grpcRoute, tlsRoute, ingress, openshiftRoute } = values;
const gatewayApi = "gateway.networking.k8s.io";
const namespace = render(helm.releaseNamespace);
const labels = objectLabels("gateway");
const listener = grpcRoute.gateway.listener;
const plain = values.server.disableTls;
/** Fields that the API server would fill in are there too, here and below: else Argo CD sees another route than it applied. */
const backend: BackendRef = {
  group: "",
  kind: "Service",
  name: render(fullname),
  port: render(values.service.port),
  weight: 1,
};
const endsTls = or(grpcRoute.enabled, and(ingress.enabled, not(ingress.passthrough)));
const onlyClientCertificates = and(
  equal(effective<boolean>("openshell.gateway.mtls_auth.enabled"), true),
  not(effective<boolean>("openshell.gateway.auth.allow_unauthenticated_users")),
);

const servesTlsRoute = (version: Input<string>) => serves(text`${gatewayApi}/${version}`, "TLSRoute");
/** The one that is asked for, else the newest that is served; where no cluster is known, the one of Gateway API 1.5 and later. */
const tlsRouteVersion = orElse(
  tlsRoute.apiVersion,
  tlsRouteVersions.reduceRight<Input<string>>(
    (older, version) => choose(servesTlsRoute(version), version, older),
    tlsRouteVersions[0],
  ),
);

export const routeGuards: readonly ChartGuard[] = [
  {
    refusedWhen: and(endsTls, onlyClientCertificates),
    sentence:
      "grpcRoute.enabled, and ingress.enabled without ingress.passthrough, end TLS before OpenShell's gateway, so the client certificates that mtls_auth.enabled asks for never reach it; use tlsRoute, openshiftRoute, or ingress.passthrough with the annotations of your controller; or let users come from an OpenID provider (openshell.gateway.oidc) and set mtls_auth.enabled to false",
  },
  {
    refusedWhen: and(grpcRoute.enabled, not(grpcRoute.gateway.create), isEmpty(grpcRoute.gateway.name)),
    sentence:
      "grpcRoute.gateway.name is empty: name the Gateway that takes the route, or have one made by grpcRoute.gateway.create, className and listener.certificateSecretNames",
  },
  {
    refusedWhen: and(grpcRoute.enabled, grpcRoute.gateway.create, isEmpty(grpcRoute.gateway.className)),
    sentence:
      "grpcRoute.gateway.create is true: name the GatewayClass in grpcRoute.gateway.className, and the listener's certificates in grpcRoute.gateway.listener.certificateSecretNames",
  },
  {
    refusedWhen: and(grpcRoute.enabled, grpcRoute.gateway.create, not(isEmpty(grpcRoute.gateway.namespace))),
    sentence:
      "grpcRoute.gateway.create makes the Gateway in the release's namespace; remove grpcRoute.gateway.namespace, or, for one that exists, name it in grpcRoute.gateway.name and set grpcRoute.gateway.create to false",
  },
  {
    refusedWhen: and(
      grpcRoute.enabled,
      grpcRoute.gateway.create,
      equal(listener.protocol, "HTTPS"),
      isEmpty(listener.certificateSecretNames),
    ),
    sentence:
      "grpcRoute.gateway.listener.protocol is HTTPS: name its certificates in grpcRoute.gateway.listener.certificateSecretNames",
  },
  {
    refusedWhen: and(grpcRoute.enabled, not(plain), not(grpcRoute.backendTLSPolicy.enabled)),
    sentence:
      "grpcRoute.enabled has the Gateway speak plain text to a gateway that listens with TLS; set grpcRoute.backendTLSPolicy.enabled to true and name the authority's ConfigMap in grpcRoute.backendTLSPolicy.caConfigMapName, or set server.disableTls to true",
  },
  {
    refusedWhen: and(grpcRoute.backendTLSPolicy.enabled, or(plain, not(grpcRoute.enabled))),
    sentence:
      "grpcRoute.backendTLSPolicy.enabled has no effect unless grpcRoute.enabled is true and server.disableTls is false; set it to false, or change those",
  },
  {
    refusedWhen: and(grpcRoute.backendTLSPolicy.enabled, isEmpty(grpcRoute.backendTLSPolicy.caConfigMapName)),
    sentence:
      "grpcRoute.backendTLSPolicy.enabled is true: name the ConfigMap with the authority's ca.crt in grpcRoute.backendTLSPolicy.caConfigMapName",
  },
  {
    refusedWhen: and(tlsRoute.enabled, or(isEmpty(tlsRoute.hostnames), isEmpty(tlsRoute.gateway.name))),
    sentence:
      "tlsRoute.enabled is true: give tlsRoute.hostnames, by which the Gateway tells connections apart, and tlsRoute.gateway.name",
  },
  {
    refusedWhen: and(plain, or(tlsRoute.enabled, openshiftRoute.enabled, and(ingress.enabled, ingress.passthrough))),
    sentence:
      "tlsRoute, openshiftRoute and ingress.passthrough pass TLS through, but server.disableTls is true and the gateway speaks none; set server.disableTls to false, or use grpcRoute",
  },
  {
    refusedWhen: and(ingress.enabled, isEmpty(ingress.host)),
    sentence: "ingress.enabled is true: give ingress.host, the name under which users reach the gateway",
  },
  {
    refusedWhen: and(ingress.enabled, equal(ingress.passthrough, not(isEmpty(ingress.tlsSecretName)))),
    sentence:
      "ingress needs exactly one of ingress.passthrough and ingress.tlsSecretName: either the gateway ends TLS, or the controller does",
  },
  {
    refusedWhen: and(openshiftRoute.enabled, isEmpty(openshiftRoute.host)),
    sentence:
      "openshiftRoute.enabled is true: give openshiftRoute.host, because the gateway's certificate must name it",
  },
  needsApi(
    grpcRoute.enabled,
    "GRPCRoute",
    [`${gatewayApi}/v1`],
    ", which grpcRoute.enabled asks for: install the Gateway API, or set grpcRoute.enabled to false",
  ),
  needsApi(
    grpcRoute.backendTLSPolicy.enabled,
    "BackendTLSPolicy",
    [`${gatewayApi}/v1`],
    ", which grpcRoute.backendTLSPolicy.enabled asks for: install the Gateway API 1.4 or later",
  ),
  needsApi(
    tlsRoute.enabled,
    "TLSRoute",
    tlsRouteVersions.map((version) => `${gatewayApi}/${version}`),
    ", which tlsRoute.enabled asks for: install the Gateway API 1.5 or later, or the experimental channel of an earlier one, or set tlsRoute.enabled to false",
  ),
  {
    refusedWhen: and(checksApis, tlsRoute.enabled, tlsRoute.apiVersion, not(servesTlsRoute(tlsRoute.apiVersion))),
    sentence:
      "this cluster serves TLSRoute, but not in the version of tlsRoute.apiVersion; leave it empty, which is the newest that is served; or set preflight.enabled to false when the same sync installs it",
  },
  needsApi(
    openshiftRoute.enabled,
    "Route",
    ["route.openshift.io/v1"],
    ", which openshiftRoute.enabled asks for: use tlsRoute or ingress on a cluster that is not OpenShift",
  ),
];

interface ParentRef {
  readonly group: typeof gatewayApi;
  readonly kind: "Gateway";
  readonly name: string;
  readonly namespace?: string;
  readonly sectionName?: string;
}

interface BackendRef {
  readonly group: "";
  readonly kind: "Service";
  readonly name: string;
  readonly port: number;
  readonly weight: number;
}

/** What this chart writes of the Gateway API's routes. */
interface RouteProps extends Manifest {
  readonly spec: {
    readonly parentRefs: readonly ParentRef[];
    readonly hostnames: readonly string[];
    readonly rules: readonly { readonly backendRefs: readonly BackendRef[] }[];
  };
}

/** What this chart writes of a Gateway. */
interface GatewayProps extends Manifest {
  readonly spec: {
    readonly gatewayClassName: string;
    readonly listeners: readonly {
      readonly name: string;
      readonly port: number;
      readonly protocol: string;
      readonly tls: { readonly mode: "Terminate"; readonly certificateRefs: readonly object[] };
      readonly allowedRoutes: { readonly namespaces: { readonly from: "Same" } };
    }[];
  };
}

/** What this chart writes of a BackendTLSPolicy. */
interface BackendTlsPolicyProps extends Manifest {
  readonly spec: {
    readonly targetRefs: readonly { readonly group: ""; readonly kind: "Service"; readonly name: string }[];
    readonly validation: {
      readonly hostname: string;
      readonly caCertificateRefs: readonly { readonly group: ""; readonly kind: "ConfigMap"; readonly name: string }[];
    };
  };
}

/** What this chart writes of an OpenShift Route. */
interface OpenShiftRouteProps extends Manifest {
  readonly spec: {
    readonly host: string;
    readonly port: { readonly targetPort: string };
    readonly tls: { readonly termination: "passthrough" };
    readonly to: { readonly kind: "Service"; readonly name: string; readonly weight: number };
    readonly wildcardPolicy: "None";
  };
}

function parent(of: Pick<typeof tlsRoute.gateway, "namespace" | "sectionName">, name: string): ParentRef {
  return {
    group: gatewayApi,
    kind: "Gateway",
    name,
    namespace: render(orElse(of.namespace, helm.releaseNamespace)),
    sectionName: unlessEmpty(of.sectionName),
  };
}

/** What brings users to the gateway from outside the cluster. */
export class GatewayRoutes extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    this.tlsRoute();
    this.grpcRoute();
    this.ingress();
    this.openshiftRoute();
  }

  private tlsRoute(): void {
    const { gateway } = tlsRoute;
    new HelmObject<RouteProps>(this, "tls-route", {
      apiVersion: render(text`${gatewayApi}/${tlsRouteVersion}`),
      kind: "TLSRoute",
      when: tlsRoute.enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels, annotations: unlessEmpty(tlsRoute.annotations) },
        spec: {
          parentRefs: [parent(gateway, render(gateway.name))],
          hostnames: render(tlsRoute.hostnames) as string[],
          rules: [{ backendRefs: [backend] }],
        },
      },
    });
  }

  private grpcRoute(): void {
    const { gateway, backendTLSPolicy } = grpcRoute;
    const gatewayName = render(orElse(gateway.name, fullname));
    const metadata = { name: render(fullname), namespace, labels };
    new HelmObject<GatewayProps>(this, "gateway", {
      apiVersion: `${gatewayApi}/v1`,
      kind: "Gateway",
      when: and(grpcRoute.enabled, gateway.create),
      manifest: {
        metadata: { ...metadata, name: gatewayName },
        spec: {
          gatewayClassName: render(gateway.className),
          listeners: [
            {
              name: "grpc",
              port: render(listener.port),
              protocol: render(listener.protocol),
              tls: optional(equal(listener.protocol, "HTTPS"), {
                mode: "Terminate",
                certificateRefs: [
                  each(listener.certificateSecretNames, (name) => ({ group: "", kind: "Secret", name: render(name) })),
                ],
              }),
              allowedRoutes: { namespaces: { from: "Same" } },
            },
          ],
        },
      },
    });
    new HelmObject<RouteProps>(this, "grpc-route", {
      apiVersion: `${gatewayApi}/v1`,
      kind: "GRPCRoute",
      when: grpcRoute.enabled,
      manifest: {
        metadata: { ...metadata, annotations: unlessEmpty(grpcRoute.annotations) },
        spec: {
          parentRefs: [parent(gateway, gatewayName)],
          hostnames: unlessEmpty(grpcRoute.hostnames) as string[],
          rules: [{ backendRefs: [backend] }],
        },
      },
    });
    new HelmObject<BackendTlsPolicyProps>(this, "backend-tls-policy", {
      apiVersion: `${gatewayApi}/v1`,
      kind: "BackendTLSPolicy",
      when: backendTLSPolicy.enabled,
      manifest: {
        metadata,
        spec: {
          targetRefs: [{ group: "", kind: "Service", name: render(fullname) }],
          validation: {
            hostname: render(orElse(backendTLSPolicy.hostname, serviceHost)),
            caCertificateRefs: [{ group: "", kind: "ConfigMap", name: render(backendTLSPolicy.caConfigMapName) }],
          },
        },
      },
    });
  }

  private ingress(): void {
    new HelmObject<k8s.KubeIngressProps>(this, "ingress", {
      apiVersion: "networking.k8s.io/v1",
      kind: "Ingress",
      when: ingress.enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels, annotations: unlessEmpty(ingress.annotations) },
        spec: {
          ingressClassName: unlessEmpty(ingress.className),
          // A host without a Secret: the controller passes it through, or has a certificate of its own.
          tls: [{ hosts: [render(ingress.host)], secretName: unlessEmpty(ingress.tlsSecretName) }],
          rules: [
            {
              host: render(ingress.host),
              http: {
                paths: [
                  {
                    path: "/",
                    pathType: "Prefix",
                    backend: { service: { name: render(fullname), port: { name: "grpc" } } },
                  },
                ],
              },
            },
          ],
        },
      },
    });
  }

  private openshiftRoute(): void {
    new HelmObject<OpenShiftRouteProps>(this, "openshift-route", {
      apiVersion: "route.openshift.io/v1",
      kind: "Route",
      when: openshiftRoute.enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels, annotations: unlessEmpty(openshiftRoute.annotations) },
        spec: {
          host: render(openshiftRoute.host),
          port: { targetPort: "grpc" },
          tls: { termination: "passthrough" },
          to: { kind: "Service", name: render(fullname), weight: 100 },
          wildcardPolicy: "None",
        },
      },
    });
  }
}
