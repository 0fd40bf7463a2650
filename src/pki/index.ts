/** Certificates and keys: what issues them, and the work of the chart's hook Job that keeps a release's Secrets. */
export * from "./certificates.ts";
export { type ConvergedSecret, type ConvergePkiOptions, convergePki } from "./converge.ts";
export { managedByLabel, managedByValue, type SecretRole, secretName, secretRoles } from "./secrets.ts";
