import { valueReferences } from "./layer/index.ts";
import { type ChartValues, defaultValues } from "./values-schema.ts";

/** Every value of values.yaml as a typed reference, and what the templates share. */
export const {
  values,
  used: usedValues,
  once,
  overlay,
  prepare,
  helpers: prepareHelpers,
} = valueReferences<ChartValues>("openshell", defaultValues);
