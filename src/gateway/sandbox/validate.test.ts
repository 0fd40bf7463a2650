import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import { validateExec } from "../exec/validate-exec.ts";
import { generateName, isName } from "./names.ts";
import { validateCreate } from "./validate-create.ts";

type CreateInit = MessageInitShape<typeof openshell.CreateSandboxRequestSchema>;

function refusal(init: CreateInit, allowDriverConfig = true): OpenShellError | undefined {
  return thrown(() => validateCreate(create(openshell.CreateSandboxRequestSchema, init), allowDriverConfig));
}

function thrown(act: () => void): OpenShellError | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    if (error instanceof OpenShellError) return error;
    throw error;
  }
}

const fieldOf = (init: CreateInit) => refusal(init)?.details.violations?.[0]?.field;
const long = (bytes: number) => "x".repeat(bytes);
const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`K${index}`, "v"]));

describe("a name", () => {
  it("is a DNS label of at most 19 characters without two hyphens in a row", () => {
    for (const name of ["a", "a-b", "0", "x".repeat(19)]) expect(isName(name), name).toBe(true);
    for (const name of ["", "A", "-a", "a-", "a--b", "a_b", "a.b", "x".repeat(20), "é"])
      expect(isName(name), name).toBe(false);
  });

  it("that the gateway generates is valid", () => {
    for (let round = 0; round < 200; round += 1) expect(isName(generateName())).toBe(true);
  });
});

describe("a create", () => {
  it("with nothing said is accepted", () => {
    expect(refusal({})).toBeUndefined();
    expect(refusal({ spec: {} })).toBeUndefined();
  });

  it.each<[string, CreateInit]>([
    ["name", { name: "Not-A-Name" }],
    ["labels[a b]", { labels: { "a b": "" } }],
    ["labels[openshell.ai/role]", { labels: { "openshell.ai/role": "workload" } }],
    ["labels[k]", { labels: { k: "no spaces" } }],
    ["annotations[agents.x-k8s.io/x]", { annotations: { "agents.x-k8s.io/x": "" } }],
    ["spec.log_level", { spec: { logLevel: long(33) } }],
    ["spec.environment[1X]", { spec: { environment: { "1X": "" } } }],
    ["spec.environment[OPENSHELL_X]", { spec: { environment: { OPENSHELL_X: "" } } }],
    ["spec.environment[X]", { spec: { environment: { X: long(8193) } } }],
    ["spec.environment[Y]", { spec: { environment: { Y: "a\nb" } } }],
    ["spec.environment", { spec: { environment: many(129) } }],
    ["spec.command[0]", { spec: { command: ["", "x"] } }],
    ["spec.command[1]", { spec: { command: ["x", "a\0b"] } }],
    ["spec.command", { spec: { command: Array.from({ length: 257 }, () => "x") } }],
    ["spec.command[0]", { spec: { command: [long(32 * 1024 + 1)] } }],
    ["spec.providers", { spec: { providers: Array.from({ length: 33 }, String) } }],
    ["spec.resource_requirements.gpu.count", { spec: { resourceRequirements: { gpu: { count: 0 } } } }],
    ["spec.template.image", { spec: { template: { image: long(1025) } } }],
    ["spec.template.image", { spec: { template: { image: "a b" } } }],
    ["spec.template.resources.request", { spec: { template: { resources: { request: {} } } } }],
    ["spec.template.resources.limits.gpu", { spec: { template: { resources: { limits: { gpu: "1" } } } } }],
    ["spec.template.resources.limits.cpu", { spec: { template: { resources: { limits: { cpu: 1 } } } } }],
    ["spec.template.driver_config", { spec: { template: { driverConfig: { kubernetes: long(64 * 1024) } } } }],
    ["spec.template.driver_config.docker", { spec: { template: { driverConfig: { docker: {} } } } }],
    ["spec.template.driver_config.kubernetes", { spec: { template: { driverConfig: { kubernetes: ["pod"] } } } }],
    ["spec.template.driver_config.kubernetes", { spec: { template: { driverConfig: { kubernetes: null } } } }],
    ["spec.template.driver_config.rootfs_tar_path", { spec: { template: { driverConfig: { rootfs_tar_path: "x" } } } }],
  ])("is refused with the field %s", (field, init) => {
    expect(fieldOf(init)).toBe(field);
  });

  it("is told which key of driver_config is known, and what it holds", () => {
    const of = (driverConfig: JsonObject) => refusal({ spec: { template: { driverConfig } } })?.message;
    expect(of({ podman: {} })).toBe(
      "spec.template.driver_config.podman: is for no driver of this gateway; expected kubernetes",
    );
    expect(of({ kubernetes: "x" })).toBe(
      'spec.template.driver_config.kubernetes: expected an object like {"pod": {…}}, not "x"',
    );
    expect(of({ kubernetes: { pod: {} } })).toBeUndefined();
  });

  it("is told everything that is wrong at once", () => {
    const error = refusal({ name: "A", spec: { logLevel: long(33), environment: { "": "" } } });
    expect(error?.details.violations?.map(({ field }) => field)).toEqual([
      "name",
      "spec.log_level",
      "spec.environment[]",
    ]);
    expect(error?.message).toMatch(/^name: .* \(and 2 more\)$/);
  });

  it("may carry driver_config only where the operator allows it", () => {
    const init = { spec: { template: { driverConfig: { kubernetes: {} } } } };
    expect(refusal(init)).toBeUndefined();
    expect(refusal(init, false)).toMatchObject({
      code: "failed-precondition",
      details: { reason: "DriverConfigNotAllowed" },
    });
    expect(refusal({ spec: { template: { driverConfig: {} } } }, false)).toBeUndefined();
  });

  it("is refused for what this gateway does not have", () => {
    expect(refusal({ spec: { providers: ["github"] } })).toMatchObject({ code: "failed-precondition" });
    expect(refusal({ workloadTemplate: "big" })).toMatchObject({ code: "not-found" });
    expect(refusal({ serviceExposures: [{ service: "web", targetPort: 80 }] })).toMatchObject({
      code: "failed-precondition",
    });
  });
});

describe("an exec", () => {
  type ExecInit = MessageInitShape<typeof openshell.ExecSandboxRequestSchema>;
  const field = (init: ExecInit) =>
    thrown(() =>
      validateExec(create(openshell.ExecSandboxRequestSchema, { sandbox: "one", command: ["true"], ...init })),
    )?.details.violations?.[0]?.field;

  it("lets the SDK's one reserved variable through, and newlines in arguments", () => {
    expect(field({ environment: { OPENSHELL_PYFUNC_B64: "AAAA" }, command: ["python", "-c", "a\nb"] })).toBeUndefined();
  });

  it.each<[string, ExecInit]>([
    ["sandbox", { sandbox: "" }],
    ["command", { command: [] }],
    ["command", { command: Array.from({ length: 1025 }, () => "x") }],
    ["command[1]", { command: ["x", "a\0"] }],
    ["environment[OPENSHELL_TOKEN]", { environment: { OPENSHELL_TOKEN: "" } }],
    ["workdir", { workdir: "/a\nb" }],
    ["workdir", { workdir: long(4097) }],
    ["cols", { cols: 70_000 }],
    ["execution_timeout", { executionTimeout: { seconds: -1n } }],
  ])("is refused with the field %s", (name, init) => {
    expect(field(init)).toBe(name);
  });
});
