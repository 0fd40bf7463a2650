import type { Progress } from "../progress.ts";
import type { Authority } from "./certificates.ts";
import type { ComponentPlace } from "./component.ts";
import { type Layout, type NodeLayout, nodeLayoutOf } from "./layout.ts";
import { type ClusterState, writeClusterState } from "./state.ts";

/** What the steps of bringing a cluster up share. */
export interface Context {
  readonly layout: Layout;
  readonly place: ComponentPlace;
  readonly authority: Authority;
  readonly progress: Progress;
  readonly signal?: AbortSignal;
  state: ClusterState;
}

/** Changes the state, on disk before anything is done that it announces. */
export async function updateState(context: Context, change: Partial<ClusterState>): Promise<void> {
  context.state = { ...context.state, ...change };
  await writeClusterState(context.layout.state, context.state);
}

export function nodesOf(context: Pick<Context, "layout" | "state">): readonly NodeLayout[] {
  return context.state.nodes.map((index) => nodeLayoutOf(context.layout, index));
}
