/** The Kubernetes compute driver: reconciles sandboxes to pairs of Pods, verifies admission, reports status. */
export { createDriver } from "./driver.ts";
export { type ConditionType, conditionTypes, type Reason, type ReasonClass, reasonClass, reasons } from "./reasons.ts";
export { renderSandbox } from "./render.ts";
export { type SupervisorLoss, supervisorLosses } from "./replacement.ts";
export { type Finding, reviewCluster, type SelfReviewOptions } from "./self-review.ts";
export type { Driver, DriverOptions } from "./types.ts";
