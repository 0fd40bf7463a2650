import { ManagedWorkspaces } from "./managed-workspaces.ts";
import { OperatorWorkspaces } from "./operator-workspaces.ts";
import { SharedWorkspaces } from "./shared-workspaces.ts";
import type { Workspaces, WorkspacesOptions } from "./workspaces.ts";

/** What `workspace_mode` says. */
export function workspacesOf(options: WorkspacesOptions): Workspaces {
  switch (options.settings.workspace_mode) {
    case "shared":
      return new SharedWorkspaces(options);
    case "managed":
      return new ManagedWorkspaces(options);
    case "operator":
      return new OperatorWorkspaces(options);
  }
}
