import { valueReferences } from "./layer/index.ts";
import { type ChartValues, defaultValues } from "./values-schema.ts";

/** What is worked out once in a rendering, for all templates. Each may read those above it. */
const shared = [
  "checksApis",
  "containerSecurity",
  "pod",
  "gatewayImage",
  "gatewayPullPolicy",
  "fullname",
  "name",
  "sandboxNamespace",
  "serviceAccount",
  "sandboxServiceAccount",
  "labels",
  "config",
  "gateway",
  "driver",
  "toml",
  "isElsewhere",
  "pkiHasWork",
  "pkiIsRenewed",
  "pkiArgs",
  "pkiSecretNames",
  "listVolumes",
] as const;

/** Every value of values.yaml as a typed reference, and what the templates share. */
export const {
  values,
  used: usedValues,
  once,
  overlay,
  prepare,
  helpers: prepareHelpers,
} = valueReferences<ChartValues, (typeof shared)[number]>("openshell", defaultValues, shared);
