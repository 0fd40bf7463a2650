import { access } from "node:fs/promises";
import { join } from "node:path";
import { kubectlAttempt } from "../../clients.ts";
import { type Component, startComponent, waitForComponent } from "../component.ts";
import type { Context } from "../context.ts";

const program = join(import.meta.dirname, "../../agent-sandbox/main.ts");

/** Which version of its API is served: `OPENSHELL_AGENT_SANDBOX_VERSION`, v1beta1 or v1alpha1. */
const version = process.env.OPENSHELL_AGENT_SANDBOX_VERSION ?? "v1beta1";

/** Starts the stand-in for the Agent Sandbox controller, since this provider pulls no image, and waits for its API. */
export async function startAgentSandbox(context: Context): Promise<void> {
  const present = await access(program).then(
    () => true,
    () => false,
  );
  if (!present) {
    context.progress.note("no Agent Sandbox stand-in in this checkout: its API will be missing");
    return;
  }
  const { layout, place, signal } = context;
  const component: Component = {
    name: "agent-sandbox",
    cgroup: `${layout.prefix}/control`,
    command: process.execPath,
    args: [program, "--kubeconfig", layout.files.adminKubeconfig, "--version", version],
  };
  await startComponent(place, component);
  const served = async () => {
    const answer = await kubectlAttempt(layout.files.adminKubeconfig, [
      "get",
      `--raw=/apis/agents.x-k8s.io/${version}`,
    ]);
    return answer.code === 0;
  };
  await waitForComponent(place, component, "serving", served, {
    timeoutMs: 30_000,
    ...(signal === undefined ? {} : { signal }),
  });
}
