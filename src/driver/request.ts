import { type ErrorCode, type FieldViolation, OpenShellError } from "../common/errors.ts";
import {
  compareQuantities,
  droppedKeys,
  expectation,
  greatestId,
  type KubernetesSettings,
  kubernetesSchema,
  matchesKey,
  minimumWorkloadMemory,
  oneAmount,
  otherKey,
  overcommittable,
  positiveQuantityPattern,
  reservedPrefixes,
  wholeNumberForm,
  wholeQuantityPattern,
} from "../config/index.ts";
import { mergeResources, publicNamePattern, type SandboxSpec, sandboxIdPattern } from "../manifests/index.ts";
import type { compute } from "../wire/index.ts";
import { isOperators } from "./admission-rules.ts";
import { type DriverConfig, parseDriverConfig } from "./driver-config.ts";

const defaultUid = 10_001;
const shape = kubernetesSchema.shape;
/** Where a caller's placement is in the public template. */
const ofPod = "template.driver_config.kubernetes.pod";
const ofAgent = "template.driver_config.kubernetes.containers.agent";
const typedClassField = "template.runtime_class_name";
/** Resources that the typed template can ask for. */
const typedResources = new Set(["cpu", "memory"]);
const logLevels = ["trace", "debug", "info", "warn", "error"];

/** Facts of the cluster's namespace that a request may depend on. */
export interface NamespaceFacts {
  /** First UID of the range that OpenShift gives the namespace. */
  readonly firstUid?: number;
}

const empty: DriverConfig = {
  nodeSelector: {},
  tolerations: [],
  runtimeClassName: "",
  priorityClassName: "",
  requests: {},
  limits: {},
};

/**
 * A caller's request, checked and normalised: everything that can be said without asking the cluster.
 *
 * @throws invalid-argument with every violation; failed-precondition for what the operator does not allow
 */
export function sandboxSpecOf(
  sandbox: compute.DriverSandbox,
  settings: KubernetesSettings,
  namespace: NamespaceFacts = {},
): SandboxSpec {
  const problems = new Problems();
  const template = sandbox.spec?.template;
  problems.check(sandboxIdPattern.test(sandbox.id), "id", "lower-case letters, digits and '-', at most 36 characters");
  for (const [field, name] of [
    ["name", sandbox.name],
    ["workspace", sandbox.workspace],
  ] as const) {
    problems.check(
      publicNamePattern.test(name),
      field,
      `"${name}" is no DNS label of at most 19 characters without "--"`,
    );
  }
  const driverConfig = driverConfigOf(template?.driverConfig, settings);
  const platform = platformOf(template?.platformConfig, problems);
  const labels = problems.parse(shape.workload_labels, template?.labels ?? {}, "template.labels");
  const annotations = problems.parse(shape.workload_annotations, platform.annotations, "template.annotations");
  allowedMetadata({ labels, annotations }, settings, problems);
  const image = problems.parse(shape.default_image, template?.image ?? "", "template.image");
  problems.check(
    image !== "" || settings.default_image !== "",
    "template.image",
    "name an image; this gateway has no default_image",
  );
  problems.parse(shape.workload_node_selector, driverConfig.nodeSelector, `${ofPod}.node_selector`);
  const resources = resourcesOf(template?.resources, driverConfig, settings, problems);
  const runtimeClassName = platform.runtimeClassName || driverConfig.runtimeClassName;
  const classField = platform.runtimeClassName === "" ? `${ofPod}.runtime_class_name` : typedClassField;
  const { priorityClassName } = driverConfig;
  allowedClasses({ runtimeClassName, priorityClassName }, classField, settings, problems);
  const gpu = sandbox.spec?.resourceRequirements?.gpu;
  problems.check(gpu?.count !== 0, "resource_requirements.gpu.count", "at least 1; leave it out for one GPU");
  problems.check(
    !settings.enable_user_namespaces || template?.userNamespaces !== false,
    "template.user_namespaces",
    "this gateway's operator runs every workload in a user namespace (enable_user_namespaces); leave it out",
  );
  const { uid, gid, supervisorUid } = identityOf(sandbox.spec, settings, namespace, problems);
  const logLevel = sandbox.spec?.logLevel || "info";
  problems.check(logLevels.includes(logLevel), "log_level", `one of ${logLevels.join(", ")}`);
  problems.throwIfAny();
  return {
    id: sandbox.id,
    name: sandbox.name,
    workspace: sandbox.workspace,
    image,
    labels,
    annotations,
    runtimeClassName,
    priorityClassName,
    nodeSelector: driverConfig.nodeSelector,
    tolerations: driverConfig.tolerations,
    resources,
    gpus: gpu === undefined ? {} : { [settings.gpu_resource_name]: gpu.count ?? 1 },
    ...(template?.userNamespaces === undefined ? {} : { userNamespaces: template.userNamespaces }),
    uid,
    gid,
    supervisorUid,
    logLevel,
  };
}

/**
 * What the operator allows today, asked of a sandbox that was made when more was allowed.
 *
 * @throws failed-precondition with everything that is not allowed any more
 */
export function checkStillAllowed(sandbox: SandboxSpec, settings: KubernetesSettings): void {
  const problems = new Problems();
  const { priorityClassName, nodeSelector, tolerations, resources } = sandbox;
  allowedClasses(sandbox, typedClassField, settings, problems);
  allowedMetadata(sandbox, settings, problems);
  // What only driver_config can say.
  const isPlaced = Object.keys(nodeSelector).length > 0 || tolerations.length > 0 || priorityClassName !== "";
  const isSized = [resources.requests, resources.limits].flatMap(Object.keys).some((name) => !typedResources.has(name));
  for (const [field, isUsed] of [
    [ofPod, isPlaced],
    [`${ofAgent}.resources`, isSized],
  ] as const) {
    problems.check(
      settings.allow_driver_config || !isUsed,
      field,
      "driver_config is not allowed (allow_driver_config)",
    );
  }
  problems.throwIfAny("failed-precondition", "NoLongerAllowed");
}

function driverConfigOf(
  value: Readonly<Record<string, unknown>> | undefined,
  settings: KubernetesSettings,
): DriverConfig {
  if (value === undefined || Object.keys(value).length === 0) return empty;
  if (!settings.allow_driver_config) {
    throw new OpenShellError(
      "failed-precondition",
      "driver_config is not allowed on this gateway; the operator can allow it with allow_driver_config = true",
      { reason: "DriverConfigNotAllowed" },
    );
  }
  return parseDriverConfig(value);
}

/** What the gateway made of the public, typed template. */
function platformOf(value: Readonly<Record<string, unknown>> | undefined, problems: Problems) {
  const { runtime_class_name: name = "", annotations = {}, ...unknown } = value ?? {};
  for (const key of Object.keys(unknown)) problems.add(`template.platform_config.${key}`, "unknown field");
  problems.check(
    typeof name === "string" && /^$|^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name),
    "template.runtime_class_name",
    "the name of a RuntimeClass, or empty",
  );
  return {
    runtimeClassName: typeof name === "string" ? name : "",
    annotations: annotations as Record<string, string>,
  };
}

/** The typed template's four quantities lie over driver_config's. */
function resourcesOf(
  typed: compute.DriverResourceRequirements | undefined,
  driverConfig: DriverConfig,
  settings: KubernetesSettings,
  problems: Problems,
): SandboxSpec["resources"] {
  const quantities = {
    "requests.cpu": typed?.cpuRequest ?? "",
    "requests.memory": typed?.memoryRequest ?? "",
    "limits.cpu": typed?.cpuLimit ?? "",
    "limits.memory": typed?.memoryLimit ?? "",
  };
  const asked = { requests: { ...driverConfig.requests }, limits: { ...driverConfig.limits } };
  for (const [path, text] of Object.entries(quantities)) {
    if (text === "") continue;
    const [kind, name] = path.split(".") as ["requests" | "limits", string];
    problems.check(
      positiveQuantityPattern.test(text),
      `template.resources.${path}`,
      `"${text}" is no quantity above zero such as "500m", "2" or "4Gi"; leave it out for the operator's default`,
    );
    asked[kind][name] = text;
  }
  if (problems.any) return asked;
  const fieldOf = (path: string) =>
    (quantities as Record<string, string>)[path] ? `template.resources.${path}` : `${ofAgent}.resources.${path}`;
  const { requests, limits } = mergeResources(settings.workload_resources, asked);
  for (const [name, request] of Object.entries(requests)) {
    const limit = limits[name];
    problems.check(
      limit === undefined || compareQuantities(request, limit) <= 0,
      fieldOf(`requests.${name}`),
      `${request} is above the limit ${limit}`,
    );
    problems.check(
      overcommittable.includes(name) || (limit !== undefined && compareQuantities(request, limit) >= 0),
      fieldOf(`requests.${name}`),
      `${request} has to be its limit as well, ${oneAmount}`,
    );
  }
  for (const [kind, amounts] of Object.entries({ requests, limits })) {
    for (const [name, amount] of Object.entries(amounts)) {
      const isWhole = !name.includes("/") || wholeQuantityPattern.test(amount);
      problems.check(isWhole, fieldOf(`${kind}.${name}`), `${amount} is not ${wholeNumberForm}`);
    }
  }
  const { memory } = limits;
  problems.check(
    memory === undefined || compareQuantities(memory, minimumWorkloadMemory) >= 0,
    fieldOf("limits.memory"),
    `${memory} is below ${minimumWorkloadMemory}, which the runtime and the agent share`,
  );
  return asked;
}

function allowedClasses(
  { runtimeClassName, priorityClassName }: Pick<SandboxSpec, "runtimeClassName" | "priorityClassName">,
  runtimeClassField: string,
  settings: KubernetesSettings,
  problems: Problems,
): void {
  allowed("RuntimeClass", runtimeClassName, settings.allowed_runtime_class_names, runtimeClassField, problems);
  const field = `${ofPod}.priority_class_name`;
  allowed("PriorityClass", priorityClassName, settings.allowed_priority_class_names, field, problems);
}

function allowedMetadata(
  { labels, annotations }: Pick<SandboxSpec, "labels" | "annotations">,
  settings: KubernetesSettings,
  problems: Problems,
): void {
  allowedKeys("template.labels", labels, "allowed_pod_labels", settings, problems);
  allowedKeys("template.annotations", annotations, "allowed_pod_annotations", settings, problems);
}

function allowed(kind: string, name: string, list: readonly string[], field: string, problems: Problems): void {
  if (name === "" || list.includes("*") || list.includes(name)) return;
  problems.add(
    field,
    `${kind} "${name}" is not one that this gateway's operator allows (${list.join(", ") || "none"})`,
  );
}

/** What a caller may put on the workload Pod; what is ours has been refused before. */
function allowedKeys(
  field: string,
  given: Readonly<Record<string, string>>,
  setting: "allowed_pod_labels" | "allowed_pod_annotations",
  settings: KubernetesSettings,
  problems: Problems,
): void {
  for (const key of Object.keys(given)) {
    if (reservedPrefixes.some((prefix) => key.startsWith(prefix))) continue;
    if (setting === "allowed_pod_annotations" && isOperators(key)) {
      problems.add(`${field}.${key}`, "changes how a node runs the Pod; only workload_annotations may have it");
    } else if (!matchesKey(settings[setting], key)) {
      problems.add(
        `${field}.${key}`,
        `is not among this gateway's ${setting} (${settings[setting].join(", ") || "none"})`,
      );
    }
  }
}

/** Numeric user of the policy, else of the workload identity, else the operator's. */
function identityOf(
  spec: compute.DriverSandboxSpec | undefined,
  settings: KubernetesSettings,
  namespace: NamespaceFacts,
  problems: Problems,
): { readonly uid: number; readonly gid: number; readonly supervisorUid: number } {
  const { process } = spec?.policy ?? {};
  const identity = spec?.workloadIdentity;
  const supervisorUid = supervisorUidOf(settings, namespace);
  const user = asked(process?.runAsUser, "policy.process.run_as_user", identity?.user, "workload_identity.user");
  const group = asked(process?.runAsGroup, "policy.process.run_as_group", identity?.group, "workload_identity.group");
  const uid = user.id ?? operatorsUid(settings, namespace);
  const gid = group.id ?? settings.sandbox_gid ?? uid;
  for (const [{ field }, id] of [
    [user, uid],
    [group, gid],
  ] as const) {
    problems.check(id >= 1 && id <= greatestId, field, `${id} is not between 1 and ${greatestId}; root is refused`);
  }
  problems.check(uid !== supervisorUid, user.field, `${uid} is the user of this gateway's supervisors; give another`);
  return { uid, gid, supervisorUid };
}

/** With the user that its supervisors have from its next start on; one that has that number itself was made before it was theirs, and keeps it. */
export function withSupervisorUid(
  sandbox: SandboxSpec,
  settings: KubernetesSettings,
  namespace: NamespaceFacts,
): SandboxSpec {
  const supervisorUid = supervisorUidOf(settings, namespace);
  return sandbox.uid === supervisorUid ? sandbox : { ...sandbox, supervisorUid };
}

/** The user of supervisors: beside the operator's, and none that a caller can have. */
function supervisorUidOf(settings: KubernetesSettings, namespace: NamespaceFacts): number {
  const uid = operatorsUid(settings, namespace);
  return uid < greatestId ? uid + 1 : uid - 1;
}

/** Of whoever asks for no other: the operator's, else the first of the namespace's range, else 10001. */
function operatorsUid(settings: KubernetesSettings, namespace: NamespaceFacts): number {
  return settings.sandbox_uid ?? namespace.firstUid ?? defaultUid;
}

/** The policy's number, else the identity's, and where it was said. */
function asked(policys: string | undefined, field: string, identitys: string | undefined, otherField: string) {
  const [id, other] = [numeric(policys), numeric(identitys)];
  return id === undefined && other !== undefined ? { id: other, field: otherField } : { id, field };
}

function numeric(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : undefined;
}

/** Collects what is wrong, so that a caller learns all of it at once. */
class Problems {
  readonly #violations: FieldViolation[] = [];

  get any(): boolean {
    return this.#violations.length > 0;
  }

  add(field: string, description: string): void {
    this.#violations.push({ field, description });
  }

  check(condition: boolean, field: string, description: string): void {
    if (!condition) this.add(field, description);
  }

  /** The parsed value, or `value` as it is when it was refused. */
  parse<T>(schema: Parser<T>, value: unknown, field: string): T {
    for (const path of droppedKeys(value)) this.add([field, ...path].join("."), otherKey);
    const result = schema.safeParse(value, { error: expectation });
    if (result.success) return result.data;
    for (const { path, message, issues } of result.error.issues) {
      // Of a key that is refused, what is wrong with it is one level below.
      this.add([field, ...path.map(String)].join("."), issues?.[0]?.message ?? message);
    }
    return value as T;
  }

  throwIfAny(code: ErrorCode = "invalid-argument", reason = "InvalidSandbox"): void {
    if (!this.any) return;
    const text = this.#violations.map(({ field, description }) => `${field}: ${description}`).join("; ");
    throw new OpenShellError(code, text, { reason, violations: this.#violations });
  }
}

interface Parser<T> {
  safeParse(value: unknown, options: { readonly error: typeof expectation }): ParseResult<T>;
}

type ParseResult<T> =
  | { readonly success: true; readonly data: T }
  | {
      readonly success: false;
      readonly error: {
        readonly issues: readonly ParseIssue[];
      };
    };

interface ParseIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly issues?: readonly { readonly message: string }[];
}
