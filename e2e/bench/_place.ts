import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Informer, type KubeClient, type Live, type Pod, pods, sandboxes } from "../../src/kube/index.ts";
import { labels } from "../../src/manifests/names.ts";
import { kubectl } from "../cluster/clients.ts";
import type { Progress } from "../cluster/progress.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { type Scrape, scrapeGateway } from "../support/gateway-metrics.ts";
import { imageValues, install, type Release, releaseNamed, uninstall } from "../support/release.ts";
import { BareClient } from "./_bare-client.ts";
import { benchLabel, sandboxesOf, specimenOf } from "./_bare-pairs.ts";
import type { BenchCluster } from "./_bench-cluster.ts";
import { PairWatch } from "./_pair-watch.ts";

/** The release whose pairs are on hollow nodes. */
export const hollowRelease = "openshell-scale";
/** The leg that is asked for as much as ours. */
export const bareName = "two bare Pods, Service, two Secrets, volume";

export interface PlaceOptions extends Pick<BenchCluster, "kubeconfig" | "gatewayDigest" | "kube" | "version"> {
  readonly progress: Progress;
}

/** One of the two things that are measured beside each other: makes a pair and says how it is called. */
export interface Leg {
  readonly name: string;
  create(): Promise<string>;
  readonly watch: PairWatch;
}

function bareNamespaceOf({ name }: Release): string {
  return `${name}-bare`;
}

/** With all that was made there, whoever made it. */
export async function removePlace({ kubeconfig, progress }: PlaceOptions, release: Release): Promise<void> {
  progress.note(`removing ${release.name}`);
  const all = [bareNamespaceOf(release), release.sandboxNamespace, release.namespace];
  await kubectl(kubeconfig, ["delete", "namespace", ...all.slice(0, 1), "--ignore-not-found", "--wait=false"]);
  await uninstall(kubeconfig, release).catch(() => undefined);
  // On hollow nodes there is nothing to end; one by one a thousand pairs take kwok many minutes.
  if (release.name === hollowRelease) {
    for (const namespace of all.slice(0, 2)) {
      const path = `/api/v1/namespaces/${namespace}/pods?gracePeriodSeconds=0`;
      await kubectl(kubeconfig, ["delete", "--raw", path]).catch(() => undefined);
    }
  }
  await kubectl(kubeconfig, ["delete", "namespace", ...all, "--ignore-not-found", "--timeout=900s"]);
}

/** A gateway, and the bare client that imitates it in a namespace of its own. */
export class Place implements AsyncDisposable {
  readonly release: Release;
  readonly gateway: GatewayAccess;
  readonly ours: Leg;
  readonly bare: Leg;
  readonly bareWithoutVolume: Leg;
  readonly #kube: KubeClient;
  readonly #end: AsyncDisposableStack;

  private constructor(
    parts: Pick<Place, "release" | "gateway" | "ours" | "bare" | "bareWithoutVolume">,
    kube: KubeClient,
    end: AsyncDisposableStack,
  ) {
    this.release = parts.release;
    this.gateway = parts.gateway;
    this.ours = parts.ours;
    this.bare = parts.bare;
    this.bareWithoutVolume = parts.bareWithoutVolume;
    this.#kube = kube;
    this.#end = end;
  }

  static async open(options: PlaceOptions, name: string, settings: object): Promise<Place> {
    const { kubeconfig, gatewayDigest, kube, version } = options;
    await using end = new AsyncDisposableStack();
    const release = releaseNamed(name);
    const bareNamespace = bareNamespaceOf(release);
    await removePlace(options, release);
    end.defer(() => removePlace(options, release));
    const gatewayConfig = { "openshell.gateway": { log_level: "info" }, "openshell.drivers.kubernetes": settings };
    await install({
      kubeconfig,
      release,
      presets: ["conformance"],
      values: { ...imageValues(gatewayDigest), gatewayConfig },
    });
    const gateway = end.use(await GatewayAccess.open(kubeconfig, release));
    const informed = async (
      namespace: string,
      labelSelector: string,
      pairOf: (pod: Live<Pod>) => string | undefined,
    ) => {
      const informer = end.use(new Informer({ client: kube, resource: pods, namespace, labelSelector }));
      await informer.synced;
      return { informer, watch: new PairWatch(informer, pairOf) };
    };
    const own = await informed(
      release.sandboxNamespace,
      labels.sandboxId,
      ({ metadata }) => metadata.labels?.[labels.sandboxId],
    );
    const createNamed = sandboxesOf(() => gateway.client);
    const created = () => createNamed(`s-${randomBytes(5).toString("hex")}`);

    const first = await created();
    await own.watch.reached(first.id, "running");
    const pair = own.informer.list().filter(({ metadata }) => metadata.labels?.[labels.sandboxId] === first.id);
    const model = await specimenOf(kube, sandboxes(version), release.sandboxNamespace, first, pair);
    const client = end.use(await BareClient.open(kubeconfig, bareNamespace, model));
    const { watch } = await informed(bareNamespace, benchLabel, ({ metadata }) => metadata.labels?.[benchLabel]);
    const bareLeg = (what: string, withClaim: boolean): Leg => ({
      name: what,
      create: () => client.create({ withClaim }),
      watch,
    });
    return new Place(
      {
        release,
        gateway,
        ours: { name: "ours", create: async () => (await created()).id, watch: own.watch },
        bare: bareLeg(bareName, true),
        bareWithoutVolume: bareLeg("two bare Pods, Service, two Secrets", false),
      },
      kube,
      end.move(),
    );
  }

  scrape(): Promise<Scrape> {
    return scrapeGateway(this.#kube, this.release);
  }

  /** Until the driver has had nothing to do for a while. */
  async quiet(seconds = 5): Promise<Scrape> {
    for (let calm = 0; ; ) {
      const scrape = await this.scrape();
      calm = scrape.values.get("openshell_reconcile_depth") === 0 ? calm + 1 : 0;
      if (calm > seconds) return scrape;
      await sleep(1_000);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end.disposeAsync();
  }
}
