import { type FieldViolation, OpenShellError } from "../../common/errors.ts";

/** Collects what is wrong with a request, so that its sender learns everything at once. */
export class Violations {
  readonly #found: FieldViolation[] = [];

  add(field: string, description: string): void {
    this.#found.push({ field, description });
  }

  /** Adds the violation unless `holds`. */
  check(holds: boolean, field: string, description: string): void {
    if (!holds) this.add(field, description);
  }

  /** @throws invalid-argument with every violation, its message naming the first */
  throwIfAny(): void {
    const [first, ...rest] = this.#found;
    if (first === undefined) return;
    const more = rest.length === 0 ? "" : ` (and ${rest.length} more)`;
    throw new OpenShellError("invalid-argument", `${first.field}: ${first.description}${more}`, {
      violations: this.#found,
    });
  }
}

/** UTF-8 length. */
export function bytes(text: string): number {
  return Buffer.byteLength(text);
}
