import { constants } from "node:os";
import { OpenShellError } from "../common/errors.ts";
import type { Native } from "./native/index.ts";

const again = -constants.errno.EAGAIN;
/** How a terminal says that its other side has no opener left. */
const hungUp = -constants.errno.EIO;
const readable = 1;
const writable = 2;
/** Reads are synchronous, so one buffer serves all descriptors. */
const scratch = new Uint8Array(64 * 1024);

/**
 * A process that writes little at a time, and often, is read after a pause once it has done so twice within `rapidMs`: each piece costs five
 * programs a turn. Nobody types that fast, and a key's echo or an answer goes at once.
 */
const littleBytes = 16 * 1024;
const rapidMs = 2;
const pauseMs = 1;

/** The most that a pipe holds: the largest that fcntl(2) grants without privileges. */
const maxPipeBytes = 1024 * 1024;

/** A pipe end or terminal: reads only what is asked for and writes only what fits, so a slow peer slows the process behind it. */
export class Descriptor {
  readonly #native: Native;
  readonly #fd: number;
  #held: number;
  #watch: object | undefined;
  #reader: (() => void) | undefined;
  #writer: (() => void) | undefined;
  #closed = false;
  #finishing = false;
  /** What may still be read of a process that is gone. */
  #left = maxPipeBytes;

  /**
   * @param held the other side of a terminal, kept open until `finish`: while no process has it open, as between two redirections of a shell,
   * reading would say that the terminal was hung up. @default none
   */
  constructor(native: Native, fd: number, held = -1) {
    this.#native = native;
    this.#fd = fd;
    this.#held = held;
  }

  /**
   * Chunks until the other side is closed, or until `finish` and nothing is left of what was written before.
   * @param take makes a chunk of bytes that are only lent. @default a copy
   */
  async *read(
    take: (bytes: Uint8Array) => Uint8Array = (bytes) => bytes.slice(),
  ): AsyncGenerator<Uint8Array, void, undefined> {
    let takenAt = Number.NEGATIVE_INFINITY;
    while (!this.#closed && this.#left > 0) {
      const count = this.#fill();
      if (count > 0) {
        if (this.#finishing) this.#left -= count;
        yield take(scratch.subarray(0, count));
        const isRapid = performance.now() - takenAt < rapidMs;
        if (isRapid && count < littleBytes) await this.#pause();
        takenAt = performance.now();
      } else if (count === again) {
        if (this.#finishing) return;
        await new Promise<void>((resolve) => {
          this.#reader = resolve;
          this.#arm();
        });
      } else if (count === 0 || count === hungUp) {
        return;
      } else {
        throw new OpenShellError("internal", `reading from a process failed with errno ${-count}`);
      }
    }
  }

  /** Reads what there is into `scratch`: a terminal gives 4 KiB at a time. Where there is nothing, what the system says instead. */
  #fill(): number {
    let filled = 0;
    while (filled < scratch.length) {
      const count = this.#native.read(this.#fd, scratch, filled);
      if (count <= 0) return filled > 0 ? filled : count;
      filled += count;
    }
    return filled;
  }

  async #pause(): Promise<void> {
    if (this.#closed || this.#finishing) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#reader = resolve;
      timer = setTimeout(resolve, pauseMs);
    });
    clearTimeout(timer);
    this.#reader = undefined;
  }

  /** Writes all of `bytes`; false when nobody reads them any more. */
  async write(bytes: Uint8Array): Promise<boolean> {
    let offset = 0;
    while (offset < bytes.length) {
      if (this.#closed) return false;
      const count = this.#native.write(this.#fd, bytes, offset);
      if (count >= 0) {
        offset += count;
      } else if (count === again) {
        await new Promise<void>((resolve) => {
          this.#writer = resolve;
          this.#arm();
        });
      } else {
        return false;
      }
    }
    return true;
  }

  /** The process is gone: what is already in the buffer is still read, but nobody is waited for, and no other writer is followed. */
  finish(): void {
    this.#finishing = true;
    this.#letGo();
    this.#wakeReader();
  }

  resize(columns: number, rows: number): void {
    if (!this.#closed) this.#native.resize(this.#fd, columns, rows);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#watch !== undefined) this.#native.unwatch(this.#watch);
    this.#native.close(this.#fd);
    this.#letGo();
    this.#wakeReader();
    this.#wakeWriter();
  }

  #letGo(): void {
    if (this.#held >= 0) this.#native.close(this.#held);
    this.#held = -1;
  }

  #arm(): void {
    if (this.#watch === undefined) {
      const watch = this.#native.watch(this.#fd, (events) => this.#ready(events));
      if (typeof watch === "number") {
        throw new OpenShellError("internal", `a process's descriptor cannot be watched: errno ${-watch}`);
      }
      this.#watch = watch;
    }
    const events = (this.#reader === undefined ? 0 : readable) | (this.#writer === undefined ? 0 : writable);
    if (events !== 0) this.#native.arm(this.#watch, events);
  }

  #ready(events: number): void {
    if ((events & readable) !== 0) this.#wakeReader();
    if ((events & writable) !== 0) this.#wakeWriter();
    if (!this.#closed) this.#arm();
  }

  #wakeReader(): void {
    const wake = this.#reader;
    this.#reader = undefined;
    wake?.();
  }

  #wakeWriter(): void {
    const wake = this.#writer;
    this.#writer = undefined;
    wake?.();
  }
}
