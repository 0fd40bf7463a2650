import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { parse } from "yaml";
import { parseSettings } from "../config/index.ts";
import { find, helmPrograms, type Rendered, render, repository } from "./_helm.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const kubernetes = (objects: Rendered[]) =>
  parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml").kubernetes;

describe("the presets", () => {
  it("are the ones that the documentation names", () => {
    const names = readdirSync(join(repository, "values")).map((name) => name.replace(/\.yaml$/, ""));
    expect(names.sort()).toEqual(
      [
        "air-gapped",
        "argocd",
        "conformance",
        "development",
        "flux",
        "gpu",
        "kata-gvisor",
        "openshift",
        "production",
        "required-anti-affinity",
      ].sort(),
    );
    expect(existsSync(join(repository, "values", "production.yaml"))).toBe(true);
  });
});

describeWithHelm("a preset", () => {
  it("kata-gvisor gives each Pod of a pair its own RuntimeClass and lets a caller have no other for the workload", () => {
    expect(kubernetes(render(program, { presets: ["kata-gvisor"] }))).toMatchObject({
      default_runtime_class_name: "kata",
      supervisor_runtime_class_name: "gvisor",
      allowed_runtime_class_names: ["kata"],
    });
  });

  it("openshift fixes no user and routes with TLS passed through", () => {
    const objects = render(program, { presets: ["openshift"] });
    const { spec } = find(objects, "StatefulSet").spec.template;
    expect(spec.securityContext).toEqual({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
    expect(JSON.stringify(objects)).not.toContain("65532");
    expect(find(objects, "Route").spec.tls).toEqual({ termination: "passthrough" });
  });

  it("air-gapped takes every image from the mirror", () => {
    const objects = render(program, { presets: ["air-gapped"] });
    const settings = kubernetes(objects);
    const images = [
      settings.default_image,
      settings.supervisor_image,
      settings.sandbox_runtime_image,
      ...[...JSON.stringify(objects).matchAll(/"image":"([^"]+)"/g)].map(([, image]) => image ?? ""),
    ];
    expect(images).toHaveLength(8);
    const own = ["gateway", "runtime", "supervisor"].map((name) => `mirror.example.com/openshell/${name}:0.1.0`);
    expect([...new Set(images)].sort()).toEqual(["mirror.example.com/agents/base:1.0", ...own]);
    expect(settings.image_pull_secrets).toEqual(["mirror-pull"]);
    const pullers = [find(objects, "StatefulSet").spec, find(objects, "CronJob").spec.jobTemplate.spec];
    for (const { template } of pullers) expect(template.spec.imagePullSecrets).toEqual([{ name: "mirror-pull" }]);
  });

  it("air-gapped takes digests where its comments have them", () => {
    const digest = `sha256:${"a".repeat(64)}`;
    const text = readFileSync(join(repository, "values", "air-gapped.yaml"), "utf8");
    const uncommented = text.replaceAll(/# (.*)sha256:…/g, `$1${digest}`);
    const objects = render(program, { values: parse(uncommented) });
    const { default_image, supervisor_image, sandbox_runtime_image } = kubernetes(objects);
    const [{ image }] = find(objects, "StatefulSet").spec.template.spec.containers;
    for (const each of [default_image, supervisor_image, sandbox_runtime_image, image])
      expect(each).toMatch(new RegExp(`^mirror\\.example\\.com/[a-z/]+@${digest}$`));
  });

  it("gpu places workloads, and only them, on GPU nodes", () => {
    const settings = kubernetes(render(program, { presets: ["gpu"] }));
    expect(settings.workload_tolerations).toHaveLength(1);
    expect(settings.workload_node_selector).toEqual({ "nvidia.com/gpu.present": "true" });
    expect(settings.supervisor_node_selector).toEqual({});
  });

  it("argocd has no hook, and renders for a cluster without any API of others", () => {
    const objects = render(program, { presets: ["argocd"], apis: ["apps/v1/Deployment"] });
    expect(objects.filter(({ metadata }) => metadata.annotations?.["helm.sh/hook"])).toEqual([]);
    expect(find(objects, "Job").metadata.name).toMatch(/^openshell-pki-/);
    expect(find(objects, "Job").spec.activeDeadlineSeconds).toBe(600);
  });

  it("flux has the hooks, in less time than a HelmRelease has, and says in its comments what that needs", () => {
    const job = find(render(program, { presets: ["flux"] }), "Job");
    expect(job.metadata.annotations).toHaveProperty(["helm.sh/hook"]);
    const comments = readFileSync(join(repository, "values", "flux.yaml"), "utf8").match(/^# {3}.*/gm) ?? [];
    const { spec } = parse(comments.map((line) => line.slice(4)).join("\n"));
    expect(spec).toMatchObject({ dependsOn: [{ name: "agent-sandbox" }], install: { remediation: { retries: 3 } } });
    expect(job.spec.activeDeadlineSeconds).toBeGreaterThan(120);
    expect(job.spec.activeDeadlineSeconds).toBeLessThan(300);
  });

  it("production bounds what sandboxes use and guards their labels", () => {
    const objects = render(program, { presets: ["production"] });
    expect(find(objects, "ResourceQuota").spec.hard).toEqual({ pods: "200" });
    expect(find(objects, "ValidatingAdmissionPolicy").spec.failurePolicy).toBe("Fail");
    expect(find(objects, "PodDisruptionBudget").spec.maxUnavailable).toBe(1);
    expect(kubernetes(objects).allowed_runtime_class_names).toEqual([]);
  });

  it("combines with others", () => {
    const presets = ["production", "kata-gvisor", "required-anti-affinity", "air-gapped", "argocd"];
    expect(kubernetes(render(program, { presets }))).toMatchObject({
      default_runtime_class_name: "kata",
      sandbox_runtime: { pod_anti_affinity: "required" },
      default_image: "mirror.example.com/agents/base:1.0",
    });
  });
});
