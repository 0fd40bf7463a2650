import { OpenShellError } from "../../src/common/errors.ts";
import { K3dProvider, k3dAnswers } from "./k3d/index.ts";
import { KubeconfigProvider } from "./kubeconfig/index.ts";
import { LocalProvider } from "./local/index.ts";
import { unsuitable } from "./local/requirements.ts";
import type { ClusterProvider, ProviderName } from "./provider.ts";

const providers: Readonly<Record<ProviderName, () => ClusterProvider>> = {
  local: () => new LocalProvider(),
  k3d: () => new K3dProvider(),
  kubeconfig: () => new KubeconfigProvider(),
};

/** What {@link selectProvider} looks at, passed in by tests. */
export interface Machine {
  readonly platform: string;
  readonly arch: string;
  readonly uid: number;
  readonly k3dAnswers: () => Promise<boolean>;
}

const thisMachine: Machine = {
  platform: process.platform,
  arch: process.arch,
  uid: process.getuid?.() ?? -1,
  k3dAnswers,
};

/**
 * The provider of that name; without one, k3d where Docker's daemon and k3d answer, else the local cluster where this is root on Linux.
 * Somebody's own cluster is never chosen without being named.
 *
 * @throws OpenShellError `failed-precondition` in one sentence when this machine can have no cluster
 */
export async function selectProvider(name?: string, machine: Machine = thisMachine): Promise<ClusterProvider> {
  if (name !== undefined) {
    if (!isProviderName(name)) {
      throw new OpenShellError(
        "invalid-argument",
        `there is no provider ${name}: use one of ${Object.keys(providers).join(", ")}`,
      );
    }
    return providers[name]();
  }
  if (await machine.k3dAnswers()) return providers.k3d();
  const reason = unsuitable(machine);
  if (reason === undefined) return providers.local();
  throw new OpenShellError(
    "failed-precondition",
    `no cluster can be had here: Docker with k3d does not answer, and ${reason}`,
  );
}

function isProviderName(name: string): name is ProviderName {
  return Object.hasOwn(providers, name);
}
