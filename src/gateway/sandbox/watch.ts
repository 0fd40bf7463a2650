import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import type { SandboxRecord } from "../store/sandboxes.ts";
import { keptEvents } from "./hub.ts";
import type { Sandboxes } from "./sandboxes.ts";

type StreamEvent = MessageInitShape<typeof openshell.SandboxStreamEventSchema>;

const { READY, ERROR, COMPLETED, STOPPED } = openshell.SandboxPhase;
/** Phases that end a watch with stop_on_terminal. */
const terminal: ReadonlySet<openshell.SandboxPhase> = new Set([READY, ERROR, COMPLETED, STOPPED]);

/** After how long without a word the sandbox is repeated, in milliseconds: a proxy cuts a stream that says nothing, many after 60 s. */
const quietMs = 30_000;

/**
 * WatchSandbox: the sandbox as it is, then recent platform events, then what happens, until the client leaves, the sandbox is gone, or a
 * terminal phase was sent to a client that asked to stop there. Where nothing happens the sandbox is repeated every 30 s as it was last known.
 * @param find throws not-found
 */
export async function* watchSandbox(
  { hub }: Pick<Sandboxes, "hub">,
  find: () => SandboxRecord,
  request: openshell.WatchSandboxRequest,
  signal: AbortSignal,
): AsyncGenerator<StreamEvent, void, undefined> {
  const resumed = sequenceOf(request.resumeAfterCursor, hub.bootId);
  const { id } = find();
  const stop = new AbortController();
  // Subscribed before the snapshot is read, so that nothing falls between the two.
  const occurrences = hub.watch(id, AbortSignal.any([signal, stop.signal]));
  let sequence = resumed ?? 0;
  // Begun anew by all that is sent, so that a reader who does not read has one repetition to come, and no more.
  const quiet = setTimeout(() => occurrences.tell({ kind: "quiet" }), quietMs);
  const at = (payload: NonNullable<StreamEvent["payload"]>): StreamEvent => {
    quiet.refresh();
    return { payload, cursor: cursorOf(hub.bootId, sequence) };
  };
  const wantsStatus = request.followStatus || request.stopOnTerminal;

  try {
    let { object } = find();
    yield at({ case: "sandbox", value: object });
    if (request.followLogs) {
      yield at({ case: "warning", value: { message: "this gateway keeps no sandbox logs" } });
    }
    for (const { event, sequence: number } of hub.recentEvents(id, request.eventTail || keptEvents)) {
      if (!request.followEvents || number <= (resumed ?? 0) || !since(event, request)) continue;
      sequence = number;
      yield at({ case: "event", value: event });
    }
    if (request.stopOnTerminal && isTerminal(object)) return;
    if (!wantsStatus && !request.followEvents) return;
    for await (const occurrence of occurrences) {
      if (occurrence.kind === "gone") return;
      if (occurrence.kind === "changed") object = occurrence.sandbox;
      if (occurrence.kind === "quiet" || (occurrence.kind === "changed" && wantsStatus)) {
        yield at({ case: "sandbox", value: object });
        if (request.stopOnTerminal && isTerminal(object)) return;
      } else if (occurrence.kind === "event" && request.followEvents && occurrence.sequence > sequence) {
        sequence = occurrence.sequence;
        yield at({ case: "event", value: occurrence.event });
      }
    }
  } finally {
    clearTimeout(quiet);
    stop.abort();
  }
}

function isTerminal(sandbox: openshell.Sandbox): boolean {
  return sandbox.status !== undefined && terminal.has(sandbox.status.phase);
}

function since(event: openshell.PlatformEvent, { sinceTime }: openshell.WatchSandboxRequest): boolean {
  if (sinceTime === undefined || event.eventTime === undefined) return true;
  return timestampMs(event.eventTime) >= timestampMs(sinceTime);
}

function cursorOf(bootId: string, sequence: number): string {
  return Buffer.from(`${bootId}/${sequence}`).toString("base64url");
}

/** The sequence number in a cursor; undefined where there is none or another process made it, since its events are gone. */
function sequenceOf(cursor: string, bootId: string): number | undefined {
  if (cursor === "") return undefined;
  const [, boot, number] = /^([0-9a-f-]{36})\/(\d{1,15})$/.exec(Buffer.from(cursor, "base64url").toString()) ?? [];
  if (boot === undefined || number === undefined) {
    const description = "is no cursor of this API";
    throw new OpenShellError("invalid-argument", `resume_after_cursor: ${description}`, {
      violations: [{ field: "resume_after_cursor", description }],
    });
  }
  return boot === bootId ? Number(number) : undefined;
}
