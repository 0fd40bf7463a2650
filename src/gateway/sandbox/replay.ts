import { createHash } from "node:crypto";
import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { CallContext } from "../../wire/index.ts";
import { callerName, type Principal } from "../identity/principal.ts";
import type { ReplayTable } from "../store/replays.ts";

/** Runs mutations once per caller and request_id; a repetition gets the first answer, also while the first is still running. */
export class Replays {
  readonly #table: ReplayTable;
  readonly #now: () => number;
  readonly #running = new Map<string, Promise<unknown>>();

  constructor(table: ReplayTable, now: () => number = Date.now) {
    this.#table = table;
    this.#now = now;
  }

  /** @throws invalid-argument when the request_id was used for something else; failures are not remembered */
  async once<O extends DescMessage>(
    context: Pick<CallContext<Principal>, "method" | "principal">,
    request: { readonly requestId: string },
    output: O,
    run: () => Promise<MessageInitShape<O>>,
  ): Promise<MessageInitShape<O>> {
    if (request.requestId === "") return run();
    const caller = callerName(context.principal);
    const bytes = toBinary(context.method.input, request as never);
    const fingerprint = createHash("sha256").update(context.method.name).update(bytes).digest("hex");
    const key = JSON.stringify([caller, request.requestId, fingerprint]);
    const running = this.#running.get(key) as Promise<MessageInitShape<O>> | undefined;
    if (running !== undefined) return running;
    const before = this.#table.find(caller, request.requestId, fingerprint, this.#now());
    if (before !== undefined) return fromBinary(output, before) as MessageInitShape<O>;
    const first = run().then((answer) => {
      const message: MessageShape<O> = create(output, answer);
      this.#table.put(caller, request.requestId, fingerprint, toBinary(output, message), this.#now());
      return answer;
    });
    this.#running.set(key, first);
    try {
      return await first;
    } finally {
      this.#running.delete(key);
    }
  }
}
