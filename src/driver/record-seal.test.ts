import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { annotations } from "../manifests/index.ts";
import { testGatewayId, testNow, testRecord, testSettings, testSpec } from "./_testing.ts";
import { masterKidOf } from "./identity.ts";
import { type GenerationRecord, writeRecord } from "./record.ts";
import { RecordSeal } from "./record-seal.ts";

const masterSecret = new Uint8Array(32).fill(7);
const sealOf = (change: Partial<ConstructorParameters<typeof RecordSeal>[0]> = {}) =>
  new RecordSeal({ masterSecret, gatewayId: testGatewayId, namespacesOf: (workspace) => [workspace], ...change });
const seal = sealOf();

const recordIn = (workspace: string, change: Partial<GenerationRecord> = {}) =>
  testRecord(
    { masterKid: masterKidOf(masterSecret), sandbox: testSpec({ workspace }), ...change },
    testSettings({ namespace: workspace }),
  );
const made = { uid: "cr-uid", generation: 1, creationTimestamp: testNow.toISOString() };
const on = (text: string, metadata: Partial<typeof made> & { namespace?: string; name?: string } = {}) => ({
  metadata: {
    ...made,
    namespace: "team-a",
    name: "team-a--blue",
    ...metadata,
    annotations: { [annotations.generation]: text },
  },
});

describe("a sealed generation record", () => {
  test("comes back as it was written", () => {
    // A key that zod leaves out, and that no label or annotation may have.
    const key = fc.string().filter((each) => each !== "__proto__");
    const text = fc.dictionary(key, fc.string(), { maxKeys: 5 });
    fc.assert(
      fc.property(text, text, (labels, notes) => {
        const record = recordIn("team-a", { sandbox: testSpec({ workspace: "team-a", labels, annotations: notes }) });
        expect(seal.read(on(seal.write(record)))).toEqual({ ok: true, record });
      }),
    );
  });

  test("counts wherever its Sandbox has come to when it names it, or is of a gateway before that", () => {
    const later = { generation: 7, creationTimestamp: "2026-11-01T00:00:00Z" };
    for (const change of [{ resourceUid: "cr-uid" }, { bindsUids: undefined }]) {
      expect(seal.read(on(seal.write(recordIn("team-a", change)), later)).ok).toBe(true);
    }
  });

  test("is none once any one character of it is another", () => {
    const text = seal.write(recordIn("team-a"));
    fc.assert(
      fc.property(fc.nat(text.length - 1), fc.string({ minLength: 1, maxLength: 1 }), (at, other) => {
        fc.pre(text[at] !== other);
        expect(seal.read(on(text.slice(0, at) + other + text.slice(at + 1))).ok).toBe(false);
      }),
    );
  });

  const text = seal.write(recordIn("team-a"));
  const edited = (change: object) =>
    JSON.stringify({ ...JSON.parse(text), ...change, seal: undefined }).replace("{", text.slice(0, 75));
  test.each<[string, ReturnType<typeof on>, RegExp]>([
    [
      "copied into another namespace",
      on(text, { namespace: "team-b" }),
      /it is of Sandbox "team-a--blue" in namespace "team-a"/,
    ],
    ["copied to another Sandbox", on(text, { name: "team-a--red" }), /it is of Sandbox "team-a--blue"/],
    ["without a seal", on(writeRecord(recordIn("team-a"))), /no seal of this gateway/],
    [
      "of another generation",
      on(edited({ generation: { ...recordIn("team-a").generation, id: "b".repeat(32) } })),
      /somebody else wrote or changed it/,
    ],
    ["with another supervisor", on(edited({ supervisorUid: "mine" })), /somebody else wrote or changed it/],
    [
      "of another gateway",
      on(sealOf({ gatewayId: "other" }).write(recordIn("team-a"))),
      /somebody else wrote or changed it/,
    ],
    [
      "sealed for a namespace that its workspace is not in",
      on(
        seal.write(testRecord({ sandbox: testSpec({ workspace: "team-a" }) }, testSettings({ namespace: "team-b" }))),
        { namespace: "team-b" },
      ),
      /workspace "team-a" is not in namespace "team-b"/,
    ],
    [
      "of the time of another master secret",
      on(sealOf({ masterSecret: new Uint8Array(32) }).write(recordIn("team-a", { masterKid: "0".repeat(16) }))),
      /was sealed under master secret 0{16}, and the gateway has [0-9a-f]{16}; put that one back/,
    ],
    [
      "of another Sandbox of that name",
      on(seal.write(recordIn("team-a", { resourceUid: "former" }))),
      /it is of another Sandbox of that name/,
    ],
    ["that a Sandbox was made with, once that was changed", on(text, { generation: 2 }), /when this one was made/],
    [
      "that a Sandbox was made with, on one of another time",
      on(text, { creationTimestamp: "2026-12-01T12:02:01Z" }),
      /it is of another Sandbox of that name/,
    ],
  ])("%s is a problem in words", (_what, resource, problem) => {
    expect(seal.read(resource)).toMatchObject({ ok: false, problem: expect.stringMatching(problem) });
  });
});
