import { attempt, type Outcome, type RunOptions, run } from "../exec.ts";
import { clients } from "./programs.ts";

/** Runs kubectl as the owner of `kubeconfig`. */
export async function kubectl(kubeconfig: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  return run(clients.kubectl, [`--kubeconfig=${kubeconfig}`, ...args], options);
}

/** Like {@link kubectl}, but a non-zero exit is an answer. */
export async function kubectlAttempt(
  kubeconfig: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<Outcome> {
  return attempt(clients.kubectl, [`--kubeconfig=${kubeconfig}`, ...args], options);
}

/** Applies objects in one call. */
export async function applyObjects(
  kubeconfig: string,
  objects: readonly object[],
  options: RunOptions = {},
): Promise<void> {
  const list = { apiVersion: "v1", kind: "List", items: objects };
  await kubectl(
    kubeconfig,
    ["apply", "--server-side", "--force-conflicts", "--field-manager=openshell-cluster", "-f", "-"],
    {
      ...options,
      input: JSON.stringify(list),
    },
  );
}
