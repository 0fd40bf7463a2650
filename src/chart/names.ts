/** Names and labels of the chart's objects. */

import { values } from "./_values.ts";
import type { Ref } from "./layer/index.ts";
import {
  call,
  choose,
  type Expr,
  entries,
  Helper,
  helm,
  orElse,
  output,
  render,
  shorten,
  text,
} from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

const chartName = orElse(values.nameOverride, helm.chartName);

const fullnameHelper = new Helper("openshell.fullname", () => [
  output(
    shorten(
      orElse(
        values.fullnameOverride,
        choose(call("contains", chartName, helm.releaseName), helm.releaseName, text`${helm.releaseName}-${chartName}`),
      ),
      // The longest suffix of an object is 18 characters, and names of Services end at 63.
      45,
    ),
  ),
]);

const sandboxNamespaceHelper = new Helper("openshell.sandboxNamespace", () => [
  output(shorten(orElse(values.sandboxNamespace.name, text`${helm.releaseNamespace}-sandboxes`), 63)),
]);

/** The prefix of every object's name. */
export const fullname = fullnameHelper.include();
export const sandboxNamespace = sandboxNamespaceHelper.include();

const derived = (suffix: string) => text`${fullname}-${suffix}`;

export const names = {
  config: derived("config"),
  data: orElse(values.persistence.existingClaim, derived("data")),
  pki: derived("pki"),
  driver: derived("driver"),
  clusterRole: text`${fullname}-driver-${helm.releaseNamespace}`,
  gatewayServiceAccount: serviceAccountName(values.serviceAccount, fullname),
  sandboxServiceAccount: serviceAccountName(values.sandboxServiceAccount, derived("sandbox")),
  clientTlsSecret: derived("client-tls"),
} as const;

/** Secrets of the gateway: what the hook makes, and what an operator may give instead. */
export const secrets = {
  serverTls: { made: derived("server-tls"), given: values.server.tls.certSecretName },
  clientCa: { made: derived("server-client-ca"), given: values.server.tls.clientCaSecretName },
  jwt: { made: derived("jwt-keys"), given: values.server.jwtSecretName },
  keys: { made: derived("keys"), given: values.server.keysSecretName },
} as const;

export const secretName = (of: (typeof secrets)[keyof typeof secrets]) => orElse(of.given, of.made);

function serviceAccountName(of: Ref<ChartValues["serviceAccount"]>, whenMade: Expr<string>): Expr<string> {
  return orElse(of.name, choose(of.create, whenMade, "default"));
}

export type Component = "gateway" | "pki" | "sandbox";

/** Labels that select a component's Pods; they never change in the life of a release. */
export function selectorLabels(component: Component): Record<string, string> {
  return {
    "app.kubernetes.io/name": "openshell",
    "app.kubernetes.io/instance": render(helm.releaseName),
    "app.kubernetes.io/component": component,
  };
}

/** Labels of an object. */
export function objectLabels(component: Component): Record<string, string> {
  return {
    ...entries(values.commonLabels),
    ...selectorLabels(component),
    "app.kubernetes.io/version": render(helm.appVersion),
    "app.kubernetes.io/managed-by": render(helm.releaseService),
    "helm.sh/chart": render(text`${helm.chartName}-${call<string>("replace", "+", "_", helm.chartVersion)}`),
  };
}

export const nameHelpers = [fullnameHelper, sandboxNamespaceHelper];
