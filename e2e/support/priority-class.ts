/** A PriorityClass; without `preempts` its Pods wait for room instead of making some. */
export function priorityClass(name: string, value: number, preempts = true) {
  const preemptionPolicy = preempts ? "PreemptLowerPriority" : "Never";
  return { apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", metadata: { name }, value, preemptionPolicy };
}
