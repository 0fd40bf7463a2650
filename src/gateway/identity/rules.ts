import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { OpenShellError } from "../../common/errors.ts";
import { options } from "../../wire/index.ts";
import type { UserPrincipal, UserRole } from "./principal.ts";

export const authModes = ["unauthenticated", "bearer", "sandbox", "dual", "peer", "operator"] as const;
export type AuthMode = (typeof authModes)[number];

/** What a method demands of its caller: the contract's authorization column. */
export interface AuthorizationRule {
  readonly mode: AuthMode;
  /** Least role in the workspace, for users. */
  readonly workspaceRole?: "user" | "admin";
  /** Role needed whatever the workspace, for users. */
  readonly globalRole?: "platform_admin";
  /** What a token with scopes must be good for, for users. */
  readonly scope?: string;
}

const rules = new WeakMap<DescMethod, AuthorizationRule>();

/**
 * The rule of a method, read from its option `openshell.options.v1.authorization`.
 * @throws internal when the method has none or one that is not known, so that nothing is ever served by mistake
 */
export function ruleOf(method: DescMethod): AuthorizationRule {
  const known = rules.get(method);
  if (known !== undefined) return known;
  const rule = readRule(method);
  rules.set(method, rule);
  return rule;
}

function readRule(method: DescMethod): AuthorizationRule {
  const unusable = () => new OpenShellError("internal", `${method.name} has no authorization rule this gateway knows`);
  if (!hasOption(method, options.authorization)) throw unusable();
  const { authMode, workspaceRole, globalRole, scope } = getOption(method, options.authorization);
  const mode = authModes.find((one) => one === authMode);
  if (mode === undefined) throw unusable();
  if (workspaceRole !== "" && workspaceRole !== "user" && workspaceRole !== "admin") throw unusable();
  if (globalRole !== "" && globalRole !== "platform_admin") throw unusable();
  return {
    mode,
    ...(workspaceRole === "" ? {} : { workspaceRole }),
    ...(globalRole === "" ? {} : { globalRole }),
    ...(scope === "" ? {} : { scope }),
  };
}

/** Which roles satisfy a demanded one: platform-admin does all, admin does what user does. */
const satisfying: Readonly<Record<"user" | "admin" | "platform_admin" | "operator", readonly UserRole[]>> = {
  user: ["user", "admin", "platform-admin"],
  admin: ["admin", "platform-admin"],
  platform_admin: ["platform-admin"],
  operator: ["operator"],
};

/** @throws permission-denied naming the role that is missing */
export function requireRole(user: UserPrincipal, role: keyof typeof satisfying, what: string): void {
  if (satisfying[role].some((one) => user.roles.includes(one))) return;
  const needed = role === "platform_admin" ? "platform-admin" : role;
  throw new OpenShellError(
    "permission-denied",
    `${what} needs the role ${needed}; ${user.subject} has ${user.roles.length === 0 ? "no role" : user.roles.join(", ")}`,
    { reason: "RoleMissing", metadata: { role: needed } },
  );
}

/** The scope that stands for every one. */
const everyScope = "openshell:all";

/** @throws permission-denied naming the scope that is missing */
export function requireScope(user: UserPrincipal, scope: string, what: string): void {
  if (user.scopes === undefined || user.scopes.includes(scope) || user.scopes.includes(everyScope)) return;
  throw new OpenShellError(
    "permission-denied",
    `${what} needs the scope ${scope}; the token of ${user.subject} has ${user.scopes.length === 0 ? "no scope" : user.scopes.join(" ").slice(0, 512)}`,
    { reason: "ScopeMissing", metadata: { scope } },
  );
}
