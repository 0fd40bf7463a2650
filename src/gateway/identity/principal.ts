/** Roles of users. A client certificate carries each as one OU; the roles of a token are named in the settings. */
export const userRoles = ["platform-admin", "admin", "user", "operator"] as const;
export type UserRole = (typeof userRoles)[number];

export interface UserPrincipal {
  readonly kind: "user";
  /** The certificate's CN, the token's sub, or "anonymous". */
  readonly subject: string;
  /** What a person is called. @default the subject */
  readonly displayName?: string;
  readonly roles: readonly UserRole[];
  /** What a token is good for, in the contract's words. @default whatever the roles allow */
  readonly scopes?: readonly string[];
  readonly provider: "mtls" | "oidc" | "none";
}

/** A supervisor with its session token. */
export interface SandboxPrincipal {
  readonly kind: "sandbox";
  readonly sandboxId: string;
  readonly sessionId: string;
}

/** The same, with what its token says. */
export interface TokenPrincipal extends SandboxPrincipal {
  /** Seconds since 1970. */
  readonly issued: number;
  /** True for RefreshSandboxToken at most. */
  readonly expired: boolean;
}

/** A supervisor that shows its projected token, which only IssueSandboxToken takes. */
export interface BootstrapPrincipal {
  readonly kind: "bootstrap";
  readonly sandboxId: string;
  readonly runtimeIdentity: string;
  /** Who holds the token: the Pod's UID, or the token's digest where there is no Pod. */
  readonly bearer: string;
}

/** Nobody in particular, for RPCs that need nobody. */
export interface NobodyPrincipal {
  readonly kind: "nobody";
}

export type Principal = UserPrincipal | TokenPrincipal | BootstrapPrincipal | NobodyPrincipal;

/** Who everybody is where `auth.allow_unauthenticated_users` is set and no credential is shown. */
export const anonymousUser: UserPrincipal = {
  kind: "user",
  subject: "anonymous",
  roles: ["platform-admin"],
  provider: "none",
};

/** Stable name of a caller, for replayed mutations and logs. */
export function callerName(principal: Principal): string {
  switch (principal.kind) {
    case "user":
      return `user:${principal.provider}:${principal.subject}`;
    case "sandbox":
    case "bootstrap":
      return `sandbox:${principal.sandboxId}`;
    case "nobody":
      return "nobody";
  }
}
