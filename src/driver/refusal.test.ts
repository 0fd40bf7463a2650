import { describe, expect, test } from "vitest";
import { refusal } from "./_fake-cluster.ts";
import { insisting, refusalFailure } from "./refusal.ts";

const invalid = (text: string) => `Pod "os-supervisor-x" is invalid: spec.containers[0].resources.requests: ${text}`;

test.each([
  [
    'pods "x" is forbidden: minimum memory usage per Container is 4Gi, but request is 96Mi',
    "LimitRangeRefused",
    "the API server names the LimitRange's bound",
  ],
  [
    invalid('Invalid value: "50m": must be less than or equal to cpu limit of 20m'),
    "LimitRangeRefused",
    "no request of ours is above a limit of ours: the limit is a LimitRange's default",
  ],
  [
    invalid('Invalid value: "1": must be equal to nvidia.com/gpu limit of 2'),
    "InvalidPod",
    "what a caller asked for does not fit together",
  ],
])("%s is %s: %s", (text, reason) => {
  expect(refusalFailure("the supervisor Pod", text)).toEqual({
    condition: "PodsAdmitted",
    reason,
    message: `the cluster refused the supervisor Pod: ${text}`,
  });
});

describe("a write that is refused for want of a right", () => {
  /** Each try takes so long. */
  const triesOf = async (answerMs: number, accepted = Number.POSITIVE_INFINITY) => {
    let nowMs = 0;
    const pass = async (ms: number) => {
      nowMs += ms;
    };
    const begun: number[] = [];
    const write = async () => {
      begun.push(nowMs);
      await pass(answerMs);
      if (begun.length < accepted)
        throw refusal(403, "Forbidden", 'is forbidden: User "u" cannot create resource "pods" in API group ""');
    };
    const outcome = await insisting(write, { now: () => nowMs, sleep: pass }).then(
      () => "accepted",
      () => "refused",
    );
    return { outcome, begun };
  };

  test("is tried four times within 3.3 s, and no more once it is accepted", async () => {
    const { outcome, begun } = await triesOf(0);
    expect([outcome, begun.length]).toEqual(["refused", 4]);
    expect(begun.at(-1)).toBeLessThan(3_300);
    expect(await triesOf(0, 3)).toMatchObject({ outcome: "accepted", begun: { length: 3 } });
  });

  test("is not tried again when its answer took two seconds", async () => {
    expect(await triesOf(2_000)).toEqual({ outcome: "refused", begun: [0] });
  });
});
