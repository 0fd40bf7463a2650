import type { Conformance } from "./conformance.ts";
import { nodeMarks } from "./leftovers.ts";

/** Gives a node a label of the test's own, which nobody else selects on, until disposed of. */
export async function labelled(suite: Conformance, node: string, key: string): Promise<AsyncDisposable> {
  await suite.kubectl(["label", "node", node, `${key}=yes`, "--overwrite"]);
  return { [Symbol.asyncDispose]: async () => void (await suite.kubectl(["label", "node", node, `${key}-`])) };
}

/** Makes a node say that it has so many of an extended resource, as a device plugin does, until disposed of. */
export async function equipped(suite: Conformance, node: string, resource: string, count: number) {
  const say = async (amount: string | null) => {
    const amounts = { [resource]: amount };
    const patch = JSON.stringify({ status: { capacity: amounts, allocatable: amounts } });
    await suite.kubectl(["patch", "node", node, "--subresource=status", "--type=merge", "-p", patch]);
  };
  await say(String(count));
  return { [Symbol.asyncDispose]: () => say(null) };
}

/** Takes a node out of scheduling, until disposed of. */
export async function cordoned(suite: Conformance, node: string): Promise<AsyncDisposable> {
  await suite.kubectl(["label", "node", node, `${nodeMarks.cordoned}=yes`, "--overwrite"]);
  await suite.kubectl(["cordon", node]);
  const undo = async () => {
    await suite.kubectl(["uncordon", node]);
    await suite.kubectl(["label", "node", node, `${nodeMarks.cordoned}-`]);
  };
  return { [Symbol.asyncDispose]: undo };
}
