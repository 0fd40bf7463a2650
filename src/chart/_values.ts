import { valueReferences } from "./layer/index.ts";
import { type ChartValues, defaultValues } from "./values-schema.ts";

/** Every value of values.yaml as a typed reference. */
export const { values, used: usedValues } = valueReferences<ChartValues>(defaultValues);
