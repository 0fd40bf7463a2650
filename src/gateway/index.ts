/** The gateway: gRPC services, store, identity, supervisor sessions, relay. */
export { type Gateway, type GatewayDriver, type GatewayOptions, startGateway } from "./gateway.ts";
export { type MetricName, metricTable, metricTableMarkdown } from "./metrics/table.ts";
export { phaseTable, phaseTableMarkdown, readyReasons } from "./phase.ts";
