import type * as k8s from "cdk8s-plus-28/lib/imports/k8s.js";
import { Construct } from "constructs";
import { type ChartGuard, isEmpty } from "./_guard.ts";
import { once, values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import { gatewayPullPolicy, images } from "./images.ts";
import {
  and,
  call,
  choose,
  type Expr,
  each,
  HelmObject,
  helm,
  type Input,
  not,
  optional,
  or,
  Part,
  render,
  renderPart,
  text,
  toJson,
} from "./layer/index.ts";
import { externalDnsNames, fullname, hookSecrets, internalDnsNames, names, objectLabels, secrets } from "./names.ts";
import { containerSecurity, pod, quantity, resources } from "./pods.ts";

const namespace = render(helm.releaseNamespace);
const labels = objectLabels("pki");
const rbacGroup = "rbac.authorization.k8s.io";
const { asHook, enabled, renewalSchedule } = values.pkiInitJob;

const lacksCertificates = and(
  not(values.server.disableTls),
  not(values.certManager.enabled),
  or(isEmpty(secrets.serverTls.given), isEmpty(secrets.clientCa.given)),
);
const lacksKeys = or(isEmpty(secrets.jwt.given), isEmpty(secrets.keys.given));

/** Somebody has to make Secrets: where all are given, there is no Job and nothing has a right to write one. */
const hasWork = once("pkiHasWork", and(enabled, or(lacksCertificates, lacksKeys)));
const isRenewed = once("pkiIsRenewed", and(hasWork, not(isEmpty(renewalSchedule))));

/** Five fields, or a shorthand, as a CronJob takes them. A guard says it in fewer characters than the pattern has. */
const schedulePattern = `^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|${[
  "[0-5]?[0-9]",
  "[01]?[0-9]|2[0-3]",
  "0?[1-9]|[12][0-9]|3[01]",
  "0?[1-9]|1[0-2]|[A-Za-z]{3}",
  "0?[0-6]|[A-Za-z]{3}",
]
  .map((one) => `([*?]|(${one})(-(${one}))?)(/[1-9][0-9]*)?`)
  .map((item) => `${item}(,${item})*`)
  .join(" +")})$`;

/** Refusals that concern who makes certificates and keys. */
export const pkiGuards: readonly ChartGuard[] = [
  {
    refusedWhen: and(not(enabled), lacksCertificates, lacksKeys),
    sentence:
      "pkiInitJob.enabled is false, so nothing makes certificates or keys: set it to true, or give server.tls.certSecretName, server.tls.clientCaSecretName, server.jwtSecretName and server.keysSecretName",
  },
  {
    refusedWhen: and(not(enabled), lacksCertificates),
    sentence:
      "pkiInitJob.enabled is false, so nothing makes certificates: set it to true, or give server.tls.certSecretName and server.tls.clientCaSecretName",
  },
  {
    refusedWhen: and(not(enabled), lacksKeys),
    sentence:
      "pkiInitJob.enabled is false, so nothing makes keys: set it to true, or give server.jwtSecretName and server.keysSecretName",
  },
  {
    refusedWhen: and(values.server.disableTls, or(secrets.serverTls.given, secrets.clientCa.given)),
    sentence:
      "server.tls.certSecretName and server.tls.clientCaSecretName have no effect while server.disableTls is true; set it to false, or remove the names",
  },
  {
    refusedWhen: and(
      secrets.serverTls.given,
      or(values.pkiInitJob.serverDnsNames, values.pkiInitJob.serverIpAddresses),
    ),
    sentence:
      "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while server.tls.certSecretName names the certificate; remove them, or the name",
  },
  {
    refusedWhen: and(not(isEmpty(renewalSchedule)), not(call("regexMatch", schedulePattern, renewalSchedule))),
    sentence:
      'pkiInitJob.renewalSchedule is no schedule of a CronJob: write five fields such as "17 4 * * *", a shorthand such as "@weekly", or "" for none',
  },
];

const dnsName = (name: Input<string>) => render(text`--dns-name=${name}`);

/** What hook and renewal run. */
const argsPart = new Part("openshell.pki.args", [
  "pki",
  "converge",
  render(text`--namespace=${helm.releaseNamespace}`),
  render(text`--prefix=${fullname}`),
  ...internalDnsNames.map(dnsName),
  each(effective<readonly string[]>("openshell.gateway.server_sans"), dnsName),
  each(values.pkiInitJob.serverDnsNames, dnsName),
  ...externalDnsNames.map((list) => each(list, dnsName)),
  "--ip-address=127.0.0.1",
  each(values.pkiInitJob.serverIpAddresses, (address) => render(text`--ip-address=${address}`)),
  ...hookSecrets.map(({ name, skippedWhen }) => optional(skippedWhen, render(text`--skip=${name}`))),
]);
const convergeArgs = once("pkiArgs", argsPart.lines);

/** The Secrets that they may change. */
const secretNamesPart = new Part(
  "openshell.pki.secretNames",
  hookSecrets.map(({ name }) => render(name)),
);
const secretNames = once("pkiSecretNames", secretNamesPart.lines);

export const pkiParts = [argsPart, secretNamesPart];

/** Annotations of an object that exists only while Helm installs or upgrades. */
function hook(weight: number): Record<string, string> {
  return {
    "helm.sh/hook": "pre-install,pre-upgrade",
    "helm.sh/hook-weight": String(weight),
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
  };
}

/**
 * The hook that converges certificates and keys before anything needs them. It has a ServiceAccount of its own: what may
 * write the gateway's keys is never what serves users.
 */
export class PkiHook extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    // The template of a Job can never be changed: one that stays is named after everything it may depend on.
    const name = choose(
      asHook,
      names.pki,
      text`${names.pki}-${call<string>("trunc", 8, call("sha256sum", text`${helm.chartVersion} ${toJson(helm.values)}`))}`,
    );
    new Rights(this, "rights", {
      name: names.pkiAccount,
      when: hasWork,
      annotations: optional(asHook, hook(-30)),
      mayCreate: true,
    });
    new HelmObject<k8s.KubeJobProps>(this, "job", {
      apiVersion: "batch/v1",
      kind: "Job",
      when: hasWork,
      manifest: {
        metadata: { name: render(name), namespace, labels, annotations: optional(asHook, hook(-20)) },
        spec: {
          ...jobSpec(names.pkiAccount),
          // One that is an ordinary object stays: a tool that syncs would make it again.
          ttlSecondsAfterFinished: optional(asHook, 300),
        },
      },
    });
  }
}

/** Renews certificates between upgrades. It may change the release's own Secrets, by name, and make none. */
export class PkiRenewal extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    new Rights(this, "rights", { name: names.renewal, when: isRenewed, mayCreate: false });
    new HelmObject<k8s.KubeCronJobProps>(this, "cron-job", {
      apiVersion: "batch/v1",
      kind: "CronJob",
      when: isRenewed,
      manifest: {
        metadata: { name: render(names.renewal), namespace, labels },
        spec: {
          schedule: render(renewalSchedule),
          concurrencyPolicy: "Forbid",
          startingDeadlineSeconds: 3600,
          successfulJobsHistoryLimit: 1,
          failedJobsHistoryLimit: 1,
          jobTemplate: { metadata: { labels }, spec: jobSpec(names.renewal) },
        },
      },
    });
  }
}

function jobSpec(serviceAccount: Expr<string>): k8s.JobSpec {
  return {
    backoffLimit: 3,
    activeDeadlineSeconds: render(values.pkiInitJob.timeoutSeconds),
    template: {
      metadata: { labels },
      spec: {
        restartPolicy: "Never",
        serviceAccountName: render(serviceAccount),
        automountServiceAccountToken: true,
        enableServiceLinks: false,
        ...pod,
        containers: [
          {
            name: "pki",
            image: render(images.gateway),
            imagePullPolicy: render(gatewayPullPolicy),
            args: renderPart<string[]>(convergeArgs),
            resources: resources(values.pkiInitJob.resources),
            securityContext: containerSecurity,
            volumeMounts: [{ name: "tmp", mountPath: "/tmp" }],
          },
        ],
        volumes: [{ name: "tmp", emptyDir: { sizeLimit: quantity("16Mi") } }],
      },
    },
  };
}

interface RightsProps {
  /** Of the ServiceAccount, the Role and the RoleBinding. */
  readonly name: Expr<string>;
  readonly when: Input<unknown>;
  /** @default none */
  readonly annotations?: Record<string, string>;
  /** A Secret that does not exist has no name to confine the verb to. */
  readonly mayCreate: boolean;
}

/** A ServiceAccount that may read and change the release's own Secrets. */
class Rights extends Construct {
  constructor(scope: Construct, id: string, props: RightsProps) {
    super(scope, id);
    const { when } = props;
    const metadata = {
      name: render(props.name),
      namespace,
      labels,
      ...(props.annotations === undefined ? {} : { annotations: props.annotations }),
    };
    const apiVersion = `${rbacGroup}/v1`;
    const secretRule = { apiGroups: [""], resources: ["secrets"] };
    const resourceNames = renderPart<string[]>(secretNames);
    new HelmObject<k8s.KubeServiceAccountProps>(this, "service-account", {
      apiVersion: "v1",
      kind: "ServiceAccount",
      when,
      manifest: { metadata, automountServiceAccountToken: false },
    });
    new HelmObject<k8s.KubeRoleProps>(this, "role", {
      apiVersion,
      kind: "Role",
      when,
      manifest: {
        metadata,
        rules: [
          { ...secretRule, resourceNames, verbs: ["get", "patch"] },
          ...(props.mayCreate ? [{ ...secretRule, verbs: ["create"] }] : []),
        ],
      },
    });
    new HelmObject<k8s.KubeRoleBindingProps>(this, "role-binding", {
      apiVersion,
      kind: "RoleBinding",
      when,
      manifest: {
        metadata,
        roleRef: { apiGroup: rbacGroup, kind: "Role", name: metadata.name },
        subjects: [{ kind: "ServiceAccount", name: metadata.name, namespace }],
      },
    });
  }
}
