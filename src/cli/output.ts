import { stringify } from "yaml";
import { coloursFor, oneLine, type Terminal, write } from "./terminal.ts";

export const outputFormats = ["table", "json", "yaml"] as const;
export type OutputFormat = (typeof outputFormats)[number];

/** Columns of text: a heading and how each row's cell comes from an item. */
export interface Column<T> {
  readonly heading: string;
  readonly cell: (item: T) => string;
}

/** Rows under aligned headings; an empty cell shows as `-`. */
export function tableOf<T>(columns: readonly Column<T>[], items: readonly T[]): string {
  const rows = [
    columns.map(({ heading }) => heading),
    ...items.map((item) => columns.map(({ cell }) => oneLine(cell(item)))),
  ];
  const widths = columns.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** `name: value` lines, aligned. */
export function propertiesOf(entries: readonly (readonly [string, string])[]): string {
  const width = Math.max(...entries.map(([name]) => name.length)) + 1;
  return entries.map(([name, value]) => `${`${name}:`.padEnd(width)}  ${oneLine(value)}`).join("\n");
}

/** Prints a result as data, or as `table` when a person reads it. The first line of a table is bold on a terminal. */
export async function printResult(
  terminal: Terminal,
  format: OutputFormat,
  data: unknown,
  table: () => string,
): Promise<void> {
  if (format === "json") return write(terminal.stdout, `${JSON.stringify(data, null, 2)}\n`);
  if (format === "yaml") return write(terminal.stdout, stringify(data));
  const [heading, ...rest] = table().split("\n");
  const { bold } = coloursFor(terminal.stdout, terminal.env);
  await write(terminal.stdout, `${[bold(heading ?? ""), ...rest].join("\n")}\n`);
}
