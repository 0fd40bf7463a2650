/** Refusals at render time: each is one sentence with the remedy. */
import { type Condition, settingRules } from "../config/index.ts";
import { values } from "./_values.ts";
import { effective, effectiveConfig } from "./gateway-toml.ts";
import {
  and,
  call,
  type Expr,
  equal,
  guard,
  Helper,
  not,
  notEqual,
  or,
  output,
  type Statement,
  toJson,
  type Variable,
  variable,
} from "./layer/index.ts";

interface ChartGuard {
  readonly refusedWhen: Expr<boolean>;
  readonly sentence: string;
}

/** Combinations of values that are refused. Those of settings come from src/config. */
export const chartGuards: readonly ChartGuard[] = [
  {
    refusedWhen: notEqual(toJson(values.replicaCount), "1"),
    sentence: "replicaCount must be 1: the gateway keeps its store in a file that one process owns",
  },
  {
    refusedWhen: and(
      not(values.pkiInitJob.enabled),
      not(values.server.disableTls),
      or(call("empty", values.server.tls.certSecretName), call("empty", values.server.tls.clientCaSecretName)),
    ),
    sentence:
      "pkiInitJob.enabled is false, so nothing makes certificates: give server.tls.certSecretName and server.tls.clientCaSecretName, or set server.disableTls to true for development",
  },
  {
    refusedWhen: and(
      not(values.pkiInitJob.enabled),
      or(call("empty", values.server.jwtSecretName), call("empty", values.server.keysSecretName)),
    ),
    sentence: "pkiInitJob.enabled is false, so nothing makes keys: give server.jwtSecretName and server.keysSecretName",
  },
  {
    refusedWhen: equal(toJson(values.service.healthPort), toJson(values.service.port)),
    sentence: "service.healthPort and service.port are the same; give service.healthPort another port",
  },
  {
    refusedWhen: or(
      equal(toJson(values.service.metricsPort), toJson(values.service.port)),
      equal(toJson(values.service.metricsPort), toJson(values.service.healthPort)),
    ),
    sentence:
      "service.metricsPort is the same as service.port or service.healthPort; give it another port, or 0 for none",
  },
  {
    refusedWhen: and(not(values.serviceAccount.create), call("empty", values.serviceAccount.name)),
    sentence:
      "serviceAccount.create is false: name the existing ServiceAccount in serviceAccount.name, or the namespace's default would get the gateway's rights",
  },
];

/** A condition on settings, on the effective configuration. */
export function conditionOn(config: Expr<Record<string, unknown>>, condition: Condition): Expr<boolean> {
  const setting = (key: string) => effective<unknown>(key, config);
  if ("is" in condition) return equal(toJson(setting(condition.is)), JSON.stringify(condition.value));
  if ("empty" in condition) return call("empty", setting(condition.empty));
  if ("same" in condition) {
    const [left, right] = condition.same;
    return and(not(call("empty", setting(left))), equal(toJson(setting(left)), toJson(setting(right))));
  }
  if ("startsWith" in condition)
    return call("hasPrefix", condition.prefix, call("toString", setting(condition.startsWith)));
  if ("not" in condition) return not(conditionOn(config, condition.not));
  const parts = ("all" in condition ? condition.all : condition.any).map((part) => conditionOn(config, part));
  return "all" in condition ? and(...parts) : or(...parts);
}

function settingGuards(config: Variable<Record<string, unknown>>): Statement[] {
  return settingRules.map(({ refusedWhen, keys, sentence }) =>
    guard(conditionOn(config, refusedWhen), `gatewayConfig: ${keys[0]}: ${sentence}`),
  );
}

const guardsHelper = new Helper("openshell.guards", () => {
  const config = variable<Record<string, unknown>>("config", effectiveConfig);
  return [
    ...chartGuards.map(({ refusedWhen, sentence }) => guard(refusedWhen, sentence)),
    config.declaration,
    ...settingGuards(config),
  ];
});

/** Output nothing, or stop the rendering. Every install renders it, because the StatefulSet includes it. */
export const checkGuards: Statement = output(guardsHelper.include());
export const guardHelpers = [guardsHelper];
