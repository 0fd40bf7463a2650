import type { Agent } from "node:https";

/** TLS settings of a connection to the API server. */
export interface AccessTls {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** What a request needs in order to be let in; read anew for each request, so that tokens may rotate. */
export interface Credentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: AccessTls;
  /** Names the TLS material: connections are not shared across different values. */
  readonly fingerprint: string;
  /** Set when the way leads through a proxy. */
  readonly agent?: Agent;
}
