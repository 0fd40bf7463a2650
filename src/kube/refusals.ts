/** What in the cluster refused an object. */
export type RefusalKind =
  | "quota"
  | "limit-range"
  | "pod-security"
  | "runtime-class"
  | "priority-class"
  | "service-account"
  | "admission-policy"
  | "webhook"
  | "webhook-unreachable"
  | "namespace-terminating"
  | "foreign-object"
  | "permission"
  | "invalid";

export interface Refusal {
  readonly kind: RefusalKind;
  /** The API server's own words, without what was put before them. */
  readonly message: string;
}

/** In the order in which they are tried: the first whose text is found names the refusal. */
const marks: readonly (readonly [RefusalKind, RegExp])[] = [
  ["namespace-terminating", /because it is being terminated/],
  ["quota", /(exceeded|failed) quota/],
  ["pod-security", /violates PodSecurity/],
  ["runtime-class", /RuntimeClass "[^"]*" not found|pod rejected: RuntimeClass/],
  ["priority-class", /no PriorityClass with name/],
  ["service-account", /error looking up service account/],
  ["limit-range", /(maximum|minimum) \S+ usage per|(memory|cpu|ephemeral-storage) max limit to request ratio/],
  ["admission-policy", /ValidatingAdmissionPolicy '|MutatingAdmissionPolicy '/],
  ["webhook", /admission webhook "/],
  ["webhook-unreachable", /failed calling webhook/],
  ["foreign-object", /is owned by \S+ \(UID: |cannot adopt unowned/],
  ["permission", /User "[^"]*" cannot /],
  ["invalid", / is invalid: /],
];

/**
 * Why the API server refused to make an object, read from its text: it gives no other sign, and the Agent Sandbox
 * controller passes on nothing but the text ("Error seen: ...").
 *
 * @returns undefined when the text is no refusal that is known, such as a timeout
 */
export function refusalOf(text: string): Refusal | undefined {
  const message = text.replace(/^Error seen: /, "");
  const kind = marks.find(([, mark]) => mark.test(message))?.[0];
  return kind === undefined ? undefined : { kind, message };
}
