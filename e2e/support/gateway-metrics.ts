import type { KubeClient } from "../../src/kube/index.ts";
import type { Release } from "./release.ts";

/** What a gateway shows on its metrics port at one moment. */
export interface Scrape {
  /** Names that are shown, whether anything was counted or not. */
  readonly names: readonly string[];
  /** Values by series, such as `openshell_relays` and `openshell_sandboxes{phase="READY"}`. */
  readonly values: ReadonlyMap<string, number>;
}

/** Reads a gateway's metrics past the API server, which reaches the Pod's port on every provider. */
export async function scrapeGateway(kube: KubeClient, { name, namespace }: Release): Promise<Scrape> {
  return parse(await kube.text(`/api/v1/namespaces/${namespace}/pods/${name}-0:9090/proxy/metrics`));
}

function parse(text: string): Scrape {
  return {
    names: [...text.matchAll(/^# TYPE (\w+) \w+$/gm)].map(([, name = ""]) => name),
    values: new Map(
      [...text.matchAll(/^(\w+(?:\{.*\})?) (\S+)$/gm)].map(([, series = "", value]) => [series, Number(value)]),
    ),
  };
}
