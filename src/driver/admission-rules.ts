import { compareQuantities, isQuantity } from "../config/index.ts";
import { annotations, bootstrapGate, labels, volumes } from "../manifests/index.ts";
import { isPlainObject, type JsonObject, same } from "./_json.ts";

/** Facts of the cluster that decide whether a change is one that admission is known to make. */
export interface RuleContext {
  readonly runtimeClass?:
    | { readonly overhead?: JsonObject; readonly nodeSelector?: Readonly<Record<string, string>> }
    | undefined;
  /** The PriorityClass that the Pod names, or the cluster's default one. */
  readonly priorityClass?:
    | { readonly name: string; readonly value: number; readonly preemptionPolicy: string }
    | undefined;
  readonly imageRewrites: Readonly<Record<string, string>>;
  /** The claim that the Agent Sandbox controller mounts as the workspace; only in the workload Pod. */
  readonly workspaceClaim?: string | undefined;
  /** False once the Pod was released. */
  readonly gated: boolean;
  /** Rules that take the place of those of the same path. */
  readonly rules?: Readonly<Record<string, Rule>>;
}

export interface Rule {
  /** Why the difference is harmless. */
  readonly why: string;
  tolerates(expected: unknown, admitted: unknown, context: RuleContext): boolean;
}

const seLinuxLevel: Rule = {
  why: "an SCC gives each namespace its own SELinux level, which only confines more; a type may do the opposite",
  tolerates: (expected, admitted) =>
    contains(admitted, expected) && addedKeys(expected, admitted).every((key) => key === "level"),
};

/**
 * What admission may change, by field path (`[]` stands for an item of a list). Everything that is not here must be as it was asked for; a
 * new field of the Pod API is a violation until somebody has thought about it.
 */
export const admissionRules: Readonly<Record<string, Rule>> = {
  "metadata.labels": {
    why: "more labels are harmless, except ours and the controller's: those decide what a Pod is and which policies select it",
    tolerates: (expected, admitted) =>
      contains(admitted, expected) && addedKeys(expected, admitted).every((key) => !isReservedLabel(key)),
  },
  "metadata.annotations": {
    why: "more annotations are harmless, except those that a container runtime, CNI or device plugin acts on",
    tolerates: (expected, admitted, { gated }) =>
      contains(admitted, expected) &&
      addedKeys(expected, admitted).every((key) => !actsOnNode(key) || (!gated && comesWithNode(key))),
  },
  "spec.schedulingGates": {
    why: "other controllers may hold a Pod longer; ours has to be there until we take it away",
    tolerates: (_expected, admitted, { gated }) => names(admitted).includes(bootstrapGate) === gated,
  },
  "spec.nodeName": {
    why: "the scheduler's answer, once the Pod was released",
    tolerates: (_expected, admitted, { gated }) => !gated || admitted === undefined,
  },
  "spec.tolerations": {
    why: "more tolerations let a Pod run in more places; DefaultTolerationSeconds and RuntimeClasses add some to every Pod",
    tolerates: (expected, admitted) =>
      listOf(expected).every((item) => listOf(admitted).some((other) => same(item, other))),
  },
  "spec.nodeSelector": {
    why: "a RuntimeClass adds the labels of the nodes that can run it",
    tolerates: (expected, admitted, { runtimeClass }) =>
      contains(admitted, expected) &&
      addedKeys(expected, admitted).every((key) => (admitted as JsonObject)[key] === runtimeClass?.nodeSelector?.[key]),
  },
  "spec.overhead": {
    why: "a RuntimeClass says what its sandbox costs",
    tolerates: (_expected, admitted, { runtimeClass }) => same(admitted, runtimeClass?.overhead),
  },
  "spec.affinity.nodeAffinity": {
    why: "more node affinity narrows where a Pod may run; what was asked for has to stay",
    tolerates: (expected, admitted) => nodeAffinityKept(expected, admitted),
  },
  "spec.priority": {
    why: "the number of the Pod's PriorityClass",
    tolerates: (_expected, admitted, { priorityClass }) =>
      admitted === (priorityClass?.value ?? 0) || admitted === undefined,
  },
  "spec.priorityClassName": {
    why: "the cluster's default class, where the Pod names none",
    tolerates: (expected, admitted, { priorityClass }) =>
      same(expected, admitted) || (same(expected, undefined) && admitted === priorityClass?.name),
  },
  "spec.preemptionPolicy": {
    why: "the policy of the Pod's PriorityClass",
    tolerates: (_expected, admitted, { priorityClass }) =>
      admitted === undefined || admitted === (priorityClass?.preemptionPolicy ?? "PreemptLowerPriority"),
  },
  "spec.imagePullSecrets": {
    why: "ServiceAccounts and webhooks add pull Secrets",
    tolerates: (expected, admitted) => names(expected).every((name) => names(admitted).includes(name)),
  },
  "spec.serviceAccount": {
    why: "the deprecated twin of serviceAccountName, which is compared",
    tolerates: () => true,
  },
  "spec.shareProcessNamespace": {
    why: "a supervisor that an earlier gateway made has none of it, which costs it a signal while it boots and opens nothing",
    tolerates: (expected, admitted) => same(expected, admitted) || admitted === undefined,
  },
  "spec.dnsPolicy": defaultsTo("ClusterFirst"),
  "spec.schedulerName": defaultsTo("default-scheduler"),
  "spec.securityContext.seLinuxOptions": seLinuxLevel,
  "spec.securityContext.supplementalGroupsPolicy": defaultsTo("Merge"),
  "spec.volumes[]": {
    why: "the controller adds the workspace volume from the Sandbox's claim template",
    tolerates: (expected, admitted, { workspaceClaim }) =>
      sameVolume(expected, admitted) ||
      (expected === undefined &&
        workspaceClaim !== undefined &&
        same(admitted, { name: volumes.workspace, persistentVolumeClaim: { claimName: workspaceClaim } })),
  },
  ...containerRules("spec.containers[]"),
  ...containerRules("spec.initContainers[]"),
};

function containerRules(path: string): Record<string, Rule> {
  return {
    [`${path}.image`]: {
      why: "a digest pins the same image; an operator may allow a registry to be replaced",
      tolerates: (expected, admitted, { imageRewrites }) =>
        sameImage(String(expected), String(admitted), imageRewrites),
    },
    [`${path}.imagePullPolicy`]: {
      why: "AlwaysPullImages, and the default that follows from the tag",
      tolerates: (expected, admitted) =>
        admitted === "Always" || admitted === expected || (expected === undefined && admitted === "IfNotPresent"),
    },
    [`${path}.resources`]: {
      why: "raised resources, and a LimitRange's defaults where nothing was asked for",
      tolerates: (expected, admitted) => resourcesKept(expected, admitted),
    },
    [`${path}.terminationMessagePath`]: defaultsTo("/dev/termination-log"),
    [`${path}.securityContext.seLinuxOptions`]: seLinuxLevel,
    [`${path}.securityContext.procMount`]: defaultsTo("Default"),
    [`${path}.volumeMounts[].recursiveReadOnly`]: defaultsTo("Disabled"),
  };
}

/** The API server fills the field in where it is absent. */
function defaultsTo(value: string): Rule {
  return {
    why: `the API server's default is ${value}`,
    tolerates: (expected, admitted) => same(expected, admitted) || (expected === undefined && admitted === value),
  };
}

const controllerLabels = ["agents.x-k8s.io/sandbox-name-hash", "agents.x-k8s.io/created-by"];

function isReservedLabel(key: string): boolean {
  if (controllerLabels.includes(key)) return false;
  const ours: readonly string[] = Object.values(labels);
  return ours.includes(key) || /^(internal\.)?openshell\.ai\/|^agents\.x-k8s\.io\//.test(key);
}

/** Annotations by which somebody could change how a node runs the Pod, with what acts on them. Callers may not set them either. */
const nodeActing: readonly RegExp[] = [
  /^k8s\.v1\.cni\.cncf\.io\//, // Multus: more network interfaces, past the fence
  /^v1\.multus-cni\.io\//,
  /^cdi\.k8s\.io\//, // Container Device Interface: devices of the host
  /^io\.kubernetes\.cri(-o)?\./, // CRI-O and containerd: user namespaces, devices, what a container is to the runtime
  /(^|\.)cri-?o\.io(\/|$)/, // CRI-O: the same in its newer spelling, seccomp profiles, CPU switches
  /^io\.containers\./, // hooks that trace system calls
  /^bundle$|^org\.(systemd\.property|criu)\./, // runc: properties of the systemd unit, files of the host
  /^run\.oci\.|^module\.wasm\.image\//, // crun: handlers, seccomp receivers, the user's own groups
  /^io\.katacontainers\./, // Kata: hypervisor and agent settings
  /^dev\.gvisor\./, // gVisor: host file system and network switches
  /^container\.(apparmor|seccomp)\./, // the former AppArmor and seccomp switches
  /^seccomp\.security\.alpha\.kubernetes\.io\//,
  /^cni\.projectcalico\.org\//, // Calico: addresses of others, packets from other sources, ways in from outside
  /^k8s\.ovn\.org\//, // OVN-Kubernetes: the Pod as a gateway of other namespaces
  // NRI plugins: devices, mounts, limits; that some have to be there only holds a container back
  /^(?!required-plugins\.)(.+\.)?(nri\.io|nri\.containerd\.io|noderesource\.dev)(\/|$)/,
  /^(internal\.)?openshell\.ai\//,
];

/** True for an annotation that a container runtime, CNI or device plugin acts on. */
export function actsOnNode(key: string): boolean {
  return nodeActing.some((pattern) => pattern.test(key));
}

/** Kube-OVN says what it gave under the keys by which it is asked: there is nothing to be told from them in a Pod, and a caller has none. */
const askedAndGiven = /(^|\.)ovn\.kubernetes\.io\//;

/** True for an annotation that is an operator's to set. */
export function isOperators(key: string): boolean {
  return actsOnNode(key) || askedAndGiven.test(key);
}

/** What our own release writes, and what a CNI says that it gave: nobody acts on it. */
export function comesWithNode(key: string): boolean {
  return (
    key === annotations.peerUid ||
    key === annotations.releaseSeal ||
    /^k8s\.v1\.cni\.cncf\.io\/networks?-status$/.test(key) ||
    /^cni\.projectcalico\.org\/(podIPs?|containerID)$/.test(key) ||
    /^k8s\.ovn\.org\/(pod-networks$|dpu\.)/.test(key)
  );
}

export function contains(admitted: unknown, expected: unknown): boolean {
  const there = isPlainObject(admitted) ? admitted : {};
  return Object.entries(isPlainObject(expected) ? expected : {}).every(([key, value]) => same(value, there[key]));
}

function addedKeys(expected: unknown, admitted: unknown): string[] {
  const asked = isPlainObject(expected) ? expected : {};
  return Object.keys(isPlainObject(admitted) ? admitted : {}).filter((key) => !(key in asked));
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Names of the items of a list. */
export function names(value: unknown): string[] {
  return listOf(value).map((item) => (isPlainObject(item) ? String(item.name) : ""));
}

function nodeAffinityKept(expected: unknown, admitted: unknown): boolean {
  const [asked, there] = [isPlainObject(expected) ? expected : {}, isPlainObject(admitted) ? admitted : {}];
  const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
  const required = "requiredDuringSchedulingIgnoredDuringExecution";
  const preferredKept = listOf(asked[preferred]).every((term) =>
    listOf(there[preferred]).some((other) => same(term, other)),
  );
  const terms = (side: JsonObject) =>
    listOf((side[required] as JsonObject | undefined)?.nodeSelectorTerms) as JsonObject[];
  if (terms(asked).length === 0) return preferredKept;
  // Terms are alternatives: each that was admitted has to hold all of one that was asked for.
  const narrows = (term: JsonObject, other: JsonObject) =>
    ["matchExpressions", "matchFields"].every((key) =>
      listOf(other[key]).every((one) => listOf(term[key]).some((each) => same(each, one))),
    );
  return (
    preferredKept &&
    terms(there).length > 0 &&
    terms(there).every((term) => terms(asked).some((other) => narrows(term, other)))
  );
}

function sameImage(expected: string, admitted: string, rewrites: Readonly<Record<string, string>>): boolean {
  const [name] = admitted.split("@sha256:");
  const candidates = [
    expected,
    ...Object.entries(rewrites)
      .filter(([prefix]) => expected.startsWith(prefix))
      .map(([prefix, replacement]) => replacement + expected.slice(prefix.length)),
  ];
  return candidates.some((image) => image === admitted || (!image.includes("@") && image === name));
}

/** What a LimitRange may bound where nothing was asked for. Any other name is a device of the node, which is nobody's to add. */
const boundedResources = ["cpu", "memory", "ephemeral-storage"];

/** Nothing but amounts, and of nothing but what was asked for or may be bounded. */
export function namesKnown(expected: unknown, admitted: unknown): boolean {
  const [asked, there] = [isPlainObject(expected) ? expected : {}, isPlainObject(admitted) ? admitted : {}];
  if (Object.keys(there).some((key) => key !== "requests" && key !== "limits")) return false;
  const names = (resources: JsonObject) =>
    ["requests", "limits"].flatMap((kind) => Object.keys((resources[kind] ?? {}) as JsonObject));
  const known = new Set([...boundedResources, ...names(asked)]);
  return names(there).every((name) => known.has(name));
}

function resourcesKept(expected: unknown, admitted: unknown): boolean {
  const [asked, there] = [isPlainObject(expected) ? expected : {}, isPlainObject(admitted) ? admitted : {}];
  if (!namesKnown(asked, there)) return false;
  return ["requests", "limits"].every((kind) =>
    Object.entries((asked[kind] ?? {}) as JsonObject).every(([name, value]) => {
      const actual = ((there[kind] ?? {}) as JsonObject)[name];
      return isAmount(value) && isAmount(actual) && compareQuantities(actual, value) >= 0;
    }),
  );
}

function isAmount(value: unknown): value is string {
  return typeof value === "string" && isQuantity(value);
}

/** The API server fills in file modes and the pull policy of an image volume; the rest is compared. */
function sameVolume(expected: unknown, admitted: unknown): boolean {
  if (!isPlainObject(expected) || !isPlainObject(admitted)) return false;
  const image = expected.image;
  if (!isPlainObject(image) || !isPlainObject(admitted.image)) return same(expected, admitted);
  const pullPolicy = image.pullPolicy ?? admitted.image.pullPolicy;
  return same({ ...expected, image: { ...image, pullPolicy } }, admitted);
}
