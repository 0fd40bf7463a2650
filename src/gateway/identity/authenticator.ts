import { createHash } from "node:crypto";
import { decodeJwt } from "jose";
import { OpenShellError } from "../../common/errors.ts";
import { type CallContext, type Client, type compute, openshell } from "../../wire/index.ts";
import type { Store } from "../store/store.ts";
import type { ClientCertificates } from "./client-certificates.ts";
import type { OidcUsers } from "./oidc/oidc-users.ts";
import { anonymousUser, type Principal, type UserPrincipal } from "./principal.ts";
import { requireRenewable } from "./renewal.ts";
import { requireRole, requireScope, ruleOf } from "./rules.ts";
import type { SessionTokens } from "./session-tokens.ts";

export interface AuthenticatorOptions {
  readonly store: Store;
  readonly driver: Pick<Client<typeof compute.ComputeDriver>, "authenticateSandbox">;
  /** Undefined: users cannot identify themselves by certificate. */
  readonly certificates?: ClientCertificates;
  /** Undefined: users cannot identify themselves by bearer token. */
  readonly oidc?: OidcUsers;
  /** Undefined: supervisors cannot identify themselves. */
  readonly tokens?: SessionTokens;
  readonly allowUnauthenticatedUsers: boolean;
  /** @default Date.now */
  readonly now?: () => number;
}

type Call = Pick<CallContext, "method" | "header" | "peerCertificate" | "signal">;

/**
 * Decides who calls and whether they may, before anything else happens to a call. A credential that is shown and does not hold is never
 * ignored, not even where none is needed of users.
 */
export class Authenticator {
  readonly #options: AuthenticatorOptions;

  constructor(options: AuthenticatorOptions) {
    this.#options = options;
  }

  /** @throws unauthenticated, permission-denied */
  async authenticate(call: Call): Promise<Principal> {
    const rule = ruleOf(call.method);
    switch (rule.mode) {
      case "unauthenticated":
        return { kind: "nobody" };
      case "bearer":
        return this.#user(call);
      case "sandbox":
        return call.method.name === openshell.OpenShell.method.issueSandboxToken.name
          ? this.#bootstrap(call)
          : this.#supervisor(call);
      case "dual":
        return this.#isUsers(bearerToken(call)) ? this.#user(call) : this.#supervisor(call);
      case "operator":
        return this.#operator(call);
      case "peer":
        throw new OpenShellError(
          "unauthenticated",
          `${call.method.name} is for gateway replicas; this gateway runs alone`,
        );
    }
  }

  /** Both sides show bearer tokens: whose one is, is told by who issued it. */
  #isUsers(token: string | undefined): boolean {
    return token === undefined || (this.#options.oidc?.claims(issuerOf(token)) ?? false);
  }

  async #user(call: Call): Promise<UserPrincipal> {
    const user = await this.#identify(call);
    const { workspaceRole, globalRole, scope } = ruleOf(call.method);
    if (scope !== undefined) requireScope(user, scope, call.method.name);
    if (globalRole !== undefined) requireRole(user, globalRole, call.method.name);
    if (workspaceRole !== undefined) requireRole(user, workspaceRole, call.method.name);
    return user;
  }

  /** A token is shown on purpose for this call, a certificate by the connection: the token counts where both are shown. */
  async #identify(call: Call): Promise<UserPrincipal> {
    const { certificates, oidc, allowUnauthenticatedUsers, now = Date.now } = this.#options;
    const token = bearerToken(call);
    if (token !== undefined) {
      if (oidc === undefined) throw takesNoToken(call, this.#options);
      if (issuerOf(token)?.startsWith("openshell-gateway:")) throw isSupervisors(call);
      return oidc.identify(token, call.signal);
    }
    if (call.peerCertificate !== undefined && certificates !== undefined) {
      return certificates.identify(call.peerCertificate, now());
    }
    if (allowUnauthenticatedUsers && call.peerCertificate === undefined) return anonymousUser;
    throw needsCredential(call, this.#options);
  }

  async #operator(call: Call): Promise<UserPrincipal> {
    const user = await this.#identify(call);
    requireRole(user, "operator", call.method.name);
    return user;
  }

  async #supervisor(call: Call): Promise<Principal> {
    const { store, tokens } = this.#options;
    const bearer = bearerToken(call);
    if (bearer === undefined || tokens === undefined) throw noSessionToken(call);
    const renews = call.method.name === openshell.OpenShell.method.refreshSandboxToken.name;
    const token = renews ? await tokens.read(bearer) : await tokens.verify(bearer);
    const session = store.sessions.bySandbox(token.sandboxId);
    if (session?.sessionId !== token.sessionId) throw sessionOver();
    if (token.expired) requireRenewable(token, session, store.sandboxes.byId(token.sandboxId)?.lifecycle.desired);
    return { kind: "sandbox", ...token };
  }

  async #bootstrap(call: Call): Promise<Principal> {
    const credential = bearerToken(call);
    if (credential === undefined || this.#options.tokens === undefined) throw noSessionToken(call);
    const { sandboxId, runtimeIdentity } = await this.#options.driver.authenticateSandbox(
      { credential },
      { signal: call.signal, timeoutMs: 15_000 },
    );
    return { kind: "bootstrap", sandboxId, runtimeIdentity, bearer: bearerOf(credential) };
  }
}

/** For a supervisor whose session was the sandbox's once. */
export function sessionOver(): OpenShellError {
  return new OpenShellError("unauthenticated", "the session of this token is over: ask for a new token", {
    reason: "SessionOver",
  });
}

function takesNoToken(call: Call, { certificates }: AuthenticatorOptions): OpenShellError {
  const instead =
    certificates === undefined ? "users need none, call without it" : "users identify themselves by client certificate";
  return new OpenShellError("unauthenticated", `${call.method.name} takes no bearer token at this gateway: ${instead}`);
}

function isSupervisors(call: Call): OpenShellError {
  return new OpenShellError(
    "unauthenticated",
    `${call.method.name} is for users; the bearer token is a supervisor's session token`,
  );
}

function needsCredential(call: Call, { certificates, oidc }: AuthenticatorOptions): OpenShellError {
  const certificate =
    "a valid client certificate of this gateway: issued by its client CA, within its dates, meant for clients";
  if (oidc === undefined) {
    return new OpenShellError("unauthenticated", `${call.method.name} needs ${certificate}`, {
      reason: "ClientCertificateMissing",
    });
  }
  const either = certificates === undefined ? "" : `, or ${certificate}`;
  return new OpenShellError(
    "unauthenticated",
    `${call.method.name} needs a bearer token of ${oidc.issuer} (authorization: Bearer TOKEN)${either}`,
    { reason: "CredentialMissing", metadata: { issuer: oidc.issuer } },
  );
}

function noSessionToken(call: Call): OpenShellError {
  return new OpenShellError("unauthenticated", `${call.method.name} is for supervisors and needs their bearer token`);
}

function bearerToken(call: Call): string | undefined {
  const header = call.header("authorization");
  if (header === undefined) return undefined;
  const [, token] = /^Bearer ([\w.~+/=-]+)$/i.exec(header) ?? [];
  if (token === undefined) {
    throw new OpenShellError("unauthenticated", "the authorization header is not of the form: Bearer TOKEN");
  }
  return token;
}

/** Who a token says issued it; undefined for what is no JWT. */
function issuerOf(token: string): string | undefined {
  try {
    const { iss } = decodeJwt(token);
    return typeof iss === "string" ? iss : undefined;
  } catch {
    return undefined;
  }
}

/** Who holds a token that the driver has verified: the Pod it is bound to, which keeps its name when the token is renewed. */
function bearerOf(credential: string): string {
  const digest = createHash("sha256").update(credential).digest("hex");
  try {
    const kubernetes = decodeJwt(credential)["kubernetes.io"] as
      | { readonly pod?: { readonly uid?: unknown } }
      | undefined;
    const uid = kubernetes?.pod?.uid;
    return typeof uid === "string" ? `pod:${uid}` : `token:${digest}`;
  } catch {
    // Not a JWT: another driver's kind of credential, known by its digest.
    return `token:${digest}`;
  }
}
