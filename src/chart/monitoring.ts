import { Construct } from "constructs";
import { values } from "./_values.ts";
import { HelmObject, helm, type Manifest, render } from "./layer/index.ts";
import { fullname, objectLabels, selectorLabels } from "./names.ts";
import { unlessEmpty } from "./pods.ts";

/** What this chart writes of a `monitoring.coreos.com/v1` ServiceMonitor. */
interface ServiceMonitorProps extends Manifest {
  readonly spec: {
    readonly endpoints: readonly { readonly port: string; readonly interval: string; readonly scrapeTimeout: string }[];
    readonly namespaceSelector: { readonly matchNames: readonly string[] };
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
  };
}

/** Has the Prometheus operator scrape the gateway. */
export class GatewayServiceMonitor extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const { enabled, labels, interval, scrapeTimeout } = values.serviceMonitor;
    const namespace = render(helm.releaseNamespace);
    new HelmObject<ServiceMonitorProps>(this, "service-monitor", {
      apiVersion: "monitoring.coreos.com/v1",
      kind: "ServiceMonitor",
      when: enabled,
      manifest: {
        metadata: { name: render(fullname), namespace, labels: objectLabels("gateway", labels) },
        spec: {
          endpoints: [{ port: "metrics", interval: unlessEmpty(interval), scrapeTimeout: unlessEmpty(scrapeTimeout) }],
          namespaceSelector: { matchNames: [namespace] },
          selector: { matchLabels: selectorLabels("metrics") },
        },
      },
    });
  }
}
