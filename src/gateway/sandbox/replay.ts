import { createHash } from "node:crypto";
import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { OpenShellError } from "../../common/errors.ts";
import type { CallContext } from "../../wire/index.ts";
import { callerName, type Principal } from "../identity/principal.ts";
import { type ReplayTable, usedOtherwise } from "../store/replays.ts";
import { bytes as bytesOf } from "./violations.ts";

/** Longest request_id in bytes: it is kept for a day. */
const maxRequestId = 256;

/**
 * Runs mutations once per caller and request_id; a repetition gets the first answer, also while the first is still running.
 *
 * A process may end while it runs one. What is to be done once only calls `begun` where it is written down that it is to be done: the answer
 * as of then is what a repetition gets from the next process.
 */
export class Replays {
  readonly #table: ReplayTable;
  readonly #now: () => number;
  readonly #running = new Map<string, { readonly fingerprint: string; readonly answer: Promise<unknown> }>();

  constructor(table: ReplayTable, now: () => number = Date.now) {
    this.#table = table;
    this.#now = now;
  }

  /** @throws invalid-argument when the request_id was used for something else; failures are not remembered */
  async once<O extends DescMessage>(
    context: Pick<CallContext<Principal>, "method" | "principal">,
    request: { readonly requestId: string },
    output: O,
    run: (begun: (answer: MessageInitShape<O>) => void) => Promise<MessageInitShape<O>>,
  ): Promise<MessageInitShape<O>> {
    if (request.requestId === "") return run(() => {});
    if (bytesOf(request.requestId) > maxRequestId) {
      const description = `has more than ${maxRequestId} bytes`;
      throw new OpenShellError("invalid-argument", `request_id: ${description}`, {
        violations: [{ field: "request_id", description }],
      });
    }
    const caller = callerName(context.principal);
    const bytes = toBinary(context.method.input, request as never);
    const fingerprint = createHash("sha256").update(context.method.name).update(bytes).digest("hex");
    const key = JSON.stringify([caller, request.requestId]);
    const running = this.#running.get(key);
    if (running !== undefined) {
      if (running.fingerprint !== fingerprint) throw usedOtherwise(request.requestId);
      return running.answer as Promise<MessageInitShape<O>>;
    }
    const before = this.#table.find(caller, request.requestId, fingerprint, this.#now());
    if (before !== undefined) return fromBinary(output, before) as MessageInitShape<O>;
    const keep = (answer: MessageInitShape<O>) => {
      const message: MessageShape<O> = create(output, answer);
      this.#table.put(caller, request.requestId, fingerprint, toBinary(output, message), this.#now());
    };
    let isBegun = false;
    const begun = (answer: MessageInitShape<O>) => {
      isBegun = true;
      keep(answer);
    };
    const first = run(begun).then(
      (answer) => {
        keep(answer);
        return answer;
      },
      (error: unknown) => {
        if (isBegun) this.#table.forget(caller, request.requestId);
        throw error;
      },
    );
    this.#running.set(key, { fingerprint, answer: first });
    try {
      return await first;
    } finally {
      this.#running.delete(key);
    }
  }
}
