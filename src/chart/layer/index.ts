/** The typed layer between constructs and Helm templates. docs/add-a-setting.md shows its use. */
export * from "./expression.ts";
export * from "./manifest.ts";
export * from "./statements.ts";
export { byName, type Ref, type Values, valueReferences } from "./values.ts";
