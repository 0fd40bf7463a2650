import { type JsonObject, toBinary } from "@bufbuild/protobuf";
import { OpenShellError } from "../../common/errors.ts";
import { type openshell, sandbox as sandboxWire } from "../../wire/index.ts";
import { driverConfigKey, isObject } from "./driver-request.ts";
import { checkName } from "./names.ts";
import { checkAnnotations, checkEnvironment, checkLabels } from "./validate-maps.ts";
import { bytes, Violations } from "./violations.ts";

/** Limits that existing clients were written against (contract, section E). */
export const createLimits = {
  commandArguments: 256,
  commandBytes: 256 * 1024,
  argumentBytes: 32 * 1024,
  environmentValueBytes: 8192,
  environmentBytes: 256 * 1024,
  templateStringBytes: 1024,
  structBytes: 64 * 1024,
  policyBytes: 256 * 1024,
  logLevelBytes: 32,
  providers: 32,
} as const;

/**
 * Refuses a CreateSandbox that could never become a sandbox.
 * @throws invalid-argument with every violation; failed-precondition for what this gateway does not offer
 */
export function validateCreate(request: openshell.CreateSandboxRequest, allowDriverConfig: boolean): void {
  const violations = new Violations();
  if (request.name !== "") checkName(violations, "name", request.name);
  checkLabels(violations, "labels", request.labels);
  checkAnnotations(violations, "annotations", request.annotations);
  if (request.spec !== undefined) checkSpec(violations, request.spec);
  violations.throwIfAny();
  refuseUnoffered(request, allowDriverConfig);
}

function checkSpec(violations: Violations, spec: openshell.SandboxSpec): void {
  const limits = createLimits;
  violations.check(bytes(spec.logLevel) <= limits.logLevelBytes, "spec.log_level", "is longer than 32 bytes");
  const environment = { value: limits.environmentValueBytes, total: limits.environmentBytes };
  checkEnvironment(violations, "spec.environment", spec.environment, environment);
  checkCommand(violations, spec.command);
  violations.check(spec.providers.length <= limits.providers, "spec.providers", "has more than 32 entries");
  violations.check(
    spec.resourceRequirements?.gpu?.count !== 0,
    "spec.resource_requirements.gpu.count",
    "is 0; ask for at least one GPU or leave gpu out",
  );
  if (spec.policy !== undefined) {
    const size = toBinary(sandboxWire.SandboxPolicySchema, spec.policy).length;
    violations.check(size <= limits.policyBytes, "spec.policy", "takes more than 256 KiB");
  }
  if (spec.template !== undefined) checkTemplate(violations, spec.template);
}

function checkCommand(violations: Violations, command: readonly string[]): void {
  const limits = createLimits;
  violations.check(command.length <= limits.commandArguments, "spec.command", "has more than 256 arguments");
  violations.check(command[0] !== "", "spec.command[0]", "the program's name is empty");
  for (const [index, argument] of command.entries()) {
    const at = `spec.command[${index}]`;
    violations.check(bytes(argument) <= limits.argumentBytes, at, "has more than 32 KiB");
    violations.check(!argument.includes("\0"), at, "holds NUL");
  }
  const total = command.reduce((sum, argument) => sum + bytes(argument), 0);
  violations.check(total <= limits.commandBytes, "spec.command", "takes more than 256 KiB in all");
}

function checkTemplate(violations: Violations, template: openshell.SandboxTemplate): void {
  const limits = createLimits;
  const at = "spec.template";
  for (const [field, text] of [
    ["image", template.image],
    ["runtime_class_name", template.runtimeClassName],
    ["agent_socket", template.agentSocket],
  ] as const) {
    violations.check(bytes(text) <= limits.templateStringBytes, `${at}.${field}`, "has more than 1024 bytes");
    violations.check(!/[\s\0]/.test(text), `${at}.${field}`, "holds white space");
  }
  checkLabels(violations, `${at}.labels`, template.labels);
  checkAnnotations(violations, `${at}.annotations`, template.annotations);
  const environment = { value: limits.environmentValueBytes, total: limits.environmentBytes };
  checkEnvironment(violations, `${at}.environment`, template.environment, environment);
  checkStruct(violations, `${at}.resources`, template.resources);
  checkStruct(violations, `${at}.driver_config`, template.driverConfig);
  checkResources(violations, `${at}.resources`, template.resources);
  checkDriverConfig(violations, `${at}.driver_config`, template.driverConfig);
}

/** `driver_config` holds one object per driver; this gateway has one driver. What the object says is the driver's to check. */
function checkDriverConfig(violations: Violations, field: string, config: JsonObject | undefined): void {
  for (const [name, value] of Object.entries(config ?? {})) {
    if (name !== driverConfigKey) {
      violations.add(`${field}.${name}`, `is for no driver of this gateway; expected ${driverConfigKey}`);
    } else if (!isObject(value)) {
      violations.add(
        `${field}.${name}`,
        `expected an object like {"pod": {…}}, not ${JSON.stringify(value).slice(0, 64)}`,
      );
    }
  }
}

function checkStruct(violations: Violations, field: string, value: JsonObject | undefined): void {
  violations.check(bytes(JSON.stringify(value ?? {})) <= createLimits.structBytes, field, "takes more than 64 KiB");
}

/** `resources` is {requests, limits} of {cpu, memory} as Kubernetes quantities. */
function checkResources(violations: Violations, field: string, resources: JsonObject | undefined): void {
  for (const [kind, amounts] of Object.entries(resources ?? {})) {
    if (kind !== "requests" && kind !== "limits") {
      violations.add(`${field}.${kind}`, "is unknown; expected requests or limits");
    } else if (typeof amounts !== "object" || amounts === null || Array.isArray(amounts)) {
      violations.add(`${field}.${kind}`, 'expected an object like {"cpu": "500m", "memory": "1Gi"}');
    } else {
      for (const [name, amount] of Object.entries(amounts)) {
        const known = name === "cpu" || name === "memory";
        violations.check(known, `${field}.${kind}.${name}`, "is unknown; expected cpu or memory");
        violations.check(
          typeof amount === "string",
          `${field}.${kind}.${name}`,
          'expected a quantity in quotes like "500m"',
        );
      }
    }
  }
}

function refuseUnoffered(request: openshell.CreateSandboxRequest, allowDriverConfig: boolean): void {
  const { spec } = request;
  if (!allowDriverConfig && Object.keys(spec?.template?.driverConfig ?? {}).length > 0) {
    throw new OpenShellError(
      "failed-precondition",
      "spec.template.driver_config: this gateway does not accept driver_config (its operator can set allow_driver_config)",
      { reason: "DriverConfigNotAllowed" },
    );
  }
  const [provider] = spec?.providers ?? [];
  if (provider !== undefined) {
    throw new OpenShellError("failed-precondition", `provider ${provider} not found: this gateway has no providers`);
  }
  if (request.workloadTemplate !== "") {
    throw new OpenShellError("not-found", `sandbox template ${request.workloadTemplate} not found`);
  }
  if (request.serviceExposures.length > 0) {
    throw new OpenShellError("failed-precondition", "service_exposures: this gateway exposes no services");
  }
}
