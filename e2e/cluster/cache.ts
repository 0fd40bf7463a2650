import { homedir } from "node:os";
import { join } from "node:path";

/** What is expensive to make and the same for every cluster: programs, packed image layers. Survives `down`. */
export const cacheDirectory: string = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "openshell-dev");

/** Programs, one file each, the version in the name or, of those from npm, beside it. */
export const programsDirectory: string = join(cacheDirectory, "bin");
