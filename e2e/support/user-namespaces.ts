import { z } from "zod";
import { kubectl } from "../cluster/clients.ts";
import type { ProviderName } from "../cluster/provider.ts";
import { handlersOf } from "./runtime-class.ts";

const handler = z.object({
  name: z.string(),
  features: z.object({ userNamespaces: z.boolean().default(false) }).default({ userNamespaces: false }),
});
const nodeList = z.object({
  items: z.array(z.object({ status: z.object({ runtimeHandlers: z.array(handler).default([]) }) })),
});

/** RuntimeClasses that every suite finds, by whether a Pod of theirs can have a user namespace of its own; undefined where none is so. */
export interface ClassesByUserNamespaces {
  readonly able: string | undefined;
  readonly unable: string | undefined;
}

/** Asks the nodes, whose kubelets say it in their status: those before 1.30, and those with an older container runtime, have none. */
export async function classesByUserNamespaces(
  kubeconfig: string,
  provider: ProviderName,
): Promise<ClassesByUserNamespaces> {
  const { items } = nodeList.parse(JSON.parse(await kubectl(kubeconfig, ["get", "nodes", "-o", "json"])));
  const isAble = (name: string) =>
    items.every(({ status }) => status.runtimeHandlers.some((one) => one.name === name && one.features.userNamespaces));
  const [first, second] = handlersOf(provider);
  const classes = [
    ["conformance-a", isAble(first)],
    ["conformance-b", isAble(second)],
  ] as const;
  const nameWhere = (able: boolean) => classes.find(([, is]) => is === able)?.[0];
  return { able: nameWhere(true), unable: nameWhere(false) };
}
