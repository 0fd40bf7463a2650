/** Refusals at render time: each is one sentence with the remedy. */
import {
  type Condition,
  type ReservedKeys,
  reservedKeys,
  settingRules,
  settingsWithReservedKeys,
} from "../config/index.ts";
import { ports } from "../manifests/names.ts";
import { type ChartGuard, isEmpty, lasts, needsApi, refuseKeys, refuseNames } from "./_guard.ts";
import { values } from "./_values.ts";
import { certManagerGuards } from "./cert-manager.ts";
import { effective } from "./gateway-toml.ts";
import { imageGuards } from "./images.ts";
import {
  and,
  type Block,
  call,
  type Expr,
  equal,
  guards,
  Helper,
  more,
  not,
  notEqual,
  or,
  output,
  type Statement,
  toJson,
} from "./layer/index.ts";

import { fullname } from "./names.ts";
import { pkiGuards } from "./pki.ts";
import { refuseResources, resourceHelpers } from "./resource-guards.ts";
import { routeGuards } from "./routes.ts";
import { sandboxGuards } from "./sandboxes.ts";
import { serviceName } from "./values/_types.ts";

/** Combinations of values that are refused. Those of settings come from src/config. */
export const chartGuards: readonly ChartGuard[] = [
  {
    // Helm takes names that no Service can have, and an alias is a name too.
    refusedWhen: not(call("regexMatch", serviceName.source, fullname)),
    sentence:
      "the names of the release and of the chart, or its alias, make one that no Service can have: it begins with a letter and has lower case letters, digits and dashes only; set fullnameOverride",
  },
  {
    refusedWhen: notEqual(toJson(values.replicaCount), "1"),
    sentence: "replicaCount must be 1: the gateway keeps its store in a file that one process owns",
  },
  {
    refusedWhen: equal(toJson(values.service.healthPort), String(ports.gateway)),
    sentence: `service.healthPort is ${ports.gateway}, where the gateway listens for users; give it another port`,
  },
  {
    refusedWhen: or(
      equal(toJson(values.service.metricsPort), String(ports.gateway)),
      equal(toJson(values.service.metricsPort), toJson(values.service.healthPort)),
    ),
    sentence: `service.metricsPort is ${ports.gateway}, where the gateway listens for users, or the same as service.healthPort; give it another port, or 0 for none`,
  },
  {
    refusedWhen: and(more(values.service.metricsPort, 0), not(more(values.service.metricsPort, 1023))),
    sentence:
      "service.metricsPort is below 1024, where only root may listen on some nodes; give it a port of 1024 or higher, or 0 for none",
  },
  {
    refusedWhen: and(not(values.serviceAccount.create), isEmpty(values.serviceAccount.name)),
    sentence:
      "serviceAccount.create is false: name the existing ServiceAccount in serviceAccount.name, or the namespace's default would get the gateway's rights",
  },
  {
    refusedWhen: and(equal(values.service.type, "ClusterIP"), more(values.service.nodePort, 0)),
    sentence:
      "service.nodePort has no effect while service.type is ClusterIP; set service.type to NodePort or LoadBalancer, or service.nodePort to 0",
  },
  {
    refusedWhen: and(equal(values.service.type, "ClusterIP"), not(isEmpty(values.service.externalTrafficPolicy))),
    sentence:
      "service.externalTrafficPolicy has no effect while service.type is ClusterIP; set service.type to NodePort or LoadBalancer, or remove service.externalTrafficPolicy",
  },
  {
    refusedWhen: and(
      notEqual(values.service.type, "LoadBalancer"),
      or(not(isEmpty(values.service.loadBalancerClass)), not(isEmpty(values.service.loadBalancerSourceRanges))),
    ),
    sentence:
      "service.loadBalancerClass and service.loadBalancerSourceRanges need service.type LoadBalancer; set it, or remove them",
  },
  {
    refusedWhen: and(values.serviceMonitor.enabled, not(more(values.service.metricsPort, 0))),
    sentence:
      "serviceMonitor.enabled is true, but service.metricsPort is 0, so there is nothing to scrape; give service.metricsPort a port, or set serviceMonitor.enabled to false",
  },
  {
    refusedWhen: and(
      values.serviceMonitor.enabled,
      values.serviceMonitor.interval,
      values.serviceMonitor.scrapeTimeout,
      lasts(values.serviceMonitor.interval, "<", values.serviceMonitor.scrapeTimeout),
    ),
    sentence:
      "serviceMonitor.scrapeTimeout is longer than serviceMonitor.interval, so the Prometheus operator would reject the ServiceMonitor; lower the first, or raise the second",
  },
  needsApi(
    true,
    "Sandbox",
    ["agents.x-k8s.io/v1beta1", "agents.x-k8s.io/v1alpha1"],
    ", from which every workload Pod comes: install Agent Sandbox first",
  ),
  needsApi(
    values.serviceMonitor.enabled,
    "ServiceMonitor",
    ["monitoring.coreos.com/v1"],
    ", which serviceMonitor.enabled asks for: install the Prometheus operator, or set serviceMonitor.enabled to false",
  ),
];

const ownLabels = "^(app\\.kubernetes\\.io/(name|instance|component|version|managed-by)|helm\\.sh/chart)$";
const beginsWith = ({ prefixes }: ReservedKeys) =>
  `^(${prefixes.map((prefix) => prefix.replaceAll(".", "\\.")).join("|")})`;
const podSecurityLabels = "^pod-security\\.kubernetes\\.io/(enforce|warn|audit)$";
const fromPodSecurity = "comes from sandboxNamespace.podSecurity; set that instead";
const ownKey = "is written by the chart itself; remove it";

/** Keys and names that the chart or the gateway writes itself. */
const collisions: Block = [
  ...[
    ["commonLabels", values.commonLabels] as const,
    ["podLabels", values.podLabels] as const,
    ["serviceMonitor.labels", values.serviceMonitor.labels] as const,
  ].flatMap(([name, map]) => [
    refuseKeys(name, map, ownLabels, ownKey),
    refuseKeys(name, map, beginsWith(reservedKeys), reservedKeys.remedy),
  ]),
  ...settingsWithReservedKeys().flatMap(({ key, reserved }) =>
    reserved.map((each) => refuseKeys(`gatewayConfig: ${key}`, effective(key), beginsWith(each), each.remedy)),
  ),
  refuseKeys("commonLabels", values.commonLabels, podSecurityLabels, fromPodSecurity),
  refuseKeys("persistence.annotations", values.persistence.annotations, "^helm\\.sh/resource-policy$", ownKey),
  refuseKeys("podAnnotations", values.podAnnotations, "^checksum/gateway-config$", ownKey),
  refuseKeys("sandboxNamespace.labels", values.sandboxNamespace.labels, ownLabels, ownKey),
  refuseKeys("sandboxNamespace.labels", values.sandboxNamespace.labels, podSecurityLabels, fromPodSecurity),
  refuseNames(
    "extraEnv",
    values.extraEnv,
    "^OPENSHELL_",
    "would override what the chart and gatewayConfig decide; set it in gatewayConfig",
  ),
  refuseNames(
    "extraVolumes",
    values.extraVolumes,
    "^(config|server-tls|client-ca|jwt|keys|data|tmp)$",
    "is the name of a volume of the chart; choose another",
  ),
];

/** A condition on settings, by what reads one. */
export function conditionOn(setting: (key: string) => Expr<unknown>, condition: Condition): Expr<boolean> {
  if ("is" in condition) return equal(toJson(setting(condition.is)), JSON.stringify(condition.value));
  if ("empty" in condition) return call("empty", setting(condition.empty));
  if ("same" in condition) {
    const [left, right] = condition.same;
    return and(not(call("empty", setting(left))), equal(toJson(setting(left)), toJson(setting(right))));
  }
  if ("startsWith" in condition)
    return call("hasPrefix", condition.prefix, call("toString", setting(condition.startsWith)));
  if ("not" in condition) return not(conditionOn(setting, condition.not));
  const parts = ("all" in condition ? condition.all : condition.any).map((part) => conditionOn(setting, part));
  return "all" in condition ? and(...parts) : or(...parts);
}

const settingGuards: readonly ChartGuard[] = settingRules.map((rule) => ({
  refusedWhen: conditionOn(effective, rule.refusedWhen),
  sentence: `gatewayConfig: ${rule.keys[0]}: ${rule.inChart ?? rule.sentence}`,
}));

/** What a rendering can be refused with for its settings. */
export const settingSentences: readonly string[] = settingGuards.map(({ sentence }) => sentence);

const allGuards = [
  ...chartGuards,
  ...imageGuards,
  ...pkiGuards,
  ...certManagerGuards,
  ...routeGuards,
  ...sandboxGuards,
];

/** What the reference lists. */
export const guardSentences: readonly string[] = allGuards.map(({ sentence }) => sentence);

const guardsHelper = new Helper("openshell.guards", () => [
  ...guards(allGuards),
  ...collisions,
  ...refuseResources,
  ...guards(settingGuards),
]);

/** Output nothing, or stop the rendering. Every install renders it, because the StatefulSet includes it. */
export const checkGuards: Statement = output(guardsHelper.include());
export const guardHelpers = [...resourceHelpers, guardsHelper];
