import { checkBuildMachine } from "../../images/build.ts";
import { loadImages } from "../../images/load.ts";
import {
  type AgentSandboxVersion,
  agentSandboxGroup,
  type ClusterAccess,
  createKubeClient,
  type KubeClient,
  kubeconfigAccess,
} from "../../src/kube/index.ts";
import { unpackClients } from "../cluster/clients.ts";
import type { Progress } from "../cluster/progress.ts";
import type { ClusterProvider } from "../cluster/provider.ts";
import { selectProvider } from "../cluster/select.ts";

/** The cluster that a bench works on, with the images on its nodes. */
export interface BenchCluster {
  readonly provider: ClusterProvider;
  readonly kubeconfig: string;
  /** The administrator's. */
  readonly access: ClusterAccess;
  readonly gatewayDigest: string;
  /** The administrator's. */
  readonly kube: KubeClient;
  /** Of Agent Sandboxes. */
  readonly version: AgentSandboxVersion;
}

/** @param wanted name of a provider. @default $OPENSHELL_PROVIDER, else what this machine has */
export async function openBenchCluster(wanted: string | undefined, progress: Progress): Promise<BenchCluster> {
  checkBuildMachine();
  const provider = await selectProvider(wanted ?? process.env.OPENSHELL_PROVIDER);
  await unpackClients(progress);
  await provider.up({ nodes: 2, progress });
  const kubeconfig = await provider.kubeconfig();
  const images = await loadImages(provider, { note: (line) => progress.note(line) });
  const gatewayDigest = images.find(({ name }) => name === "gateway")?.digest ?? "";
  const access = await kubeconfigAccess(kubeconfig);
  const kube = await createKubeClient({ component: "openshell-bench", access });
  const [version = "v1beta1"] = (await kube.apiVersionsOf(agentSandboxGroup)) as AgentSandboxVersion[];
  return { provider, kubeconfig, access, gatewayDigest, kube, version };
}
