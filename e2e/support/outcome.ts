import { secrets, services } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import type { Conformance } from "./conformance.ts";
import type { TestSandbox } from "./test-sandbox.ts";
import { phase, type Sandbox, type SandboxWait } from "./waits.ts";

/** What a sandbox says of itself, one condition a line, for a test to look for reasons and names in. */
export function said(sandbox: Sandbox): string {
  return (sandbox.status?.conditions ?? [])
    .map(({ type, reason, message }) => `${type} ${reason}: ${message}`)
    .join("\n");
}

/** Phase ERROR, which is what a test waits for here. */
export function failed(withinMs = 60_000): SandboxWait {
  return { ...phase("ERROR", withinMs), test: (sandbox) => phase("ERROR").test(sandbox) === true };
}

/** How a create ended that was to fail: the call's own error, or the conditions of the sandbox that failed afterwards, with the sandbox. */
export async function failureOf(
  create: Promise<TestSandbox>,
): Promise<{ readonly text: string; readonly sandbox?: TestSandbox }> {
  await using undo = new AsyncDisposableStack();
  let sandbox: TestSandbox;
  try {
    sandbox = undo.use(await create);
  } catch (error) {
    return { text: (error as Error).message };
  }
  const text = said(await sandbox.until(failed()));
  undo.move();
  return { text, sandbox };
}

/** Pods, Secrets and Services of a sandbox, by kind. A Pod that is ending counts until it is gone. */
export async function leftOf(suite: Conformance, sandbox: Pick<TestSandbox, "id">): Promise<string[]> {
  const namespace = suite.release.sandboxNamespace;
  const labelSelector = `${labels.sandboxId}=${sandbox.id}`;
  const [secretList, serviceList] = await Promise.all([
    suite.kube.list(secrets, namespace, { labelSelector }),
    suite.kube.list(services, namespace, { labelSelector }),
  ]);
  return [
    ...suite.podsOf(sandbox).map(({ metadata }) => `pod/${metadata.name}`),
    ...secretList.items.map(({ metadata }) => `secret/${metadata.name}`),
    ...serviceList.items.map(({ metadata }) => `service/${metadata.name}`),
  ];
}
