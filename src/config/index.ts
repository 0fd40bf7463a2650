/** Settings: the only place that knows a setting's name, type, default, bounds and help. */

export {
  anyAnnotations,
  anyLabels,
  dnsLabel,
  dnsLabelName,
  droppedKeys,
  hostNameOrWildcard,
  imagePart,
  ipAddress,
  matchesKey,
  network,
  objectName,
  optionalDnsLabelName,
  optionalHostName,
  optionalObjectName,
  optionalQualifiedName,
  orEmpty,
  otherKey,
  type ReservedKeys,
  reservedKeys,
  reservedPrefixes,
  resourceName,
  splitBindAddress,
  toleration,
  tolerationFields,
  tolerationRules,
} from "./_grammar.ts";
export { expectation } from "./_problems.ts";
export type { Resources } from "./_resources.ts";
export {
  mergeQuantities,
  minimumWorkloadMemory,
  oneAmount,
  overcommittable,
  supervisorDefaults,
  wholeNumberForm,
} from "./_resources.ts";
export { type AppliesAt, type SettingHelp, setting } from "./_setting.ts";
export { isDuration, parseDuration } from "./duration.ts";
export { type GatewaySettings, gatewaySchema } from "./gateway.ts";
export type { OidcSettings } from "./gateway-oidc.ts";
export { gatewayConfigSchema, type JsonSchema, jsonSchemaOf } from "./json-schema.ts";
export { defaultRegistry, greatestId, type KubernetesSettings, kubernetesSchema } from "./kubernetes.ts";
export { nearest } from "./nearest.ts";
export { parseSettings, type SettingOverride, type SettingsErrorReason, type SettingsPurpose } from "./parse.ts";
export {
  compareQuantities,
  isQuantity,
  parseQuantity,
  positiveQuantityPattern,
  quantityPattern,
  wholeQuantityPattern,
} from "./quantity.ts";
export { settingsReference } from "./reference.ts";
export { settingsWithReservedKeys } from "./reserved-keys.ts";
export {
  type Condition,
  holds as conditionHolds,
  keysOf,
  type Scalar,
  type SettingRule,
  settingRules,
} from "./rules.ts";
export { defaultSettings, type Settings, tables } from "./settings.ts";
