import "reflect-metadata";
import { createPrivateKey, generateKeyPairSync, webcrypto, X509Certificate } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as x509 from "@peculiar/x509";
import { OpenShellError } from "../../../src/common/errors.ts";

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const validity = { notBefore: new Date("2020-01-01T00:00:00Z"), notAfter: new Date("2120-01-01T00:00:00Z") };

/** A certificate and its key, as PEM. */
export interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

/** What a certificate of the cluster is for. */
export interface LeafRequest {
  /** File name without extension, unique in the cluster. */
  readonly name: string;
  readonly commonName: string;
  /** Kubernetes reads a client's groups from here. */
  readonly organizations?: readonly string[];
  /** Names and addresses of a server. @default a client certificate */
  readonly hosts?: readonly string[];
}

/** The cluster's one certificate authority, kept in a directory together with everything it issued. */
export class Authority {
  readonly certificate: string;
  readonly #directory: string;
  readonly #issuer: x509.X509Certificate;
  readonly #key: webcrypto.CryptoKey;

  private constructor(directory: string, certificate: string, key: webcrypto.CryptoKey) {
    this.certificate = certificate;
    this.#directory = directory;
    this.#issuer = new x509.X509Certificate(certificate);
    this.#key = key;
  }

  /** Loads the authority below `directory`, or makes one. */
  static async open(directory: string): Promise<Authority> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const files = { certificate: join(directory, "ca.crt"), key: join(directory, "ca.key") };
    const known = await readPair(files.certificate, files.key);
    if (known !== undefined) return new Authority(directory, known.certificate, await importKey(known.key));
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const made = await x509.X509CertificateGenerator.createSelfSigned({
      name: [{ CN: ["openshell-local-cluster"] }],
      keys,
      signingAlgorithm: algorithm,
      ...validity,
      extensions: [
        new x509.BasicConstraintsExtension(true, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    });
    const pair = { certificate: made.toString("pem"), key: await exportKey(keys.privateKey) };
    await writePair(files.certificate, files.key, pair);
    return new Authority(directory, pair.certificate, keys.privateKey);
  }

  /** Path of a file of this authority, to hand to a program. */
  file(name: string): string {
    return join(this.#directory, name);
  }

  /** The certificate that was issued under this name, or a new one. */
  async issue(request: LeafRequest): Promise<KeyPair> {
    const files = { certificate: this.file(`${request.name}.crt`), key: this.file(`${request.name}.key`) };
    const known = await readPair(files.certificate, files.key);
    if (known !== undefined) return known;
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const usage = request.hosts === undefined ? x509.ExtendedKeyUsage.clientAuth : x509.ExtendedKeyUsage.serverAuth;
    const made = await x509.X509CertificateGenerator.create({
      subject: [
        { CN: [request.commonName] },
        ...(request.organizations ?? []).map((organization) => ({ O: [organization] })),
      ],
      issuer: this.#issuer.subject,
      publicKey: keys.publicKey,
      signingKey: this.#key,
      signingAlgorithm: algorithm,
      ...validity,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([usage]),
        await x509.AuthorityKeyIdentifierExtension.create(this.#issuer),
        ...(request.hosts === undefined
          ? []
          : [new x509.SubjectAlternativeNameExtension(request.hosts.map(alternativeName))]),
      ],
    });
    const pair = { certificate: made.toString("pem"), key: await exportKey(keys.privateKey) };
    await writePair(files.certificate, files.key, pair);
    return pair;
  }

  /** Makes the key pair that ServiceAccount tokens are signed with, as `<name>.key` and `<name>.pub`. */
  async makeSigningKey(name: string): Promise<void> {
    if ((await readPair(this.file(`${name}.pub`), this.file(`${name}.key`))) !== undefined) return;
    const { publicKey, privateKey } = generateKeyPairSync("ec", {
      namedCurve: "P-256",
      publicKeyEncoding: { type: "spki", format: "pem" },
      privateKeyEncoding: { type: "sec1", format: "pem" },
    });
    await writePair(this.file(`${name}.pub`), this.file(`${name}.key`), { certificate: publicKey, key: privateKey });
  }
}

function alternativeName(host: string): { type: "ip" | "dns"; value: string } {
  return { type: /^[\d.]+$|:/.test(host) ? "ip" : "dns", value: host };
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", key));
  return createPrivateKey({ key: der, format: "der", type: "pkcs8" })
    .export({ type: "sec1", format: "pem" })
    .toString();
}

async function importKey(pem: string): Promise<webcrypto.CryptoKey> {
  const der = createPrivateKey(pem).export({ type: "pkcs8", format: "der" });
  return webcrypto.subtle.importKey("pkcs8", der, algorithm, true, ["sign"]);
}

async function readPair(certificateFile: string, keyFile: string): Promise<KeyPair | undefined> {
  try {
    const [certificate, key] = await Promise.all([readFile(certificateFile, "utf8"), readFile(keyFile, "utf8")]);
    if (certificateFile.endsWith(".crt")) new X509Certificate(certificate);
    createPrivateKey(key);
    return { certificate, key };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new OpenShellError(
      "failed-precondition",
      `${certificateFile} or its key is damaged: bring the cluster down and up again`,
      { cause: error },
    );
  }
}

async function writePair(certificateFile: string, keyFile: string, pair: KeyPair): Promise<void> {
  await writeFile(keyFile, pair.key, { mode: 0o600 });
  await writeFile(certificateFile, pair.certificate);
}
