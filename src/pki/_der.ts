/**
 * DER (X.690), as far as certificates (RFC 5280) need it: every create makes three of them, and a general library takes ten times the CPU
 * (docs/adr/0020-certificates-in-der.md).
 */

/** One element: tag, length, contents. */
export function element(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag, ...lengthOf(content.length)]), content]);
}

function lengthOf(length: number): number[] {
  if (length < 0x80) return [length];
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return [0x80 | bytes.length, ...bytes];
}

export const sequence = (...contents: readonly Uint8Array[]): Buffer => element(0x30, ...contents);
export const setOf = (content: Uint8Array): Buffer => element(0x31, content);
export const octets = (content: Uint8Array): Buffer => element(0x04, content);
export const yes: Buffer = element(0x01, Buffer.from([0xff]));

/** `[number]`, constructed or primitive. */
export const tagged = (number: number, content: Uint8Array): Buffer => element(0xa0 | number, content);
export const taggedPrimitive = (number: number, content: Uint8Array): Buffer => element(0x80 | number, content);

/** @param unused bits at the end that do not count */
export function bits(content: Uint8Array, unused = 0): Buffer {
  return element(0x03, Buffer.from([unused]), content);
}

/** A whole number above or equal to zero, most significant byte first. */
export function integer(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start += 1;
  const shortest = bytes.subarray(start);
  const isNegative = ((shortest[0] ?? 0) & 0x80) !== 0;
  return element(0x02, Buffer.from(isNegative ? [0] : []), shortest);
}

/** @param dotted such as `1.3.101.112` */
export function identifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((arc) => {
    const groups = [arc & 0x7f];
    for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128))
      groups.unshift(0x80 | (left & 0x7f));
    return groups;
  });
  return element(0x06, Buffer.from(bytes));
}

/** PrintableString where its few characters do, else UTF8String. */
export function text(value: string): Buffer {
  const isPrintable = /^[A-Za-z0-9 '()+,./:=?-]*$/.test(value);
  return element(isPrintable ? 0x13 : 0x0c, Buffer.from(value, "utf8"));
}

/** To the second; in the form that RFC 5280 demands of the year. */
export function time(date: Date): Buffer {
  const digits = `${date.toISOString().replaceAll(/[-:T]|\..*$/g, "")}Z`;
  const year = date.getUTCFullYear();
  return year >= 1950 && year < 2050
    ? element(0x17, Buffer.from(digits.slice(2), "latin1"))
    : element(0x18, Buffer.from(digits, "latin1"));
}

/** An element as it stands in others. */
export interface Element {
  readonly tag: number;
  /** With tag and length. */
  readonly whole: Buffer;
  readonly content: Buffer;
}

/** The elements that stand behind one another. @throws RangeError where there is no DER */
export function elementsIn(der: Buffer): Element[] {
  const found: Element[] = [];
  for (let at = 0; at < der.length; ) {
    const first = der[at + 1] ?? Number.NaN;
    const size = first < 0x80 ? 0 : first & 0x7f;
    const start = at + 2 + size;
    const length = size === 0 ? first : Number.parseInt(der.toString("hex", at + 2, start), 16);
    if (!(start + length <= der.length)) throw new RangeError("DER ends in the middle of an element");
    found.push({
      tag: der[at] ?? 0,
      whole: der.subarray(at, start + length),
      content: der.subarray(start, start + length),
    });
    at = start + length;
  }
  return found;
}
