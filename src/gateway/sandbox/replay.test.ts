import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { openshell } from "../../wire/index.ts";
import { anonymousUser } from "../identity/principal.ts";
import { Store } from "../store/store.ts";
import { Replays } from "./replay.ts";

const method = openshell.OpenShell.method.deleteSandbox;
const context = { method, principal: anonymousUser };
const request = (requestId: string, name = "one") => create(method.input, { requestId, name });
const answer = async () => ({ sandboxId: "id" });

describe("a repeated mutation", () => {
  it("runs once while the first is still running, and never for another request", async () => {
    using store = new Store(":memory:");
    const replays = new Replays(store.replays);
    const gate = Promise.withResolvers<void>();
    let runs = 0;
    const run = async () => {
      runs += 1;
      await gate.promise;
      return answer();
    };
    const both = [1, 2].map(() => replays.once(context, request("r"), method.output, run));
    await expect(replays.once(context, request("r", "two"), method.output, run)).rejects.toThrow(
      "request_id r was already used for a different request",
    );
    gate.resolve();
    expect(await Promise.all(both)).toMatchObject([{ sandboxId: "id" }, { sandboxId: "id" }]);
    expect(await replays.once(context, request("r"), method.output, run)).toMatchObject({ sandboxId: "id" });
    expect(runs).toBe(1);
  });

  it("has a request_id of a sensible length", async () => {
    using store = new Store(":memory:");
    const once = (id: string) => new Replays(store.replays).once(context, request(id), method.output, answer);
    await expect(once("x".repeat(256))).resolves.toBeDefined();
    await expect(once("x".repeat(257))).rejects.toMatchObject({ code: "invalid-argument" });
  });
});
