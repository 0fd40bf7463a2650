/** The life of a release on a real cluster. Set OPENSHELL_TEST_KUBECONFIG; images as values/conformance.yaml names them, or with OPENSHELL_TEST_IMAGE_TAG. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import { chartDirectory, helmPrograms, repository } from "./_helm.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 180_000 });

const kubeconfig = process.env.OPENSHELL_TEST_KUBECONFIG;
const tag = process.env.OPENSHELL_TEST_IMAGE_TAG ?? "dev";
const [program = ""] = helmPrograms;
const namespace = `openshell-release-${process.pid}`;
const cached = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "openshell-dev", "bin", "kubectl");

function run(command: string, args: readonly string[]): string {
  const { status, stdout, stderr, error } = spawnSync(command, [...args, "--kubeconfig", kubeconfig ?? ""], {
    encoding: "utf8",
    maxBuffer: 64 << 20,
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr}${stdout}`);
  return stdout;
}

const kubectl = (...args: readonly string[]) => run(existsSync(cached) ? cached : "kubectl", args);
const helm = (...args: readonly string[]) => run(program, [...args, "-n", namespace]);
const get = (what: string, path: string) => kubectl("get", what, "-n", namespace, "-o", `jsonpath=${path}`);
const podUid = () => get("pod/openshell-0", "{.metadata.uid}");
const names = (kind: string) =>
  get(kind, "{.items[*].metadata.name}")
    .split(" ")
    .filter((name) => name !== "")
    .sort();

const conformance = ["-f", join(repository, "values", "conformance.yaml"), "--set", `global.image.tag=${tag}`];
const upgrade = (...flags: readonly string[]) =>
  helm("upgrade", "openshell", chartDirectory, ...conformance, "--wait", "--timeout=150s", ...flags);

describe.skipIf(kubeconfig === undefined || helmPrograms.length === 0)(
  kubeconfig === undefined ? "a release (skipped: OPENSHELL_TEST_KUBECONFIG names no kubeconfig)" : "a release",
  () => {
    afterAll(() => {
      for (const remove of [
        () => helm("uninstall", "openshell", "--ignore-not-found", "--wait=false"),
        () => kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", namespace, `${namespace}-sandboxes`),
      ]) {
        try {
          remove();
        } catch (error) {
          process.stderr.write(`${error}\n`);
        }
      }
    });

    it("is installed, tested from inside, upgraded, rolled back and uninstalled", () => {
      helm("install", "openshell", chartDirectory, "--create-namespace", ...conformance, "--wait", "--timeout=150s");
      const installed = podUid();
      const keys = get("secret/openshell-keys", "{.metadata.uid}");

      const tested = helm("test", "openshell", "--logs", "--timeout=150s");
      expect(tested).toContain("certificate of openshell.");
      expect(tested).toContain(`may patch pods in ${namespace}-sandboxes`);
      expect(tested).toContain("NetworkPolicy keeps this Pod from openshell-test.");
      expect(tested).not.toContain("FAIL");
      expect(names("networkpolicy")).toEqual(["openshell"]);

      upgrade();
      expect(podUid(), "nothing changed, so the gateway goes on").toBe(installed);

      upgrade(
        "--set",
        "service.annotations.a=b",
        "--set",
        "podDisruptionBudget.enabled=true",
        "--set",
        "persistence.annotations.a=b",
      );
      expect(podUid(), "no setting changed").toBe(installed);

      upgrade("--set", "gatewayConfig.openshell\\.gateway.log_level=warn");
      const configured = podUid();
      expect(configured).not.toBe(installed);
      expect(get("statefulset/openshell", "{.metadata.generation}"), "one roll").toBe("2");

      helm("upgrade", "openshell", chartDirectory, "--reuse-values", "--wait", "--timeout=150s");
      expect(podUid(), "the same values").toBe(configured);

      helm("rollback", "openshell", "1", "--wait", "--timeout=150s");
      expect(podUid()).not.toBe(configured);
      expect(get("secret/openshell-keys", "{.metadata.uid}"), "keys outlive everything").toBe(keys);

      helm("uninstall", "openshell", "--wait", "--timeout=150s");
      expect(names("secret")).toEqual(
        ["ca", "client-tls", "jwt-keys", "keys", "server-client-ca", "server-tls"].map((role) => `openshell-${role}`),
      );
      expect(names("persistentvolumeclaim")).toEqual(["openshell-data"]);
      for (const kind of [
        "statefulset",
        "service",
        "serviceaccount",
        "role",
        "job",
        "cronjob",
        "networkpolicy",
        "configmap",
      ])
        expect(
          names(kind).filter((name) => name.startsWith("openshell")),
          kind,
        ).toEqual([]);
      expect(kubectl("get", "namespace", `${namespace}-sandboxes`, "-o", "name")).toContain("-sandboxes");
    });
  },
);
