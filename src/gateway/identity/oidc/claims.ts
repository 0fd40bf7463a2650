import type { JWTPayload } from "jose";
import type { UserRole } from "../principal.ts";

/** How a provider's words become ours. */
export interface ClaimRules {
  /** A claim's name, or a path through claims with dots. */
  readonly rolesClaim: string;
  /** Provider's name of the platform administrator's role; both names empty: roles are not looked at. */
  readonly adminRole: string;
  readonly userRole: string;
  /** Empty: scopes are not looked at. */
  readonly scopesClaim: string;
}

/** The roles of a token. One who may do everything has no use for more. */
export function rolesOf(payload: JWTPayload, { rolesClaim, adminRole, userRole }: ClaimRules): UserRole[] {
  if (adminRole === "" && userRole === "") return ["platform-admin"];
  const named = wordsOf(claimAt(payload, rolesClaim));
  if (named.includes(adminRole)) return ["platform-admin"];
  return named.includes(userRole) ? ["user"] : [];
}

/** The scopes of a token; undefined where they are not looked at. */
export function scopesOf(payload: JWTPayload, { scopesClaim }: ClaimRules): readonly string[] | undefined {
  return scopesClaim === "" ? undefined : wordsOf(claimAt(payload, scopesClaim));
}

/** What a person is called, where the token says it. */
export function displayNameOf(payload: JWTPayload): string | undefined {
  return [payload.name, payload.preferred_username, payload.email].find(
    (value): value is string => typeof value === "string" && value.trim() !== "",
  );
}

/** A claim of exactly this name, since names may hold dots (they often are URLs), else the one at the end of the path. */
function claimAt(payload: JWTPayload, path: string): unknown {
  if (Object.hasOwn(payload, path)) return payload[path];
  let at: unknown = payload;
  for (const part of path.split(".")) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, part)) return undefined;
    at = (at as Record<string, unknown>)[part];
  }
  return at;
}

/** A list of words, or words in one text as OAuth writes scopes. */
function wordsOf(value: unknown): string[] {
  if (typeof value === "string") return value.split(/\s+/).filter((word) => word !== "");
  return Array.isArray(value) ? value.filter((word): word is string => typeof word === "string") : [];
}
