import { events, Informer, type KubeEvent, type Live } from "../../src/kube/index.ts";
import type { Conformance } from "./conformance.ts";

/** What the cluster told, or tells by and by, of a Pod in the sandboxes' namespace. */
export async function eventOf(suite: Conformance, pod: string, reason: string, text: RegExp): Promise<Live<KubeEvent>> {
  await using informer = new Informer({
    client: suite.kube,
    resource: events,
    namespace: suite.release.sandboxNamespace,
    fieldSelector: `involvedObject.kind=Pod,involvedObject.name=${pod},reason=${reason}`,
  });
  return await informer.until(
    `the event ${reason} of Pod ${pod}`,
    () => informer.list().find(({ message = "" }) => text.test(message)),
    { deadlineMs: 60_000 },
  );
}
