import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { annotations, labels } from "../../../src/manifests/names.ts";
import { openshell } from "../../../src/wire/index.ts";
import type { SeenRequest } from "../../support/api-proxy.ts";
import { randomName } from "../../support/conformance.ts";
import { canBreak, FaultSuite } from "../../support/fault-suite.ts";
import { failed, said } from "../../support/outcome.ts";
import type { TestSandbox } from "../../support/test-sandbox.ts";

const { SandboxPhase } = openshell;
const releaseSchema = z.looseObject({
  metadata: z.looseObject({}),
  spec: z.object({ schedulingGates: z.array(z.unknown()) }),
});

let bench: FaultSuite;

/** The body of the write that opens the gate of a sandbox's workload. */
function releaseOf({ method, path, body }: SeenRequest, name: string) {
  if (method !== "PATCH" || !path.endsWith(`/pods/${bench.suite.workspace}--${name}`)) return undefined;
  return releaseSchema.safeParse(JSON.parse(body)).data;
}

const hasStarted = (sandbox: TestSandbox) =>
  bench.suite.podOf(sandbox, "workload")?.status?.containerStatuses?.some(({ started }) => started === true) ?? false;

describe("between the verification of a Pod and its release", { skip: !canBreak }, () => {
  beforeAll(async () => {
    bench = await FaultSuite.open();
  });

  afterAll(async () => bench?.[Symbol.asyncDispose]());

  /** Creates a sandbox whose workload somebody changes when its release is on its way; gives how the API server answered each release. */
  async function changedMeanwhile(...change: readonly string[]) {
    const { suite } = bench;
    const name = randomName();
    const answers: number[] = [];
    const pod = ["-n", suite.release.sandboxNamespace, "pod", `${suite.workspace}--${name}`];
    using _fault = bench.proxy.breaking(async (request, pass) => {
      if (releaseOf(request, name) === undefined) return pass();
      const [verb = "", ...words] = change;
      if (answers.length === 0) await suite.kubectl([verb, ...pod, ...words]);
      const answer = await pass();
      answers.push(answer.status);
      return answer;
    });
    await using undo = new AsyncDisposableStack();
    const sandbox = undo.use(await suite.create({ name }));
    const { status } = await sandbox.until({
      what: "an end of the start, good or bad",
      withinMs: 120_000,
      test: (now) => [SandboxPhase.READY, SandboxPhase.ERROR].includes(now.status?.phase ?? SandboxPhase.UNSPECIFIED),
    });
    undo.move();
    return { sandbox, answers, phase: status?.phase };
  }

  it("a harmless change makes the release fail, the Pod is verified again, and runs", async () => {
    const { sandbox, answers, phase } = await changedMeanwhile("annotate", "conformance.openshell.test/seen=yes");
    await using _sandbox = sandbox;
    expect(answers).toEqual([409, 200]);
    expect(phase).toBe(SandboxPhase.READY);
    expect(await sandbox.exec(["echo", "here"])).toMatchObject({ stdout: "here\n" });
  });

  it("a change of the labels that the fence selects by loses: the Pod is never released with it", async () => {
    const { sandbox, answers, phase } = await changedMeanwhile("label", `${labels.boundaryRole}-`);
    await using _sandbox = sandbox;
    expect(answers[0]).toBe(409);
    // The Agent Sandbox controller may put its template's label back before the Pod is looked at again.
    if (phase === SandboxPhase.READY) {
      const { workload } = await bench.suite.pair(sandbox);
      expect(workload.metadata.labels?.[labels.boundaryRole]).toBe("workload");
    } else {
      expect(answers).toEqual([409]);
      expect(said(await sandbox.get())).toMatch(/AdmissionViolation: .*boundary-role/);
    }
  });

  it("who opens the gate himself, with what our release writes but its seal, has released nothing: the start ends and names the gate", async () => {
    const { suite, proxy } = bench;
    const name = randomName();
    let opened = false;
    using _fault = proxy.breaking(async (request, pass) => {
      const release = releaseOf(request, name);
      if (release === undefined || opened) return pass();
      opened = true;
      const written = z.record(z.string(), z.string()).parse(release.metadata.annotations);
      const peer = { [annotations.peerUid]: written[annotations.peerUid], "k8s.v1.cni.cncf.io/networks": "other" };
      const patch = JSON.stringify({ metadata: { annotations: peer }, spec: { schedulingGates: null } });
      const pod = ["-n", suite.release.sandboxNamespace, "pod", `${suite.workspace}--${name}`];
      await suite.kubectl(["patch", ...pod, "--type=merge", "--patch", patch]);
      return pass();
    });
    await using sandbox = await suite.create({ name });
    expect(said(await sandbox.until(failed()))).toMatch(/AdmissionViolation: .*spec\.schedulingGates/);
    expect(opened).toBe(true);
    await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
  });

  const withRelease: Readonly<Record<string, readonly [object, RegExp]>> = {
    "takes the label away that the fence selects by": [
      { metadata: { labels: { [labels.boundaryRole]: null } } },
      /metadata\.labels.*boundary-role/,
    ],
    "ties it to other nodes": [{ spec: { nodeSelector: { a: "b" } } }, /spec\.nodeSelector/],
    "gives it another network": [
      { metadata: { annotations: { "k8s.v1.cni.cncf.io/networks": "other" } } },
      /metadata\.annotations.*cncf/,
    ],
  };

  it.each(Object.entries(withRelease))(
    "who %s in the release itself is seen in its answer: the Pod goes before anything ran, and the field is named",
    async (_what, [change, field]) => {
      const { suite, proxy } = bench;
      const name = randomName();
      // What a webhook makes of the update is part of it.
      using _fault = proxy.breaking(async (request, pass) => {
        const release = releaseOf(request, name);
        return release === undefined ? pass() : pass(JSON.stringify(merged(release, change)));
      });
      await using sandbox = await suite.create({ name });
      let ran = false;
      using _watched = watched(() => {
        ran ||= hasStarted(sandbox);
      });
      expect(said(await sandbox.until(failed()))).toMatch(field);
      await suite.pods.until("its Pods to be gone", () => suite.podsOf(sandbox).length === 0, { deadlineMs: 60_000 });
      expect(ran).toBe(false);
    },
  );

  function watched(look: () => void): Disposable {
    const end = bench.suite.pods.on("changed", look);
    return { [Symbol.dispose]: end };
  }
});

/** RFC 7396, of two merge patches. */
function merged(patch: object, more: object): object {
  const result: Record<string, unknown> = { ...patch };
  for (const [key, value] of Object.entries(more)) {
    const before = result[key];
    const both = isObject(before) && isObject(value);
    result[key] = both ? merged(before, value) : value;
  }
  return result;
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);
