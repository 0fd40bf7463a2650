/** Names of the Agent Sandbox contract, version v0.5.6 (https://github.com/kubernetes-sigs/agent-sandbox). */
export const nameHashLabel = "agents.x-k8s.io/sandbox-name-hash";
export const podNameAnnotation = "agents.x-k8s.io/pod-name";
export const adoptableLabel = "agents.x-k8s.io/adoptable";
export const createdByLabel = "agents.x-k8s.io/created-by";
export const propagatedLabelsAnnotation = "agents.x-k8s.io/propagated-labels";
export const propagatedAnnotationsAnnotation = "agents.x-k8s.io/propagated-annotations";

/** Marks the custom resource definition as this test equipment's, so that a real installation is never touched. */
export const testEquipmentLabel = "openshell.ai/test-equipment";

const creators = new Set(["go-client", "python-client", "controller"]);

/** The value of `created-by` that a Pod gets. */
export function normalizedCreator(value: string): string {
  return creators.has(value) ? value : "unknown";
}

/** Keys that a Pod template cannot set. */
export function isReserved(key: string): boolean {
  return (
    key.startsWith("agents.x-k8s.io/") ||
    key.startsWith("extensions.agents.x-k8s.io/") ||
    key === "opentelemetry.io/trace-context"
  );
}

/** FNV-1a, 32 bits, of a sandbox's name, as eight hexadecimal digits. Different names can have the same one. */
export function nameHash(name: string): string {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(name, "utf8")) hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, "0");
}
