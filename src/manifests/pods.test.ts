import { describe, expect, test } from "vitest";
import { emptiedVariables } from "../common/emptied-variables.ts";
import { generationId, pairWith } from "./_testing.ts";
import { bootstrapGate, labels, paths } from "./names.ts";
import { supervisorPodSpec } from "./supervisor-pod.ts";
import { workloadPodTemplate, workloadResources } from "./workload-pod.ts";

interface Container {
  name: string;
  image: string;
  command?: string[];
  args?: string[];
  env: { name: string; value?: string; valueFrom?: object }[];
  resources: { requests?: Record<string, string>; limits?: Record<string, string> };
  securityContext: Record<string, unknown>;
  volumeMounts: { name: string; mountPath: string; readOnly?: boolean; subPath?: string }[];
  imagePullPolicy?: string;
}
interface Spec extends Record<string, unknown> {
  containers: Container[];
  initContainers?: Container[];
  volumes: Record<string, unknown>[];
}

const workload = (change?: Parameters<typeof pairWith>[0]) => workloadPodTemplate(pairWith(change)).spec as Spec;
const supervisor = (change?: Parameters<typeof pairWith>[0]) => supervisorPodSpec(pairWith(change)) as Spec;
const containersOf = (spec: Spec) => [...(spec.initContainers ?? []), ...spec.containers];
const only = (spec: Spec): Container => spec.containers[0] as Container;
const mountsOf = (container: Container | undefined) => container?.volumeMounts.map(({ mountPath }) => mountPath);

describe.each([
  ["workload", workload, 40],
  ["supervisor", supervisor, 30],
] as const)("the %s Pod", (role, render, terminationGracePeriodSeconds) => {
  test("is born gated, never restarts in place, has a grace period and no token of its own", () => {
    expect(render()).toMatchObject({
      schedulingGates: [{ name: bootstrapGate }],
      restartPolicy: "Never",
      terminationGracePeriodSeconds,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      serviceAccountName: "default",
    });
  });

  test("runs its program as process 1 just where that has to reap and to freeze", () => {
    expect(render().shareProcessNamespace).toBe(role === "workload" ? undefined : true);
  });

  test("satisfies Pod Security restricted in every container, with user and group said explicitly", () => {
    const spec = render();
    const user = role === "workload" ? 10001 : 10002;
    expect(spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: user,
      runAsGroup: user,
      fsGroup: user,
      fsGroupChangePolicy: "OnRootMismatch",
      seccompProfile: { type: "RuntimeDefault" },
    });
    for (const container of containersOf(spec)) {
      expect(container.securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        privileged: false,
        capabilities: { drop: ["ALL"] },
        runAsNonRoot: true,
        runAsUser: user,
        runAsGroup: user,
        seccompProfile: { type: "RuntimeDefault" },
      });
    }
  });

  test("empties the variables that could load foreign code into our Node, in every container", () => {
    for (const container of containersOf(render())) {
      for (const name of emptiedVariables) expect(container.env).toContainEqual({ name, value: "" });
    }
  });

  test("uses the pull secrets, and has none by default", () => {
    expect(render().imagePullSecrets).toBeUndefined();
    expect(render({ settings: { image_pull_secrets: ["a", "b"] } }).imagePullSecrets).toEqual([
      { name: "a" },
      { name: "b" },
    ]);
  });

  test("says nothing about classes, nodes and affinity when nobody asked", () => {
    const spec = render();
    for (const field of ["runtimeClassName", "priorityClassName", "nodeSelector", "affinity", "hostUsers"]) {
      expect(spec).not.toHaveProperty(field);
    }
  });
});

describe("the workload Pod", () => {
  test("stages the runtime, seeds the workspace, then runs the agent's container with our program as PID 1", () => {
    const spec = workload();
    expect(spec.initContainers?.map(({ name }) => name)).toEqual(["stage", "seed"]);
    expect(spec.initContainers?.[0]?.args).toEqual(["stage"]);
    expect(only(spec).command?.slice(0, 3)).toEqual([
      "/openshell/lib/ld-linux-x86-64.so.2",
      "--library-path",
      "/openshell/lib",
    ]);
    expect(only(spec).command).toContain("--disable-sigusr1");
    expect(spec.initContainers?.[1]?.command?.at(-1)).toBe("seed");
  });

  test("tells the seed when the record says that the workspace was seeded: an empty volume is not its own any more", () => {
    const expectedBySeed = (seeded: boolean) => {
      const seed = workload({ generation: { seeded } }).initContainers?.find(({ name }) => name === "seed");
      return seed?.env?.find(({ name }) => name === "OPENSHELL_SEED_EXPECTED")?.value;
    };
    expect(expectedBySeed(false)).toBe("any");
    expect(expectedBySeed(true)).toBe("seeded");
  });

  test("shows its Secret to stage only, and the volume's root to seed only", () => {
    const [stage, seed] = workload().initContainers ?? [];
    const agent = only(workload());
    expect(mountsOf(stage)).toContain(paths.workloadSecret);
    expect(mountsOf(seed)).not.toContain(paths.workloadSecret);
    expect(mountsOf(agent)).not.toContain(paths.workloadSecret);
    expect(mountsOf(seed)).toContain(paths.workspaceRoot);
    expect(mountsOf(agent)).not.toContain(paths.workspaceRoot);
    expect(agent.volumeMounts).toContainEqual({ name: "workspace", mountPath: "/sandbox", subPath: "data" });
  });

  test("carries its generation in the spec as well as in its labels", () => {
    const template = workloadPodTemplate(pairWith());
    expect(template.metadata.labels).toMatchObject({
      [labels.pairId]: generationId,
      [labels.boundaryRole]: "workload",
    });
    expect(only(template.spec as Spec).env).toContainEqual({ name: "OPENSHELL_GENERATION_ID", value: generationId });
  });

  test("keeps its labels against callers' and operators'", () => {
    const template = workloadPodTemplate(
      pairWith({
        settings: { workload_labels: { team: "ops", [labels.pairId]: "x" }, workload_annotations: { note: "ops" } },
        sandbox: {
          labels: { team: "caller", mine: "1", [labels.boundaryRole]: "supervisor" },
          annotations: { note: "caller" },
        },
      }),
    );
    expect(template.metadata.labels).toMatchObject({
      team: "ops",
      mine: "1",
      [labels.pairId]: generationId,
      [labels.boundaryRole]: "workload",
    });
    expect(template.metadata.annotations).toEqual({ note: "ops" });
  });

  test.each([
    ["the default class", { default_runtime_class_name: "kata" }, "", "kata"],
    ["the caller's class over the default", { default_runtime_class_name: "kata" }, "gvisor", "gvisor"],
    ["none", {}, "", undefined],
  ])("runs in %s", (_what, settings, asked, expected) => {
    expect(workload({ settings, sandbox: { runtimeClassName: asked } }).runtimeClassName).toBe(expected);
  });

  test("takes the caller's placement, and the operator's node selector wins", () => {
    const taint = { key: "gpu", operator: "Exists" as const };
    const spec = workload({
      settings: {
        workload_node_selector: { pool: "agents" },
        workload_tolerations: [{ key: "ops", operator: "Exists" }],
      },
      sandbox: { nodeSelector: { pool: "mine", disk: "ssd" }, tolerations: [taint], priorityClassName: "high" },
    });
    expect(spec.nodeSelector).toEqual({ pool: "agents", disk: "ssd" });
    expect(spec.tolerations).toEqual([{ key: "ops", operator: "Exists" }, taint]);
    expect(spec.priorityClassName).toBe("high");
  });

  test.each([
    [undefined, false, undefined],
    [undefined, true, false],
    [true, false, false],
    [false, true, false],
  ])("user namespaces asked %s, set %s: hostUsers %s", (asked, set, expected) => {
    const spec = workload({
      settings: { enable_user_namespaces: set },
      sandbox: asked === undefined ? {} : { userNamespaces: asked },
    });
    expect(spec.hostUsers).toBe(expected);
  });

  test.each([
    ["", undefined],
    ["RuntimeDefault", { type: "RuntimeDefault" }],
    ["Unconfined", { type: "Unconfined" }],
    ["Localhost/agents/strict", { type: "Localhost", localhostProfile: "agents/strict" }],
  ])("AppArmor profile %j is on the agent's container only", (profile, expected) => {
    const spec = workload({ settings: { app_armor_profile: profile } });
    expect(only(spec).securityContext.appArmorProfile).toEqual(expected);
    expect(spec.initContainers?.[0]?.securityContext.appArmorProfile).toBeUndefined();
  });

  test("by image volume it mounts the runtime from its image and stages the identity only", () => {
    const spec = workload({
      runtime: { delivery: "image_volume" },
      settings: { sandbox_runtime_image: "r.test/runtime:1" },
    });
    expect(spec.volumes).toContainEqual({ name: "openshell-runtime-image", image: { reference: "r.test/runtime:1" } });
    expect(spec.initContainers?.[0]?.env).toContainEqual({ name: "OPENSHELL_STAGE", value: "identity" });
    expect(only(spec).volumeMounts).toContainEqual({
      name: "openshell-runtime-image",
      mountPath: "/openshell",
      subPath: "opt/openshell",
      readOnly: true,
    });
  });

  test("uses the caller's image, or the default one", () => {
    expect(only(workload()).image).toBe("registry.test/agents/base:1");
    expect(only(workload({ sandbox: { image: "x:2" } })).image).toBe("x:2");
    expect(workload({ sandbox: { image: "x:2" } }).initContainers?.[1]?.image).toBe("x:2");
  });

  test("has the port that is set, and tells the runtime of it and of the fence", () => {
    const agent = only(workload({ runtime: { boundary_port: 6000, fence_check: "off" } }));
    expect(agent).toMatchObject({ ports: [{ name: "boundary", containerPort: 6000 }] });
    expect(agent.env).toEqual(
      expect.arrayContaining([
        { name: "OPENSHELL_BOUNDARY_PORT", value: "6000" },
        { name: "OPENSHELL_FENCE_CHECK", value: "off" },
        { name: "OPENSHELL_FENCE_TARGETS", value: "10.96.0.1:443" },
      ]),
    );
  });
});

describe("workload resources", () => {
  test("the caller's keys lie over the operator's, and GPUs are limits of the agent alone", () => {
    const change = {
      settings: { workload_resources: { requests: { cpu: "1", memory: "1Gi" }, limits: { memory: "2Gi" } } },
      sandbox: { resources: { requests: { cpu: "250m" }, limits: { cpu: "2" } }, gpus: { "nvidia.com/gpu": 2 } },
    };
    expect(workloadResources(pairWith(change))).toEqual({
      requests: { cpu: "250m", memory: "1Gi", "ephemeral-storage": "256Mi" },
      limits: { memory: "2Gi", cpu: "2", "nvidia.com/gpu": "2" },
    });
    const spec = workload(change);
    expect(only(spec).resources.limits).toHaveProperty("nvidia.com/gpu", "2");
    expect(spec.initContainers?.[0]?.resources.limits).not.toHaveProperty("nvidia.com/gpu");
    expect(spec.initContainers?.[0]?.resources.requests).toEqual(only(spec).resources.requests);
  });

  test("a default request comes down to the limit that a caller asks for, a caller's own does not", () => {
    const settings = { workload_resources: { requests: { cpu: "1", memory: "1Gi" }, limits: {} } };
    const cpuOf = (requests: Record<string, string>, limits: Record<string, string>) =>
      workloadResources(pairWith({ settings, sandbox: { resources: { requests, limits } } })).requests.cpu;
    expect(cpuOf({}, { cpu: "500m" })).toBe("500m");
    expect(cpuOf({}, { cpu: "2" })).toBe("1");
    expect(cpuOf({ cpu: "3" }, { cpu: "2" })).toBe("3");
  });

  test("a default request of devices follows the limit that a caller asks for, up as well", () => {
    const one = { "nvidia.com/gpu": "1" };
    const settings = { workload_resources: { requests: one, limits: one } };
    const resources = { requests: {}, limits: { "nvidia.com/gpu": "2" } };
    expect(workloadResources(pairWith({ settings, sandbox: { resources } })).requests).toMatchObject(resources.limits);
  });

  test("a given ephemeral-storage is not touched", () => {
    const resources = { requests: {}, limits: { "ephemeral-storage": "1Gi" } };
    expect(workloadResources(pairWith({ sandbox: { resources } })).requests).not.toHaveProperty("ephemeral-storage");
  });
});

describe("the supervisor Pod", () => {
  test("has requests and a memory limit by default, so it is not BestEffort", () => {
    const { resources } = only(supervisor());
    expect(resources.requests).toMatchObject({ cpu: expect.any(String), memory: expect.any(String) });
    expect(resources.limits).toHaveProperty("memory");
  });

  test("of a generation that an earlier gateway began keeps the agent's user", () => {
    const { securityContext } = supervisor({ sandbox: { uid: 2000, gid: 3000, supervisorUid: undefined } });
    expect(securityContext).toMatchObject({ runAsUser: 2000, runAsGroup: 3000 });
  });

  test("takes nothing that a caller can set", () => {
    const asked = supervisor({
      sandbox: {
        image: "evil:1",
        labels: { a: "b" },
        runtimeClassName: "kata",
        priorityClassName: "high",
        nodeSelector: { pool: "x" },
        tolerations: [{ operator: "Exists" }],
        resources: { requests: { cpu: "9" }, limits: {} },
        gpus: { "nvidia.com/gpu": 1 },
        userNamespaces: true,
        uid: 2000,
        gid: 3000,
      },
    });
    expect(asked).toEqual(supervisor());
  });

  test("has a RuntimeClass, priority and placement of its own", () => {
    const spec = supervisor({
      settings: {
        default_runtime_class_name: "kata-workload",
        supervisor_runtime_class_name: "kata-supervisor",
        supervisor_priority_class_name: "critical",
        supervisor_node_selector: { pool: "trusted" },
        supervisor_resources: { requests: { cpu: "1" }, limits: {} },
      },
    });
    expect(spec).toMatchObject({
      runtimeClassName: "kata-supervisor",
      priorityClassName: "critical",
      nodeSelector: { pool: "trusted" },
    });
    expect(only(spec).resources).toEqual({ requests: { cpu: "1" } });
  });

  test("holds a token for the gateway only, and nothing that could be used against the API server", () => {
    const projected = supervisor().volumes.find(({ name }) => name === "openshell-token");
    expect(projected).toMatchObject({
      projected: {
        sources: [
          { serviceAccountToken: { audience: "openshell-gateway:openshell", expirationSeconds: 3600, path: "token" } },
        ],
      },
    });
  });

  test("reaches its workload by the boundary Service", () => {
    expect(only(supervisor({ runtime: { boundary_port: 6000 } })).env).toContainEqual({
      name: "OPENSHELL_BOUNDARY_ENDPOINT",
      value: "os-boundary-3b9f0a52-7f64-4a62-9b0e-0c1f7f3c2d10.openshell-sandboxes.svc:6000",
    });
  });
});
