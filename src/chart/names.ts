/** Names and labels of the chart's objects. */

import { once, values } from "./_values.ts";
import type { Ref } from "./layer/index.ts";
import {
  and,
  call,
  choose,
  type Expr,
  entries,
  fieldOf,
  helm,
  type Input,
  inserted,
  or,
  orElse,
  Part,
  render,
  shorten,
  text,
  variable,
} from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

const chartName = orElse(values.nameOverride, helm.chartName);

/** The prefix of every object's name. */
const wholeName = variable<string>(
  "fullname",
  orElse(
    values.fullnameOverride,
    choose(call("contains", chartName, helm.releaseName), helm.releaseName, text`${helm.releaseName}-${chartName}`),
  ),
);
// The longest suffix of an object is 18 characters, and names of Services end at 63.
export const fullname = once("fullname", shorten(wholeName, 45), [wholeName.declaration]);

const wholeNamespace = variable<string>(
  "sandboxNamespace",
  orElse(values.sandboxNamespace.name, text`${helm.releaseNamespace}-sandboxes`),
);
export const sandboxNamespace = once("sandboxNamespace", shorten(wholeNamespace, 63), [wholeNamespace.declaration]);

const derived = (suffix: string) => text`${fullname}-${suffix}`;

/**
 * The name of a test's Pod, and of what `helm test` makes for it: Helm takes the name of every hook for a Pod's (--logs), and deletes whatever has
 * it, whosever that is. It has 63 characters, more than an ordinary object of any of these kinds gets from its full name, which ends at 45.
 */
const ofTest = (suffix: string) =>
  call<string>("trunc", 63, text`${fullname}-${suffix}-${call<string>("sha256sum", fullname)}`);

export const names = {
  config: derived("config"),
  data: orElse(values.persistence.existingClaim, derived("data")),
  pki: derived("pki"),
  // Helm deletes whatever has a hook's name, whosever that is, before it makes its own. No full name has a dot: with a dash, the hook of release
  // `openshell` would delete the ServiceAccount of a release `openshell-pki` beside it.
  pkiAccount: text`${fullname}.pki`,
  test: ofTest("test"),
  "test-fence": ofTest("test-fence"),
  // A CronJob's name ends at 52 characters.
  renewal: derived("renew"),
  certManagerCa: derived("ca-cert"),
  certManagerServer: derived("server-cert"),
  certManagerClient: derived("client-cert"),
  metrics: derived("metrics"),
  driver: derived("driver"),
  clusterRole: text`${fullname}-driver-${helm.releaseNamespace}`,
  gatewayServiceAccount: once("serviceAccount", serviceAccountName(values.serviceAccount, fullname)),
  sandboxServiceAccount: once(
    "sandboxServiceAccount",
    serviceAccountName(values.sandboxServiceAccount, derived("sandbox")),
  ),
  clientTlsSecret: choose(values.certManager.enabled, derived("client-cert"), derived("client-tls")),
} as const;

/** Secrets of the gateway: what the hook or cert-manager makes, and what an operator may give instead. */
export const secrets = {
  serverTls: {
    made: choose(values.certManager.enabled, names.certManagerServer, derived("server-tls")),
    given: values.server.tls.certSecretName,
  },
  // Of the client's Secret only ca.crt is mounted: the authority that signed it.
  clientCa: {
    made: choose(values.certManager.enabled, names.certManagerClient, derived("server-client-ca")),
    given: values.server.tls.clientCaSecretName,
  },
  jwt: { made: derived("jwt-keys"), given: values.server.jwtSecretName },
  keys: { made: derived("keys"), given: values.server.keysSecretName },
} as const;

/** Every Secret that the hook can make, and when something else makes it or nobody could use it. */
export const hookSecrets: readonly { readonly name: Expr<string>; readonly skippedWhen: Expr<unknown> }[] = [
  {
    name: derived("ca"),
    skippedWhen: or(values.certManager.enabled, and(secrets.serverTls.given, secrets.clientCa.given)),
  },
  { name: derived("server-tls"), skippedWhen: or(values.certManager.enabled, secrets.serverTls.given) },
  { name: derived("server-client-ca"), skippedWhen: or(values.certManager.enabled, secrets.clientCa.given) },
  // The hook's own authority could not sign for the one that was given.
  { name: derived("client-tls"), skippedWhen: or(values.certManager.enabled, secrets.clientCa.given) },
  { name: derived("jwt-keys"), skippedWhen: secrets.jwt.given },
  { name: derived("keys"), skippedWhen: secrets.keys.given },
];

export const secretName = (of: (typeof secrets)[keyof typeof secrets]) => orElse(of.given, of.made);

function serviceAccountName(of: Ref<ChartValues["serviceAccount"]>, whenMade: Expr<string>): Expr<string> {
  return orElse(of.name, choose(of.create, whenMade, "default"));
}

const service = text`${fullname}.${helm.releaseNamespace}`;
/** Where the gateway is found in any cluster: what its domain is, the search list of a Pod knows. */
export const serviceHost = text`${service}.svc`;

/** The names under which the gateway is reached inside the cluster, and through a port-forward. */
export const internalDnsNames: readonly Input<string>[] = [
  fullname,
  service,
  serviceHost,
  text`${service}.svc.cluster.local`,
  "localhost",
];

/** The names under which it is reached from outside where TLS is passed through: each is a list. */
export const externalDnsNames: readonly Expr<readonly string[]>[] = [
  choose(values.tlsRoute.enabled, values.tlsRoute.hostnames, []),
  choose(and(values.ingress.enabled, values.ingress.passthrough), call("list", values.ingress.host), []),
  choose(values.openshiftRoute.enabled, call("list", values.openshiftRoute.host), []),
];

const components = ["gateway", "metrics", "pki", "sandbox", "test", "test-fence"] as const;
export type Component = (typeof components)[number];

// Of the chart under its alias: two of them in one parent chart are one release, and must not select each other's Pods.
const appName = once("name", shorten(chartName, 63));

const instanceLabels = {
  "app.kubernetes.io/name": render(appName),
  "app.kubernetes.io/instance": render(helm.releaseName),
};

/** Labels that select a component's Pods; they never change in the life of a release. */
export function selectorLabels(component: Component): Record<string, string> {
  return { ...instanceLabels, "app.kubernetes.io/component": component };
}

const commonPart = new Part("openshell.labels.common", { ...entries(values.commonLabels), ...instanceLabels });
const versionLabels = {
  "app.kubernetes.io/version": render(helm.appVersion),
  "app.kubernetes.io/managed-by": render(helm.releaseService),
  "helm.sh/chart": render(text`${helm.chartName}-${call<string>("replace", "+", "_", helm.chartVersion)}`),
};
const versionPart = new Part("openshell.labels.version", versionLabels);
export const labelParts = [commonPart, versionPart];

const [common, version] = [variable("common", commonPart.lines), variable("version", versionPart.lines)];
const labelsOf = (component: Component) => text`${common}\napp.kubernetes.io/component: ${component}\n${version}`;
const keyOf = (component: Component) => component.replace("-f", "F");
const all = once<unknown>("labels", call("dict", ...components.flatMap((each) => [keyOf(each), labelsOf(each)])), [
  common.declaration,
  version.declaration,
]);

/** Labels of an object: its own before those of all objects. */
export function objectLabels(component: Component, own?: Expr<Record<string, string>>): Record<string, string> {
  if (own === undefined) return inserted(fieldOf(all, keyOf(component)));
  return {
    ...entries(call("merge", {}, own, values.commonLabels)),
    ...selectorLabels(component),
    ...versionLabels,
  };
}
