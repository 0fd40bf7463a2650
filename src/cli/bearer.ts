/** The bearer token of a call: given by the user, or of the login that is stored for the gateway. */
import { readFile, stat } from "node:fs/promises";
import { hasCode, OpenShellError } from "../common/errors.ts";
import type { Environment, GatewayDirectory } from "./gateways.ts";
import {
  clientLogin,
  endsSoon,
  isOf,
  notLoggedIn,
  type OidcClient,
  refreshLogin,
  type StoredToken,
} from "./oidc-login.ts";

export interface Bearer {
  /** Asked before every call, so that a token is renewed while a command runs. */
  readonly token: (signal: AbortSignal) => Promise<string>;
  /** What to do when the gateway does not accept it. */
  readonly remedy: string;
}

/**
 * A token that the user gives: a file, read for every call since whoever writes it renews it, or the environment. What is no regular file,
 * such as the output of a command that a shell names, can be read once.
 * @param file --bearer-token-file
 */
export function givenBearer(file: string | undefined, env: Environment): Bearer | undefined {
  const path = file ?? (env.OPENSHELL_BEARER_TOKEN_FILE || undefined);
  if (path !== undefined) {
    let first: Promise<string> | undefined;
    const token = async () => {
      const isFile = await stat(path).then(
        (found) => found.isFile(),
        () => true,
      );
      if (isFile) return tokenIn(path);
      first ??= tokenIn(path);
      return first;
    };
    return { token, remedy: `put a valid token into ${path}` };
  }
  const text = env.OPENSHELL_BEARER_TOKEN?.trim();
  if (!text) return undefined;
  return {
    token: async () => checked(text, "$OPENSHELL_BEARER_TOKEN"),
    remedy: "set $OPENSHELL_BEARER_TOKEN to a valid token",
  };
}

async function tokenIn(path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (cause) {
    throw new OpenShellError("not-found", `cannot read the bearer token: ${(cause as Error).message}`, { cause });
  }
  return checked(text.trim(), path);
}

/** A header holds no line ends, and no error shows the token. */
function checked(token: string, where: string): string {
  if (/^[\w.~+/=-]+$/.test(token)) return token;
  throw new OpenShellError(
    "invalid-argument",
    `${where} holds no bearer token: one word of letters, digits and -._~+/=`,
  );
}

/** The login that is stored for a gateway, renewed when it is about to end. */
export function storedBearer(directory: GatewayDirectory, name: string, client: OidcClient, env: Environment): Bearer {
  const command = `openshell gateway login ${name}`;
  let renewing: Promise<StoredToken> | undefined;
  const renew = (signal: AbortSignal) => {
    renewing ??= renewed(directory, name, client, env, signal).finally(() => {
      renewing = undefined;
    });
    return renewing;
  };
  return {
    remedy: `run "${command}"`,
    async token(signal) {
      const stored = await directory.token(name);
      if (stored === undefined || !isOf(stored, client)) {
        throw new OpenShellError(
          "unauthenticated",
          `you are not logged in to the gateway "${name}": run "${command}"`,
          { reason: notLoggedIn },
        );
      }
      const current = endsSoon(stored, Date.now()) ? await renew(signal) : stored;
      return current.access_token;
    },
  };
}

async function renewed(
  directory: GatewayDirectory,
  name: string,
  client: OidcClient,
  env: Environment,
  signal: AbortSignal,
): Promise<StoredToken> {
  const secret = env.OPENSHELL_OIDC_CLIENT_SECRET;
  const over = (cause?: unknown) =>
    new OpenShellError(
      "unauthenticated",
      `the login to the gateway "${name}" has ended: run "openshell gateway login ${name}"`,
      { cause, reason: notLoggedIn },
    );
  await using _lock = await directory.lockToken(name, signal);
  // Another command may have renewed it meanwhile.
  const current = await directory.token(name);
  if (current === undefined || !isOf(current, client)) throw over();
  if (!endsSoon(current, Date.now())) return current;
  let next: StoredToken;
  if (current.client_credentials === true && secret) {
    next = await clientLogin(client, secret, signal);
  } else if (current.refresh_token) {
    // A provider may take a refresh token once: what it gives for it has to have a place.
    await directory.checkStorable(name, current);
    try {
      next = await refreshLogin(client, current, signal);
    } catch (error) {
      if (!hasCode(error, "unauthenticated")) throw error;
      // Another client, which knows no lock, may have used the refresh token up, and stored what it got for it.
      const other = await directory.token(name);
      if (other === undefined || other.access_token === current.access_token || endsSoon(other, Date.now()))
        throw over(error);
      return other;
    }
  } else {
    throw over();
  }
  // Another client, which knows no lock, may have logged out meanwhile, or somebody else in.
  const found = await directory.token(name);
  if (found === undefined || !isOf(found, client)) throw over();
  if (found.access_token !== current.access_token) return found;
  await directory.storeToken(name, next);
  return next;
}
