import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { parse } from "yaml";
import { operatorNamespacePermissions } from "../../manifests/permissions.ts";
import { find, helm, helmPrograms, refusal, render, repository, sentenceOf } from "../_helm.ts";
import { synthesizeWorkspace } from "./chart.ts";
import { usedWorkspaceValues, workspaceDefaults } from "./values.ts";

vi.setConfig({ testTimeout: 60_000 });

const chart = join(repository, "charts", "openshell-workspace");
const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const of = (values: object = {}) => render(program, { chart, namespace: "team-a", values });
const bounds = {
  resourceQuota: { enabled: true, maxRunningSandboxes: 10 },
  limitRange: { enabled: true, max: { memory: "4Gi" } },
};

describe("the chart of a workspace's namespace", () => {
  const files = synthesizeWorkspace();

  it("is committed as it is generated", () => {
    const committed = readdirSync(chart, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    expect(committed).toHaveLength(files.size);
    for (const [path, content] of files) expect(readFileSync(join(chart, path), "utf8"), path).toBe(content);
  });

  it("has its defaults in values.yaml, and reads every value", () => {
    expect(parse(files.get("values.yaml") ?? "")).toEqual(workspaceDefaults);
    const used = [...usedWorkspaceValues()];
    const unread = Object.keys(workspaceDefaults).filter((key) => !used.some((path) => path.split(".")[0] === key));
    expect(unread).toEqual(["global"]);
  });
});

describeWithHelm("what a workspace's namespace gets", () => {
  it("is the ServiceAccount of the Pods and the gateway's rights, by the role of its chart", () => {
    const objects = of();
    expect(objects.map(({ kind, metadata }) => `${kind} ${metadata.namespace}/${metadata.name}`).sort()).toEqual([
      "RoleBinding team-a/openshell-driver-openshell",
      "ServiceAccount team-a/openshell-sandbox",
    ]);
    const { roleRef, subjects } = find(objects, "RoleBinding");
    const gateway = render(program);
    const mode = { workspace_mode: "operator", operator_namespace_label: "team" };
    const made = render(program, { values: { gatewayConfig: { "openshell.drivers.kubernetes": mode } } });
    expect(find(made, "ClusterRole", roleRef.name).rules).toHaveLength(operatorNamespacePermissions.length);
    expect(subjects).toEqual([
      {
        kind: "ServiceAccount",
        name: find(gateway, "StatefulSet").spec.template.spec.serviceAccountName,
        namespace: "openshell",
      },
    ]);
    expect(find(objects, "ServiceAccount").metadata.name).toBe(
      find(gateway, "ServiceAccount", "openshell-sandbox").metadata.name,
    );
  });

  it("is a Role of its own where the ClusterRole is not wanted, under names that a change of it can live with", () => {
    const values = {
      gateway: { id: "blue", serviceAccount: { name: "gw", namespace: "infra" } },
      rbac: { ownRole: true },
    };
    const objects = of(values);
    const role = find(objects, "Role");
    expect(role.rules).toEqual(
      operatorNamespacePermissions.map(({ group, resources, verbs, names }) => ({
        apiGroups: [group],
        resources,
        verbs,
        ...(names === undefined ? {} : { resourceNames: names("blue") }),
      })),
    );
    const binding = find(objects, "RoleBinding");
    expect(binding.roleRef).toMatchObject({ kind: "Role", name: role.metadata.name });
    expect(binding.subjects).toEqual([{ kind: "ServiceAccount", name: "gw", namespace: "infra" }]);
    expect(find(of({ gateway: { id: "blue" } }), "RoleBinding").metadata.name).not.toBe(binding.metadata.name);
  });

  it("is bounded, two Pods a sandbox, when asked for", () => {
    const objects = of(bounds);
    expect(find(objects, "ResourceQuota").spec).toEqual({ hard: { pods: "20" } });
    expect(find(objects, "LimitRange").spec.limits).toEqual([{ type: "Container", max: { memory: "4Gi" } }]);
    expect(sentenceOf(program, { chart, values: { limitRange: { enabled: true } } })).toBe(
      "limitRange.enabled is true but bounds nothing; give limitRange.default, limitRange.defaultRequest, limitRange.min or limitRange.max",
    );
    expect(sentenceOf(program, { chart, values: { resourceQuota: { maxRunningSandboxes: 10 } } })).toBe(
      "resourceQuota.maxRunningSandboxes and resourceQuota.hard have no effect while resourceQuota.enabled is false; set it to true, or remove them",
    );
    const wrongOrder = { limitRange: { enabled: true, min: { cpu: "2" }, max: { cpu: "1" } } };
    expect(sentenceOf(program, { chart, values: wrongOrder })).toBe(
      "limitRange.min.cpu: 2 is above limitRange.max.cpu 1; lower the first, or raise the second",
    );
    expect(refusal(program, { chart, values: { nothing: 1 } })).toContain("nothing");
  });

  it.each(helmPrograms)("passes lint and renders to the same bytes: %s", (each) => {
    const lint = helm(each, "lint", "--strict", chart);
    expect(lint.stdout + lint.stderr).toContain("0 chart(s) failed");
    expect(render(each, { chart, values: bounds })).toEqual(render(program, { chart, values: bounds }));
  });
});
