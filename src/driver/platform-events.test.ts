import { timestampDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import type { KubeEvent } from "../kube/index.ts";
import { platformEventOf } from "./platform-events.ts";

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
