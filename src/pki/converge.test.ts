import { createHash, createPublicKey } from "node:crypto";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import type { KubeClient, Secret } from "../kube/index.ts";
import {
  certificateOf,
  certificatesIn,
  isIssuedBy,
  isKeyOf,
  issueAuthority,
  issueLeaf,
  namesOf,
} from "./certificates.ts";
import { type ConvergePkiOptions, convergePki } from "./converge.ts";

/** The Secrets of one namespace, with the API server's rules on names and resource versions. */
class FakeSecrets {
  readonly stored = new Map<string, Secret>();
  readonly writes: string[] = [];
  /** Runs before each write; a test's way to be a second Job. */
  beforeWrite: (name: string) => void = () => {};
  #version = 0;

  readonly client = {
    find: async (_resource: unknown, _namespace: unknown, name: string) => structuredClone(this.stored.get(name)),
    create: async (_resource: unknown, _namespace: unknown, body: Secret) => {
      const name = body.metadata?.name ?? "";
      this.beforeWrite(name);
      if (this.stored.has(name)) throw refused(409, "AlreadyExists");
      this.writes.push(`create ${name}`);
      this.put(name, body);
    },
    patch: async (_resource: unknown, _namespace: unknown, name: string, patch: { body: Secret }) => {
      this.beforeWrite(name);
      const current = this.stored.get(name);
      if (current?.metadata?.resourceVersion !== patch.body.metadata?.resourceVersion) throw refused(409, "Conflict");
      this.writes.push(`patch ${name} ${Object.keys(patch.body.data ?? {}).sort()}`);
      const data = Object.entries({ ...current?.data, ...patch.body.data }).filter(([, value]) => value !== null);
      this.put(name, { ...current, data: Object.fromEntries(data) });
    },
  } as unknown as KubeClient;

  put(name: string, secret: Secret): void {
    this.#version += 1;
    this.stored.set(name, {
      ...structuredClone(secret),
      metadata: { ...secret.metadata, name, uid: name, resourceVersion: String(this.#version) },
    });
  }

  text(name: string, key: string): string {
    return Buffer.from(this.stored.get(name)?.data?.[key] ?? "", "base64").toString();
  }
}

function refused(httpCode: number, reason: string): OpenShellError {
  return new OpenShellError(reason === "Conflict" ? "aborted" : "already-exists", reason, {
    cause: { kind: "KubeStatus", httpCode, reason, message: reason, causes: [] },
  });
}

const life = { notBefore: new Date("2026-01-01"), notAfter: new Date("2027-01-01") };
const authorityOf = (validity: Partial<typeof life>) =>
  issueAuthority({ commonName: "theirs", algorithm: "ecdsa-p256", ...life, ...validity });
/** A Secret of an operator's. */
const secretOf = (certPem: string, keyPem: string): Secret => ({
  data: { "tls.crt": Buffer.from(certPem).toString("base64"), "tls.key": Buffer.from(keyPem).toString("base64") },
});

function converge(cluster: FakeSecrets, options: Partial<ConvergePkiOptions> = {}) {
  return convergePki({
    namespace: "openshell",
    prefix: "os",
    dnsNames: ["os.openshell.svc", "localhost"],
    ipAddresses: ["127.0.0.1"],
    log: { info: () => {}, warn: () => {} },
    client: cluster.client,
    ...options,
  });
}

describe("converging a release's Secrets", () => {
  it("makes all six on the first run and writes nothing on the second", async () => {
    const cluster = new FakeSecrets();
    expect((await converge(cluster)).map(({ name, outcome }) => `${name} ${outcome}`)).toEqual([
      "os-ca created",
      "os-server-tls created",
      "os-server-client-ca created",
      "os-client-tls created",
      "os-jwt-keys created",
      "os-keys created",
    ]);
    const before = structuredClone(cluster.stored);
    expect((await converge(cluster)).every(({ outcome }) => outcome === "unchanged")).toBe(true);
    expect(cluster.stored).toEqual(before);
  });

  it("makes certificates that belong together", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster);
    const ca = cluster.text("os-ca", "tls.crt");
    for (const name of ["os-server-tls", "os-client-tls"]) {
      expect(isIssuedBy(cluster.text(name, "tls.crt"), ca)).toBe(true);
      expect(isKeyOf(cluster.text(name, "tls.key"), cluster.text(name, "tls.crt"))).toBe(true);
      expect(cluster.text(name, "ca.crt")).toBe(ca);
      expect(cluster.stored.get(name)?.type).toBe("kubernetes.io/tls");
    }
    expect(namesOf(cluster.text("os-server-tls", "tls.crt")).dnsNames).toEqual(["os.openshell.svc", "localhost"]);
    expect(certificateOf(cluster.text("os-client-tls", "tls.crt")).subject).toBe(
      "OU=platform-admin\nCN=openshell-admin",
    );
    expect(cluster.text("os-server-client-ca", "ca.crt")).toBe(ca);
  });

  it("makes keys in the form their readers expect", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster);
    const spki = createPublicKey(cluster.text("os-jwt-keys", "public.pem"));
    expect(spki.asymmetricKeyType).toBe("ed25519");
    expect(createPublicKey(cluster.text("os-jwt-keys", "signing.pem")).equals(spki)).toBe(true);
    const digest = createHash("sha256")
      .update(spki.export({ format: "der", type: "spki" }))
      .digest("hex");
    expect(cluster.text("os-jwt-keys", "kid")).toBe(digest.slice(0, 16));
    for (const key of ["master-secret", "key-encryption-key"]) {
      expect(Buffer.from(cluster.text("os-keys", key), "base64")).toHaveLength(32);
    }
  });

  it("issues only the server's certificate anew when its names change", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster);
    cluster.writes.length = 0;
    await converge(cluster, { dnsNames: ["os.openshell.svc", "gateway.example.org"] });
    expect(cluster.writes).toEqual(["patch os-server-tls tls.crt,tls.key"]);
    expect(isIssuedBy(cluster.text("os-server-tls", "tls.crt"), cluster.text("os-ca", "tls.crt"))).toBe(true);
  });

  it("renews the authority with overlap over the years and keeps every key", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster, { now: new Date("2026-06-01") });
    const first = cluster.text("os-ca", "tls.crt");
    const kept = ["signing.pem", "kid"].map((key) => cluster.text("os-jwt-keys", key));
    const master = cluster.text("os-keys", "master-secret");

    await converge(cluster, { now: new Date("2033-06-01") });
    expect(cluster.text("os-ca", "tls.crt")).toBe(first);
    const second = cluster.text("os-ca", "next.crt");
    expect(certificatesIn(cluster.text("os-client-tls", "ca.crt"))).toEqual([first, second]);
    expect(isIssuedBy(cluster.text("os-server-tls", "tls.crt"), first)).toBe(true);

    await converge(cluster, { now: new Date("2035-01-01") });
    expect(cluster.text("os-ca", "tls.crt")).toBe(second);
    expect(certificatesIn(cluster.text("os-server-client-ca", "ca.crt"))).toEqual([second, first]);
    expect(isIssuedBy(cluster.text("os-server-tls", "tls.crt"), second)).toBe(true);

    await converge(cluster, { now: new Date("2036-07-01") });
    expect(certificatesIn(cluster.text("os-server-client-ca", "ca.crt"))).toEqual([second]);
    expect(["signing.pem", "kid"].map((key) => cluster.text("os-jwt-keys", key))).toEqual(kept);
    expect(cluster.text("os-keys", "master-secret")).toBe(master);
  });

  it("never writes a Secret that an operator gave", async () => {
    const cluster = new FakeSecrets();
    const theirs = { data: { "tls.crt": "eA==" } };
    cluster.put("os-server-tls", theirs);
    const outcomes = await converge(cluster, { skip: ["os-keys"] });
    expect(outcomes.filter(({ outcome }) => outcome === "operator's").map(({ name }) => name)).toEqual([
      "os-server-tls",
      "os-keys",
    ]);
    expect(cluster.stored.get("os-server-tls")?.data).toEqual(theirs.data);
    expect(cluster.stored.has("os-keys")).toBe(false);
  });

  it("signs with an operator's authority, and warns in its last third", async () => {
    const cluster = new FakeSecrets();
    const authority = await authorityOf({});
    cluster.put("os-ca", secretOf(authority.certPem, authority.keyPem));
    const warnings: string[] = [];
    const log = { info: () => {}, warn: (_: unknown, message: string) => warnings.push(message) } as never;
    await converge(cluster, { log, now: new Date("2026-06-01") });
    expect(isIssuedBy(cluster.text("os-server-tls", "tls.crt"), authority.certPem)).toBe(true);
    expect(warnings).toEqual([]);
    await converge(cluster, { log, now: new Date("2026-11-01") });
    expect(warnings).toEqual([
      "the operator's authority, Secret os-ca, ends on 2027-01-01 and is not renewed here: put a next one into the Secret before",
    ]);
  });

  it("says why an operator's authority cannot sign, before anything is written", async () => {
    const good = await authorityOf({});
    const other = await authorityOf({});
    const ended = await authorityOf({ notAfter: new Date("2026-02-01") });
    const leaf = await issueLeaf({ authority: good, commonName: "x", usages: ["server"], ...life });
    for (const [certPem, keyPem, why] of [
      ["", "", "lacks tls.crt or tls.key"],
      ["x", "", "lacks tls.crt or tls.key"],
      ["x", "y", "holds no PEM certificate with its key in tls.crt and tls.key"],
      [good.certPem, other.keyPem, "holds no PEM certificate with its key in tls.crt and tls.key"],
      [leaf.certPem, leaf.keyPem, "holds a certificate that may not sign others"],
      [ended.certPem, ended.keyPem, "ended on 2026-02-01"],
    ] as const) {
      const cluster = new FakeSecrets();
      cluster.put("os-ca", secretOf(certPem, keyPem));
      await expect(converge(cluster, { now: new Date("2026-06-01") })).rejects.toMatchObject({
        code: "failed-precondition",
        message: `the operator's authority, Secret os-ca, ${why}: give one that can sign, or give the Secrets with the certificates themselves`,
      });
      expect(cluster.writes).toEqual([]);
    }
  });

  it("asks nothing of an operator's authority where nothing of its own hangs on it", async () => {
    const cluster = new FakeSecrets();
    for (const role of ["ca", "server-tls", "server-client-ca", "client-tls"])
      cluster.put(`os-${role}`, secretOf("x", ""));
    await converge(cluster);
    expect(cluster.writes).toEqual(["create os-jwt-keys", "create os-keys"]);
  });

  it("adds to a signing key what follows from it", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster);
    const before = structuredClone(cluster.stored.get("os-jwt-keys")?.data);
    const { kid: _, ...others } = before ?? {};
    cluster.put("os-jwt-keys", { ...cluster.stored.get("os-jwt-keys"), data: { ...others, "public.pem": "anVuaw==" } });
    cluster.writes.length = 0;
    await converge(cluster);
    expect(cluster.writes).toEqual(["patch os-jwt-keys kid,public.pem"]);
    expect(cluster.stored.get("os-jwt-keys")?.data).toEqual(before);
    // A name that tokens carry already is kept.
    cluster.put("os-jwt-keys", { ...cluster.stored.get("os-jwt-keys"), data: { ...before, kid: "b3du" } });
    cluster.writes.length = 0;
    await converge(cluster);
    expect(cluster.writes).toEqual([]);
  });

  it("ends with one set of Secrets when two Jobs run at once", async () => {
    const cluster = new FakeSecrets();
    await Promise.all([converge(cluster), converge(cluster)]);
    const ca = cluster.text("os-ca", "tls.crt");
    for (const name of ["os-server-tls", "os-client-tls"]) {
      expect(isIssuedBy(cluster.text(name, "tls.crt"), ca)).toBe(true);
      expect(cluster.text(name, "ca.crt")).toBe(ca);
    }
    expect(cluster.stored.size).toBe(6);
  });

  it("does not overwrite what another Job wrote since it read", async () => {
    const cluster = new FakeSecrets();
    await converge(cluster);
    cluster.beforeWrite = (name) => {
      cluster.beforeWrite = () => {};
      cluster.put(name, { ...cluster.stored.get(name) });
    };
    cluster.writes.length = 0;
    await converge(cluster, { dnsNames: ["other"] });
    expect(cluster.writes).toEqual(["patch os-server-tls tls.crt,tls.key"]);
  });

  it("gives up a failure that repeating does not cure at once", async () => {
    const cluster = new FakeSecrets();
    let tries = 0;
    cluster.beforeWrite = () => {
      tries += 1;
      throw refused(403, "Forbidden");
    };
    await expect(converge(cluster)).rejects.toThrow("Forbidden");
    expect(tries).toBe(1);
  });
});
