import { beforeAll, describe, expect, it } from "vitest";
import { type CertificateAndKey, certificatesIn, issueAuthority, issueLeaf } from "./certificates.ts";
import { type PkiPlan, planPki, trustedBundle } from "./plan.ts";
import { entry, type PkiState, type SecretState } from "./secrets.ts";

const at = (text: string) => new Date(`${text}T00:00:00Z`);
const year2030 = at("2030-01-01");
/** 2026 to 2038: the last third begins 2034, the last sixth 2036. */
const life = { notBefore: at("2026-01-01"), notAfter: at("2038-01-01") };
const names = { dnsNames: ["gateway.ns.svc"], ipAddresses: ["127.0.0.1"] };

let ca: CertificateAndKey;
let next: CertificateAndKey;
let leaf: CertificateAndKey;

beforeAll(async () => {
  ca = await issueAuthority({ commonName: "ca", algorithm: "ecdsa-p256", ...life });
  next = await issueAuthority({ commonName: "ca", algorithm: "ecdsa-p256", ...life, notAfter: at("2048-01-01") });
  leaf = await issueLeaf({ authority: ca, commonName: "gateway", ...names, usages: ["server"], ...life });
});

const managed = (data: Record<string, string>): SecretState => ({ managed: true, data });
const tls = (pair: CertificateAndKey) => ({ [entry.certificate]: pair.certPem, [entry.privateKey]: pair.keyPem });
const key = Buffer.alloc(32, 1).toString("base64");

function complete(): PkiState {
  return {
    ca: managed(tls(ca)),
    "server-tls": managed({ ...tls(leaf), [entry.bundle]: ca.certPem }),
    "server-client-ca": managed({ [entry.bundle]: ca.certPem }),
    "client-tls": managed({ ...tls(leaf), [entry.bundle]: ca.certPem }),
    "jwt-keys": managed({ [entry.jwtSigningKey]: ca.keyPem }),
    keys: managed({ [entry.masterSecret]: key, [entry.keyEncryptionKey]: key }),
  };
}

/** The steps that are not "keep", as `name: action`. */
function steps(plan: PkiPlan): string[] {
  return Object.entries(plan).flatMap(([name, step]) => (step.action === "keep" ? [] : [`${name}: ${step.action}`]));
}

function stepsOf(change: PkiState, now = year2030, wanted = names): string[] {
  return steps(planPki({ ...complete(), ...change }, { serverNames: wanted, prefix: "os" }, now));
}

const everything = [
  "authority: create",
  "server: issue",
  "client: issue",
  "jwtKeys: create",
  "masterSecret: create",
  "keyEncryptionKey: create",
];

describe("a plan", () => {
  it("makes everything where there is nothing", () => {
    expect(steps(planPki({}, { serverNames: names, prefix: "os" }, year2030))).toEqual(everything);
  });

  it("changes nothing where everything is as it should be", () => {
    expect(stepsOf({})).toEqual([]);
  });

  it("makes only the Secret that is missing", () => {
    const { "server-tls": _gone, ...rest } = complete();
    expect(steps(planPki(rest, { serverNames: names, prefix: "os" }, year2030))).toEqual(["server: issue"]);
  });

  it("issues the server's certificate anew when its names change, in either direction", () => {
    expect(stepsOf({}, year2030, { ...names, dnsNames: [...names.dnsNames, "gateway.example.org"] })).toEqual([
      "server: issue",
    ]);
    expect(stepsOf({}, year2030, { ...names, ipAddresses: [] })).toEqual(["server: issue"]);
    expect(stepsOf({}, year2030, { ...names, dnsNames: ["GATEWAY.ns.svc", "gateway.ns.svc"] })).toEqual([]);
  });

  it("issues a certificate anew whose key is another's or that is no certificate", () => {
    expect(stepsOf({ "client-tls": managed({ ...tls(leaf), [entry.privateKey]: ca.keyPem }) })).toEqual([
      "client: issue",
    ]);
    expect(stepsOf({ "client-tls": managed({ ...tls(leaf), [entry.certificate]: "torn" }) })).toEqual([
      "client: issue",
    ]);
  });

  it("adds a key that an earlier version did not know, beside the one that is there", () => {
    expect(stepsOf({ keys: managed({ [entry.masterSecret]: key }) })).toEqual(["keyEncryptionKey: create"]);
  });

  it("never replaces a key that it cannot read", () => {
    expect(() =>
      stepsOf({ keys: managed({ [entry.masterSecret]: "c2hvcnQ=", [entry.keyEncryptionKey]: key }) }),
    ).toThrow("never replaced");
    expect(() => stepsOf({ "jwt-keys": managed({ [entry.jwtSigningKey]: "torn" }) })).toThrow("never replaced");
    expect(() => stepsOf({ ca: managed({ ...tls(ca), [entry.privateKey]: "torn" }) })).toThrow("restore it");
  });

  it("leaves an operator's Secrets alone, whatever is in them", () => {
    const theirs: SecretState = { managed: false, data: { [entry.masterSecret]: "short", [entry.certificate]: "x" } };
    expect(stepsOf({ "server-tls": theirs, "client-tls": theirs, "jwt-keys": theirs, keys: theirs })).toEqual([]);
    const given = { ca: theirs, "server-tls": theirs, "server-client-ca": theirs, "client-tls": theirs };
    expect(stepsOf(given)).toEqual([]);
  });
});

describe("the authority's renewal", () => {
  const staged = () => ({ ...tls(ca), [entry.nextCertificate]: next.certPem, [entry.nextPrivateKey]: next.keyPem });

  it.each([
    ["2033-12-01", []],
    ["2034-02-01", ["authority: stage-next"]],
    ["2037-01-01", ["authority: stage-next"]],
    ["2038-02-01", ["authority: create"]],
  ])("at %s without a next one: %j", (now, expected) => {
    expect(stepsOf({}, at(now)).filter((step) => step.startsWith("authority"))).toEqual(expected);
  });

  it.each([
    ["2035-12-01", []],
    ["2036-02-01", ["authority: promote", "server: issue", "client: issue"]],
  ])("at %s with a next one: %j", (now, expected) => {
    const ownLife = { notBefore: at("2035-01-01"), notAfter: at("2038-01-01") };
    return issueLeaf({ authority: ca, commonName: "x", ...names, usages: ["server"], ...ownLife }).then((fresh) => {
      const secret = managed({ ...tls(fresh), [entry.bundle]: ca.certPem });
      expect(stepsOf({ ca: managed(staged()), "server-tls": secret, "client-tls": secret }, at(now))).toEqual(expected);
    });
  });

  it("signs with a new one at once where the old one has ended", () => {
    expect(stepsOf({}, at("2038-02-01"))).toEqual(["authority: create", "server: issue", "client: issue"]);
    const ended = managed({ ...tls(next), [entry.nextCertificate]: ca.certPem, [entry.nextPrivateKey]: ca.keyPem });
    expect(stepsOf({ ca: ended }, at("2048-02-01"))).toEqual(["authority: create", "server: issue", "client: issue"]);
  });

  it("trusts both while they overlap, and drops the old one when it has expired", () => {
    expect(certificatesIn(trustedBundle(staged(), year2030))).toEqual([ca.certPem, next.certPem]);
    const promoted = { ...tls(next), [entry.previousCertificates]: ca.certPem };
    expect(certificatesIn(trustedBundle(promoted, at("2037-01-01")))).toEqual([next.certPem, ca.certPem]);
    expect(certificatesIn(trustedBundle(promoted, at("2038-02-01")))).toEqual([next.certPem]);
  });
});
