/** What an upgrade would do, seen from what is rendered: release.cluster.test.ts does it. */
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import { chartDirectory, find, helmPrograms, type Rendered, render, template } from "./_helm.ts";
import { restartingChanges, silentChanges } from "./fixtures/changes.ts";
import { defaultValues } from "./values-schema.ts";

vi.setConfig({ testTimeout: 60_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);

const podTemplate = (objects: readonly Rendered[]) => find(objects, "StatefulSet").spec.template;

/** What the API server never lets an upgrade change, of each object that has such a thing. */
const immutable = (objects: readonly Rendered[]) =>
  objects.flatMap(({ kind, metadata, spec, roleRef }) => {
    const name = `${kind}/${metadata.name}`;
    if (kind === "StatefulSet") {
      const { template: _, replicas, updateStrategy, minReadySeconds, ...fixed } = spec;
      return [{ name, fixed }];
    }
    if (kind === "PersistentVolumeClaim") {
      const { resources, ...fixed } = spec;
      return [{ name, fixed }];
    }
    if (roleRef !== undefined) return [{ name, fixed: roleRef }];
    return [];
  });

describeWithHelm("an upgrade", () => {
  const before = render(program, { presets: ["conformance"] });
  const fixedBefore = new Map(immutable(before).map(({ name, fixed }) => [name, fixed]));

  it.each(silentChanges.map((change) => [Object.keys(change).join(), change]))(
    "with another %s leaves the gateway's Pod as it is",
    (_, values) => {
      const after = render(program, { presets: ["conformance"], values });
      expect(after).not.toEqual(before);
      expect(podTemplate(after)).toEqual(podTemplate(before));
      for (const { name, fixed } of immutable(after)) expect(fixed, name).toEqual(fixedBefore.get(name) ?? fixed);
    },
  );

  it.each(Object.entries(restartingChanges))(
    "with another %s makes it a new one, and touches nothing that is immutable",
    (key, change) => {
      const after = render(program, { presets: ["conformance"], values: { [key]: change } });
      expect(podTemplate(after)).not.toEqual(podTemplate(before));
      for (const { name, fixed } of immutable(after)) expect(fixed, name).toEqual(fixedBefore.get(name) ?? fixed);
    },
  );

  it("to a newer chart keeps every name and selector, whatever the version is", () => {
    const labels = "helm.sh/chart";
    const selectors = before
      .flatMap(({ spec }) => [spec?.selector, spec?.podSelector])
      .filter((one) => one !== undefined);
    expect(JSON.stringify(selectors)).not.toContain(labels);
    expect(JSON.stringify(selectors)).not.toContain("app.kubernetes.io/version");
  });

  it("is tried with every value that an operator may change in a running release", () => {
    const tried = new Set([
      ...silentChanges.flatMap((change) => Object.keys(change)),
      ...Object.keys(restartingChanges),
    ]);
    const reason: Readonly<Record<string, string>> = {
      enabled: "for a parent chart",
      nameOverride: "another name is another release's objects",
      fullnameOverride: "the same",
      global: "images: tried in chart.helm.test.ts",
      gateway: "image",
      supervisor: "image",
      sandboxRuntime: "image",
      sandbox: "image",
      replicaCount: "one only",
      preflight: "looks at the cluster, and is in no object",
      imagePullSecrets: "pod.helm.test.ts",
      rbac: "rights go with it: chart.helm.test.ts",
      server: "who makes certificates: pki.helm.test.ts",
      certManager: "the same",
      grpcRoute: "needs its APIs: routes.helm.test.ts",
      tlsRoute: "the same",
      openshiftRoute: "the same",
      serviceMonitor: "the same",
      podSecurityContext: "pod.helm.test.ts",
      securityContext: "the same",
      fixedUserIds: "the same",
      priorityClassName: "the same",
    };
    const missing = Object.keys(defaultValues).filter((key) => !tried.has(key) && !(key in reason));
    expect(missing).toEqual([]);
  });
});

describeWithHelm("values of the previous release, used again", () => {
  const folder = mkdtempSync(join(tmpdir(), "openshell-values-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(helmPrograms)("render as if they were this release's own, with %s", (each) => {
    // --reuse-values gives the new templates the old values.yaml in place of their own.
    const reused = join(folder, each.replaceAll("/", "-"));
    cpSync(chartDirectory, reused, { recursive: true });
    cpSync(join(import.meta.dirname, "fixtures", "values-0.1.yaml"), join(reused, "values.yaml"));
    const values = { presets: ["production"] };
    expect(template(each, { ...values, chart: reused })).toBe(template(each, values));
  });
});
