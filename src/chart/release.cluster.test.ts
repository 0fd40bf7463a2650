/**
 * The life of a release on a real cluster, with a running sandbox in it. Set OPENSHELL_TEST_KUBECONFIG; images as values/conformance.yaml
 * names them, or with OPENSHELL_TEST_IMAGE_TAG.
 */
import { spawn } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { cleanUp, describeOnCluster, kubeconfig, kubectl, kubectlProgram, mustRun, tryKubectl } from "./_cluster.ts";
import { chartDirectory, helmPrograms, repository, runProgram } from "./_helm.ts";
import { leaves } from "./_leaves.ts";
import { renderMany } from "./_many.ts";
import { restartingChanges, silentChanges } from "./fixtures/changes.ts";

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const tag = process.env.OPENSHELL_TEST_IMAGE_TAG ?? "dev";
const [program = ""] = helmPrograms;
const namespace = `openshell-release-${process.pid}`;
const sandboxes = `${namespace}-sandboxes`;
let folder: string;

const helm = (...args: readonly string[]) => mustRun(program, [...args, "-n", namespace]);
const get = (what: string, path: string, where = namespace) =>
  kubectl(["get", what, "-n", where, "-o", `jsonpath=${path}`]);
const names = (kind: string) =>
  get(kind, "{.items[*].metadata.name}")
    .split(" ")
    .filter((name) => name !== "")
    .sort();

const conformance = ["-f", join(repository, "values", "conformance.yaml"), "--set", `global.image.tag=${tag}`];
const patience = ["--wait", "--timeout=150s"];

function upgrade(change: object): void {
  const file = join(folder, "change.json");
  writeFileSync(file, JSON.stringify(change));
  helm("upgrade", "openshell", chartDirectory, ...conformance, "-f", file, ...patience);
}

/** The gateway's Pod, and the templates of it that the StatefulSet ever had. */
const gateway = () => ({
  pod: get("pod/openshell-0", "{.metadata.uid}"),
  revisions: names("controllerrevision").length,
});

/** Every Pod of every sandbox, and how often each container was started. */
const pair = () =>
  get(
    "pods",
    '{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\\n"}{end}',
    sandboxes,
  );

/** The command line against this release, as the administrator. */
async function openshell<T>(use: (run: (...args: readonly string[]) => string) => T | Promise<T>): Promise<T> {
  const forward = spawn(
    kubectlProgram,
    ["--kubeconfig", kubeconfig ?? "", "-n", namespace, "port-forward", "svc/openshell", ":8080"],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  try {
    const [line] = await once(createInterface(forward.stdout), "line", { signal: AbortSignal.timeout(20_000) });
    const port = /127\.0\.0\.1:(\d+)/.exec(String(line))?.[1];
    const run = (...args: readonly string[]) => {
      const command = [join(repository, "src", "cli", "main.ts"), ...args];
      const env = { ...process.env, XDG_CONFIG_HOME: folder };
      const { ok, stdout, stderr } = runProgram(process.execPath, command, env);
      if (!ok) throw new Error(`openshell ${args.join(" ")}: ${stderr}`);
      return stdout;
    };
    const secret = join(folder, "client-tls.json");
    writeFileSync(secret, kubectl(["get", "secret", "openshell-client-tls", "-n", namespace, "-o", "json"]));
    run("gateway", "add", "release", "--endpoint", `https://127.0.0.1:${port}`, "--from-secret", secret);
    return await use(run);
  } finally {
    forward.kill();
  }
}

describeOnCluster("a release with a running sandbox", () => {
  let installed: ReturnType<typeof gateway>;
  let running: string;
  let keys: string;
  const expectUntouched = () => expect(pair(), "the sandbox's two Pods").toBe(running);

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "openshell-release-"));
    // As the previous release installed it: its values are what --reuse-values brings back.
    const previous = join(folder, "previous");
    cpSync(chartDirectory, previous, { recursive: true });
    cpSync(join(import.meta.dirname, "fixtures", "values-0.1.yaml"), join(previous, "values.yaml"));
    helm("upgrade", "--install", "openshell", previous, "--create-namespace", ...conformance, ...patience);
    installed = gateway();
    keys = get("secret/openshell-keys", "{.metadata.uid}");
    await openshell((run) => run("sandbox", "create", "--name", "long"));
    running = pair();
    expect(running.trim().split("\n")).toHaveLength(2);
  });

  afterAll(() =>
    cleanUp(
      () => helm("uninstall", "openshell", "--ignore-not-found", "--wait=false"),
      () => tryKubectl(["delete", "namespace", "--ignore-not-found", "--wait=false", namespace, sandboxes]),
      () => rmSync(folder, { recursive: true, force: true }),
    ),
  );

  it("is tested from inside", () => {
    const tested = helm("test", "openshell", "--logs", "--timeout=150s");
    expect(tested).toContain("certificate of openshell.");
    expect(tested).toContain(`may patch pods in ${sandboxes}`);
    expect(tested).toContain("NetworkPolicy keeps this Pod from openshell-test-");
    expect(tested).not.toContain("FAIL");
    expect(names("networkpolicy")).toEqual(["openshell"]);
  });

  it("goes on as it is when the previous release's values are used again", () => {
    helm("upgrade", "openshell", chartDirectory, "--reuse-values", "--no-hooks", ...patience);
    expect(gateway()).toEqual(installed);
    expectUntouched();
  });

  describe("every single value and setting", () => {
    /** As Helm itself: what it wrote before and leaves out now goes. */
    const asHelm = ["--server-side", "--force-conflicts", "--field-manager=helm"];
    const dryRun = (texts: Iterable<string>) =>
      tryKubectl(["apply", ...asHelm, "--dry-run=server", "--validate=strict", "-f", "-"], [...texts].join("\n---\n"));
    /** What an upgrade with nothing else than another value would write. */
    const written = () => {
      const all = leaves();
      const renderings = renderMany(
        program,
        all.flatMap(({ before, after }) => [before, after]),
        namespace,
      );
      const served = new Set(kubectl(["api-versions"]).trim().split("\n"));
      return all.map(({ name, description }, index) => {
        const [before, after] = renderings.slice(2 * index, 2 * index + 2);
        if (!(before instanceof Map && after instanceof Map)) throw before instanceof Error ? before : after;
        // A configuration is text, and its checksum too: nobody can refuse that.
        const withoutConfig = (text = "") => text.replace(/^ +checksum\/gateway-config: .*\n/m, "");
        const texts = [...after].flatMap(([key, text]) => {
          const [apiVersion = "", kind, where = ""] = key.split(" ");
          const isHere = served.has(apiVersion) && ["", namespace, sandboxes].includes(where);
          // Helm makes a hook anew each time.
          const isAsked = isHere && kind !== "ConfigMap" && !/^ {4}helm\.sh\/hook:/m.test(text);
          return isAsked && withoutConfig(before.get(key)) !== withoutConfig(text) ? [text] : [];
        });
        return { name, texts, isForLater: description.includes("cannot be changed later") };
      });
    };

    it("can be changed in the running release, by the API server's word", () => {
      const upgrades = written();
      const wanted = new Set(upgrades.filter(({ isForLater }) => !isForLater).flatMap(({ texts }) => texts));
      expect(wanted.size).toBeGreaterThan(100);
      const { stdout, stderr } = dryRun(wanted);
      const complaints = stderr
        .split("\n")
        .filter((line) => line !== "" && !line.startsWith("Warning: unrecognized format"));
      // A volume may grow where its StorageClass allows it.
      const resized = complaints.filter((line) => line.includes("only dynamically provisioned pvc can be resized"));
      expect(complaints.filter((line) => !resized.includes(line))).toEqual([]);
      // A kubectl that was killed, or that left objects out, complains of nothing.
      const accepted = stdout.split("\n").filter((line) => line.includes(" serverside-applied"));
      expect(accepted).toHaveLength(wanted.size - resized.length);
      const claims = upgrades.filter(({ name, isForLater }) => isForLater && name.startsWith("persistence."));
      expect(claims.length).toBeGreaterThan(0);
      for (const { name, texts } of claims) expect(dryRun(texts).stderr, name).toMatch(/immutable|Forbidden/);
    });
  });

  it("goes on as it is when everything that does not concern the gateway's Pod changes", () => {
    upgrade(Object.assign({}, ...silentChanges));
    expect(gateway()).toEqual(installed);
    expectUntouched();
  });

  it("counts the pair as two Pods against the quota that came with them", () => {
    const quota = ["resourcequota/openshell-sandboxes", "-n", sandboxes];
    kubectl(["wait", ...quota, "--for=jsonpath={.status.used.pods}=2", "--timeout=60s"]);
    expect(kubectl(["get", ...quota, "-o", "jsonpath={.status.hard.pods}"])).toBe("6");
  });

  it("renews the certificate that is due, and no other Secret, with the rights of the renewal's own ServiceAccount", () => {
    const secrets = (path: string) =>
      get("secrets", `{range .items[*]}{.metadata.name} ${path}{"\\n"}{end}`).split("\n");
    const certificate = () =>
      new X509Certificate(Buffer.from(get("secret/openshell-server-tls", "{.data.tls\\.crt}"), "base64"));
    const [uids, versions, issuer] = [
      secrets("{.metadata.uid}"),
      secrets("{.metadata.resourceVersion}"),
      certificate().issuer,
    ];
    expect(versions.length).toBeGreaterThan(6);
    // As its hour makes it, and with one name more, for which the certificate has to be another.
    const made = ["create", "job", "renew-now", "--from=cronjob/openshell-renew", "-n", namespace];
    const job = JSON.parse(kubectl([...made, "--dry-run=client", "-o", "json"]));
    job.spec.template.spec.containers[0].args.push("--dns-name=renewed.example.com");
    const name = ["job/renew-now", "-n", namespace];
    using _job = {
      // The Pod too, of which the uninstall below must find nothing.
      [Symbol.dispose]: () =>
        void kubectl(["delete", ...name, "--cascade=foreground", "--ignore-not-found", "--timeout=60s"]),
    };
    kubectl(["create", "-f", "-"], JSON.stringify(job));
    kubectl(["wait", ...name, "--for=condition=Complete", "--timeout=90s"]);
    expect(certificate().subjectAltName).toContain("DNS:renewed.example.com");
    expect(certificate().issuer).toBe(issuer);
    expect(secrets("{.metadata.uid}")).toEqual(uids);
    const changed = secrets("{.metadata.resourceVersion}").filter((line) => !versions.includes(line));
    expect(changed.map((line) => line.split(" ")[0])).toEqual(["openshell-server-tls"]);
    expectUntouched();
  });

  it("starts the gateway anew, once, when everything else changes, and the sandbox neither notices nor is lost", async () => {
    upgrade(restartingChanges);
    const { pod, revisions } = gateway();
    expect(pod).not.toBe(installed.pod);
    expect(revisions, "one roll").toBe(installed.revisions + 1);
    expectUntouched();
    await openshell((run) =>
      // The supervisor finds the new gateway within seconds.
      vi.waitFor(() => expect(run("sandbox", "exec", "long", "--", "echo", "still here")).toContain("still here"), {
        timeout: 60_000,
        interval: 500,
      }),
    );
  });

  it("is rolled back to what it was, with its keys and the sandbox", () => {
    const before = gateway();
    helm("rollback", "openshell", "1", ...patience);
    const after = gateway();
    expect(after.pod).not.toBe(before.pod);
    expect(after.revisions, "the template of before, not a third one").toBe(before.revisions);
    expect(get("secret/openshell-keys", "{.metadata.uid}")).toBe(keys);
    expectUntouched();
  });

  it("gets over an upgrade whose Pod cannot be started, by a rollback alone, and the sandbox with it", async () => {
    const volumes = JSON.stringify([{ name: "absent", secret: { secretName: "absent" } }]);
    helm("upgrade", "openshell", chartDirectory, "--reuse-values", `--set-json=extraVolumes=${volumes}`);
    const shown = () => get("pod/openshell-0", "{.spec.volumes[*].name} {.status.phase}");
    await expect.poll(shown, { timeout: 90_000, interval: 500 }).toMatch(/\babsent\b.* Pending$/);
    helm("rollback", "openshell", ...patience);
    expect(shown()).toMatch(/^(?!.*\babsent\b).* Running$/);
    expectUntouched();
  });

  it("leaves on uninstall what docs/reference/gitops.md says, and nothing else", () => {
    helm("uninstall", "openshell", ...patience);
    // Helm waits for what it deletes itself; the gateway's Pod ends after its StatefulSet.
    kubectl(["wait", "--for=delete", "pod/openshell-0", "-n", namespace, "--timeout=60s"]);
    expect(names("secret")).toEqual(
      ["ca", "client-tls", "jwt-keys", "keys", "server-client-ca", "server-tls"].map((role) => `openshell-${role}`),
    );
    expect(names("persistentvolumeclaim")).toEqual(["openshell-data"]);
    const kinds =
      "statefulset,pod,service,serviceaccount,role,rolebinding,job,cronjob,networkpolicy,configmap,ingress,poddisruptionbudget";
    const left = kubectl(["get", kinds, "-n", namespace, "-o", "name"]).split("\n");
    // helm test --logs reads them after the test, and the next test replaces them.
    const tests = left.filter((name) => name.startsWith("pod/openshell-test-"));
    expect(tests).toHaveLength(2);
    expect(left.filter((name) => name.includes("openshell") && !tests.includes(name))).toEqual([]);
    const ofCluster = kubectl(["get", "clusterrole,clusterrolebinding,validatingadmissionpolicy", "-o", "name"]);
    expect(ofCluster.split("\n").filter((name) => name.includes(namespace))).toEqual([]);
    expect(kubectl(["get", "namespace", sandboxes, "-o", "name"]).trim()).toBe(`namespace/${sandboxes}`);
    expectUntouched();
  });
});
