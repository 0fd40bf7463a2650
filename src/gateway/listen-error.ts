import { OpenShellError } from "../common/errors.ts";
import type { Address } from "./address.ts";

/**
 * Why nothing can listen at an address, and what to do.
 * @param setting which names the address
 */
export function listenError(setting: string, { host, port }: Address, cause: Error): OpenShellError {
  const where = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  // gRPC's library has no code on its error, only the words.
  const [, code] =
    /\b(EADDRINUSE|EADDRNOTAVAIL|EACCES)\b/.exec(`${(cause as NodeJS.ErrnoException).code} ${cause.message}`) ?? [];
  const why =
    code === "EADDRINUSE"
      ? "another program listens there; end it, or choose another port"
      : code === "EADDRNOTAVAIL"
        ? "this machine has no such address"
        : code === "EACCES"
          ? "ports below 1024 are not for every user; choose a higher one"
          : cause.message;
  return new OpenShellError("unavailable", `${setting}: cannot listen on ${where}: ${why}`, { cause });
}
