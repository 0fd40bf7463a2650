/** The Helm chart as constructs. */
export { synthesize } from "./chart.ts";
export { type ChartValues, defaultValues, valuesSchema } from "./values-schema.ts";
