import { type DestinationStream, type Logger, pino } from "pino";

export type { Logger } from "pino";

export const logLevels = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof logLevels)[number];

export interface LogOptions {
  /** Program that writes, e.g. `openshell-gateway`. */
  readonly name: string;
  /** @default "info" */
  readonly level?: LogLevel;
  /** @default standard error, so that standard output stays a program's result */
  readonly destination?: DestinationStream;
}

/** JSON lines with an ISO time; errors under `err` with their cause. */
export function createLogger(options: LogOptions): Logger {
  return pino(
    { name: options.name, level: options.level ?? "info", timestamp: pino.stdTimeFunctions.isoTime },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
}
