import { describe, expect, test } from "vitest";
import { FakeCluster, refusal } from "./_fake-cluster.ts";
import { deathsWithin } from "./_mortal-client.ts";
import { driverOn, ready, settled } from "./_testing-driver.ts";
import {
  bothGated,
  created,
  expectReady,
  nextGated,
  podsOf,
  recordOf,
  releasedIn,
  renderedBy,
  required,
  runUntil,
  settingsOf,
  supervisorGated,
  workloadGated,
} from "./_upgraded.ts";
import type { SupervisorLoss } from "./replacement.ts";

describe("after an upgrade whose Pods have another variable", () => {
  test("a pair that runs is not touched", async () => {
    const cluster = await created(undefined);
    await renderedBy("former", cluster);
    const { quiet, reasons } = await driverOn(cluster, required);
    await quiet();
    expect(cluster.writes()).toEqual([]);
    expect(await reasons()).toEqual(ready);
  });

  test("a pair that waits for a node waits on, with its workload as it is and another supervisor", async () => {
    const cluster = await supervisorGated();
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const released = releasedIn(cluster);
    const begun = await driverOn(cluster, required);
    await begun.quiet();
    const remade = ["patch sandboxes", "delete pods", "create pods", "patch sandboxes"];
    expect(cluster.writes()).toEqual([...remade, "create secrets"]);
    expect(releasedIn(cluster)).toEqual(released);
    expect(await begun.reasons()).toEqual(["Admitted", "WaitingForScheduler", "WaitingForScheduling"]);
    await expectReady(cluster, begun, generation.id, released);
    expect(recordOf(cluster).replacedAt).toBeUndefined();
  });

  test("a pair that is behind its gates is made anew, both Pods once", async () => {
    const cluster = await bothGated();
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const begun = await driverOn(cluster, required);
    await expectReady(cluster, begun, generation.id, []);
    const counted = cluster.writes().filter((write) => /create pods|delete pods|sandboxes/.test(write));
    // Suspended, run, and the record that says that it ran.
    expect(counted.sort()).toEqual(["create pods", "delete pods", ...Array(3).fill("patch sandboxes")]);
  });

  test("a workload that waits for its supervisor's node is made anew with that one, which was released for the former", async () => {
    const cluster = await workloadGated();
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const begun = await driverOn(cluster, required);
    await expectReady(cluster, begun, generation.id, []);
    expect(recordOf(cluster).generation.session).toBe(generation.session + 1);
  });

  test("the next supervisor of an agent that runs is made anew and is no second loss", async () => {
    const cluster = await nextGated();
    await renderedBy("former", cluster);
    const before = recordOf(cluster);
    const released = releasedIn(cluster);
    const told: SupervisorLoss[] = [];
    const begun = await driverOn(cluster, required, { onReplacement: (cause) => told.push(cause) });
    await expectReady(cluster, begun, before.generation.id, released);
    const { replacedAt, workloadUid, generation } = recordOf(cluster);
    expect({ replacedAt, workloadUid }).toEqual({ replacedAt: before.replacedAt, workloadUid: before.workloadUid });
    expect([generation.session, told]).toEqual([3, []]);
  });

  test.each([
    ["both Pods", bothGated],
    ["a supervisor", supervisorGated],
  ])("a quota that has not heard of the end of what is made anew ends nothing: %s", async (_what, begin) => {
    const cluster = await begin();
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const released = releasedIn(cluster);
    const message = 'pods "x" is forbidden: exceeded quota: q';
    let isFull = true;
    cluster.beforeWrite = ({ verb, resource }) => {
      if (isFull && verb === "create" && resource === "pods") throw refusal(403, "Forbidden", message);
    };
    const begun = await driverOn(cluster, required);
    await settled(cluster, async () => (await begun.reasons())?.[0] === "SupervisorRefused");
    isFull = false;
    await expectReady(cluster, begun, generation.id, released);
  });
});

describe("after an upgrade while a sandbox was created", () => {
  const deaths = deathsWithin(9).filter(({ at, when }) => at > 1 || when === "before its answer is seen");
  const cases = (["off", "required"] as const).flatMap((mode) =>
    deaths.map((death) => [mode, death.at, death.when] as const),
  );

  test.each(cases)("with anti-affinity %s, write %i, %s: it goes on", async (mode, at, when) => {
    const cluster = await created({ at, when }, settingsOf(mode));
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const released = releasedIn(cluster);
    const begun = await driverOn(cluster, settingsOf(mode));
    await expectReady(cluster, begun, generation.id, released);
    // None is left of a Pod that was made anew.
    const owners = cluster.all("secrets").map(({ metadata }) => metadata.ownerReferences?.[0]?.uid);
    expect(owners.sort()).toEqual(
      podsOf(cluster)
        .map(({ metadata }) => metadata.uid)
        .sort(),
    );
  });
});

describe("a process that dies while it makes anew", () => {
  const begins = {
    "both Pods": bothGated,
    "a supervisor": supervisorGated,
    "a workload": workloadGated,
    "an agent's supervisor": nextGated,
  };
  const cases = (Object.keys(begins) as (keyof typeof begins)[]).flatMap((what) =>
    deathsWithin(what === "both Pods" || what === "a workload" ? 7 : 5).flatMap(({ at, when }) =>
      (["the same release", "a third one"] as const).map((next) => [what, at, when, next] as const),
    ),
  );

  test.each(cases)("%s, at write %i, %s, is followed by one of %s", async (what, at, when, next) => {
    const cluster = await begins[what]();
    await renderedBy("former", cluster);
    const { generation } = recordOf(cluster);
    const released = releasedIn(cluster);
    expect(await runUntil({ at, when }, cluster, required, ({ quiet }) => quiet())).toBe(true);
    if (next === "a third one") await renderedBy("third", cluster);
    const before = [...released, ...releasedIn(cluster)];
    await expectReady(cluster, await driverOn(cluster, required), generation.id, before);
  });
});

describe("without an upgrade", () => {
  test("a restart beside a pair that waits writes the Secret behind the closed gate anew, and nothing else", async () => {
    const cluster = await supervisorGated();
    cluster.calls.length = 0;
    const { quiet } = await driverOn(cluster, required);
    await quiet();
    expect(cluster.writes()).toEqual(["create secrets", "delete secrets", "create secrets"]);
  });

  test("a create that was in flight is gone on with by as many writes as it had left", async () => {
    const cluster = await created({ at: 4, when: "before it is sent" });
    const done = cluster.writes().length;
    const begun = await driverOn(cluster, required);
    await expectReady(cluster, begun, recordOf(cluster).generation.id, []);
    expect([done, cluster.writes().length]).toEqual([3, 9]);
  });

  test("a create sends its template once", async () => {
    const cluster = new FakeCluster();
    let sent = 0;
    for (const verb of ["create", "patch"] as const) {
      const write = cluster[verb].bind(cluster) as (...args: unknown[]) => never;
      cluster[verb] = (...args: unknown[]) => {
        if (JSON.stringify(args).includes("podTemplate")) sent += 1;
        return write(...args);
      };
    }
    await created(undefined, required, cluster);
    expect(sent).toBe(1);
  });
});
