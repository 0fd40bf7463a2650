import { values } from "./_values.ts";
import { call, choose, type Expr, Helper, helm, orElse, output, type Ref, text } from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

type ImageValues = Ref<ChartValues["gateway"]["image"]>;

/** `registry/repository@digest`, or with the tag where there is no digest. */
function ownImage(name: string, of: ImageValues): Helper {
  const registry = orElse(of.registry, values.global.image.registry);
  const tag = orElse(of.tag, orElse(values.global.image.tag, helm.appVersion));
  const version = choose(of.digest, text`@${of.digest}`, text`:${tag}`);
  return new Helper(`openshell.image.${name}`, () => [output(text`${prefix(registry)}${of.repository}${version}`)]);
}

/** An image that is not OpenShell's: nothing of it follows the global values. */
function foreignImage(name: string, of: ImageValues): Helper {
  const tag = choose(of.tag, text`:${of.tag}`, "");
  const version = choose(of.digest, text`@${of.digest}`, tag);
  return new Helper(`openshell.image.${name}`, () => [output(text`${prefix(of.registry)}${of.repository}${version}`)]);
}

function prefix(registry: Expr<string>): Expr<string> {
  return choose(registry, text`${call<string>("trimSuffix", "/", registry)}/`, "");
}

const helpers = {
  gateway: ownImage("gateway", values.gateway.image),
  supervisor: ownImage("supervisor", values.supervisor.image),
  runtime: ownImage("runtime", values.sandboxRuntime.image),
  sandbox: foreignImage("sandbox", values.sandbox.image),
};

/** The images of the chart, as references that a container runtime takes. */
export const images = {
  gateway: helpers.gateway.include(),
  supervisor: helpers.supervisor.include(),
  runtime: helpers.runtime.include(),
  sandbox: helpers.sandbox.include(),
} as const;

export function pullPolicy(of: ImageValues): Expr<string> {
  return orElse(of.pullPolicy, values.global.image.pullPolicy);
}

export const imageHelpers = Object.values(helpers);
