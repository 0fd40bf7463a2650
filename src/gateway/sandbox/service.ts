import { randomUUID } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { OpenShellError } from "../../common/errors.ts";
import { type Client, type compute, type Implementation, openshell } from "../../wire/index.ts";
import type { Convergence } from "../convergence.ts";
import type { Principal, UserPrincipal } from "../identity/principal.ts";
import { requireRole } from "../identity/rules.ts";
import { patienceMs, patiently } from "../patience.ts";
import { nameTaken, type SandboxRecord } from "../store/sandboxes.ts";
import type { Store } from "../store/store.ts";
import { requireActive, type WorkspaceRecord, workspaceNotFound } from "../store/workspaces.ts";
import { driverSandbox } from "./driver-request.ts";
import { created, deleteRequested, type Lifecycle, startRequested, stopRequested } from "./lifecycle.ts";
import { generateName } from "./names.ts";
import { pageSize, pageToken, parseSelector, positionOf } from "./paging.ts";
import type { Replays } from "./replay.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { oneOrAllWorkspaces, oneWorkspace } from "./scope.ts";
import { validateCreate } from "./validate-create.ts";
import { watchSandbox } from "./watch.ts";

export interface SandboxServiceOptions {
  readonly store: Store;
  readonly sandboxes: Sandboxes;
  readonly convergence: Convergence;
  readonly driver: Client<typeof compute.ComputeDriver>;
  readonly replays: Replays;
  readonly allowDriverConfig: boolean;
  /** @default Date.now */
  readonly now?: () => number;
}

type Methods =
  | "createSandbox"
  | "getSandbox"
  | "listSandboxes"
  | "deleteSandbox"
  | "stopSandbox"
  | "startSandbox"
  | "watchSandbox";

/** The RPCs with which users make, see and end sandboxes. */
export function sandboxService(
  options: SandboxServiceOptions,
): Required<Pick<Implementation<typeof openshell.OpenShell, Principal>, Methods>> {
  const { store, sandboxes, convergence, driver, replays } = options;

  /** The sandbox a request names. @throws not-found for the workspace, then for the sandbox */
  const named = (scope: openshell.GetSandboxRequest["workspaceScope"], name: string): SandboxRecord => {
    const workspace = oneWorkspace(scope);
    requireWorkspace(store, workspace);
    return sandboxes.require(workspace, name);
  };

  const transition = async (record: SandboxRecord, apply: (before: Lifecycle) => Lifecycle) => {
    if (record.lifecycle.desired === "deleted") {
      throw new OpenShellError("failed-precondition", `sandbox ${record.name} is being deleted`);
    }
    const after = sandboxes.change(record.id, apply);
    if (after === undefined) throw new OpenShellError("not-found", `sandbox ${record.name} is gone`);
    return { sandbox: after.object };
  };

  return {
    createSandbox: (request, context) =>
      replays.once(context, request, openshell.SandboxResponseSchema, async (begun) => {
        const workspace = oneWorkspace(request.workspaceScope);
        validateCreate(request, options.allowDriverConfig);
        requireActive(requireWorkspace(store, workspace));
        const object = newSandbox(request, workspace, freeName(sandboxes, workspace, request.name), options.now);
        const draft = { id: object.metadata?.id ?? "", workspace, name: object.metadata?.name ?? "" };
        await driver.validateSandboxCreate(
          { sandbox: driverSandbox({ ...draft, resourceVersion: 0, object, lifecycle: created() }) },
          { signal: context.signal, timeoutMs: patienceMs },
        );
        const record = sandboxes.create(object, ({ object: sandbox }) => begun({ sandbox }));
        try {
          await patiently(convergence.outcome(record.id, "create"));
        } catch (error) {
          // The driver refused for good and left nothing: neither do we.
          sandboxes.remove(record.id);
          throw error;
        }
        return { sandbox: sandboxes.byId(record.id)?.object ?? record.object };
      }),

    async getSandbox(request) {
      return { sandbox: named(request.workspaceScope, request.name).object };
    },

    async listSandboxes(request, context) {
      const workspace = oneOrAllWorkspaces(request.workspaceScope);
      if (workspace === undefined) {
        requireRole(context.principal as UserPrincipal, "platform_admin", "listing all workspaces");
      } else {
        requireWorkspace(store, workspace);
      }
      return page(store, workspace, request);
    },

    deleteSandbox: (request, context) =>
      replays.once(context, request, openshell.DeleteSandboxResponseSchema, async (begun) => {
        const workspace = oneWorkspace(request.workspaceScope);
        const record = sandboxes.find(workspace, request.name);
        if (record === undefined) {
          if (!request.allowMissing) sandboxes.require(workspace, request.name);
          return { outcome: openshell.DeletionOutcome.ALREADY_ABSENT };
        }
        const { COMPLETED, ACCEPTED } = openshell.DeletionOutcome;
        sandboxes.change(record.id, deleteRequested);
        begun({ outcome: ACCEPTED, sandboxId: record.id });
        await patiently(convergence.outcome(record.id, "delete"));
        const gone = sandboxes.byId(record.id) === undefined;
        return { outcome: gone ? COMPLETED : ACCEPTED, sandboxId: record.id };
      }),

    stopSandbox: (request, context) =>
      replays.once(context, request, openshell.SandboxResponseSchema, () =>
        transition(named(request.workspaceScope, request.name), stopRequested),
      ),

    startSandbox: (request, context) =>
      replays.once(context, request, openshell.SandboxResponseSchema, () =>
        transition(named(request.workspaceScope, request.name), (before) => startRequested(before, randomUUID())),
      ),

    watchSandbox: (request, context) =>
      watchSandbox(sandboxes, () => named(request.workspaceScope, request.sandbox), request, context.signal),
  };
}

/** @throws not-found */
function requireWorkspace(store: Store, name: string): WorkspaceRecord {
  const found = store.workspaces.byName(name);
  if (found === undefined) throw workspaceNotFound(name);
  return found;
}

function freeName(sandboxes: Sandboxes, workspace: string, wanted: string): string {
  if (wanted !== "") {
    const before = sandboxes.find(workspace, wanted);
    if (before === undefined) return wanted;
    throw nameTaken(before);
  }
  for (;;) {
    const name = generateName();
    if (sandboxes.find(workspace, name) === undefined) return name;
  }
}

function newSandbox(
  request: openshell.CreateSandboxRequest,
  workspace: string,
  name: string,
  now: () => number = Date.now,
): openshell.Sandbox {
  const { NEVER, UNSPECIFIED } = openshell.SandboxRestartPolicy;
  const spec = knownOf(request.spec ?? create(openshell.SandboxSpecSchema));
  if (spec.restartPolicy === UNSPECIFIED) spec.restartPolicy = NEVER;
  const { labels, annotations } = request;
  const createdTime = timestampFromMs(now());
  return create(openshell.SandboxSchema, {
    metadata: { id: randomUUID(), name, workspace, labels, annotations, createdTime },
    spec,
  });
}

/** A copy without the fields that this release does not know: no limit holds for them, and nothing would come of them. */
function knownOf(spec: openshell.SandboxSpec): openshell.SandboxSpec {
  const { SandboxSpecSchema } = openshell;
  return fromBinary(SandboxSpecSchema, toBinary(SandboxSpecSchema, spec, { writeUnknownFields: false }));
}

/** What the sandboxes of a page may take together, in bytes: half of what a message may. */
const pageBytes = 4 * 1024 * 1024;

/** One page. What the selector drops does not count, so a page is full, of sandboxes or of bytes, unless it is the last. */
function page(store: Store, workspace: string | undefined, request: openshell.ListSandboxesRequest) {
  const size = pageSize(request.pageSize);
  const matches = parseSelector(request.labelSelector);
  const list = ["sandboxes", workspace ?? "*", request.labelSelector];
  const position = positionOf(list, request.pageToken);
  const after = position === undefined ? undefined : { workspace: position[0] ?? "", name: position[1] ?? "" };
  const found: SandboxRecord[] = [];
  let held = 0;
  for (const one of store.sandboxes.list(workspace, after)) {
    if (!matches(one.object.metadata?.labels ?? {})) continue;
    const last = found.at(-1);
    held += one.bytes;
    if (last !== undefined && (found.length === size || held > pageBytes)) {
      const nextPageToken = pageToken(list, [last.workspace, last.name]);
      return { sandboxes: found.map(({ object }) => object), nextPageToken };
    }
    found.push(one);
  }
  return { sandboxes: found.map(({ object }) => object), nextPageToken: "" };
}
