import { z } from "zod";
import { defaultRegistry, imagePart, objectName, orEmpty, setting } from "../config/index.ts";
import { anyMap, image, labelMap, namePart, serviceAccount, serviceName } from "./values/_types.ts";
import { pkiValues } from "./values/pki.ts";
import { podValues } from "./values/pod.ts";
import { routeValues } from "./values/routes.ts";
import { sandboxValues } from "./values/sandboxes.ts";
import { serviceValues } from "./values/service.ts";

/** values.yaml: every value with its type, default and help. A value is added here, and used in a construct; nothing else lists values. */
export const valuesSchema = z.strictObject({
  enabled: setting(z.boolean().optional(), "For a parent chart's condition; not read by this chart."),
  global: setting(
    z
      .strictObject({
        image: setting(
          z
            .strictObject({
              registry: setting(
                imagePart.registry().default(defaultRegistry),
                "Registry of OpenShell's images. The default is a name that no public DNS answers: nobody else's program is ever pulled.",
              ),
              tag: setting(imagePart.tag().default(""), "Tag of OpenShell's images; empty: the chart's appVersion."),
              pullPolicy: setting(
                z.enum(["Always", "IfNotPresent", "Never"]).default("IfNotPresent"),
                "Pull policy of OpenShell's images; not of workload images.",
              ),
            })
            .prefault({}),
          "Where OpenShell's images come from.",
        ),
      })
      .prefault({}),
    "Shared with other charts.",
  ),
  nameOverride: setting(
    namePart(),
    "Replaces the chart's name in object names and labels; another one makes other objects, and beside fullnameOverride cannot be given to a release that is installed.",
  ),
  fullnameOverride: setting(
    z.string().regex(orEmpty(serviceName)).default(""),
    "Replaces the whole prefix of object names.",
  ),
  replicaCount: setting(z.int().default(1), "Gateway replicas. One until the store is shared; more are refused."),
  gateway: setting(
    z.strictObject({ image: image("openshell/gateway", "Image of the gateway and of the PKI hook.") }).prefault({}),
    "The gateway.",
  ),
  sandboxRuntime: setting(
    z
      .strictObject({
        image: image("openshell/runtime", "Image of the runtime, the trusted process in a workload Pod."),
      })
      .prefault({}),
    "The runtime.",
  ),
  supervisor: setting(
    z.strictObject({ image: image("openshell/supervisor", "Image of supervisor Pods.") }).prefault({}),
    "The supervisor.",
  ),
  sandbox: setting(
    z
      .strictObject({
        image: image(
          "",
          "Workload image of sandboxes that name none; repository empty: a sandbox must name one. Tag and pull policy do not follow global.image.",
        ),
      })
      .prefault({}),
    "Sandboxes.",
  ),
  imagePullSecrets: setting(
    z.array(z.strictObject({ name: objectName() })).default([]),
    "Pull Secrets, in the release's namespace, of the gateway and the hook. Those of sandboxes are image_pull_secrets in gatewayConfig.",
  ),
  serviceAccount: serviceAccount("the gateway"),
  sandboxServiceAccount: serviceAccount("supervisor and workload Pods, in the sandboxes' namespace. It has no rights"),
  rbac: setting(
    z
      .strictObject({
        create: setting(
          z.boolean().default(true),
          "Make the gateway's Role, ClusterRole and bindings. False: somebody with the rights applies them.",
        ),
      })
      .prefault({}),
    "The gateway's rights.",
  ),
  ...sandboxValues,
  ...serviceValues,
  ...routeValues,
  ...pkiValues,
  networkPolicy: setting(
    z
      .strictObject({ enabled: setting(z.boolean().default(true), "Let only the gateway's ports be reached.") })
      .prefault({}),
    "NetworkPolicy of the gateway.",
  ),
  ...podValues,
  commonLabels: setting(labelMap(), "More labels of every object."),
  selfTest: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(true),
          "Have the Pods of `helm test`. False: for tools that apply what they render, tests included.",
        ),
      })
      .prefault({}),
    "What `helm test` looks at: certificate, health, rights of the driver, enforcement of NetworkPolicy.",
  ),
  preflight: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(true),
          "Refuse to render for a cluster that lacks an API the values need, Agent Sandbox first of all. False: the same sync installs it. A rendering that knows no cluster (helm template, helm lint) is never refused.",
        ),
      })
      .prefault({}),
    "What the cluster must have.",
  ),
  gatewayConfig: setting(
    anyMap(),
    "Settings of the gateway, by TOML table: see docs/reference/gateway-config.mdx. null leaves a setting out; strings are literal.",
    { example: { "openshell.drivers.kubernetes.sandbox_runtime": { pod_anti_affinity: "required" } } },
  ),
});

/** The values with every default filled in. */
export type ChartValues = Required<z.output<typeof valuesSchema>>;

/** values.yaml as data. */
export const defaultValues = valuesSchema.parse({}) as ChartValues;
