/** The grammars that settings share. A refinement's message says what was expected; the parser adds the path, the line and what was found. */
import { z } from "zod";
import { noticeableDurationPattern } from "./duration.ts";
import { positiveQuantityPattern } from "./quantity.ts";

/** A DNS-1123 label of any length. */
export const dnsLabel = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const dnsSubdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const labelName = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

/** The parts of an image reference, each without anchors. */
const imageParts = {
  host: "[a-z0-9][-a-z0-9.]*(:\\d+)?",
  path: "[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*",
  tag: "[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}",
  digest: "sha256:[0-9a-f]{64}",
};
const imageRepository = `(${imageParts.host}/)?${imageParts.path}`;
const imageReference = new RegExp(`^${imageRepository}(:${imageParts.tag})?(@${imageParts.digest})?$`);

/** As a certificate and an Ingress name one: in lower case, and no address in numbers. */
const hostLabel = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
const host = `(${hostLabel}\\.)*[a-z]([-a-z0-9]{0,61}[a-z0-9])?`;

/** Label and annotation prefixes that only OpenShell and the Agent Sandbox controller write. */
export const reservedPrefixes = ["openshell.ai/", "internal.openshell.ai/", "agents.x-k8s.io/"] as const;

/*
 * Patterns reach values.schema.json, where Helm refuses a wrong value before anything is rendered. Helm's engine is RE2: no look-around.
 */

/** Text of a form and of a greatest length, which the pattern alone would not bound. Each step of a chain of methods would copy the schema. */
function form(pattern: RegExp, maxLength: number, error: string) {
  return z.string().check(z.regex(pattern, { error }), z.maxLength(maxLength, { error }));
}

/** The same form, or the empty string. */
export const orEmpty = (pattern: RegExp) => new RegExp(`^$|${pattern.source}`);

/** A DNS-1123 label: names of namespaces and Services. */
export const dnsLabelName = (maxLength = 63) =>
  form(dnsLabel, maxLength, `a DNS label: lower-case letters, digits and '-', at most ${maxLength} characters`);

const objectNameForm = "a Kubernetes object name: lower-case letters, digits, '-' and '.', at most 253 characters";

/** A DNS-1123 subdomain: most Kubernetes object names. */
export const objectName = () => form(dnsSubdomain, 253, objectNameForm);

/** An object name, or the empty string for none. */
export const optionalObjectName = () => form(orEmpty(dnsSubdomain), 253, `empty, or ${objectNameForm}`);

/** A DNS-1123 label, or the empty string for none. */
export const optionalDnsLabelName = () =>
  form(orEmpty(dnsLabel), 63, "empty, or a DNS label: lower-case letters, digits and '-', at most 63 characters");

const nameOrWildcard = new RegExp(`^(\\*\\.)?${host}$`);
const hostForm =
  "a host name such as \"gateway.example.com\": lower-case letters, digits, '-' and '.', no address in numbers";

/** A host name, or the empty string for none. */
export const optionalHostName = () => form(orEmpty(new RegExp(`^${host}$`)), 253, `empty, or ${hostForm}`);

/** A host name, or all names directly below one as `*.example.com`. */
export const hostNameOrWildcard = () =>
  form(nameOrWildcard, 253, `${hostForm}; or "*.example.com" for all directly below one`);

/** The same form where only the chart holds anybody to it. */
export const hostNameForChart = () => z.string().meta({ maxLength: 253, pattern: nameOrWildcard.source });

/** An address of IPv4 or IPv6, without brackets or a port. */
export const ipAddress = () =>
  z.union([z.ipv4(), z.ipv6()], { error: 'an address such as "192.0.2.10" or "2001:db8::10"' });

/** A network of IPv4 or IPv6: an address and how many bits of it count. */
export const network = () =>
  z.union([z.cidrv4(), z.cidrv6()], { error: 'a network such as "192.0.2.0/24" or "2001:db8::/32"' });

/** The parts of an image reference, or the empty string where something else says it. */
export const imagePart = {
  registry: () =>
    z.string().regex(new RegExp(`^$|^${imageParts.host}(/${imageParts.path})?/?$`), {
      error: 'empty, or a registry such as "registry.example.com:5000/team"',
    }),
  repository: () =>
    z.string().regex(new RegExp(`^$|^${imageRepository}$`), {
      error: 'empty, or the name of an image such as "team/image", without tag or digest',
    }),
  tag: () => z.string().regex(new RegExp(`^$|^${imageParts.tag}$`), { error: 'empty, or a tag such as "1.2.3"' }),
  digest: () =>
    z.string().regex(new RegExp(`^$|^${imageParts.digest}$`), { error: "empty, or a digest such as sha256:…" }),
};

/** Object names, or "*" for any. */
export const allowedNames = () =>
  z.array(z.union([z.literal("*"), objectName()], { error: `${objectNameForm}; or "*" for any` })).default(["*"]);

const quantityForm = 'a Kubernetes quantity above zero such as "500m", "1.5" or "2Gi"';

export const quantity = () => z.string().regex(positiveQuantityPattern, { error: quantityForm });

/** A quantity, or the empty string, which removes the default of the same key. */
export const removableQuantity = () =>
  z.string().regex(orEmpty(positiveQuantityPattern), { error: `${quantityForm}, or "" to remove the default` });

/** Of at least one second: none at all would be over as soon as it begins. */
export const duration = () =>
  z.string().regex(orEmpty(noticeableDurationPattern), {
    error: 'a duration of at least one second such as "30s", "10m" or "2h", or "" for none',
  });

/** An image reference, or the empty string where the setting allows none. */
export const image = (empty: "may-be-empty" | "required") =>
  z.string().regex(empty === "required" ? imageReference : orEmpty(imageReference), {
    error: 'an image reference such as "registry.example.com/team/image:1.2.3"',
  });

export const port = (min: number) => z.int().check(z.gte(min), z.lte(65_535));

/** `ip:port`, with brackets around an IPv6 address; the empty string switches an optional listener off. */
export const bindAddress = (empty: "may-be-empty" | "required") =>
  z.string().refine((text) => (text === "" ? empty === "may-be-empty" : splitBindAddress(text) !== undefined), {
    error: 'an address and a port such as "0.0.0.0:8080" or "[::]:8080"',
  });

/** The parts of an `ip:port` setting, undefined when it has another form. */
export function splitBindAddress(text: string): { host: string; port: number } | undefined {
  const [, six, four = "", digits] = /^(?:\[([0-9A-Fa-f:.]+)\]|([\d.]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = six ?? four;
  const port = Number(digits);
  const isAddress = six === undefined ? z.regexes.ipv4.test(four) : URL.canParse(`http://[${six}]`);
  if (!isAddress || port > 65_535) return undefined;
  return { host, port };
}

const endpointForm = 'an endpoint such as "https://gateway.example.com:8080", without path, query or user';

/** `http(s)://host:port` without path, query or user; empty where it is derived. */
export const endpoint = () =>
  z
    .string()
    .regex(/^$|^https?:\/\/[^\s/?#@]+\/?$/, { error: endpointForm })
    .refine((text) => text === "" || isEndpoint(text), { error: endpointForm });

function isEndpoint(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  const bare =
    url.pathname === "/" && url.search === "" && url.hash === "" && url.username === "" && url.password === "";
  return bare && (url.protocol === "http:" || url.protocol === "https:");
}

const qualifiedNameForm = 'a key such as "team" or "example.com/team"';

function isQualifiedName(key: string): boolean {
  const slash = key.indexOf("/");
  const prefix = slash < 0 ? undefined : key.slice(0, slash);
  const name = key.slice(slash + 1);
  if (prefix !== undefined && !(dnsSubdomain.test(prefix) && prefix.length <= 253)) return false;
  return labelName.test(name) && name.length <= 63;
}

const qualifiedKey = new RegExp(`^(${dnsSubdomain.source.slice(1, -1)}/)?${labelName.source.slice(1)}`);
/** A key of labels or annotations. */
export const qualifiedName = z
  .string()
  .regex(qualifiedKey, { error: qualifiedNameForm })
  .refine(isQualifiedName, { error: qualifiedNameForm });

/**
 * What no key may be, though Kubernetes would take the one: a value with a key `constructor` of its own cannot be rendered, and zod leaves
 * `__proto__` out of a map before any check of its keys.
 */
export const otherKey = 'a key other than "constructor" and "__proto__"';

/** A key of a map of labels or annotations, or of a selector. */
const mapKey = qualifiedName.refine((key) => key !== "constructor", { error: otherKey });

/** Where plain data of any depth has a key `__proto__`, to be refused with {@link otherKey}. */
export function droppedKeys(value: unknown): (string | number)[][] {
  if (typeof value !== "object" || value === null) return [];
  const within = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return within.flatMap(([key, inner]) =>
    key === "__proto__" ? [[key]] : droppedKeys(inner).map((path) => [key, ...path]),
  );
}

/** Prefixes that the keys of a map must not have. */
export interface ReservedKeys {
  readonly prefixes: readonly string[];
  /** Why not, and what to do. */
  readonly remedy: string;
}

/** What OpenShell and Agent Sandbox keep to themselves. */
export const reservedKeys: ReservedKeys = {
  prefixes: reservedPrefixes,
  remedy: "has a prefix that only OpenShell and Agent Sandbox write; choose another",
};

/** Keys with none of these prefixes. JSON Schema has no word for it with which Helm would name the place: the chart has guards. */
function keyOutside(reserved: readonly ReservedKeys[], error: string) {
  const prefixes = reserved.flatMap((each) => each.prefixes);
  return mapKey.refine((key) => !prefixes.some((prefix) => key.startsWith(prefix)), { error }).meta({ reserved });
}

/** A key such as `team` or `example.com/team`, or the empty string for none: what names classes of load balancers and protocols too. */
export const optionalQualifiedName = () =>
  z.string().regex(orEmpty(qualifiedKey), { error: `empty, or ${qualifiedNameForm}` });

const ownKey = keyOutside([reservedKeys], `a key outside the reserved prefixes ${reservedPrefixes.join(", ")}`);

const podSecurityPrefix = "pod-security.kubernetes.io/";
const namespaceKey = keyOutside(
  [
    reservedKeys,
    { prefixes: [podSecurityPrefix], remedy: "is decided by managed_namespaces.pod_security; set that instead" },
  ],
  `a key outside the reserved prefixes ${reservedPrefixes.join(", ")}, and outside ${podSecurityPrefix}, which pod_security decides about`,
);

/** The value of a label, which may be empty. */
export const labelValue = form(
  orEmpty(labelName),
  63,
  "a label value: letters, digits, '-', '_' and '.', at most 63 characters",
);

const selectorForm = 'a label such as "example.com/workspace" or "example.com/workspace=true"';
const selector = new RegExp(`^$|${qualifiedKey.source.slice(0, -1)}(=(${labelName.source.slice(1, -1)})?)?$`);

/** `key` or `key=value`, or the empty string for none. */
export const labelSelector = () =>
  z
    .string()
    .regex(selector, { error: selectorForm })
    .refine(
      (text) => {
        const [key = "", value = ""] = text.split("=");
        return text === "" || (isQualifiedName(key) && value.length <= 63);
      },
      { error: selectorForm },
    );

/** Labels that an operator adds to a Pod. */
export const labels = () => z.record(ownKey, labelValue);

/** Labels that an operator adds to a namespace; its Pod Security is a setting of its own, which a policy of the cluster holds the gateway to. */
export const namespaceLabels = () => z.record(namespaceKey, labelValue);

const keyGroup = new RegExp(`^(\\*|${dnsSubdomain.source.slice(1, -1)}/\\*)$`);

/** Keys of labels or annotations: one by its name, all of a domain as `example.com/*`, or `*` for any. */
export const keyPatterns = () =>
  z.array(
    z.union([z.string().regex(keyGroup), qualifiedName], {
      error: `${qualifiedNameForm}, all of a domain as "example.com/*", or "*"`,
    }),
  );

/** Whether one of {@link keyPatterns} names the key. */
export function matchesKey(patterns: readonly string[], key: string): boolean {
  return patterns.some((pattern) =>
    pattern === "*" || pattern.endsWith("/*") ? key.startsWith(pattern.slice(0, -1)) : key === pattern,
  );
}

/** Annotations that an operator adds to a Pod. */
export const annotations = () => z.record(ownKey, z.string());

const extendedName = "an extended resource such as nvidia.com/gpu, outside kubernetes.io/";

const extendedKey = new RegExp(qualifiedKey.source.replace("/)?", "/)"));

/** Name of an extended resource: what a device plugin calls its devices. */
export const extendedResource = () =>
  z
    .string()
    .regex(extendedKey, { error: extendedName })
    .refine((key) => isQualifiedName(key) && !/(^|\.)kubernetes\.io\//.test(key), { error: extendedName });

const resourceKey =
  /^(cpu|memory|ephemeral-storage|hugepages-\d+[KMG]i|[a-z0-9]([-a-z0-9.]*[a-z0-9])?\/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$/;

/** What a container may ask for: one of Kubernetes' own resources, or an extended one with its domain. */
export const resourceName = () =>
  z.string().regex(resourceKey, {
    error:
      'cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or an extended resource such as "nvidia.com/gpu"',
  });

/** Annotations with any key. */
export const anyAnnotations = () => z.record(mapKey, z.string());

/** Labels with any key, such as those of a node. */
export const anyLabels = () => z.record(mapKey, labelValue);

/** The fields of a toleration that are written alike everywhere; only `tolerationSeconds` has another name in driver_config. */
export const tolerationFields = {
  key: z
    .string()
    .regex(orEmpty(qualifiedKey), { error: `${qualifiedNameForm}, or "" for every taint` })
    .optional(),
  operator: z.enum(["Exists", "Equal"]).optional(),
  value: labelValue.optional(),
  effect: z.enum(["NoSchedule", "PreferNoSchedule", "NoExecute"]).optional(),
};

/**
 * The rules between the fields of a toleration, for `superRefine`. The API server knows them too, but only when a Pod is made.
 * @param seconds the field that says how long
 * @param sentence what is said of what was expected. @default it alone
 */
export function tolerationRules(seconds: string, sentence = (expected: string) => expected) {
  return (given: Readonly<Record<string, unknown>>, context: z.core.$RefinementCtx): void => {
    const { key = "", operator = "Equal", value = "", effect } = given;
    // At the field that has to go, or the toleration itself.
    const refuse = (path: string[], expected: string) =>
      context.addIssue({ code: "custom", path, message: sentence(expected) });
    if (operator === "Equal" && key === "")
      refuse([], 'a toleration with a key, or with operator "Exists" for every taint');
    if (operator === "Exists" && value !== "")
      refuse(["value"], 'no value, since operator "Exists" looks at the key alone');
    if (given[seconds] !== undefined && effect !== "NoExecute")
      refuse([seconds], 'no time, or effect "NoExecute" beside it');
  };
}

/** A keyword of JSON Schema: whatever is as `when` says is as `follows` says. */
export const implication = (when: object, follows: object, otherwise = {}) => ({
  if: when,
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: follows,
  ...otherwise,
});
/** A field that is there and fits a schema. */
export const withField = (name: string, schema: object) => ({ properties: { [name]: schema }, required: [name] });
/** The same rules as Helm reads them. */
const tolerationKeywords = [
  implication(
    withField("operator", { const: "Exists" }),
    { properties: { value: { enum: ["", null] } } },
    { else: withField("key", { type: "string", minLength: 1 }) },
  ),
  implication(withField("tolerationSeconds", { type: "integer" }), withField("effect", { const: "NoExecute" })),
];

/** A Kubernetes toleration as the Pod spec has it. */
export const toleration = () =>
  z
    .strictObject({ ...tolerationFields, tolerationSeconds: z.int().optional() })
    .superRefine(tolerationRules("tolerationSeconds"))
    .meta({ description: "A toleration of the Pod spec, in Kubernetes' own field names.", allOf: tolerationKeywords });
