/** Where something that runs says what it does. */
export interface Output {
  write(text: string): void;
}

/** Output of what runs beside something else: held back until the other has ended, passed on as it comes from then on. */
export class HeldOutput implements Output {
  readonly #to: Output;
  #held: string[] | undefined = [];

  constructor(to: Output) {
    this.#to = to;
  }

  write(text: string): void {
    if (this.#held === undefined) this.#to.write(text);
    else this.#held.push(text);
  }

  release(): void {
    for (const text of this.#held ?? []) this.#to.write(text);
    this.#held = undefined;
  }
}
