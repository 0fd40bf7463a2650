import { create, type DescMessage, fromJson, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { parse, stringify } from "yaml";
import { OpenShellError } from "../common/errors.ts";
import { renderSandbox } from "../driver/index.ts";
import { compute, openshell } from "../wire/index.ts";
import { configPath, loadSettings, readRegularFile } from "./config-file.ts";
import { driverSandbox } from "./sandbox/driver-request.ts";
import { created } from "./sandbox/lifecycle.ts";
import { validateCreate } from "./sandbox/validate-create.ts";
import { unknownField } from "./unknown-field.ts";

/** Stands for the id that the gateway would choose. */
const exampleId = "00000000-0000-4000-8000-000000000000";

export interface RenderOptions {
  readonly config?: string;
  /** File with a CreateSandboxRequest or SandboxSpec: protobuf JSON, written as YAML or JSON. */
  readonly sandbox: string;
}

/**
 * Everything a sandbox would put into the cluster, as YAML documents in the order in which they are applied. Needs no cluster and no keys.
 * @throws invalid-argument naming file and field
 */
export function render(options: RenderOptions): string {
  const settings = loadSettings(configPath(options.config, process.env), "render");
  const request = readRequest(options.sandbox, readRegularFile(options.sandbox));
  validateCreate(request, settings.kubernetes.allow_driver_config);
  const selection = request.workspaceScope?.selection;
  const workspace = selection?.case === "workspace" && selection.value !== "" ? selection.value : "default";
  const name = request.name === "" ? "example" : request.name;
  const object = create(openshell.SandboxSchema, { metadata: { id: exampleId, name, workspace } });
  if (request.spec !== undefined) object.spec = request.spec;
  const draft = driverSandbox({ id: exampleId, workspace, name, resourceVersion: 0, object, lifecycle: created() });
  const gateway = { id: settings.kubernetes.gateway_id, endpoint: settings.kubernetes.grpc_endpoint };
  const manifests = renderSandbox(settings.kubernetes, gateway, create(compute.DriverSandboxSchema, draft));
  return manifests.map((manifest) => stringify(manifest)).join("---\n");
}

/** A CreateSandboxRequest, or a SandboxSpec alone. */
function readRequest(path: string, text: string): openshell.CreateSandboxRequest {
  const document = parseYaml(path, text);
  const whole = "spec" in document || "workspace_scope" in document || "workspaceScope" in document;
  const refuse = (why: string, cause?: unknown) => new OpenShellError("invalid-argument", `${path}: ${why}`, { cause });
  const check = (schema: DescMessage) => {
    const unknown = unknownField(schema, document);
    if (unknown !== undefined) throw refuse(`${unknown}: no such field in ${schema.typeName}`);
  };
  try {
    if (whole) {
      check(openshell.CreateSandboxRequestSchema);
      return fromJson(openshell.CreateSandboxRequestSchema, document);
    }
    check(openshell.SandboxSpecSchema);
    return create(openshell.CreateSandboxRequestSchema, { spec: fromJson(openshell.SandboxSpecSchema, document) });
  } catch (error) {
    if (error instanceof OpenShellError) throw error;
    throw refuse(error instanceof Error ? error.message : String(error), error);
  }
}

function parseYaml(path: string, text: string): JsonObject {
  let value: JsonValue;
  try {
    value = parse(text) as JsonValue;
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split("\n")[0] ?? "") : String(cause);
    throw new OpenShellError("invalid-argument", `${path}: not valid YAML: ${reason}`, { cause });
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new OpenShellError(
    "invalid-argument",
    `${path}: expected the fields of a sandbox, not ${JSON.stringify(value)}`,
  );
}
