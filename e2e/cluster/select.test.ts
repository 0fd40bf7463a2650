import { describe, expect, test } from "vitest";
import { type Machine, selectProvider } from "./select.ts";

function machine(changes: Partial<Machine> = {}): Machine {
  return { platform: "linux", arch: "x64", uid: 0, k3dAnswers: async () => false, ...changes };
}

describe("without a name the provider", () => {
  test("is k3d where it answers", async () => {
    expect((await selectProvider(undefined, machine({ k3dAnswers: async () => true }))).name).toBe("k3d");
  });

  test("is the local cluster for root on Linux", async () => {
    expect((await selectProvider(undefined, machine())).name).toBe("local");
  });

  test.each([
    [{ uid: 1000 }, "the local cluster needs root"],
    [{ platform: "darwin" }, "the local cluster needs Linux, and this is darwin"],
    [{ arch: "arm64" }, "this machine is arm64"],
  ])("is refused in one line on %j", async (changes, reason) => {
    const refusal = selectProvider(undefined, machine(changes));
    await expect(refusal).rejects.toThrow(reason);
    await expect(refusal).rejects.toThrow(/^no cluster can be had here: [^\n]+$/);
  });
});

test("a name is taken as it is, and an unknown one is answered with those there are", async () => {
  expect((await selectProvider("kubeconfig", machine())).name).toBe("kubeconfig");
  await expect(selectProvider("kind", machine())).rejects.toThrow(
    "there is no provider kind: use one of local, k3d, kubeconfig",
  );
  await expect(selectProvider("toString", machine())).rejects.toThrow("there is no provider toString");
});
