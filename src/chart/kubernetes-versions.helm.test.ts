/** Every preset against the API of every minor version of Kubernetes that the chart supports. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { helm, helmPrograms, type Rendered, render, repository } from "./_helm.ts";
import { bringSchemas, KubernetesSchemas, minors } from "./_kubernetes-schemas.ts";
import { synthesize } from "./chart.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 180_000 });

const [program = ""] = helmPrograms;
const presets = readdirSync(join(repository, "values")).map((name) => name.replace(/\.yaml$/, ""));
/** Kinds of others, which no Kubernetes knows. */
const foreign = /^(monitoring\.coreos\.com|gateway\.networking\.k8s\.io|cert-manager\.io|route\.openshift\.io)\//;
const everything = {
  admissionPolicy: { enabled: true },
  resourceQuota: { enabled: true, maxRunningSandboxes: 2, hard: { services: "9" } },
  limitRange: { enabled: true, max: { memory: "4Gi" } },
  podDisruptionBudget: { enabled: true },
  ingress: { enabled: true, className: "x", host: "openshell.example.com", passthrough: true },
  podLabels: { a: "b" },
  extraVolumes: [{ name: "more", emptyDir: { sizeLimit: "1Mi" } }],
  tolerations: [{ key: "a", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 }],
  lifecycle: { preStop: { sleep: { seconds: 1 } } },
};

describe.skipIf(helmPrograms.length === 0)("the chart on every Kubernetes", () => {
  const rendered = new Map<string, Rendered[]>();
  let unobtainable: string | undefined;

  beforeAll(() => {
    try {
      bringSchemas();
    } catch (error) {
      if (process.env.CI === "true") throw error;
      unobtainable = String(error);
    }
    for (const preset of presets) rendered.set(preset, render(program, { presets: [preset] }));
    const workspace = join(repository, "charts", "openshell-workspace");
    const bounds = { resourceQuota: everything.resourceQuota, limitRange: everything.limitRange };
    rendered.set("workspace", render(program, { chart: workspace, values: { ...bounds, rbac: { ownRole: true } } }));
    rendered.set("everything", render(program, { presets: ["conformance"], values: everything }));
  });

  it("renders one and the same for all versions: no template asks for it", () => {
    for (const [path, text] of synthesize()) expect(text, path).not.toContain("KubeVersion");
  });

  it.for(minors)("is valid in every preset on %s", (minor, { skip }) => {
    if (unobtainable !== undefined) skip(unobtainable);
    const schemas = new KubernetesSchemas(minor);
    for (const [preset, objects] of rendered) {
      for (const object of objects) {
        const violations = schemas.violations(object);
        if (violations === undefined) expect(object.apiVersion, `${preset}: ${object.kind}`).toMatch(foreign);
        else expect(violations, preset).toEqual([]);
      }
    }
  });

  it("would not be, were a field misspelt or of another type", ({ skip }) => {
    if (unobtainable !== undefined) skip(unobtainable);
    const [service] = (rendered.get("conformance") ?? []).filter(({ kind }) => kind === "Service");
    const broken = { ...service, spec: { ...service?.spec, selectr: {}, ports: [{ port: "x" }] } } as Rendered;
    expect(new KubernetesSchemas("1.30").violations(broken)).toEqual([
      "Service/openshell/spec must NOT have additional properties: selectr",
      "Service/openshell/spec/ports/0/port must be integer",
    ]);
  });

  it("is refused on a version before the oldest", () => {
    const result = helm(program, "template", "x", join(repository, "charts", "openshell"), "--kube-version=1.29.9");
    expect(result.stderr).toContain("requires kubeVersion: >=1.30.0-0");
  });
});
