import { retry } from "../common/async.ts";
import type { Logger } from "../common/log.ts";
import { createKubeClient, isAlreadyExists, isConflict, type KubeClient, secrets } from "../kube/index.ts";
import { carryOut, type Data } from "./contents.ts";
import { type PkiPlan, type PkiRequest, planPki } from "./plan.ts";
import {
  managedByLabel,
  managedByValue,
  type SecretRole,
  type SecretState,
  secretName,
  secretRoles,
  secretTypes,
} from "./secrets.ts";

export interface ConvergePkiOptions {
  readonly namespace: string;
  /** The release's full name; begins the name of every Secret. */
  readonly prefix: string;
  /** DNS names under which clients reach the gateway. */
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
  /** Names of Secrets that an operator gives: never made, never written. @default none */
  readonly skip?: readonly string[];
  readonly log: Pick<Logger, "info" | "warn">;
  /** @default the Pod's own access, or the default kubeconfig outside a cluster */
  readonly client?: KubeClient;
  /** @default the current time */
  readonly now?: Date;
  readonly signal?: AbortSignal;
}

/** What became of one Secret. */
export interface ConvergedSecret {
  readonly name: string;
  readonly outcome: "created" | "updated" | "unchanged" | "operator's";
}

/**
 * Makes the release's Secrets what they should be: the work of the chart's hook Job. Safe to repeat, to interrupt and to run twice at once.
 * @throws failed-precondition when a key that is never replaced is unusable, or an operator's authority cannot sign
 */
export async function convergePki(options: ConvergePkiOptions): Promise<ConvergedSecret[]> {
  const client = options.client ?? (await createKubeClient({ component: "openshell-pki" }));
  try {
    return await retry(() => convergeOnce(client, options), {
      attempts: 5,
      initialMs: 200,
      // Another Job was faster at one Secret: what it wrote is as good, and is read anew.
      retryable: (error) => isConflict(error) || isAlreadyExists(error),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  } finally {
    if (options.client === undefined) client.close();
  }
}

interface ReadSecret extends SecretState {
  readonly resourceVersion?: string;
}

async function convergeOnce(client: KubeClient, options: ConvergePkiOptions): Promise<ConvergedSecret[]> {
  const now = options.now ?? new Date();
  const read: { [role in SecretRole]?: ReadSecret } = {};
  for (const role of secretRoles) {
    const found = await readSecret(client, options, role);
    if (found !== undefined) read[role] = found;
  }
  const { prefix, dnsNames, ipAddresses } = options;
  const request: PkiRequest = { prefix, serverNames: { dnsNames, ipAddresses } };
  const plan = planPki(read, request, now);
  if (plan.authority.action === "keep" && plan.authority.warning !== undefined) {
    options.log.warn({ secret: secretName(prefix, "ca") }, plan.authority.warning);
  }
  const wanted = await carryOut(plan, read, request, now);
  const outcomes: ConvergedSecret[] = [];
  // In the order of secretRoles: the authority is kept before anything that it signed.
  for (const role of secretRoles) {
    const name = secretName(options.prefix, role);
    const outcome = await writeSecret(client, options, role, read[role], wanted[role]);
    options.log.info({ secret: name, outcome, reason: reasonFor(role, plan) }, `Secret ${name}: ${outcome}`);
    outcomes.push({ name, outcome });
  }
  return outcomes;
}

async function readSecret(
  client: KubeClient,
  options: ConvergePkiOptions,
  role: SecretRole,
): Promise<ReadSecret | undefined> {
  const name = secretName(options.prefix, role);
  const found = await client.find(secrets, options.namespace, name, callOptions(options));
  const skipped = options.skip?.includes(name) ?? false;
  if (found === undefined) return skipped ? { managed: false, data: {} } : undefined;
  const data = Object.entries(found.data ?? {}).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]);
  return {
    managed: !skipped && found.metadata.labels?.[managedByLabel] === managedByValue,
    data: Object.fromEntries(data),
    resourceVersion: found.metadata.resourceVersion,
  };
}

async function writeSecret(
  client: KubeClient,
  options: ConvergePkiOptions,
  role: SecretRole,
  before: ReadSecret | undefined,
  after: Data | undefined,
): Promise<ConvergedSecret["outcome"]> {
  if (after === undefined) return "operator's";
  const name = secretName(options.prefix, role);
  if (before === undefined) {
    await client.create(
      secrets,
      options.namespace,
      {
        apiVersion: "v1",
        kind: "Secret",
        metadata: {
          name,
          labels: { [managedByLabel]: managedByValue, "app.kubernetes.io/managed-by": managedByValue },
        },
        type: secretTypes[role],
        data: encoded(after),
      },
      callOptions(options),
    );
    return "created";
  }
  const changes: Record<string, string | null> = encoded(
    Object.fromEntries(Object.entries(after).filter(([key, value]) => before.data[key] !== value)),
  );
  for (const key of Object.keys(before.data)) if (after[key] === undefined) changes[key] = null;
  if (Object.keys(changes).length === 0) return "unchanged";
  await client.patch(
    secrets,
    options.namespace,
    name,
    { type: "merge", body: { metadata: { resourceVersion: before.resourceVersion }, data: changes } },
    callOptions(options),
  );
  return "updated";
}

function encoded(data: Data): Data {
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString("base64")]));
}

function reasonFor(role: SecretRole, plan: PkiPlan): string | undefined {
  const steps = {
    ca: [plan.authority],
    "server-tls": [plan.server],
    "server-client-ca": [plan.authority],
    "client-tls": [plan.client],
    "jwt-keys": [plan.jwtKeys],
    keys: [plan.masterSecret, plan.keyEncryptionKey],
  }[role];
  const reasons = steps.flatMap((step) => ("reason" in step ? [step.reason] : []));
  return reasons.length === 0 ? undefined : [...new Set(reasons)].join("; ");
}

function callOptions(options: ConvergePkiOptions) {
  return options.signal === undefined ? {} : { signal: options.signal };
}
