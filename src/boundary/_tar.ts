import { OpenShellError } from "../common/errors.ts";

/** What went through a tar stream. */
export interface TransferSummary {
  readonly files: number;
  /** Bytes of file content. */
  readonly bytes: number;
  /** Absolute path of what was read or written. */
  readonly path: string;
  /** Entries left out, or in part, each with its reason: devices, what may not be read, links that would leave the destination. */
  readonly skipped: readonly string[];
}

export interface Tally {
  files: number;
  bytes: number;
  readonly skipped: string[];
}

/** Resolves when a stream takes more, or never will. */
export function settled(stream: {
  once(event: string, listener: () => void): unknown;
  removeListener(event: string, listener: () => void): unknown;
}): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const event of ["drain", "close", "error"]) stream.removeListener(event, done);
      resolve();
    };
    for (const event of ["drain", "close", "error"]) stream.once(event, done);
  });
}

export function isOfFileSystem(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "errno" in error;
}

/** File-system errors in the words of a user who named the path. */
export function explain(error: unknown): OpenShellError {
  if (!isOfFileSystem(error)) {
    return new OpenShellError("data-loss", "the archive is damaged or ended early", { cause: error });
  }
  const { code, path = "" } = error;
  switch (code) {
    case "ENOENT":
      return new OpenShellError("not-found", `${path} does not exist`, { cause: error });
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return new OpenShellError("permission-denied", `${path} may not be read or written`, { cause: error });
    case "ENOSPC":
    case "EDQUOT":
      return new OpenShellError("resource-exhausted", "no space is left at the destination", { cause: error });
    case "EEXIST":
    case "EISDIR":
    case "ENOTDIR":
    case "ENOTEMPTY":
      return new OpenShellError("failed-precondition", `${path} is in the way: a file meets a directory`, {
        cause: error,
      });
    default:
      return new OpenShellError("internal", `the transfer failed: ${error.message}`, { cause: error });
  }
}
