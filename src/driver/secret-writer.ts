import { OpenShellError } from "../common/errors.ts";
import { isAlreadyExists, isNotFound, type Secret, secrets } from "../kube/index.ts";
import { type ManifestObject, manifestOf, podOwner, SupervisorSecret, WorkloadSecret } from "../manifests/index.ts";
import { ignoring } from "./_ignoring.ts";
import { type Action, secretKey } from "./action.ts";
import { type GenerationIdentity, generationIdentity, supervisorFiles, workloadFiles } from "./identity.ts";
import type { LeadingClient } from "./leading-client.ts";
import { type Failure, pairOf } from "./record.ts";

type WriteSecret = Extract<Action, { do: "write-secret" }>;

export interface SecretWriterOptions {
  readonly client: LeadingClient;
  readonly gatewayId: string;
  readonly gatewayCaPem: (() => string) | undefined;
  readonly masterSecret: Uint8Array;
  readonly masterKid: string;
}

/** Identities kept; a generation needs its own for a moment only, and it is derived again when it is needed again. */
const keptIdentities = 64;

/** Writes the Secret of one Pod, which that Pod owns. No Secret is ever read. */
export class SecretWriter {
  readonly #options: SecretWriterOptions;
  readonly #identities = new Map<string, Promise<GenerationIdentity>>();

  constructor(options: SecretWriterOptions) {
    this.#options = options;
  }

  /**
   * @param written where it is noted that this process wrote it
   * @returns why the generation has to end
   * @throws already-exists with reason SecretNameTaken
   */
  async write(action: WriteSecret, written: Set<string>): Promise<Failure | undefined> {
    const { pod, record } = action;
    const { client, masterKid } = this.#options;
    if (record.masterKid !== masterKid) {
      return {
        condition: "PodsAdmitted",
        reason: "MasterSecretChanged",
        message: `this generation began under master secret ${record.masterKid}, the gateway now has ${masterKid}; stop and start the sandbox`,
      };
    }
    const { namespace } = record.settings;
    const manifest = await this.#manifest(action);
    const { name } = manifest.metadata;
    const create = () => client.create(secrets, namespace, manifest as Secret);
    try {
      await create();
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
      if (action.ifMissing === true) return undefined;
      // A former try, before we were restarted. The Pod's gate is closed, so nobody has used it.
      await ignoring(isNotFound, client.delete(secrets, namespace, name));
      try {
        await create();
      } catch (again) {
        if (!isAlreadyExists(again)) throw again;
        throw new OpenShellError("already-exists", `Secret "${name}" is made by somebody else`, {
          reason: "SecretNameTaken",
          cause: again,
        });
      }
    }
    written.add(secretKey(pod, record));
    return undefined;
  }

  async #manifest({ role, pod, record }: WriteSecret): Promise<ManifestObject> {
    const { gatewayId, gatewayCaPem } = this.#options;
    const { generation, sandbox } = record;
    const pair = pairOf(record, gatewayId);
    const owner = podOwner(pod.metadata.name, pod.metadata.uid);
    const of = { sandboxId: sandbox.id, podUid: pod.metadata.uid };
    const identity = await this.#identityOf(generation.id);
    if (role === "workload") {
      const files = await workloadFiles(identity, of);
      return manifestOf((scope) => new WorkloadSecret(scope, "secret", { pair, owner, files }));
    }
    const files = await supervisorFiles(identity, { ...of, session: generation.session }, gatewayCaPem?.());
    return manifestOf((scope) => new SupervisorSecret(scope, "secret", { pair, owner, files }));
  }

  #identityOf(generationId: string): Promise<GenerationIdentity> {
    const known = this.#identities.get(generationId);
    if (known !== undefined) return known;
    const derived = generationIdentity(this.#options.masterSecret, generationId);
    this.#identities.set(generationId, derived);
    if (this.#identities.size > keptIdentities) this.#identities.delete(this.#identities.keys().next().value ?? "");
    return derived;
  }
}
