/** Steps from the root of a TOML document to a value; numbers count the entries of arrays. */
export type TomlPath = readonly (string | number)[];

/** Where the keys of a TOML document stand. */
export interface TomlLines {
  /** Line, from 1, of the key at `path`, or of the closest table around it; undefined when nothing of it is in the text. */
  lineOf(path: TomlPath): number | undefined;
}

/**
 * Finds the line of every key in a text that is already known to be valid TOML: a parser tells what a document says, not where it says
 * it. It only follows the structure (headers, keys, brackets, the four kinds of string, comments) and never judges.
 */
export function locateTomlKeys(text: string): TomlLines {
  const lines = new Scanner(text).document();
  return {
    lineOf(path) {
      for (let length = path.length; length > 0; length--) {
        const line = lines.get(keyOf(path.slice(0, length)));
        if (line !== undefined) return line;
      }
      return undefined;
    },
  };
}

const keyOf = (path: TomlPath) => JSON.stringify(path);

class Scanner {
  readonly #text: string;
  readonly #lines = new Map<string, number>();
  readonly #arrayLengths = new Map<string, number>();
  #at = 0;
  #line = 1;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Map<string, number> {
    let table: TomlPath = [];
    for (this.#skip(true); this.#at < this.#text.length; this.#skip(true)) {
      if (this.#peek() === "[") table = this.#header();
      else this.#keyValue(table);
    }
    return this.#lines;
  }

  #header(): TomlPath {
    const line = this.#line;
    const isArray = this.#text.startsWith("[[", this.#at);
    this.#at += isArray ? 2 : 1;
    const names = this.#dottedKey();
    this.#at += isArray ? 2 : 1;
    let path: TomlPath = [];
    for (const [index, name] of names.entries()) {
      path = [...path, name];
      const length = this.#arrayLengths.get(keyOf(path));
      const isLast = index === names.length - 1;
      if (isLast && isArray) {
        this.#record(path, line);
        this.#arrayLengths.set(keyOf(path), (length ?? 0) + 1);
        path = [...path, length ?? 0];
      } else if (length !== undefined) {
        path = [...path, length - 1];
      }
      this.#record(path, line);
    }
    return path;
  }

  #keyValue(table: TomlPath): void {
    const line = this.#line;
    let path = table;
    for (const name of this.#dottedKey()) {
      path = [...path, name];
      this.#record(path, line);
    }
    this.#at++; // the equals sign
    this.#value(path);
  }

  #value(path: TomlPath): void {
    this.#skip(false);
    const start = this.#peek();
    if (start === '"' || start === "'") this.#string();
    else if (start === "[") this.#array(path);
    else if (start === "{") this.#inlineTable(path);
    else while (this.#at < this.#text.length && !/[,\]}#\n]/.test(this.#peek())) this.#at++;
  }

  #array(path: TomlPath): void {
    this.#at++;
    for (let index = 0; ; index++) {
      this.#skip(true);
      if (this.#at >= this.#text.length) return;
      if (this.#peek() === "]") break;
      this.#record([...path, index], this.#line);
      const start = this.#at;
      this.#value([...path, index]);
      if (this.#at === start) this.#step(); // never stand still, whatever the text is
      this.#skip(true);
      if (this.#peek() === ",") this.#at++;
    }
    this.#at++;
  }

  #inlineTable(path: TomlPath): void {
    this.#at++;
    for (;;) {
      this.#skip(true);
      if (this.#at >= this.#text.length) return;
      if (this.#peek() === "}") break;
      this.#keyValue(path);
      this.#skip(true);
      if (this.#peek() === ",") this.#at++;
    }
    this.#at++;
  }

  #dottedKey(): string[] {
    const names: string[] = [];
    for (;;) {
      this.#skip(false);
      names.push(this.#simpleKey());
      this.#skip(false);
      if (this.#peek() !== ".") return names;
      this.#at++;
    }
  }

  #simpleKey(): string {
    const quote = this.#peek();
    if (quote === '"' || quote === "'") {
      const start = this.#at;
      this.#string();
      const raw = this.#text.slice(start + 1, this.#at - 1);
      return quote === "'" ? raw : unescapeBasic(raw);
    }
    const start = this.#at;
    while (this.#at < this.#text.length && /[A-Za-z0-9_-]/.test(this.#peek())) this.#at++;
    if (this.#at === start) this.#at++; // never stand still, whatever the text is
    return this.#text.slice(start, this.#at);
  }

  #string(): void {
    const quote = this.#peek();
    const triple = this.#text.startsWith(quote.repeat(3), this.#at);
    const end = triple ? quote.repeat(3) : quote;
    this.#at += end.length;
    while (this.#at < this.#text.length && !this.#text.startsWith(end, this.#at)) {
      if (this.#peek() === "\\" && quote === '"') this.#step();
      this.#step();
    }
    this.#at += end.length;
    // A multi-line string may end in up to two quotes of its own.
    while (triple && this.#peek() === quote) this.#at++;
  }

  #skip(newlines: boolean): void {
    for (; this.#at < this.#text.length; this.#step()) {
      const character = this.#peek();
      if (character === "#") {
        const end = this.#text.indexOf("\n", this.#at);
        this.#at = end < 0 ? this.#text.length : end;
        if (!newlines || end < 0) return;
      } else if (character === "\n" ? !newlines : !/[ \t\r]/.test(character)) return;
    }
  }

  #step(): void {
    if (this.#peek() === "\n") this.#line++;
    this.#at++;
  }

  #peek(): string {
    return this.#text[this.#at] ?? "";
  }

  #record(path: TomlPath, line: number): void {
    const key = keyOf(path);
    if (!this.#lines.has(key)) this.#lines.set(key, line);
  }
}

const escapes: Readonly<Record<string, string>> = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", e: "\u001b" };

function unescapeBasic(raw: string): string {
  return raw.replace(/\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))/g, (_, u, long, x, other) => {
    const code = u ?? long ?? x;
    return code === undefined ? (escapes[other] ?? other) : String.fromCodePoint(Number.parseInt(code, 16));
  });
}
