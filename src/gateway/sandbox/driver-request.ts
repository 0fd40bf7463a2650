import type { JsonObject, JsonValue, MessageInitShape } from "@bufbuild/protobuf";
import type { compute } from "../../wire/index.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";

/** The key of driver_config that is the driver's. */
export const driverConfigKey = "kubernetes";

/**
 * What the driver is told of a sandbox. Environment and command are not among it: they reach the workload over the launch relay and never
 * a Pod. Of driver_config only the `kubernetes` object goes on, of the policy only the user it names.
 */
export function driverSandbox({
  id,
  workspace,
  name,
  object,
}: SandboxRecord): MessageInitShape<typeof compute.DriverSandboxSchema> {
  const spec = object.spec;
  const template = spec?.template;
  const process = spec?.policy?.process;
  const kubernetes = template?.driverConfig?.[driverConfigKey];
  const platform = platformConfig(template?.runtimeClassName ?? "", template?.annotations ?? {});
  return {
    id,
    workspace,
    name,
    spec: {
      logLevel: spec?.logLevel ?? "",
      ...(process === undefined ? {} : { policy: { version: spec?.policy?.version ?? 0, process } }),
      ...(spec?.resourceRequirements?.gpu === undefined
        ? {}
        : {
            resourceRequirements: {
              gpu:
                spec.resourceRequirements.gpu.count === undefined ? {} : { count: spec.resourceRequirements.gpu.count },
            },
          }),
      template: {
        image: template?.image ?? "",
        labels: template?.labels ?? {},
        resources: resourcesOf(template?.resources),
        ...(platform === undefined ? {} : { platformConfig: platform }),
        ...(isObject(kubernetes) ? { driverConfig: kubernetes } : {}),
        ...(template?.userNamespaces === undefined ? {} : { userNamespaces: template.userNamespaces }),
      },
    },
  };
}

function platformConfig(runtimeClass: string, annotations: Readonly<Record<string, string>>): JsonObject | undefined {
  const config: JsonObject = {
    ...(runtimeClass === "" ? {} : { runtime_class_name: runtimeClass }),
    ...(Object.keys(annotations).length === 0 ? {} : { annotations: { ...annotations } }),
  };
  return Object.keys(config).length === 0 ? undefined : config;
}

function resourcesOf(resources: JsonObject | undefined) {
  const amount = (kind: string, name: string) => {
    const amounts = resources?.[kind];
    const value = isObject(amounts) ? amounts[name] : undefined;
    return typeof value === "string" ? value : "";
  };
  return {
    cpuRequest: amount("requests", "cpu"),
    cpuLimit: amount("limits", "cpu"),
    memoryRequest: amount("requests", "memory"),
    memoryLimit: amount("limits", "memory"),
  };
}

export function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
