import { retry } from "../common/async.ts";
import type { Live, Namespace } from "../kube/index.ts";

/**
 * Whether a namespace that a selected watch shows no more is gone. It may as well have lost its label, and after a pause of the watch no
 * `deletionTimestamp` tells the two apart: then it is looked for.
 */
export async function isGone(
  { deletionTimestamp, uid }: Live<Namespace>["metadata"],
  find: (call: { readonly signal: AbortSignal }) => Promise<Live<Namespace> | undefined>,
  signal: AbortSignal = AbortSignal.timeout(60_000),
): Promise<boolean> {
  if (deletionTimestamp !== undefined) return true;
  const found = await retry(() => find({ signal }), { signal, attempts: 8 });
  return found?.metadata.uid !== uid || found.metadata.deletionTimestamp !== undefined;
}
