import { timestampDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import type { KubeEvent } from "../kube/index.ts";
import { nodeRefusalOf, platformEventOf, startTroubleOf } from "./platform-events.ts";

const about = { kind: "Pod", name: "os-workload-1", uid: "u" };
const seconds = (minute: number) => `2026-01-02T03:${String(minute).padStart(2, "0")}:00Z`;

describe("a Kubernetes Event, as the gateway tells it", () => {
  test.each<[string, object, { at?: string; source: string; count: string; type?: string }]>([
    [
      "of the older API",
      {
        type: "Warning",
        source: { component: "kubelet" },
        count: 7,
        lastTimestamp: seconds(2),
        eventTime: null,
      },
      { at: seconds(2), source: "kubelet", count: "7", type: "Warning" },
    ],
    [
      "of the newer API, seen once",
      { reportingComponent: "default-scheduler", eventTime: seconds(3), source: {}, count: 0, lastTimestamp: null },
      { at: seconds(3), source: "default-scheduler", count: "1" },
    ],
    [
      "of the newer API, seen again and again",
      {
        reportingComponent: "default-scheduler",
        eventTime: seconds(3),
        series: { count: 4, lastObservedTime: seconds(5) },
      },
      { at: seconds(5), source: "default-scheduler", count: "4" },
    ],
    [
      "without a time of its own",
      { metadata: { name: "e", creationTimestamp: seconds(9) }, source: { component: "" } },
      { at: seconds(9), source: "kubernetes", count: "1" },
    ],
    ["that says next to nothing", {}, { source: "kubernetes", count: "1" }],
  ])("%s", (_, given, { at, source, count, type = "Normal" }) => {
    const event = platformEventOf({
      reason: "Why",
      message: "It is so.",
      involvedObject: about,
      ...given,
    } as KubeEvent);
    expect(event).toMatchObject({
      source,
      type,
      reason: "Why",
      message: "It is so.",
      metadata: { kind: "Pod", name: "os-workload-1", count },
    });
    const told = event.eventTime === undefined ? undefined : timestampDate(event.eventTime);
    expect(told).toEqual(at === undefined ? undefined : new Date(at));
  });
});

describe("what a node says of a Pod that it can never start", () => {
  const event = (message: string, change: object = {}) =>
    ({ metadata: {}, involvedObject: about, reason: "FailedCreatePodSandBox", message, ...change }) as KubeEvent;
  const failed = (why: string) => `Failed to create pod sandbox: ${why}`;
  const ofHandler = 'can\'t set `spec.hostUsers: false`, RuntimeClass handler "crun" does not support user namespaces';

  test.each([
    ["can't set `spec.hostUsers: false`, runtime does not support user namespaces"],
    [ofHandler],
    [`${ofHandler}: the handler "crun" is not known`],
    // 1.30 to 1.32.
    ['RuntimeClass handler "crun" does not support user namespaces'],
    ['the feature gate "UserNamespacesSupport" is disabled: can\'t set spec.HostUsers'],
  ])("is its kubelet's sentence: %s", (why) => {
    expect(nodeRefusalOf(event(failed(why)))).toEqual({
      podUid: "u",
      what: `cannot run the workload in a user namespace of its own: ${why}`,
    });
  });

  test.each([
    ["a network that may come", event(failed("rpc error: code = Unknown desc = failed to setup network"))],
    ["no user namespace left, for now", event(failed("create user namespace: could not find an empty slot"))],
    ["another reason", event(failed(ofHandler), { reason: "Failed" })],
    ["another object", event(failed(ofHandler), { involvedObject: { ...about, kind: "Sandbox" } })],
    ["a Pod without a UID", event(failed(ofHandler), { involvedObject: { kind: "Pod", name: "x" } })],
  ])("is not %s", (_what, other) => {
    expect(nodeRefusalOf(other)).toBeUndefined();
  });
});

describe("what keeps a Pod's node from starting its containers", () => {
  const event = (change: object = {}) =>
    ({
      metadata: { creationTimestamp: seconds(1) },
      involvedObject: about,
      reason: "FailedMount",
      message: "MountVolume.SetUp failed",
      ...change,
    }) as unknown as KubeEvent;

  test.each(["FailedCreatePodSandBox", "FailedCreatePodContainer", "FailedMount", "FailedAttachVolume"])(
    "is an event of reason %s, with its sentence and when it was said last",
    (reason) => {
      const trouble = { podUid: "u", message: "MountVolume.SetUp failed" };
      expect(startTroubleOf(event({ reason }))).toEqual({ ...trouble, atMs: Date.parse(seconds(1)) });
      const again = event({ reason, lastTimestamp: seconds(2) });
      expect(startTroubleOf(again)).toEqual({ ...trouble, atMs: Date.parse(seconds(2)) });
    },
  );

  test.each([
    ["another reason", { reason: "Failed" }],
    ["another object", { involvedObject: { ...about, kind: "PersistentVolumeClaim" } }],
    ["no sentence", { message: undefined }],
    ["a Pod without a UID", { involvedObject: { kind: "Pod", name: "x" } }],
  ])("is not %s", (_what, change) => {
    expect(startTroubleOf(event(change))).toBeUndefined();
  });
});
