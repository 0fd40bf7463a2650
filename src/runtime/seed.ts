import type { Logger } from "../common/log.ts";
export async function seed(_environment: NodeJS.ProcessEnv, _log: Logger): Promise<number> {
  return 0;
}
