import type { Logger } from "../common/log.ts";
import { ClientCertificates } from "./identity/client-certificates.ts";
import { type OidcOptions, OidcUsers } from "./identity/oidc/oidc-users.ts";
import { type SessionTokenKeys, SessionTokens } from "./identity/session-tokens.ts";
import type { ClassifyReason } from "./sandbox/driver-state.ts";
import { Replays } from "./sandbox/replay.ts";
import { Sandboxes } from "./sandbox/sandboxes.ts";
import { Exits } from "./sessions/exits.ts";
import { Supervisors } from "./sessions/supervisors.ts";
import { Store } from "./store/store.ts";
import { GatewayTls, type TlsFiles } from "./tls.ts";

export interface CoreOptions {
  /** Issuer of session tokens is `openshell-gateway:<gatewayId>`. */
  readonly gatewayId: string;
  /** Undefined: plain text. */
  readonly tls?: TlsFiles;
  /** Whether client certificates identify users; needs tls.clientCa. */
  readonly mtlsUsers: boolean;
  /** Undefined: bearer tokens identify no users. */
  readonly oidc?: OidcOptions;
  /** Undefined: supervisors cannot identify themselves. */
  readonly tokenKeys?: SessionTokenKeys;
  readonly tokenTtlSeconds?: number;
  /** File of the store, or ":memory:". */
  readonly databasePath: string;
  readonly classify: ClassifyReason;
  readonly log: Logger;
}

/** What a gateway knows and whom it recognizes, apart from its driver and its listeners. */
export interface Core {
  readonly store: Store;
  readonly sandboxes: Sandboxes;
  readonly supervisors: Supervisors;
  readonly exits: Exits;
  readonly replays: Replays;
  /** Undefined in plain text. */
  readonly tls: GatewayTls | undefined;
  readonly certificates: ClientCertificates | undefined;
  readonly oidc: OidcUsers | undefined;
  readonly tokens: SessionTokens | undefined;
}

/**
 * Opens the store and reads certificates and keys.
 * @param undo closes what was opened
 * @throws unavailable for a store that cannot be opened, invalid-argument for unusable certificates and keys
 */
export async function openCore(options: CoreOptions, undo: AsyncDisposableStack): Promise<Core> {
  const { log, classify } = options;
  const store = undo.adopt(new Store(options.databasePath), (one) => one.close());
  const certificates = options.mtlsUsers ? new ClientCertificates() : undefined;
  const tls =
    options.tls === undefined
      ? undefined
      : undo.adopt(
          GatewayTls.load(options.tls, log, (bundle) => certificates?.trust(bundle)),
          (one) => one.close(),
        );
  const sandboxes = new Sandboxes({ store, classify });
  return {
    store,
    sandboxes,
    supervisors: new Supervisors({ store, sandboxes, log }),
    exits: undo.adopt(new Exits(sandboxes, log), (one) => one.close()),
    replays: new Replays(store.replays),
    tls,
    certificates,
    oidc: options.oidc === undefined ? undefined : new OidcUsers(options.oidc, log),
    tokens: await sessionTokens(options),
  };
}

async function sessionTokens({ gatewayId, tokenKeys, tokenTtlSeconds }: CoreOptions) {
  if (tokenKeys === undefined) return undefined;
  const ttl = tokenTtlSeconds === undefined ? {} : { ttlSeconds: tokenTtlSeconds };
  return SessionTokens.create({ keys: tokenKeys, gatewayId, ...ttl });
}
