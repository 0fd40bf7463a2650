import { describe, expect, it } from "vitest";
import { handlersOf } from "./runtime-class.ts";

describe("the handlers of the suites' two RuntimeClasses", () => {
  it("are two where the nodes have two OCI runtimes, and elsewhere the one that all have", () => {
    expect(handlersOf("local", "")).toEqual(["runc", "crun"]);
    expect(handlersOf("k3d", "")).toEqual(["runc", "runc"]);
    expect(handlersOf("kubeconfig", "")).toEqual(["runc", "runc"]);
  });

  it("are those that the variable names", () => {
    expect(handlersOf("kubeconfig", "kata,gvisor")).toEqual(["kata", "gvisor"]);
    expect(handlersOf("k3d", "crun")).toEqual(["crun", "crun"]);
  });
});
