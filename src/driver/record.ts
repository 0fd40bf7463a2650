import { createHash, randomBytes } from "node:crypto";
import { z } from "zod";
import { cut, longestText } from "../common/cut.ts";
import { OpenShellError } from "../common/errors.ts";
import { defaultSettings } from "../config/index.ts";
import {
  annotations,
  type GatewayFacts,
  type GenerationSettings,
  generationSettingNames,
  type PairProps,
  type SandboxSpec,
} from "../manifests/index.ts";
import { conditionTypes, reasons } from "./reasons.ts";

/**
 * All that the driver knows of a sandbox besides the live objects themselves: kept as one annotation of the CR, so that a restarted gateway
 * continues where the former stopped. Versioned JSON without secrets.
 */
export interface GenerationRecord {
  readonly version: 1;
  /** What the driver brings about. `failed` is `stopped` with a reason to show. */
  readonly intent: "running" | "stopped" | "failed";
  readonly sandbox: SandboxSpec;
  /** In force when the generation began. */
  readonly settings: GenerationSettings;
  readonly gateway: Omit<GatewayFacts, "id">;
  readonly generation: PairProps["generation"];
  /** First session of this generation; later ones are replacements of a lost supervisor. */
  readonly firstSession: number;
  /** First 16 hex digits of the SHA-256 of the master secret that the generation's key is derived from. */
  readonly masterKid: string;
  /** RFC 3339. */
  readonly startedAt: string;
  /** The workspace volume holds the image's files. */
  readonly seeded: boolean;
  /** UID of the current session's supervisor Pod, once the CR runs. */
  readonly supervisorUid?: string | undefined;
  /** UID of the workload Pod, once its agent container ran: another Pod of this generation is not this workload. */
  readonly workloadUid?: string | undefined;
  /** UIDs of Pods that gave up their node because their peer fitted nowhere else, oldest first. */
  readonly placement?: { readonly evicted: readonly string[] } | undefined;
  /** UID of the current session's supervisor Pod once it is to be made anew, since another build of the gateway made it: it is no lost one. */
  readonly outdated?: string | undefined;
  /** When supervisors of this generation were replaced, RFC 3339, oldest first; those of the last hour. */
  readonly replacedAt?: readonly string[] | undefined;
  readonly failure?: Failure | undefined;
  /** Of the CR that carries the record; absent only in the one that a CR is made with. */
  readonly resourceUid?: string | undefined;
  /** The record and its Pods' releases are bound to UIDs. Absent: it began under a gateway that bound neither. */
  readonly bindsUids?: true | undefined;
}

export interface Failure {
  readonly condition: (typeof conditionTypes)[number];
  readonly reason: keyof typeof reasons;
  readonly message: string;
}

/** What a generation may begin with. The few words and UIDs that the driver adds later always have room. */
export const maxRecordBytes = 32 * 1024;

const strings = z.record(z.string(), z.string());
const affinity = z.record(z.string(), z.unknown());
const quantities = z.object({ requests: strings, limits: strings });

/** Settings that are tables of settings: one in them may be younger than the record as well. */
const tables: ReadonlySet<string> = new Set<keyof GenerationSettings>(["sandbox_runtime", "supervisor_replacement"]);

/**
 * Settings are kept as they were in force, so they are not parsed again: merging with defaults a second time would bring back what an operator
 * removed. One that is missing is younger than the record, and its default says what was done before.
 */
const generationSettingsSchema = z.record(z.string(), z.unknown()).transform((kept, context) => {
  const defaults = defaultSettings().kubernetes;
  const wrong = generationSettingNames.find((name) => name in kept && typeof kept[name] !== typeof defaults[name]);
  if (wrong !== undefined) context.addIssue(`setting ${wrong} is of another type`);
  const settings = generationSettingNames.map((name) => [
    name,
    tables.has(name) ? { ...(defaults[name] as object), ...(kept[name] as object) } : (kept[name] ?? defaults[name]),
  ]);
  return Object.fromEntries(settings) as GenerationSettings;
});

const recordSchema = z.object({
  version: z.literal(1),
  intent: z.enum(["running", "stopped", "failed"]),
  sandbox: z.object({
    id: z.string(),
    name: z.string(),
    workspace: z.string(),
    image: z.string(),
    labels: strings,
    annotations: strings,
    runtimeClassName: z.string(),
    priorityClassName: z.string(),
    nodeSelector: strings,
    tolerations: z.array(z.looseObject({})),
    resources: quantities,
    gpus: z.record(z.string(), z.int()),
    userNamespaces: z.boolean().optional(),
    uid: z.int(),
    gid: z.int(),
    supervisorUid: z.int().optional(),
    logLevel: z.string(),
  }),
  settings: generationSettingsSchema,
  gateway: z.object({ endpoint: z.string(), fenceTargets: z.array(z.string()), hasCa: z.boolean() }),
  generation: z.object({
    id: z.string(),
    session: z.int().min(1),
    seeded: z.boolean(),
    foreignAffinity: affinity,
  }),
  firstSession: z.int().min(1),
  masterKid: z.string(),
  startedAt: z.string(),
  seeded: z.boolean(),
  supervisorUid: z.string().optional(),
  workloadUid: z.string().optional(),
  placement: z.object({ evicted: z.array(z.string()) }).optional(),
  outdated: z.string().optional(),
  replacedAt: z.array(z.string()).optional(),
  failure: z
    .object({
      condition: z.enum(conditionTypes),
      reason: z.enum(Object.keys(reasons) as [keyof typeof reasons]),
      message: z.string(),
    })
    .optional(),
  resourceUid: z.string().optional(),
  bindsUids: z.literal(true).optional(),
});

/**
 * Never refuses: an end has to be written whatever the record holds. The cluster's own words may be whole objects (a webhook's refusal, a patch
 * that may not be): their beginning has to do.
 */
export function writeRecord(record: GenerationRecord): string {
  const { failure } = record;
  if (failure === undefined) return JSON.stringify(record);
  return JSON.stringify({ ...record, failure: { ...failure, message: cut(failure.message, longestText) } });
}

/** @throws invalid-argument when a generation would begin with a larger record than one may */
export function requireRoom(record: GenerationRecord): void {
  const bytes = Buffer.byteLength(writeRecord(record));
  if (bytes <= maxRecordBytes) return;
  throw new OpenShellError(
    "invalid-argument",
    `the sandbox's labels, annotations and placement need ${bytes} bytes in its generation record; ${maxRecordBytes} is the limit`,
  );
}

export type ReadRecord =
  | { readonly ok: true; readonly record: GenerationRecord }
  | {
      readonly ok: false;
      readonly problem: string;
      /**
       * This process could read it before. What it never could may be somebody else's Sandbox, or one under another master secret or of
       * another version, which reads again where that is put back.
       */
      readonly wasReadable?: boolean;
    };

export function readRecord(of: { readonly metadata: { readonly annotations?: Record<string, string> } }): ReadRecord {
  const text = of.metadata.annotations?.[annotations.generation];
  if (text === undefined) return { ok: false, problem: `annotation ${annotations.generation} is missing` };
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return { ok: false, problem: `annotation ${annotations.generation} is no JSON` };
  }
  const parsed = recordSchema.safeParse(json);
  if (parsed.success) return { ok: true, record: parsed.data as unknown as GenerationRecord };
  const [issue] = parsed.error.issues;
  return { ok: false, problem: `annotation ${annotations.generation}: ${issue?.path.join(".")}: ${issue?.message}` };
}

/** The pair that a record describes. */
export function pairOf(record: GenerationRecord, gatewayId: string): PairProps {
  const { settings, gateway, sandbox, generation } = record;
  return { settings, gateway: { id: gatewayId, ...gateway }, sandbox, generation };
}

/** A generation's id: random, or the same for every retry of one request. */
export function generationIdFor(sandboxId: string, request: string): string {
  if (request === "") return randomBytes(16).toString("hex");
  return createHash("sha256").update(`${sandboxId}\0${request}`).digest("hex").slice(0, 32);
}
