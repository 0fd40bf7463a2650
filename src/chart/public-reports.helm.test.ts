/**
 * What public reports say goes wrong in charts like this one, as tests. Each title ends in where it was reported; what those reports say of
 * drivers is tested in src/driver and e2e/suites.
 */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "smol-toml";
import { afterAll, describe, expect, it, vi } from "vitest";
import { parseSettings } from "../config/index.ts";
import {
  chartDirectory,
  find,
  helm,
  helmPrograms,
  objectsOf,
  type Rendered,
  refusal,
  render,
  sentenceOf,
} from "./_helm.ts";

vi.setConfig({ testTimeout: 60_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const kubernetes = (objects: readonly Rendered[]) =>
  parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml").kubernetes;
const driver = (settings: object) => ({ gatewayConfig: { "openshell.drivers.kubernetes": settings } });

const folder = mkdtempSync(join(tmpdir(), "openshell-parent-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The chart as a part of another one, with that one's values, once under each alias. */
function asSubchart(with_: string, values: object, ...aliases: readonly string[]): Rendered[] {
  const parent = mkdtempSync(join(folder, "parent-"));
  mkdirSync(join(parent, "charts"));
  symlinkSync(chartDirectory, join(parent, "charts", "openshell"));
  const dependency = { name: "openshell", version: "*", condition: "openshell.enabled" };
  const dependencies = aliases.length === 0 ? [dependency] : aliases.map((alias) => ({ ...dependency, alias }));
  writeFileSync(
    join(parent, "Chart.yaml"),
    JSON.stringify({ apiVersion: "v2", name: "parent", version: "1.0.0", dependencies }),
  );
  writeFileSync(join(parent, "values.yaml"), JSON.stringify(values));
  const result = helm(with_, "template", "openshell", parent, "-n", "openshell", "--kube-version=1.34.0");
  if (!result.ok) throw new Error(result.stderr);
  return objectsOf(result.stdout);
}

describeWithHelm("scheduling and resources", () => {
  const defaults = () => kubernetes(render(program));

  it("gives a supervisor requests, so that it is not the first to be evicted (NVIDIA/OpenShell#3415)", () => {
    expect(defaults().supervisor_resources.requests).toMatchObject({
      cpu: expect.any(String),
      memory: expect.any(String),
    });
  });

  it("lets nobody ask an autoscaler to spare a Pod unless the operator says so, and blocks no drain (decocms/studio#5815)", () => {
    const spare = { "cluster-autoscaler.kubernetes.io/safe-to-evict": "false" };
    expect(defaults()).toMatchObject({ supervisor_annotations: {}, workload_annotations: {} });
    const settings = kubernetes(
      render(program, { values: driver({ supervisor_annotations: spare, workload_annotations: spare }) }),
    );
    expect(settings).toMatchObject({ supervisor_annotations: spare, workload_annotations: spare });
    const budget = find(render(program, { values: { podDisruptionBudget: { enabled: true } } }), "PodDisruptionBudget");
    expect(budget.spec).toMatchObject({ maxUnavailable: 1 });
  });

  it("carries placement to Pods that the gateway makes, and refuses what has not the form of it (paradigmxyz/centaur#1273)", () => {
    const placed = {
      workload_node_selector: { pool: "agents" },
      workload_tolerations: [{ key: "agents", operator: "Exists" }],
      supervisor_node_selector: { pool: "trusted" },
      default_runtime_class_name: "gvisor",
    };
    expect(kubernetes(render(program, { values: driver(placed) }))).toMatchObject(placed);
    expect(refusal(program, { values: driver({ workload_tolerations: "{not json" }) })).toContain(
      "workload_tolerations",
    );
  });
});

describeWithHelm("bounds and admission", () => {
  it("bounds Pods by nothing that a renamed class could make void (curie-eng/curie#1492)", () => {
    const { spec } = find(
      render(program, { values: { resourceQuota: { enabled: true, maxRunningSandboxes: 2 } } }),
      "ResourceQuota",
    );
    expect(spec).not.toHaveProperty("scopes");
    expect(spec).not.toHaveProperty("scopeSelector");
  });

  it("labels the sandboxes' namespace for Pod Security (NVIDIA/OpenShell#597)", () => {
    expect(find(render(program), "Namespace").metadata.labels).toMatchObject({
      "pod-security.kubernetes.io/enforce": "restricted",
      "pod-security.kubernetes.io/warn": "restricted",
      "pod-security.kubernetes.io/audit": "restricted",
    });
  });

  it("can tell a mesh to leave both Pods of a pair alone (istio/istio#52245)", () => {
    const labels = { "sidecar.istio.io/inject": "false" };
    const settings = kubernetes(
      render(program, { values: driver({ supervisor_labels: labels, workload_labels: labels }) }),
    );
    expect(settings).toMatchObject({ supervisor_labels: labels, workload_labels: labels });
  });
});

describeWithHelm.each(helmPrograms)("values, with %s", (each) => {
  it("stay whole numbers and no text (helm/helm#1707, #32035, #6539; roxy-wi/IncidentRelay#79)", () => {
    const values = {
      gatewayConfig: { "openshell.x": { a: 1_000_000, b: 1_048_576, c: 9, d: 0, e: "9", f: [2_000_000_000] } },
    };
    const toml = find(render(each, { values, skipSchema: true }), "ConfigMap", "openshell-config").data["gateway.toml"];
    expect(toml).toContain('a = 1000000\nb = 1048576\nc = 9\nd = 0\ne = "9"\nf = [2000000000]\n');
    expect(parse(toml)).toBeTypeOf("object");
    const [{ runAsUser }] = [
      find(render(each, { values: { podSecurityContext: { runAsUser: 1_000_650_000 } } }), "StatefulSet").spec.template
        .spec.securityContext,
    ];
    expect(runAsUser).toBe(1_000_650_000);
  });

  it("of a parent chart may be null, global and enabled (helm/helm#32522, #32093, #10392; yoda-digital/mcp-gitlab-server#97)", () => {
    const own = render(each);
    const openshell = {
      enabled: true,
      podSecurityContext: null,
      resources: null,
      service: { port: null, metricsPort: 9090 },
      gatewayConfig: { "openshell.gateway": { log_level: null } },
    };
    const rendered = asSubchart(each, { openshell, global: { storageClass: "x", image: { tag: "0.1.0" } } });
    expect(JSON.stringify(rendered)).not.toMatch(/%!|<nil>|<no value>/);
    expect(find(rendered, "Service").spec).toEqual(find(own, "Service").spec);
    expect(find(rendered, "StatefulSet").spec).toEqual(find(own, "StatefulSet").spec);
    // A field that must not be there can also be left out without null: OpenShift's way.
    const { securityContext } = find(asSubchart(each, { openshell: { fixedUserIds: false } }), "StatefulSet").spec
      .template.spec;
    expect(securityContext).toEqual({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
    expect(asSubchart(each, { openshell: { enabled: false } })).toEqual([]);
  });
});

describeWithHelm("names and upgrades", () => {
  it("keeps versions out of everything that never changes (helm/charts#7803), and the volume apart (apache/pinot#6780)", () => {
    const { spec } = find(render(program), "StatefulSet");
    expect(spec).not.toHaveProperty("volumeClaimTemplates");
    expect(JSON.stringify(spec.selector)).not.toMatch(/version|chart/);
    const other = find(render(program, { values: { persistence: { existingClaim: "mine" } } }), "StatefulSet").spec;
    expect({ ...other, template: undefined }).toEqual({ ...spec, template: undefined });
  });

  it("selects no other's Pods where a parent chart has it twice, under aliases (bitnami/charts#13326)", () => {
    const namespace = (name: string) => ({ sandboxNamespace: { name } });
    const monitored = { podDisruptionBudget: { enabled: true }, serviceMonitor: { enabled: true } };
    const [blue, green] = [
      { ...monitored, ...namespace("blue") },
      { ...monitored, ...namespace("green") },
    ];
    const objects = asSubchart(program, { blue, green }, "blue", "green");
    const labelsOf = (alias: string) =>
      find(objects, "StatefulSet", `openshell-${alias}`).spec.template.metadata.labels as Record<string, string>;
    const selectorsOf = (alias: string) =>
      objects
        .filter(({ metadata }) => metadata.name.startsWith(`openshell-${alias}`))
        .flatMap(({ kind, spec }): Record<string, string>[] => {
          const monitor = kind === "ServiceMonitor";
          return monitor ? [] : [spec?.podSelector?.matchLabels, spec?.selector?.matchLabels ?? spec?.selector];
        })
        .filter((selector) => selector?.["app.kubernetes.io/component"] === "gateway");
    const selects = (selector: Record<string, string>, labels: Record<string, string>) =>
      Object.entries(selector).every(([key, value]) => labels[key] === value);
    for (const [own, other] of [
      ["blue", "green"],
      ["green", "blue"],
    ] as const) {
      expect(selectorsOf(own).length, "Service, StatefulSet, budget, policy and those of helm test").toBeGreaterThan(4);
      for (const selector of selectorsOf(own)) {
        expect(selects(selector, labelsOf(own))).toBe(true);
        expect(selects(selector, labelsOf(other))).toBe(false);
      }
    }
    const monitors = objects.filter(({ kind }) => kind === "ServiceMonitor");
    const services = objects.filter(({ kind }) => kind === "Service");
    for (const { metadata, spec } of monitors) {
      const scraped = services.filter(({ metadata: { labels = {} } }) => selects(spec.selector.matchLabels, labels));
      expect(scraped.map(({ metadata: { name } }) => name)).toEqual([`${metadata.name}-metrics`]);
    }
  });

  it("refuses a name that Helm takes and no Service can have, before anything is made (argoproj/argo-helm#3685, helm/helm#6600)", () => {
    const sentence =
      "the names of the release and of the chart, or its alias, make one that no Service can have: it begins with a letter and has lower case letters, digits and dashes only; set fullnameOverride";
    for (const release of ["openshell-v1.2", "1openshell"]) {
      expect(sentenceOf(program, { release })).toBe(sentence);
      expect(sentenceOf(program, { release, values: { fullnameOverride: "openshell" } })).toBeUndefined();
    }
    expect(() => asSubchart(program, {}, "agentGateway")).toThrow(sentence);
    const named = asSubchart(program, { agentGateway: { fullnameOverride: "agent-gateway" } }, "agentGateway");
    expect(find(named, "Service").metadata.name).toBe("agent-gateway");
  });

  it("tells two releases apart that differ after the longest name (port-labs/helm-charts#306)", () => {
    const of = (last: string) => render(program, { values: { fullnameOverride: `${"long-name-".repeat(5)}${last}` } });
    const names = (objects: readonly Rendered[]) =>
      objects.filter(({ kind }) => kind !== "Namespace").map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    const [one, two] = [of("a"), of("b")];
    // The sandboxes' namespace and its quota are named after the release's namespace.
    expect(names(one).filter((name) => names(two).includes(name))).toEqual([]);
    expect(kubernetes(one).gateway_id).not.toBe(kubernetes(two).gateway_id);
    for (const { kind, metadata } of one) {
      const longest = kind === "CronJob" ? 52 : kind.startsWith("ClusterRole") ? 253 : 63;
      expect(metadata.name.length, `${kind} ${metadata.name}`).toBeLessThanOrEqual(longest);
      expect(metadata.name).toMatch(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/);
    }
  });

  it("makes no two objects of one kind and name (cdk8s-team/cdk8s#3270)", () => {
    const keys = render(program, { presets: ["production"] }).map(
      ({ kind, metadata }) => `${kind} ${metadata.namespace} ${metadata.name}`,
    );
    expect([...new Set(keys)]).toEqual(keys);
  });
});

describeWithHelm("hooks", () => {
  it("are safe at first and again: of both events, gone when done, and nothing that a controller has to make ready (argoproj/argo-cd#7536, #20119; Ontotext-AD/graphdb-helm#142; openclarity/openclarity#555)", () => {
    const hooks = render(program).filter(
      ({ metadata }) => metadata.annotations?.["helm.sh/hook"] === "pre-install,pre-upgrade",
    );
    expect(hooks.map(({ kind }) => kind).sort()).toEqual(["Job", "Role", "RoleBinding", "ServiceAccount"]);
    for (const { metadata } of hooks)
      expect(metadata.annotations?.["helm.sh/hook-delete-policy"]).toBe("before-hook-creation,hook-succeeded");
    const others = render(program)
      .flatMap(({ metadata }) => metadata.annotations?.["helm.sh/hook"] ?? [])
      .filter((hook) => hook !== "test" && hook !== "pre-install,pre-upgrade");
    expect(others).toEqual([]);
    const argo = render(program, { presets: ["argocd"] });
    expect(argo.filter(({ metadata }) => metadata.annotations?.["helm.sh/hook"] !== undefined)).toEqual([]);
  });
});

describeWithHelm("an object of a hook, which Helm deletes by its name before it makes it", () => {
  const isHook = ({ metadata }: Rendered) => metadata.annotations?.["helm.sh/hook"] !== undefined;
  const keyOf = ({ kind, metadata }: Rendered) => `${kind} ${metadata.namespace}/${metadata.name}`;

  it("has the name of no ordinary object of another release in the namespace (helm/helm#3319)", () => {
    const hooks = render(program).filter(isHook);
    expect(hooks).toHaveLength(8);
    for (const hook of hooks) {
      const other = { values: { fullnameOverride: hook.metadata.name, sandboxNamespace: { name: "other" } } };
      const ordinary = refusal(program, other) === undefined ? render(program, other) : [];
      expect(ordinary.filter((object) => !isHook(object)).map(keyOf)).not.toContain(keyOf(hook));
    }
  });
});

describeWithHelm("text in YAML", () => {
  it("stays text, whatever it looks like (cdk8s-team/cdk8s#325, #2166; cdk8s-core#1850)", () => {
    const looks = [
      "on",
      "no",
      "~",
      "null",
      "2020-01-01",
      "0.01",
      "1e3",
      "0x1f",
      "0o17",
      "1_000",
      "1:30",
      "=",
      "- a",
      "# b",
      "{{ x }}",
    ];
    const podAnnotations = Object.fromEntries(
      [...looks, "it's\n'two' lines\n\n  and \"more\"\n", " padded ", "tab\t", "é \u2028 \u0001"].map((text, index) => [
        `a${index}`,
        text,
      ]),
    );
    const values = { podAnnotations, commonLabels: { numeric: "0.10", yes: "yes" } };
    const { metadata, spec } = find(render(program, { values }), "StatefulSet");
    expect(spec.template.metadata.annotations).toMatchObject(podAnnotations);
    expect(metadata.labels).toMatchObject({ numeric: "0.10", yes: "yes" });
  });
});
