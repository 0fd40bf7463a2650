import { values } from "./_values.ts";
import { call, choose, type Expr, helm, orElse, type Ref, text } from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

type ImageValues = Ref<ChartValues["gateway"]["image"]>;

/** `registry/repository@digest`, or with the tag where there is no digest. */
export function imageReference(of: ImageValues): Expr<string> {
  const registry = orElse(of.registry, values.global.image.registry);
  const tag = orElse(of.tag, orElse(values.global.image.tag, helm.appVersion));
  return text`${prefix(registry)}${of.repository}${choose(of.digest, text`@${of.digest}`, text`:${tag}`)}`;
}

/** An image that is not OpenShell's: nothing of it follows the global values. */
export function foreignImageReference(of: ImageValues): Expr<string> {
  const tag = choose(of.tag, text`:${of.tag}`, "");
  return text`${prefix(of.registry)}${of.repository}${choose(of.digest, text`@${of.digest}`, tag)}`;
}

export function pullPolicy(of: ImageValues): Expr<string> {
  return orElse(of.pullPolicy, values.global.image.pullPolicy);
}

function prefix(registry: Expr<string>): Expr<string> {
  return choose(registry, text`${call<string>("trimSuffix", "/", registry)}/`, "");
}
