import { X509Certificate } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { issueAuthority, issueLeaf } from "../../pki/certificates.ts";
import { ClientCertificates } from "./client-certificates.ts";

const year = 365 * 24 * 3600 * 1000;
const now = Date.UTC(2030, 0, 1);
const validity = { notBefore: new Date(now - year), notAfter: new Date(now + year) };
type Pem = Awaited<ReturnType<typeof issueAuthority>>;

let authority: Pem;
let next: Pem;
const certificates = new ClientCertificates();

beforeAll(async () => {
  authority = await issueAuthority({ commonName: "users", algorithm: "ecdsa-p256", ...validity });
  next = await issueAuthority({ commonName: "users", algorithm: "ecdsa-p256", ...validity });
  certificates.trust(authority.certPem);
});

async function leaf(options: Partial<Parameters<typeof issueLeaf>[0]> = {}): Promise<Uint8Array> {
  const defaults = { authority, commonName: "ann", organizationalUnits: ["user", "admin", "guest"] };
  const { certPem } = await issueLeaf({ ...defaults, usages: ["client"], ...validity, ...options });
  return new X509Certificate(certPem).raw;
}

describe("a client certificate", () => {
  it("names its user, and as roles those of its organizational units that are roles", async () => {
    expect(certificates.identify(await leaf(), now)).toEqual({
      kind: "user",
      subject: "ann",
      roles: ["admin", "user"],
      provider: "mtls",
    });
  });

  it("of an authority with the same name but another key is refused", async () => {
    const der = await leaf({ authority: next });
    expect(() => certificates.identify(der, now)).toThrow("was not issued by this gateway's client CA");
  });

  it("is refused outside its dates, also when it was accepted before", async () => {
    const der = await leaf();
    expect(certificates.identify(der, now).subject).toBe("ann");
    for (const at of [now - 2 * year, now + 2 * year]) {
      expect(() => certificates.identify(der, at)).toThrow("is expired or not valid yet");
    }
  });

  it("made for servers is refused", async () => {
    const der = await leaf({ usages: ["server"] });
    expect(() => certificates.identify(der, now)).toThrow("is not meant for clients");
  });

  it("that is no certificate at all is refused", () => {
    expect(() => certificates.identify(new Uint8Array([1, 2, 3]), now)).toThrow("cannot be read");
  });

  it("of the old and of the new authority counts while both are trusted, then only the new", async () => {
    const [old, fresh] = [await leaf(), await leaf({ authority: next })];
    const rotating = new ClientCertificates();
    rotating.trust(authority.certPem + next.certPem);
    expect(rotating.identify(old, now).subject).toBe("ann");
    expect(rotating.identify(fresh, now).subject).toBe("ann");
    rotating.trust(next.certPem);
    expect(rotating.identify(fresh, now).subject).toBe("ann");
    expect(() => rotating.identify(old, now)).toThrow("was not issued");
  });
});
