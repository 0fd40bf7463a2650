import { OpenShellError } from "../../../src/common/errors.ts";
import {
  type AgentSandboxVersion,
  type CustomResourceDefinition,
  customResourceDefinitions,
  Informer,
  type KubeClient,
  type Live,
  sandboxes,
} from "../../../src/kube/index.ts";
import { sandboxDefinition } from "./crd.ts";
import { testEquipmentLabel } from "./names.ts";

/**
 * Installs the definition of one version and waits until the API server serves it. Another version of our own is taken
 * away first, unless sandboxes exist; anybody else's definition is left alone.
 */
export async function installDefinition(
  client: KubeClient,
  version: AgentSandboxVersion,
  signal?: AbortSignal,
): Promise<void> {
  const definition = sandboxDefinition(version);
  const { name } = definition.metadata;
  const stop = signal ? { signal } : {};
  await using informer = new Informer({
    client,
    resource: customResourceDefinitions,
    fieldSelector: `metadata.name=${name}`,
    ...stop,
  });
  await informer.until("the API server's answer about custom resource definitions", () => true, stop);
  const present = informer.get(undefined, name);
  if (present) await makeRoom(client, informer, present, version, signal);
  await client.patch(
    customResourceDefinitions,
    undefined,
    name,
    { type: "apply", body: definition, force: true },
    stop,
  );
  const isServed = (): boolean =>
    informer
      .get(undefined, name)
      ?.status?.conditions?.some((condition) => condition.type === "Established" && condition.status === "True") ??
    false;
  await informer.until(`${name} to be established`, isServed, stop);
  // Established is said a little before every list is answered.
  await using served = new Informer({ client, resource: sandboxes(version), ...stop });
  await served.until(`${name} ${version} to be listed`, () => true, stop);
}

async function makeRoom(
  client: KubeClient,
  informer: Informer<CustomResourceDefinition>,
  present: Live<CustomResourceDefinition>,
  version: AgentSandboxVersion,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { name, labels = {}, uid } = present.metadata;
  if (labels[testEquipmentLabel] === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      `${name} is installed already, and not by this test equipment: use the controller that it belongs to`,
    );
  }
  const [served] = present.spec?.versions ?? [];
  if (served?.name === version) return;
  const other = served?.name as AgentSandboxVersion;
  const { items } = await client.list(sandboxes(other), undefined, signal ? { signal } : {});
  if (items.length > 0) {
    throw new OpenShellError(
      "failed-precondition",
      `${name} serves ${other} and there are ${items.length} sandboxes: delete them before ${version} is installed`,
    );
  }
  await client.delete(customResourceDefinitions, undefined, name, { preconditions: { uid } });
  const isGone = (): boolean => informer.get(undefined, name)?.metadata.uid !== uid;
  await informer.until(`${name} (${other}) to be gone`, isGone, signal ? { signal } : {});
}
