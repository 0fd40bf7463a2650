/**
 * Which connection speaks for a sandbox's supervisor: at most one, the newest. Pure; one value per sandbox.
 *
 * Within a session the first instance stays pinned and connection epochs only grow, so that neither a second process with the same token
 * nor a delayed old connection can take over.
 */
export interface Registration {
  readonly sessionId: string;
  readonly instanceId: string;
  readonly epoch: bigint;
  /** The connection that is up; undefined between two. */
  readonly connection: number | undefined;
}

export interface Hello {
  readonly sessionId: string;
  readonly instanceId: string;
  readonly epoch: bigint;
  /** Names the new connection; unique in this process. */
  readonly connection: number;
}

export type Admission =
  | { readonly accepted: true; readonly registration: Registration; readonly replaces: number | undefined }
  | { readonly accepted: false; readonly reason: string };

export function admit(before: Registration | undefined, hello: Hello): Admission {
  if (hello.instanceId === "") return { accepted: false, reason: "hello names no instance_id" };
  if (before !== undefined && before.sessionId === hello.sessionId) {
    if (before.instanceId !== hello.instanceId) {
      return { accepted: false, reason: `this session belongs to supervisor instance ${before.instanceId}` };
    }
    if (hello.epoch <= before.epoch) {
      return {
        accepted: false,
        reason: `connection_epoch ${hello.epoch} is not above ${before.epoch}, which this session has used`,
      };
    }
  }
  const { sessionId, instanceId, epoch, connection } = hello;
  return {
    accepted: true,
    registration: { sessionId, instanceId, epoch, connection },
    replaces: before?.connection,
  };
}

/** After a connection ended; a connection that was replaced already changes nothing. */
export function release(before: Registration, connection: number): Registration {
  return before.connection === connection ? { ...before, connection: undefined } : before;
}
