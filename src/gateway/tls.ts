import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { ServerCredentials } from "@grpc/grpc-js";
import { OpenShellError } from "../common/errors.ts";
import type { Logger } from "../common/log.ts";

export interface TlsFiles {
  /** Certificate chain, PEM. */
  readonly cert: string;
  /** Its private key, PEM. */
  readonly key: string;
  /** CAs of client certificates, PEM; undefined: none is asked for. */
  readonly clientCa: string | undefined;
}

/** How often the files are looked at, in milliseconds. Mounted Secrets change by a swapped link, which file watches miss. */
const lookEveryMs = 10_000;

/**
 * TLS of the gateway's port. A client certificate is asked for and never demanded: who the caller is, and whether the certificate counts,
 * is decided per call (identity/). Files are read again when they change; connections that are up keep what they have.
 */
export class GatewayTls extends ServerCredentials {
  readonly #files: TlsFiles;
  readonly #log: Logger;
  readonly #onClientCa: (bundle: string) => void;
  #loaded: Loaded;
  readonly #timer: NodeJS.Timeout;

  /** @param onClientCa given the client CAs now and whenever they change; may throw to refuse them */
  private constructor(files: TlsFiles, log: Logger, loaded: Loaded, onClientCa: (bundle: string) => void) {
    super(
      { minVersion: "TLSv1.2", requestCert: files.clientCa !== undefined, rejectUnauthorized: false },
      contextOf(loaded),
    );
    this.#files = files;
    this.#log = log;
    this.#loaded = loaded;
    this.#onClientCa = onClientCa;
    this.#timer = setInterval(() => this.reload(), lookEveryMs);
    this.#timer.unref();
  }

  /** @throws invalid-argument naming the file that is unusable */
  static load(files: TlsFiles, log: Logger, onClientCa: (bundle: string) => void = () => {}): GatewayTls {
    const loaded = read(files);
    if (loaded.clientCa !== undefined) onClientCa(loaded.clientCa);
    return new GatewayTls(files, log, loaded, onClientCa);
  }

  /** Takes the files' new contents; unusable ones are logged and the old stay. True when something changed. */
  reload(): boolean {
    try {
      const next = read(this.#files);
      const now = this.#loaded;
      if (next.cert === now.cert && next.key === now.key && next.clientCa === now.clientCa) return false;
      if (next.clientCa !== undefined && next.clientCa !== now.clientCa) this.#onClientCa(next.clientCa);
      this.updateSecureContextOptions(contextOf(next));
      this.#loaded = next;
      this.#log.info({ expires: this.expires }, "certificates were read again");
      return true;
    } catch (error) {
      this.#log.warn({ err: error }, "new certificates are unusable; the ones before stay");
      return false;
    }
  }

  /** When the listener's certificate ends. */
  get expires(): Date {
    return new X509Certificate(this.#loaded.cert).validToDate;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  override _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}

interface Loaded {
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string | undefined;
}

function read(files: TlsFiles): Loaded {
  const loaded = {
    cert: readPem("tls.cert_path", files.cert),
    key: readPem("tls.key_path", files.key),
    clientCa: files.clientCa === undefined ? undefined : readPem("tls.client_ca_path", files.clientCa),
  };
  try {
    createSecureContext(contextOf(loaded));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("invalid-argument", `${files.cert} and ${files.key} are no usable pair: ${reason}`, {
      cause,
    });
  }
  return loaded;
}

function contextOf({ cert, key, clientCa }: Loaded): SecureContextOptions {
  return { cert, key, ...(clientCa === undefined ? {} : { ca: clientCa }) };
}

function readPem(setting: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new OpenShellError("invalid-argument", `${setting}: ${reason}`, { cause });
  }
}
