import { OpenShellError } from "../../src/common/errors.ts";
import { LocalProvider } from "./local/index.ts";
import type { ClusterProvider } from "./provider.ts";

/** The provider by its name, or the best one this machine has. */
export async function selectProvider(name?: string): Promise<ClusterProvider> {
  if (name === undefined || name === "local") return new LocalProvider();
  throw new OpenShellError("invalid-argument", `there is no provider ${name}`);
}
