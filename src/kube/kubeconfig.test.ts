import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parsePlainKubeconfig, readPlainKubeconfig } from "./_kubeconfig.ts";

const kubeconfig = (user: object, cluster: object = {}): string =>
  JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    preferences: {},
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: "https://example.com:6443", ...cluster } }],
    users: [{ name: "u", user }],
  });

describe("a kubeconfig is read here", () => {
  test("with its files, which are read again each time, below its own directory", async () => {
    const directory = await mkdtemp(join(tmpdir(), "kubeconfig-"));
    try {
      await writeFile(join(directory, "ca.crt"), "authority");
      await writeFile(join(directory, "token"), "first\n");
      const user = { tokenFile: "token", token: "less than the file's" };
      await writeFile(join(directory, "config"), kubeconfig(user, { "certificate-authority": "ca.crt" }));
      const plain = await readPlainKubeconfig(join(directory, "config"));
      expect(plain?.namespace).toBe("default");
      const first = await plain?.credentials();
      expect(first?.headers).toEqual({ authorization: "Bearer first" });
      expect(String(first?.tls.ca)).toBe("authority");
      await writeFile(join(directory, "token"), "second\n");
      expect((await plain?.credentials())?.headers).toEqual({ authorization: "Bearer second" });
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test("with certificates that are not verified where it says so", async () => {
    const plain = parsePlainKubeconfig(kubeconfig({ token: "t" }, { "insecure-skip-tls-verify": true }), "/");
    expect((await plain?.credentials())?.tls).toEqual({ rejectUnauthorized: false });
  });
});

describe("a kubeconfig is left to client-node", () => {
  test.each([
    ["with a plugin", kubeconfig({ exec: { command: "x" } })],
    ["with an auth provider", kubeconfig({ "auth-provider": { name: "oidc" } })],
    ["with a password", kubeconfig({ username: "a", password: "b" })],
    ["with impersonation", kubeconfig({ token: "t", as: "other" })],
    ["with a proxy", kubeconfig({ token: "t" }, { "proxy-url": "socks5://localhost:1080" })],
    ["with a field that is not known", kubeconfig({ token: "t", "new-in-2030": true })],
    ["with a server that is no address", kubeconfig({ token: "t" }, { server: "example.com" })],
    ["that is no YAML", "a: b: c:\n\t- x"],
    ["that is empty", ""],
  ])("%s", (_, content) => {
    expect(parsePlainKubeconfig(content, "/")).toBeUndefined();
  });

  test("without the context that is asked for", () => {
    expect(parsePlainKubeconfig(kubeconfig({ token: "t" }), "/", "elsewhere")).toBeUndefined();
  });

  test("that is several files", async () => {
    expect(await readPlainKubeconfig("/a:/b")).toBeUndefined();
  });
});
