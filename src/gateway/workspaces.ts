import { randomUUID } from "node:crypto";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { OpenShellError } from "../common/errors.ts";
import { type Client, type compute, datamodel, type Implementation, openshell } from "../wire/index.ts";
import type { Principal } from "./identity/principal.ts";
import { patiently } from "./patience.ts";
import { checkName } from "./sandbox/names.ts";
import { pageSize, pageToken, parseSelector, positionOf } from "./sandbox/paging.ts";
import type { Replays } from "./sandbox/replay.ts";
import { checkLabels } from "./sandbox/validate-maps.ts";
import { Violations } from "./sandbox/violations.ts";
import type { Store } from "./store/store.ts";
import { defaultWorkspace, type WorkspaceRecord, workspaceNotFound } from "./store/workspaces.ts";
import type { WorkspaceDeletions } from "./workspace-deletions.ts";

const { ACTIVE, TERMINATING } = datamodel.WorkspacePhase;

type Methods = "createWorkspace" | "getWorkspace" | "listWorkspaces" | "deleteWorkspace";

export interface WorkspaceServiceOptions {
  readonly store: Store;
  readonly driver: Pick<Client<typeof compute.ComputeDriver>, "ensureWorkspace">;
  readonly deletions: Pick<WorkspaceDeletions, "run">;
  readonly replays: Replays;
  /** @default Date.now */
  readonly now?: () => number;
}

/** The RPCs about workspaces. */
export function workspaceService(
  options: WorkspaceServiceOptions,
): Required<Pick<Implementation<typeof openshell.OpenShell, Principal>, Methods>> {
  const { store, driver, deletions, replays, now = Date.now } = options;

  return {
    createWorkspace: (request, context) =>
      replays.once(context, request, openshell.CreateWorkspaceResponseSchema, async () => {
        const violations = new Violations();
        checkName(violations, "name", request.name);
        checkLabels(violations, "labels", request.labels);
        violations.throwIfAny();
        if (store.workspaces.byName(request.name) === undefined) {
          // Before the record, so that what the driver refuses leaves nothing; it may be repeated.
          await driver.ensureWorkspace({ workspace: request.name }, { signal: context.signal, timeoutMs: 20_000 });
        }
        const { name, labels } = request;
        return { workspace: shown(store.workspaces.insert({ id: randomUUID(), name, labels, createdMs: now() })) };
      }),

    async getWorkspace(request) {
      const found = store.workspaces.byName(request.name);
      if (found === undefined) throw workspaceNotFound(request.name);
      return { workspace: shown(found) };
    },

    async listWorkspaces(request) {
      const matches = parseSelector(request.labelSelector);
      const size = pageSize(request.pageSize);
      const list = ["workspaces", request.labelSelector];
      const [after = ""] = positionOf(list, request.pageToken) ?? [];
      const rows = store.workspaces.page(after, -1).filter((one) => matches(one.labels));
      const last = rows[size - 1];
      const more = rows.length > size && last !== undefined;
      return {
        workspaces: rows.slice(0, size).map(shown),
        nextPageToken: more ? pageToken(list, [last.name]) : "",
      };
    },

    deleteWorkspace: (request, context) =>
      replays.once(context, request, openshell.DeleteWorkspaceResponseSchema, async (begun) => {
        const { ALREADY_ABSENT, ACCEPTED, COMPLETED } = openshell.DeletionOutcome;
        if (request.name === defaultWorkspace) {
          throw new OpenShellError("failed-precondition", `workspace ${defaultWorkspace} always exists`);
        }
        if (store.workspaces.terminate(request.name) === undefined) {
          if (!request.allowMissing) throw workspaceNotFound(request.name);
          return { outcome: ALREADY_ABSENT };
        }
        begun({ outcome: ACCEPTED });
        await patiently(deletions.run(request.name));
        return { outcome: store.workspaces.byName(request.name) === undefined ? COMPLETED : ACCEPTED };
      }),
  };
}

function shown({ id, name, resourceVersion, createdMs, labels, terminating }: WorkspaceRecord) {
  return {
    metadata: {
      id,
      name,
      labels: { ...labels },
      resourceVersion: BigInt(resourceVersion),
      createdTime: timestampFromMs(createdMs),
    },
    status: { phase: terminating ? TERMINATING : ACTIVE },
  };
}
