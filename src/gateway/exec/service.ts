import { type ByteChannel, type ExecInputEvent, openTcp, type ServiceId, services } from "../../boundary/index.ts";
import { OpenShellError } from "../../common/errors.ts";
import type { Implementation, openshell } from "../../wire/index.ts";
import type { Principal } from "../identity/principal.ts";
import { openingOf, remaining } from "../opening.ts";
import type { Sandboxes } from "../sandbox/sandboxes.ts";
import { oneWorkspace } from "../sandbox/scope.ts";
import type { RelayBroker } from "../sessions/relay-broker.ts";
import { forward } from "./forward.ts";
import { abortOnLeave } from "./leaving.ts";
import { commandOf, execEvents } from "./run.ts";
import { requireServing } from "./serving.ts";
import { validateExec } from "./validate-exec.ts";

export interface ExecServiceOptions {
  readonly sandboxes: Sandboxes;
  readonly relays: RelayBroker;
}

/** The RPCs that reach into a running sandbox: commands, connections, files. */
export function execService({
  sandboxes,
  relays,
}: ExecServiceOptions): Required<
  Pick<Implementation<typeof openshell.OpenShell, Principal>, "execSandbox" | "execSandboxInteractive" | "forwardTcp">
> {
  const open = (workspace: string, name: string, service: ServiceId, signal: AbortSignal): Promise<ByteChannel> => {
    const record = sandboxes.require(workspace, name);
    requireServing(sandboxes, record);
    return relays.open(record.id, service, signal);
  };

  return {
    async *execSandbox(request, { signal }) {
      validateExec(request);
      const workspace = oneWorkspace(request.workspaceScope);
      const channel = await open(workspace, request.sandbox, services.exec, signal);
      yield* execEvents(channel, commandOf(request), wholeInput(request.stdin), signal);
    },

    async *execSandboxInteractive(requests, { signal }) {
      const { first, rest } = await openingOf(requests, "ExecSandboxInteractive");
      if (first.payload.case !== "start") {
        throw new OpenShellError("invalid-argument", "the first message of ExecSandboxInteractive is start");
      }
      const request = first.payload.value;
      validateExec(request);
      const workspace = oneWorkspace(request.workspaceScope);
      const channel = await open(workspace, request.sandbox, services.exec, signal);
      yield* execEvents(channel, commandOf(request), typedInput(request.stdin, remaining(rest)), signal);
    },

    async *forwardTcp(requests, { signal }) {
      const { first, rest } = await openingOf(requests, "ForwardTcp");
      if (first.payload.case !== "init") {
        throw new OpenShellError("invalid-argument", "the first frame of ForwardTcp is init");
      }
      const { sandbox, workspace, serviceId, target } = first.payload.value;
      if (workspace === "") throw new OpenShellError("invalid-argument", "init.workspace: names no workspace");
      if (serviceId === services.files) {
        yield* forward(await open(workspace, sandbox, services.files, signal), remaining(rest), signal);
      } else if (serviceId !== "") {
        throw new OpenShellError("not-found", `init.service_id: ${JSON.stringify(serviceId)} is not served here`);
      } else if (target.case === "tcp") {
        const { host, port } = target.value;
        if (port < 1 || port > 65_535) {
          throw new OpenShellError("invalid-argument", `init.tcp.port: ${port} is no port (1 to 65535)`);
        }
        const channel = await open(workspace, sandbox, services.tcp, signal);
        yield* forward(await connected(channel, host, port, signal), remaining(rest), signal);
      } else if (target.case === "ssh") {
        throw new OpenShellError("unimplemented", "this gateway serves no SSH");
      } else {
        throw new OpenShellError("invalid-argument", "init: names neither a target nor a service_id");
      }
    },
  };
}

async function connected(channel: ByteChannel, host: string, port: number, signal: AbortSignal): Promise<ByteChannel> {
  using _leaving = abortOnLeave(channel, signal);
  try {
    return await openTcp(channel, host === "" ? "127.0.0.1" : host, port);
  } catch (error) {
    channel.abort(error);
    throw error;
  }
}

async function* wholeInput(stdin: Uint8Array): AsyncGenerator<ExecInputEvent, void, undefined> {
  if (stdin.length > 0) yield { kind: "stdin", data: stdin };
}

async function* typedInput(
  stdin: Uint8Array,
  messages: AsyncIterable<openshell.ExecSandboxInput>,
): AsyncGenerator<ExecInputEvent, void, undefined> {
  yield* wholeInput(stdin);
  for await (const { payload } of messages) {
    if (payload.case === "stdin") yield { kind: "stdin", data: payload.value };
    if (payload.case === "resize") yield { kind: "resize", columns: payload.value.cols, rows: payload.value.rows };
    if (payload.case === "start") throw new OpenShellError("invalid-argument", "start is only the first message");
  }
}
