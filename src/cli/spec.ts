/** What `sandbox create` asks for, from its options. Pure. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";
import { openshell } from "../wire/index.ts";
import { parseAmount, parseGpuCount, parseJsonObject, parsePairs } from "./arguments.ts";

export interface CreateOptions {
  readonly name?: string;
  readonly from?: string;
  readonly label?: readonly string[];
  readonly env?: readonly string[];
  readonly cpu?: string;
  readonly memory?: string;
  readonly gpu?: string | true;
  readonly runtimeClass?: string;
  readonly driverConfigJson?: string;
  readonly restart?: string;
  readonly tty?: boolean;
}

export const restartPolicies = {
  never: openshell.SandboxRestartPolicy.NEVER,
  "on-failure": openshell.SandboxRestartPolicy.ON_FAILURE,
  always: openshell.SandboxRestartPolicy.ALWAYS,
} as const;

/**
 * @param command of the main process; empty: none, the sandbox idles and serves exec
 * @throws invalid-argument naming the option that is wrong
 */
export function createRequest(
  options: CreateOptions,
  workspace: string,
  command: readonly string[],
): MessageInitShape<typeof openshell.CreateSandboxRequestSchema> {
  const resources = resourcesOf(options);
  return {
    workspaceScope: { selection: { case: "workspace", value: workspace } },
    name: options.name ?? "",
    labels: parsePairs("--label", options.label),
    spec: {
      environment: parsePairs("--env", options.env),
      command: [...command],
      tty: options.tty ?? false,
      restartPolicy: restartPolicyOf(options.restart),
      template: {
        image: options.from ?? "",
        runtimeClassName: options.runtimeClass ?? "",
        ...(resources === undefined ? {} : { resources }),
        ...(options.driverConfigJson === undefined
          ? {}
          : { driverConfig: parseJsonObject("--driver-config-json", options.driverConfigJson) }),
      },
      ...(options.gpu === undefined ? {} : { resourceRequirements: { gpu: gpuOf(options.gpu) } }),
    },
  };
}

/** The same amount as request and limit, so that the sandbox gets what was asked for and no more. */
function resourcesOf({ cpu, memory }: CreateOptions) {
  const amounts = {
    ...(cpu === undefined ? {} : { cpu: parseAmount("--cpu", cpu, "500m or 2") }),
    ...(memory === undefined ? {} : { memory: parseAmount("--memory", memory, "512Mi or 4Gi") }),
  };
  return Object.keys(amounts).length === 0 ? undefined : { requests: amounts, limits: amounts };
}

function gpuOf(gpu: string | true) {
  const count = parseGpuCount(gpu);
  return count === undefined ? {} : { count };
}

function restartPolicyOf(text: string | undefined): openshell.SandboxRestartPolicy {
  if (text === undefined) return openshell.SandboxRestartPolicy.UNSPECIFIED;
  const policy = restartPolicies[text as keyof typeof restartPolicies];
  if (policy !== undefined) return policy;
  throw new OpenShellError(
    "invalid-argument",
    `--restart "${text}": expected one of ${Object.keys(restartPolicies).join(", ")}`,
  );
}
