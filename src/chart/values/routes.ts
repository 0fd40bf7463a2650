import { z } from "zod";
import { setting } from "../../config/index.ts";
import { annotationMap, hostOrNone, hosts, namespaceOrNone, objectNameOrNone, objectNames } from "./_types.ts";

/** Versions of TLSRoute, the newest first. Gateway API 1.5 serves v1, its experimental channel the last of the others. */
export const tlsRouteVersions = ["v1", "v1alpha3", "v1alpha2"] as const;

/** How the gateway is reached from outside the cluster. */
export const routeValues = {
  tlsRoute: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make a TLSRoute."),
        apiVersion: setting(
          z.enum(["", ...tlsRouteVersions]).default(""),
          "Version of TLSRoute; empty: the newest that the cluster serves, and v1 where none is known (helm template).",
          { example: "v1alpha3" },
        ),
        hostnames: setting(
          hosts(),
          "Host names that are routed. They are put into a certificate that this chart makes.",
        ),
        annotations: setting(annotationMap(), "Annotations of the route."),
        gateway: setting(
          z
            .strictObject({
              name: setting(
                objectNameOrNone(),
                "Name of an existing Gateway with a listener of protocol TLS and mode Passthrough.",
              ),
              namespace: setting(namespaceOrNone(), "Its namespace; empty: the release's."),
              sectionName: setting(objectNameOrNone(), "Its listener; empty: any that fits."),
            })
            .prefault({}),
          "The Gateway that takes the route.",
        ),
      })
      .prefault({}),
    "Gateway API, TLS passed through: client certificates reach the gateway.",
  ),
  grpcRoute: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make a GRPCRoute."),
        hostnames: setting(hosts(), "Host names that are routed; empty: all."),
        annotations: setting(annotationMap(), "Annotations of the route."),
        gateway: setting(
          z
            .strictObject({
              create: setting(z.boolean().default(false), "Make the Gateway too."),
              className: setting(objectNameOrNone(), "GatewayClass of the Gateway that is made."),
              name: setting(
                objectNameOrNone(),
                "Name of an existing Gateway; of one that is made, empty: the release's full name.",
              ),
              namespace: setting(namespaceOrNone(), "Namespace of an existing Gateway; empty: the release's."),
              sectionName: setting(objectNameOrNone(), "Its listener; empty: any that fits."),
              listener: setting(
                z
                  .strictObject({
                    port: setting(z.int().min(1).max(65_535).default(443), "Port of the listener."),
                    protocol: setting(z.enum(["HTTPS", "HTTP"]).default("HTTPS"), "Protocol of the listener."),
                    certificateSecretNames: setting(objectNames(), "Secrets with the listener's certificates."),
                  })
                  .prefault({}),
                "Listener of the Gateway that is made.",
              ),
            })
            .prefault({}),
          "The Gateway that takes the route.",
        ),
        backendTLSPolicy: setting(
          z
            .strictObject({
              enabled: setting(z.boolean().default(false), "Have the Gateway speak TLS to OpenShell's gateway."),
              hostname: setting(hostOrNone(), "Name that it verifies; empty: the Service's."),
              caConfigMapName: setting(
                objectNameOrNone(),
                "ConfigMap with ca.crt, the authority of the server certificate.",
              ),
            })
            .prefault({}),
          "TLS between the Gateway and OpenShell's gateway.",
        ),
      })
      .prefault({}),
    "Gateway API, TLS ended by the Gateway: client certificates do not reach OpenShell's gateway.",
  ),
  ingress: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make an Ingress."),
        className: setting(objectNameOrNone(), "IngressClass; empty: the cluster's default."),
        host: setting(
          hostOrNone(),
          "Host name. It is put into a certificate that this chart makes, when TLS is passed through.",
        ),
        annotations: setting(
          annotationMap(),
          "Annotations: how a controller is told to speak gRPC, or to pass TLS through, is its own.",
          { example: { "nginx.ingress.kubernetes.io/ssl-passthrough": "true" } },
        ),
        passthrough: setting(
          z.boolean().default(false),
          "The annotations have the controller pass TLS through, so client certificates reach the gateway.",
        ),
        tlsSecretName: setting(
          objectNameOrNone(),
          "Secret with the certificate of the host, where the controller ends TLS.",
        ),
      })
      .prefault({}),
    "Ingress.",
  ),
  openshiftRoute: setting(
    z
      .strictObject({
        enabled: setting(z.boolean().default(false), "Make an OpenShift Route with passthrough termination."),
        host: setting(hostOrNone(), "Host name. It is put into a certificate that this chart makes."),
        annotations: setting(annotationMap(), "Annotations of the Route."),
      })
      .prefault({}),
    "OpenShift Route, TLS passed through.",
  ),
} as const;
