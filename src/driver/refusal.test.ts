import { expect, test } from "vitest";
import { refusalFailure } from "./refusal.ts";

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
