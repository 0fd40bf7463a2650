/** The chart against a real API server: what a schema of ours cannot know. Set OPENSHELL_TEST_KUBECONFIG. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { apply, describeOnCluster, kubectl, list, tryKubectl as run } from "./_cluster.ts";
import { helmPrograms, render, repository } from "./_helm.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const [program = ""] = helmPrograms;
const namespace = `openshell-chart-${process.pid}`;
const sandboxes = `${namespace}-sandboxes`;
const presets = readdirSync(join(repository, "values")).map((name) => name.replace(/\.yaml$/, ""));

/** Waits for a condition with kubectl's own watch. */
const waitFor = (what: string, condition: string) =>
  kubectl(["wait", "-n", namespace, what, `--for=${condition}`, "--timeout=150s"]);

describeOnCluster("on a real cluster", () => {
  let served: Set<string>;
  const objectsOf = (options: { presets: readonly string[]; values?: object }) =>
    render(program, { ...options, namespace, apis: ["agents.x-k8s.io/v1beta1"] }).filter(({ apiVersion }) =>
      served.has(apiVersion),
    );

  beforeAll(() => {
    served = new Set(kubectl(["api-versions"]).trim().split("\n"));
    for (const name of [namespace, sandboxes]) kubectl(["create", "namespace", name]);
  });

  afterAll(() => {
    const made = objectsOf({ presets: ["conformance"], values: { admissionPolicy: { enabled: true } } });
    const ofCluster = made.filter(({ kind }) => /^(Cluster|Validating)/.test(kind));
    run(["delete", "--ignore-not-found", "--wait=false", "-f", "-"], list(ofCluster));
    run(["delete", "namespace", "--ignore-not-found", "--wait=false", namespace, sandboxes]);
  });

  it.each(presets)("the API server accepts preset %s", (preset) => {
    const objects = objectsOf({ presets: [preset] });
    // A Pod, such as the one of `helm test`, is accepted only where its ServiceAccount is, which a dry run does not leave.
    apply(objects.filter(({ kind }) => kind === "ServiceAccount"));
    const { status, stderr } = apply(objects, "--dry-run=server", "--validate=strict");
    expect(stderr.replaceAll(/^Warning: unrecognized format.*$/gm, "").trim()).toBe("");
    expect(status).toBe(0);
  });

  describe("applied as Argo CD does, without hooks", () => {
    const values = {
      admissionPolicy: { enabled: true },
      resourceQuota: { enabled: true, maxRunningSandboxes: 2 },
      rbac: { create: true },
    };
    const wanted = () => objectsOf({ presets: ["conformance", "argocd"], values });

    beforeAll(() => {
      const { status, stderr } = apply(wanted());
      expect(stderr).toBe("");
      expect(status).toBe(0);
      waitFor("statefulset/openshell", "jsonpath={.status.readyReplicas}=1");
    });

    it("comes up in namespaces that enforce Pod Security `restricted`, and a second sync changes nothing", () => {
      const line = '{range .items[*]}{.kind} {.metadata.name} {.metadata.generation} {.metadata.uid}{"\\n"}{end}';
      const versions = () =>
        kubectl(["get", "-f", "-", "-o", `jsonpath=${line}`], list(wanted()))
          .trim()
          .split("\n");
      const before = versions();
      expect(apply(wanted()).status).toBe(0);
      expect(versions()).toEqual(before);
      expect(before).toHaveLength(wanted().length);
      const { status, stdout } = run(
        ["diff", "--server-side", "--force-conflicts", "--field-manager=openshell-chart-test", "-f", "-"],
        list(wanted()),
      );
      expect(stdout).toBe("");
      expect(status).toBe(0);
    });

    it("refuses a stranger who writes a label that the fences read", () => {
      const pod = (labels: object) =>
        JSON.stringify({
          apiVersion: "v1",
          kind: "Pod",
          metadata: { name: "stranger", namespace: sandboxes, labels },
          spec: {
            automountServiceAccountToken: false,
            schedulingGates: [{ name: "example.com/never" }],
            securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: "RuntimeDefault" } },
            containers: [
              {
                name: "x",
                image: "openshell.local/none",
                securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
              },
            ],
          },
        });
      const sentence = "labels under openshell.ai/, internal.openshell.ai/, agents.x-k8s.io/ of a Pod are written by";
      expect(run(["create", "-f", "-"], pod({ "openshell.ai/boundary-role": "supervisor" })).stderr).toContain(
        sentence,
      );
      kubectl(["create", "-f", "-"], pod({ team: "x" }));
      const label = (text: string, ...as: string[]) =>
        run(["label", "pod", "stranger", "-n", sandboxes, "--overwrite", text, ...as]);
      expect(label("openshell.ai/boundary-role=supervisor").stderr).toContain(sentence);
      expect(label("team=y").status).toBe(0);
      // As that user, with rights of an administrator: only the policy tells the two apart.
      const gateway = ["--as", `system:serviceaccount:${namespace}:openshell`, "--as-group", "system:masters"];
      expect(label("openshell.ai/boundary-role=supervisor", ...gateway)).toMatchObject({ stderr: "", status: 0 });
      expect(label("openshell.ai/boundary-role-").stderr).toContain(sentence);
    });

    it("counts each Pod of the sandboxes' namespace against the quota", () => {
      const used = kubectl([
        "get",
        "resourcequota",
        "-n",
        sandboxes,
        "openshell-sandboxes",
        "-o",
        "jsonpath={.status.hard.pods} {.status.used.pods}",
      ]);
      expect(used).toBe("4 1");
    });
  });
});
