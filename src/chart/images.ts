import { once, values } from "./_values.ts";
import { call, choose, type Expr, helm, orElse, type Ref, text } from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

type ImageValues = Ref<ChartValues["gateway"]["image"]>;

/** `registry/repository@digest`, or with the tag where there is no digest. */
function ownImage(of: ImageValues): Expr<string> {
  const registry = orElse(of.registry, values.global.image.registry);
  const tag = orElse(of.tag, orElse(values.global.image.tag, helm.appVersion));
  const version = choose(of.digest, text`@${of.digest}`, text`:${tag}`);
  return text`${prefix(registry)}${of.repository}${version}`;
}

/** An image that is not OpenShell's: nothing of it follows the global values. */
function foreignImage(of: ImageValues): Expr<string> {
  const tag = choose(of.tag, text`:${of.tag}`, "");
  const version = choose(of.digest, text`@${of.digest}`, tag);
  return text`${prefix(of.registry)}${of.repository}${version}`;
}

function prefix(registry: Expr<string>): Expr<string> {
  return choose(registry, text`${call<string>("trimSuffix", "/", registry)}/`, "");
}

/** The images of the chart, as references that a container runtime takes. */
export const images = {
  gateway: once("gatewayImage", ownImage(values.gateway.image)),
  supervisor: ownImage(values.supervisor.image),
  runtime: ownImage(values.sandboxRuntime.image),
  sandbox: foreignImage(values.sandbox.image),
} as const;

export function pullPolicy(of: ImageValues): Expr<string> {
  return orElse(of.pullPolicy, values.global.image.pullPolicy);
}
