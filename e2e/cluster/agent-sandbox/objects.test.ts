import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { podOf, sandbox } from "./_examples.ts";
import { createdByLabel, nameHash, nameHashLabel } from "./names.ts";
import { claimFor, metadataPatch, podFor, serviceFor } from "./objects.ts";

const podSpec = { containers: [{ name: "c", image: "i" }] };

function withTemplate(labels: Record<string, string>, annotations: Record<string, string> = {}) {
  return sandbox({ podTemplate: { metadata: { labels, annotations }, spec: podSpec } });
}

describe("the tracking label", () => {
  test.each([
    ["plain", "d3be3f67"],
    ["r1", "0c53fdac"],
    ["s2aad", "e0b0aa66"],
    ["s1fcd8", "e0b0aa66"],
  ])("of %s is %s, as was measured", (name, hash) => {
    expect(nameHash(name)).toBe(hash);
  });
});

describe("the Pod of a sandbox", () => {
  test("has its name, the tracking label, the template's keys listed, and one owner", () => {
    expect(podFor(withTemplate({ b: "1", a: "2" }, { n: "3" })).metadata).toEqual({
      name: "plain",
      namespace: "ns",
      labels: { a: "2", b: "1", [nameHashLabel]: "d3be3f67" },
      annotations: {
        n: "3",
        "agents.x-k8s.io/propagated-labels": "a,b",
        "agents.x-k8s.io/propagated-annotations": "n",
      },
      ownerReferences: [
        {
          apiVersion: "agents.x-k8s.io/v1beta1",
          kind: "Sandbox",
          name: "plain",
          uid: "cr-uid",
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    });
  });

  test("takes no reserved keys from the template, and says so by not listing them", () => {
    const pod = podFor(
      withTemplate(
        { "agents.x-k8s.io/mine": "1", [nameHashLabel]: "00000000" },
        { "extensions.agents.x-k8s.io/x": "1", "opentelemetry.io/trace-context": "1" },
      ),
    );
    expect(pod.metadata?.labels).toEqual({ [nameHashLabel]: "d3be3f67" });
    expect(pod.metadata?.annotations).toEqual({});
  });

  test.each([
    ["go-client", "go-client"],
    ["me", "unknown"],
  ])("made by %s says %s", (by, says) => {
    const pod = podFor(sandbox({}, { labels: { [createdByLabel]: by, other: "x" } }));
    expect(pod.metadata?.labels).toEqual({ app: "x", [createdByLabel]: says, [nameHashLabel]: "d3be3f67" });
  });

  test("passes the template's spec on, with claims in place of volumes of the same name", () => {
    const spec = {
      ...podSpec,
      schedulingGates: [{ name: "g" }],
      volumes: [
        { name: "w", emptyDir: {} },
        { name: "k", emptyDir: {} },
      ],
    };
    const claim = { metadata: { name: "w" }, spec: { accessModes: ["ReadWriteOnce"] } };
    expect(podFor(sandbox({ podTemplate: { spec }, volumeClaimTemplates: [claim] })).spec).toEqual({
      ...spec,
      volumes: [
        { name: "k", emptyDir: {} },
        { name: "w", persistentVolumeClaim: { claimName: "w-plain" } },
      ],
    });
  });
});

describe("the metadata of a live Pod", () => {
  test("is left alone when it is as the template says", () => {
    const cr = withTemplate({ a: "1" }, { b: "2" });
    expect(metadataPatch(cr, podOf(cr))).toBeUndefined();
  });

  test("follows the template, and leaves other keys alone", () => {
    const pod = podOf(withTemplate({ a: "1", b: "1" }, { c: "1" }));
    const labels = { ...pod.metadata.labels, theirs: "kept", a: "edited by hand" };
    expect(metadataPatch(withTemplate({ a: "1", d: "1" }), { ...pod, metadata: { ...pod.metadata, labels } })).toEqual({
      labels: { a: "1", b: null, d: "1" },
      annotations: {
        c: null,
        "agents.x-k8s.io/propagated-labels": "a,d",
        "agents.x-k8s.io/propagated-annotations": "",
      },
    });
  });

  test("needs no second patch after the first, whatever the templates", () => {
    const strings = fc.dictionary(fc.constantFrom("a", "b", "agents.x-k8s.io/z"), fc.constantFrom("1", "2"));
    fc.assert(
      fc.property(strings, strings, strings, strings, (labels, annotations, nextLabels, nextAnnotations) => {
        const next = withTemplate(nextLabels, nextAnnotations);
        const pod = podOf(withTemplate(labels, annotations));
        const patch = (metadataPatch(next, pod) ?? {}) as { labels?: object; annotations?: object };
        const patched = {
          ...pod,
          metadata: {
            ...pod.metadata,
            labels: merged(pod.metadata.labels, patch.labels),
            annotations: merged(pod.metadata.annotations, patch.annotations),
          },
        };
        expect(metadataPatch(next, patched)).toBeUndefined();
        expect(patched.metadata.labels).toEqual(podFor(next).metadata?.labels);
      }),
    );
  });
});

function merged(base: Record<string, string> | undefined, patch: object | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries({ ...base, ...patch }).filter(([, value]) => value !== null));
}

describe("the other objects of a sandbox", () => {
  test("a claim has the template's name before the sandbox's, and the sandbox as owner", () => {
    const template = { metadata: { name: "workspace", labels: { a: "1" } }, spec: { accessModes: ["ReadWriteOnce"] } };
    expect(claimFor(template, sandbox())).toMatchObject({
      metadata: {
        name: "workspace-plain",
        labels: { a: "1", [nameHashLabel]: "d3be3f67" },
        ownerReferences: [{ uid: "cr-uid" }],
      },
      spec: { accessModes: ["ReadWriteOnce"] },
    });
  });

  test("a Service is headless, selects by the tracking label, and has the containers' ports", () => {
    const ports = [
      { containerPort: 80, name: "web" },
      { containerPort: 53, protocol: "UDP" },
    ];
    const cr = sandbox({ podTemplate: { spec: { containers: [{ name: "c", ports }] } } });
    expect(serviceFor(cr).spec).toEqual({
      clusterIP: "None",
      selector: { [nameHashLabel]: "d3be3f67" },
      ports: [
        { name: "web", port: 80, protocol: "TCP" },
        { name: "p-53-udp", port: 53, protocol: "UDP" },
      ],
    });
  });
});
