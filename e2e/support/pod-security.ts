import type { Conformance } from "./conformance.ts";

/** Holds the sandboxes' namespace to another Pod Security level than the release's, until disposed of. */
export async function podSecurity(suite: Conformance, level: "privileged" | "baseline"): Promise<AsyncDisposable> {
  const enforce = (to: string) => {
    const label = `pod-security.kubernetes.io/enforce=${to}`;
    return suite.kubectl(["label", "namespace", suite.release.sandboxNamespace, label, "--overwrite"]);
  };
  await enforce(level);
  return { [Symbol.asyncDispose]: async () => void (await enforce("restricted")) };
}
