import { applyObjects, kubectl, unpackClients } from "../clients.ts";
import { checkEnforcement } from "../enforcement.ts";
import { startAgentSandbox } from "./addons/agent-sandbox.ts";
import { corednsObjects } from "./addons/coredns.ts";
import { kubeRouterObjects } from "./addons/kube-router.ts";
import { startStorage, storageObjects } from "./addons/storage.ts";
import { makeCgroup } from "./cgroups.ts";
import { type Context, nodesOf, updateState } from "./context.ts";
import { startControlPlane } from "./control-plane.ts";
import { busyboxImage, makeBaseImages } from "./images.ts";
import { makeBridge, makeRoutes } from "./network.ts";
import { prepareNodes, startNode } from "./node.ts";
import { buildPrograms, clusterPrograms } from "./programs.ts";
import { installPackages } from "./requirements.ts";

/** One step of bringing a cluster up. Does nothing where its work is done already; undone as a whole by `down`. */
export interface Step {
  /** Shown while it runs. */
  readonly name: string;
  readonly run: (context: Context) => Promise<void>;
}

export const steps: readonly Step[] = [
  { name: "packages of the machine", run: ({ progress, signal }) => installPackages(progress, signal) },
  { name: "programs", run: makePrograms },
  { name: "base images", run: makeBaseImages },
  { name: "network", run: makeNetwork },
  { name: "control plane", run: startControlPlane },
  { name: "nodes", run: startNodes },
  { name: "DNS, storage, Agent Sandbox", run: startAddons },
  { name: "NetworkPolicy enforcement", run: verifyEnforcement },
];

async function makePrograms({ progress, signal }: Context): Promise<void> {
  await unpackClients(progress);
  await buildPrograms(clusterPrograms, progress, signal);
}

async function makeNetwork(context: Context): Promise<void> {
  await makeCgroup(context.place.hierarchies, context.layout.prefix);
  await makeBridge(context.layout);
}

async function startNodes(context: Context): Promise<void> {
  await applyObjects(context.layout.files.adminKubeconfig, kubeRouterObjects());
  await prepareNodes(context);
  // All are awaited also when one fails: a node that was still starting would outlive the removal of the others.
  const started = await Promise.allSettled(nodesOf(context).map((node) => startNode(context, node)));
  for (const outcome of started) if (outcome.status === "rejected") throw outcome.reason;
  await makeRoutes(context.layout, nodesOf(context));
}

async function startAddons(context: Context): Promise<void> {
  const { adminKubeconfig } = context.layout.files;
  await applyObjects(adminKubeconfig, [...corednsObjects(context.layout), ...storageObjects()]);
  await startStorage(context);
  await startAgentSandbox(context);
  await kubectl(adminKubeconfig, ["rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=90s"]);
}

async function verifyEnforcement(context: Context): Promise<void> {
  if (context.state.verified) return;
  const { layout, signal } = context;
  const check = { kubeconfig: layout.files.adminKubeconfig, image: busyboxImage };
  await checkEnforcement(signal === undefined ? check : { ...check, signal });
  await updateState(context, { verified: true });
}
