import type { Logger } from "../common/log.ts";
import type { KubeObject, Live } from "../kube/index.ts";
import type { Running } from "./types.ts";

/** Younger ones may belong to a Sandbox that a watch has not shown yet, or to a garbage collector that is still at it. */
export const orphanAgeMs = 10 * 60_000;

/** Deletes what garbage collection left of sandboxes whose CR is gone. Never a CR; nothing is read for it. */
export async function sweep(
  { view, executor }: Pick<Running, "view" | "executor">,
  now: Date,
  log: Logger,
): Promise<void> {
  const isOld = ({ metadata }: Live<KubeObject>) =>
    metadata.creationTimestamp !== undefined &&
    metadata.deletionTimestamp === undefined &&
    now.getTime() - Date.parse(metadata.creationTimestamp) > orphanAgeMs;
  const { pods, services } = view.orphans();
  for (const pod of pods.filter(isOld)) {
    log.warn({ pod: pod.metadata.name }, "deleting a Pod whose Sandbox is gone");
    await executor
      .deletePod(pod)
      .catch((error: unknown) => log.warn({ err: error }, "the sweep could not delete a Pod"));
  }
  for (const service of services.filter(isOld)) {
    log.warn({ service: service.metadata.name }, "deleting a Service whose Sandbox is gone");
    await executor
      .deleteService(service)
      .catch((error: unknown) => log.warn({ err: error }, "the sweep could not delete a Service"));
  }
}
