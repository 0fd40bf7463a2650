import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OpenIDConnectAuth } from "@kubernetes/client-node/dist/oidc_auth.js";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { inClusterAccess, isInCluster, kubeconfigAccess } from "./access.ts";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "kube-access-"));
});

afterAll(() => rm(folder, { recursive: true }));

describe("access from inside a Pod", () => {
  const env = { KUBERNETES_SERVICE_HOST: "10.0.0.1", KUBERNETES_SERVICE_PORT: "443" };

  test("needs the environment that every Pod has", async () => {
    expect(isInCluster({})).toBe(false);
    expect(isInCluster(env)).toBe(true);
    await expect(inClusterAccess({}, folder)).rejects.toThrow("not inside a cluster");
  });

  test("says what a Pod without a token lacks", async () => {
    await expect(inClusterAccess(env, join(folder, "absent"))).rejects.toThrow("automountServiceAccountToken");
  });

  test("trusts the cluster's authority, and reads the token again when it was refused", async () => {
    await writeFile(join(folder, "ca.crt"), "authority");
    await writeFile(join(folder, "namespace"), "mine\n");
    await writeFile(join(folder, "token"), "first\n");
    const access = await inClusterAccess(env, folder);
    expect(access.server.href).toBe("https://10.0.0.1/");
    expect(access.namespace).toBe("mine");
    expect(await access.credentials(false)).toMatchObject({
      headers: { authorization: "Bearer first" },
      tls: { ca: "authority" },
    });
    await writeFile(join(folder, "token"), "second\n");
    expect((await access.credentials(false)).headers.authorization).toBe("Bearer first");
    expect((await access.credentials(true)).headers.authorization).toBe("Bearer second");
  });

  test("takes a new authority of the cluster, for connections of its own", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    onTestFinished(() => void vi.useRealTimers());
    for (const [file, text] of Object.entries({ "ca.crt": "old", namespace: "mine", token: "t" })) {
      await writeFile(join(folder, file), text);
    }
    const access = await inClusterAccess(env, folder);
    const before = await access.credentials(false);
    await writeFile(join(folder, "ca.crt"), "old and new");
    vi.advanceTimersByTime(11_000);
    const after = await access.credentials(false);
    expect([before.tls.ca, after.tls.ca]).toEqual(["old", "old and new"]);
    expect(after.fingerprint).not.toBe(before.fingerprint);
    vi.advanceTimersByTime(11_000);
    expect((await access.credentials(false)).fingerprint).toBe(after.fingerprint);
  });

  test("reaches an IPv6 service", async () => {
    const access = await inClusterAccess({ ...env, KUBERNETES_SERVICE_HOST: "fd00::1" }, folder);
    expect(access.server.href).toBe("https://[fd00::1]/");
  });
});

describe("access by a kubeconfig", () => {
  const kubeconfig = (user: object, cluster: object = {}): string =>
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u", namespace: "mine" } }],
      clusters: [{ name: "c", cluster: { server: "https://example.com:6443/base", ...cluster } }],
      users: [{ name: "u", user }],
    });

  async function accessWith(text: string, context?: string) {
    const path = join(folder, "kubeconfig");
    await writeFile(path, text);
    return kubeconfigAccess(path, context);
  }

  test("has the context's server, namespace, authority and client certificate", async () => {
    const base64 = (text: string): string => Buffer.from(text).toString("base64");
    const access = await accessWith(
      kubeconfig(
        { "client-certificate-data": base64("cert"), "client-key-data": base64("key") },
        { "certificate-authority-data": base64("ca"), "tls-server-name": "kubernetes" },
      ),
    );
    expect(access.server.href).toBe("https://example.com:6443/base");
    expect(access.namespace).toBe("mine");
    const { tls } = await access.credentials(false);
    expect([String(tls.ca), String(tls.cert), String(tls.key), tls.servername]).toEqual([
      "ca",
      "cert",
      "key",
      "kubernetes",
    ]);
  });

  test("has the user's token", async () => {
    const access = await accessWith(kubeconfig({ token: "t" }));
    expect((await access.credentials(false)).headers).toEqual({ authorization: "Bearer t" });
  });

  test("gives different fingerprints to different certificates, so that connections are not shared", async () => {
    const one = await accessWith(kubeconfig({ token: "t" }, { "certificate-authority-data": "YQ==" }));
    const other = await accessWith(kubeconfig({ token: "t" }, { "certificate-authority-data": "Yg==" }));
    const fingerprints = await Promise.all(
      [one, other].map(async (each) => (await each.credentials(false)).fingerprint),
    );
    expect(new Set(fingerprints).size).toBe(2);
  });

  test("names a context that is not there", async () => {
    await expect(accessWith(kubeconfig({}), "elsewhere")).rejects.toThrow('has no cluster for context "elsewhere"');
  });

  test("names a file that is not there", async () => {
    await expect(kubeconfigAccess(join(folder, "absent"))).rejects.toThrow(`cannot read kubeconfig ${folder}/absent`);
  });

  describe("that client-node reads", () => {
    /** A plugin whose token is what a file has; it says no time at which it ends. */
    const plugin = (tokenFile: string, runsFile: string) => ({
      exec: {
        apiVersion: "client.authentication.k8s.io/v1",
        interactiveMode: "Never",
        command: process.execPath,
        args: [
          "-e",
          `const fs = require("node:fs");
           fs.appendFileSync(${JSON.stringify(runsFile)}, ".");
           const token = fs.readFileSync(${JSON.stringify(tokenFile)}, "utf8");
           console.log(JSON.stringify({ kind: "ExecCredential", status: { token } }));`,
        ],
      },
    });

    test("runs a plugin again when its token was refused, once for all who were refused together", async () => {
      const [tokenFile, runsFile] = [join(folder, "plugin-token"), join(folder, "plugin-runs")];
      await writeFile(tokenFile, "first");
      const access = await accessWith(kubeconfig(plugin(tokenFile, runsFile)));
      expect((await access.credentials(false)).headers.authorization).toBe("Bearer first");
      await writeFile(tokenFile, "second");
      const refreshed = await Promise.all([access.credentials(true), access.credentials(true)]);
      expect(refreshed.map(({ headers }) => headers.authorization)).toEqual(["Bearer second", "Bearer second"]);
      expect((await access.credentials(false)).headers.authorization).toBe("Bearer second");
      expect(await readFile(runsFile, "utf8")).toBe("..");
    });

    test.each([
      ["HTTP", "http://127.0.0.1:1"],
      ["SOCKS", "socks5://127.0.0.1:1"],
    ])("gives the agent of a %s proxy the client certificate that is there now", async (_, proxy) => {
      vi.useFakeTimers({ toFake: ["Date"] });
      onTestFinished(() => void vi.useRealTimers());
      const [cert, key] = [join(folder, "client.crt"), join(folder, "client.key")];
      const rotate = (name: string) => Promise.all([writeFile(cert, `${name} cert`), writeFile(key, `${name} key`)]);
      await rotate("first");
      const user = { "client-certificate": cert, "client-key": key };
      const access = await accessWith(kubeconfig(user, { "proxy-url": proxy }));
      const first = await access.credentials(false);
      expect(String(first.agent?.options.cert)).toBe("first cert");
      vi.advanceTimersByTime(11_000);
      expect((await access.credentials(false)).agent).toBe(first.agent);
      await rotate("second");
      vi.advanceTimersByTime(11_000);
      const second = await access.credentials(false);
      expect([second.agent?.options.cert, second.agent?.options.key].map(String)).toEqual([
        "second cert",
        "second key",
      ]);
      expect(second.fingerprint).not.toBe(first.fingerprint);
      await rotate("third");
      expect(String((await access.credentials(true)).agent?.options.cert)).toBe("third cert");
    });

    test("stays with the context and the server of its start", async () => {
      const text = kubeconfig({ username: "me", password: "first" });
      const access = await accessWith(text);
      const basic = (password: string): string => `Basic ${Buffer.from(`me:${password}`).toString("base64")}`;
      const path = join(folder, "kubeconfig");
      await writeFile(
        path,
        text.replace("first", "second").replace('"current-context":"here"', '"current-context":"x"'),
      );
      expect((await access.credentials(true)).headers.authorization).toBe(basic("second"));
      await writeFile(path, text.replace("example.com", "elsewhere.example.com"));
      await expect(access.credentials(true)).rejects.toThrow("another server");
      expect((await access.credentials(false)).headers.authorization).toBe(basic("second"));
    });

    test("keeps the refreshed tokens of OIDC until the file has others", async () => {
      // As client-node's own, but for the identity provider.
      const refresh = vi
        .spyOn(OpenIDConnectAuth.prototype, "applyAuthentication")
        .mockImplementation(async (user, options) => {
          const { config } = user.authProvider;
          config["refresh-token"] += "+";
          options.headers = { Authorization: `Bearer ${config["refresh-token"]}` };
        });
      onTestFinished(() => refresh.mockRestore());
      const user = (token: string) =>
        kubeconfig({ "auth-provider": { name: "oidc", config: { "refresh-token": token } } });
      const access = await accessWith(user("first"));
      expect((await access.credentials(true)).headers.authorization).toBe("Bearer first++");
      await writeFile(join(folder, "kubeconfig"), user("second"));
      expect((await access.credentials(true)).headers.authorization).toBe("Bearer second+");
    });
  });

  test("says whose credentials cannot be had", async () => {
    const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "/absent/plugin", interactiveMode: "Never" };
    await expect(accessWith(kubeconfig({ exec }))).rejects.toMatchObject({
      code: "unavailable",
      message: 'cannot use the credentials of kubeconfig user "u"',
    });
  });
});
