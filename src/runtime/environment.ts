import { emptiedVariables } from "../common/emptied-variables.ts";

/**
 * An emptied variable cannot be told from one the image never had, so agent processes get none of them; what a user sets at launch or exec
 * still counts.
 */
const emptied: ReadonlySet<string> = new Set(emptiedVariables);

const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export type Environment = Readonly<Record<string, string>>;

/**
 * What every agent process starts from: the image's environment without anything of the runtime's. Values are text in UTF-8, as in the
 * image's configuration (JSON) and in every message; bytes that are not, which only the container runtime could add, arrive as U+FFFD.
 */
export function imageEnvironment(own: NodeJS.ProcessEnv, home: string): Environment {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(own)) {
    if (value === undefined || name.startsWith("OPENSHELL_")) continue;
    if (emptied.has(name) && value === "") continue;
    kept[name] = value;
  }
  return { ...kept, PATH: kept.PATH || fallbackPath, HOME: home, USER: "sandbox", LOGNAME: "sandbox" };
}
