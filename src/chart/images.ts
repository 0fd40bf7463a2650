import { type ChartGuard, isEmpty } from "./_guard.ts";
import { once, values } from "./_values.ts";
import {
  and,
  argument,
  call,
  choose,
  type Expr,
  Helper,
  helm,
  not,
  or,
  orElse,
  output,
  type Ref,
  text,
  variable,
  when,
} from "./layer/index.ts";
import type { ChartValues } from "./values-schema.ts";

type ImageValues = Ref<ChartValues["gateway"]["image"]>;

/** `registry/repository@digest`, or with the tag where there is no digest. */
export const imageHelper = new Helper("openshell.image", () => {
  const [repository, digest] = [argument<string>("of.repository"), argument<string>("of.digest")];
  const registry = variable<string>("registry", orElse(argument("of.registry"), argument("global.registry")));
  const tag = orElse(argument<string>("of.tag"), orElse(argument<string>("global.tag"), argument("appVersion")));
  return [
    registry.declaration,
    when(registry, [output(text`${call<string>("trimSuffix", "/", registry)}/`)]),
    output(repository),
    when(digest, [output(text`@${digest}`)], [output(text`:${tag}`)]),
  ];
});

function ownImage(of: ImageValues): Expr<string> {
  return imageHelper.include(call("dict", "of", of, "global", values.global.image, "appVersion", helm.appVersion));
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

const namesRegistry = "^([^/]*[.:][^/]*|localhost)/";
const lacksRegistry = (of: ImageValues) =>
  and(isEmpty(of.registry), not(call("regexMatch", namesRegistry, of.repository)));

/** What a container runtime takes from a registry that nobody named. */
export const imageGuards: readonly ChartGuard[] = [
  {
    refusedWhen: and(
      isEmpty(values.global.image.registry),
      or(...[values.gateway.image, values.supervisor.image, values.sandboxRuntime.image].map(lacksRegistry)),
    ),
    sentence:
      "global.image.registry is empty, so nodes would take OpenShell's images from docker.io, where they are somebody else's; name a registry, or begin each repository with one",
  },
];

export function pullPolicy(of: ImageValues): Expr<string> {
  return orElse(of.pullPolicy, values.global.image.pullPolicy);
}

export const gatewayPullPolicy = once("gatewayPullPolicy", pullPolicy(values.gateway.image));
