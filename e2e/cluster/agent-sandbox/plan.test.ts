import { describe, expect, test } from "vitest";
import { now, observed, podOf, sandbox, settled, tracked, unownedPod } from "./_examples.ts";
import { adoptableLabel, podNameAnnotation } from "./names.ts";
import { claimFor, serviceFor } from "./objects.ts";
import { type Observed, plan } from "./plan.ts";

/** The actions in short: what is done to what. */
function steps(state: Observed): string[] {
  return plan(state).actions.map((action) => {
    switch (action.do) {
      case "patch":
        return `patch ${action.what} ${action.name}`;
      case "delete":
        return `delete ${action.what} ${action.uid}`;
      case "set pod name":
        return `set pod name ${action.value}`;
      default:
        return action.do;
    }
  });
}

const suspended = { operatingMode: "Suspended" } as const;
const named = { annotations: { [podNameAnnotation]: "plain" } };
const past = new Date(now.getTime() - 1000).toISOString();
const future = new Date(now.getTime() + 1000).toISOString();
const claimTemplate = { metadata: { name: "w" }, spec: {} };

function live<T extends { metadata?: object }>(
  object: T,
  metadata: object = {},
): T & { metadata: { name: string; uid: string; resourceVersion: string } } {
  return { ...object, metadata: { name: "", uid: "u", resourceVersion: "1", ...object.metadata, ...metadata } };
}

function ownedByAnother(cr = sandbox()) {
  return podOf(
    cr,
    {},
    { ownerReferences: [{ apiVersion: "v1", kind: "Sandbox", name: "same", uid: "1", controller: true }] },
  );
}

function terminating(cr = sandbox()) {
  return podOf(cr, { phase: "Running" }, { deletionTimestamp: "2026-01-01T11:59:59Z" });
}

describe("a running sandbox", () => {
  test.each<[string, Observed, string[]]>([
    ["has no Pod", observed(sandbox()), ["create pod"]],
    ["lost the Pod its annotation names", observed(sandbox({}, named)), ["set pod name null", "create pod"]],
    [
      "has a Pod that its annotation does not name",
      observed(sandbox(), { pods: [podOf(sandbox())] }),
      ["set pod name plain"],
    ],
    ["has its Pod", settled(), []],
    ["has a Pod that failed", settled({ phase: "Failed" }), []],
    ["has a Pod that succeeded", settled({ phase: "Succeeded" }), []],
    ["has a Pod that is terminating", observed(sandbox({}, named), { pods: [terminating()] }), []],
    [
      "is given another template while its old Pod is terminating",
      observed(sandbox({ podTemplate: { metadata: { labels: { app: "y" } }, spec: { containers: [] } } }, named), {
        pods: [terminating()],
      }),
      ["patch pod plain"],
    ],
    [
      "has another template spec than its Pod",
      {
        ...settled(),
        sandbox: sandbox({ podTemplate: { metadata: { labels: { app: "x" } }, spec: { containers: [] } } }, named),
      },
      [],
    ],
    [
      "meets an unowned Pod with the tracking label",
      observed(sandbox(), { pods: [unownedPod(tracked)] }),
      ["patch pod plain"],
    ],
    [
      "meets an unowned Pod that may be adopted",
      observed(sandbox(), { pods: [unownedPod({ [adoptableLabel]: "true" })] }),
      ["patch pod plain"],
    ],
    [
      "owns two Pods",
      observed(sandbox(), { pods: [podOf(sandbox()), podOf(sandbox(), {}, { uid: "2", name: "b" })] }),
      ["warn"],
    ],
    ["is being deleted", observed(sandbox({}, { deletionTimestamp: past })), []],
    [
      "wants no Pod by the older version's words",
      observed(sandbox({ operatingMode: undefined as never, replicas: 0 })),
      [],
    ],
  ])("that %s", (_, state, expected) => {
    expect(steps(state)).toEqual(expected);
  });

  test("says whose the Pod is that has its name, and forgets an annotation that names it", () => {
    const state = observed(sandbox({}, named), { pods: [ownedByAnother()] });
    expect(plan(state).errors).toEqual(['pod "plain" is owned by Sandbox/same (UID: 1), not by sandbox "plain"']);
    expect(steps(state)).toEqual(["set pod name null"]);
  });

  test("says what an unowned Pod lacks", () => {
    expect(plan(observed(sandbox(), { pods: [unownedPod({})] })).errors).toEqual([
      'cannot adopt unowned pod "plain": missing required pool authorization label ("agents.x-k8s.io/adoptable") ' +
        'or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")',
    ]);
  });
});

describe("a suspended sandbox", () => {
  test.each<[string, Observed, string[]]>([
    ["has a Pod", settled({ phase: "Running" }, suspended), ["delete pod pod-uid", "set pod name null"]],
    ["has a Pod that is terminating", observed(sandbox(suspended), { pods: [terminating()] }), []],
    ["has none", observed(sandbox(suspended)), []],
    ["meets another's Pod", observed(sandbox(suspended), { pods: [ownedByAnother()] }), []],
    [
      "has another template now",
      observed(sandbox({ ...suspended, podTemplate: { spec: { containers: [] } } }), { pods: [terminating()] }),
      [],
    ],
    ["has no claim", observed(sandbox({ ...suspended, volumeClaimTemplates: [claimTemplate] })), ["create claim"]],
    ["wants a Service", observed(sandbox({ ...suspended, service: true })), ["create service"]],
  ])("that %s", (_, state, expected) => {
    expect(steps(state)).toEqual(expected);
  });
});

describe("claims", () => {
  const cr = sandbox({ volumeClaimTemplates: [claimTemplate] });

  test("are made before the Pod", () => {
    expect(steps(observed(cr))).toEqual(["create claim", "create pod"]);
  });

  test("that are there stay as they are", () => {
    expect(steps(observed(cr, { claims: [live(claimFor(claimTemplate, cr))] }))).toEqual(["create pod"]);
  });

  test("of another sandbox are an error, and the Pod is made nevertheless", () => {
    const owner = sandbox({}, { name: "other", uid: "other" });
    const state = observed(cr, { claims: [live(claimFor(claimTemplate, owner), { name: "w-plain" })] });
    expect(steps(state)).toEqual(["create pod"]);
    expect(plan(state).errors).toEqual([
      'pvc "w-plain" is owned by Sandbox/other (UID: other), not by sandbox "plain"',
    ]);
  });
});

describe("the Service", () => {
  const service = live(serviceFor(sandbox()), { uid: "service" });

  test.each<[string, boolean | undefined, Observed["service"], string[]]>([
    ["wanted and absent", true, undefined, ["create service"]],
    ["wanted and there", true, service, []],
    ["neither wanted nor refused, and there", undefined, service, []],
    ["refused and there", false, service, ["delete service service"]],
    ["refused and absent", false, undefined, []],
    ["refused, and another's has the name", false, live(service, { ownerReferences: [] }), []],
    [
      "wanted, and an unowned one with the tracking label is there",
      true,
      live(service, { ownerReferences: [] }),
      ["patch service plain"],
    ],
  ])("%s", (_, wanted, present, expected) => {
    const state = { ...settled(undefined, wanted === undefined ? {} : { service: wanted }), service: present };
    expect(steps(state)).toEqual(expected);
  });
});

describe("a sandbox whose time", () => {
  test.each<[string, Observed, string[]]>([
    [
      "is over loses its Pod",
      settled({ phase: "Running" }, { shutdownTime: past }),
      ["delete pod pod-uid", "set pod name null"],
    ],
    [
      "is over goes itself where that is asked for",
      settled({}, { shutdownTime: past, shutdownPolicy: "Delete" }),
      ["delete sandbox cr-uid"],
    ],
    ["was over when it was made never has a Pod", observed(sandbox({ shutdownTime: past })), []],
    ["is to come is as any other", observed(sandbox({ shutdownTime: future })), ["create pod"]],
  ])("%s", (_, state, expected) => {
    expect(steps(state)).toEqual(expected);
  });
});
