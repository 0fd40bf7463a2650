import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { annotations } from "../manifests/index.ts";
import { testRecord, testSettings, testSpec } from "./_testing.ts";
import {
  type GenerationRecord,
  generationIdFor,
  maxRecordBytes,
  readRecord,
  requireRoom,
  writeRecord,
} from "./record.ts";

const on = (text: string | undefined) =>
  readRecord({ metadata: { annotations: text === undefined ? {} : { [annotations.generation]: text } } });

describe("the generation record", () => {
  test("comes back as it was written, whatever is in it", () => {
    const text = fc.string();
    // A key that zod leaves out, and that no label or annotation may have.
    const key = text.filter((each) => each !== "__proto__");
    const strings = fc.dictionary(key, text, { maxKeys: 5 });
    const records = fc.record({
      intent: fc.constantFrom<GenerationRecord["intent"]>("running", "stopped", "failed"),
      labels: strings,
      annotations: strings,
      session: fc.integer({ min: 1, max: 4_294_967_295 }),
      seeded: fc.boolean(),
      uid: fc.option(text, { nil: undefined }),
      evicted: fc.option(fc.array(text, { maxLength: 3 }), { nil: undefined }),
    });
    fc.assert(
      fc.property(records, ({ intent, labels, annotations: notes, session, seeded, uid, evicted }) => {
        const record = testRecord({
          intent,
          sandbox: testSpec({ labels, annotations: notes }),
          generation: { id: "c".repeat(32), session, seeded, foreignAffinity: { nodeAffinity: { x: [1] } } },
          ...(uid === undefined ? {} : { supervisorUid: uid, workloadUid: uid }),
          ...(evicted === undefined ? {} : { placement: { evicted } }),
        });
        expect(on(writeRecord(record))).toEqual({ ok: true, record });
      }),
    );
  });

  test("of a gateway that did not know a setting yet has that setting's default", () => {
    const { supervisor_replacement: _, ...known } = testRecord().settings;
    const read = on(JSON.stringify({ ...testRecord(), settings: known }));
    expect(read.ok && read.record.settings.supervisor_replacement).toEqual(testSettings().supervisor_replacement);
  });

  test.each([
    ["sandbox_runtime", "boundary_port"],
    ["sandbox_runtime", "fence_check"],
    ["supervisor_replacement", "max_per_hour"],
  ] as const)("that did not know a setting of a table yet has that setting's default: %s.%s", (table, name) => {
    const { settings } = testRecord();
    const known = {
      ...settings,
      [table]: Object.fromEntries(Object.entries(settings[table]).filter(([key]) => key !== name)),
    };
    const read = on(JSON.stringify({ ...testRecord(), settings: known }));
    expect(read.ok && read.record.settings[table]).toEqual(settings[table]);
  });

  test("is refused, with the setting named, when one is of another type", () => {
    const wrong = { ...testRecord().settings, sandbox_runtime: "required" };
    const read = on(JSON.stringify({ ...testRecord(), settings: wrong }));
    expect(!read.ok && read.problem).toMatch(/setting sandbox_runtime is of another type/);
  });

  test("keeps what an operator removed from a default", () => {
    const record = testRecord({}, testSettings({ supervisor_resources: { requests: { cpu: "1" }, limits: {} } }));
    const read = on(writeRecord(record));
    expect(read.ok && read.record.settings.supervisor_resources).toEqual({ requests: { cpu: "1" }, limits: {} });
  });

  const huge = testRecord({ sandbox: testSpec({ annotations: { note: "x".repeat(maxRecordBytes) } }) });

  test("is far below its limit for a plain sandbox, and nothing begins above it", () => {
    expect(Buffer.byteLength(writeRecord(testRecord()))).toBeLessThan(4096);
    expect(() => requireRoom(testRecord())).not.toThrow();
    expect(() => requireRoom(huge)).toThrow(/32768 is the limit/);
  });

  test("is written with its end however large it is, and of many words that ended it the first are kept", () => {
    const failure = { condition: "PodsAdmitted", reason: "AdmissionRefused", message: "ä".repeat(40_000) } as const;
    const read = on(writeRecord({ ...huge, intent: "failed", failure }));
    const message = (read.ok && read.record.failure?.message) || "";
    expect(message).toBe(`${"ä".repeat(1023)}…`);
  });

  test.each<[string, string | undefined]>([
    ["absent", undefined],
    ["no JSON", "{"],
    ["null", "null"],
    ["of another version", JSON.stringify({ ...testRecord(), version: 2 })],
    ["without a generation", JSON.stringify({ ...testRecord(), generation: undefined })],
    ["with settings of another shape", JSON.stringify({ ...testRecord(), settings: { namespace: 1 } })],
  ])("that is %s is a problem in words, never an exception", (_what, text) => {
    expect(on(text)).toMatchObject({ ok: false, problem: expect.stringContaining(annotations.generation) });
  });
});

describe("generation ids", () => {
  test("a retry of one request has the same id, another sandbox's another", () => {
    expect(generationIdFor("a", "g1")).toBe(generationIdFor("a", "g1"));
    expect(generationIdFor("a", "g1")).not.toBe(generationIdFor("b", "g1"));
    expect(generationIdFor("a", "g1")).toMatch(/^[0-9a-f]{32}$/);
  });

  test("without a request they are random", () => {
    expect(generationIdFor("a", "")).not.toBe(generationIdFor("a", ""));
  });
});
