import { OpenShellError } from "../../common/errors.ts";
import type { datamodel } from "../../wire/index.ts";

type Selector = datamodel.WorkspaceSelector | undefined;

/** The one workspace a request is about. @throws invalid-argument when it names none or all */
export function oneWorkspace(scope: Selector): string {
  const selection = scope?.selection;
  if (selection?.case === "workspace" && selection.value !== "") return selection.value;
  const description = "name one workspace (workspace_scope.workspace)";
  throw new OpenShellError("invalid-argument", `workspace_scope: ${description}`, {
    violations: [{ field: "workspace_scope", description }],
  });
}

/** The workspace of a list; undefined is all of them. */
export function oneOrAllWorkspaces(scope: Selector): string | undefined {
  return scope?.selection.case === "allWorkspaces" ? undefined : oneWorkspace(scope);
}
