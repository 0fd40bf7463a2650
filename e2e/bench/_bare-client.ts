import { randomBytes } from "node:crypto";
import {
  createKubeClient,
  fixedAccess,
  type KubeClient,
  kubeconfigAccess,
  persistentVolumeClaims,
  pods,
  secrets,
  services,
} from "../../src/kube/index.ts";
import { applyObjects, kubectl } from "../cluster/clients.ts";
import { bareClaim, barePod, benchLabel, type Specimen } from "./_bare-pairs.ts";

/** Somebody who makes what the driver makes for a sandbox, without the driver: all at once, nothing gated, nothing checked. */
export class BareClient implements Disposable {
  readonly kube: KubeClient;
  readonly #namespace: string;
  readonly #specimen: Specimen;

  private constructor(kube: KubeClient, namespace: string, specimen: Specimen) {
    this.kube = kube;
    this.#namespace = namespace;
    this.#specimen = specimen;
  }

  /** With rights of its own, since an administrator's requests pass the API server's priority and fairness by. Makes the namespace. */
  static async open(kubeconfig: string, namespace: string, specimen: Specimen): Promise<BareClient> {
    const name = "bare";
    const resources = ["pods", "services", "secrets", "persistentvolumeclaims"];
    const metadata = { name, namespace };
    await applyObjects(kubeconfig, [
      { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
      { apiVersion: "v1", kind: "ServiceAccount", metadata },
      // The specimen's Pods name it.
      ...serviceAccountsOf(specimen).map((account) => ({
        apiVersion: "v1",
        kind: "ServiceAccount",
        metadata: { name: account, namespace },
      })),
      {
        apiVersion: "rbac.authorization.k8s.io/v1",
        kind: "Role",
        metadata,
        rules: [{ apiGroups: [""], resources, verbs: ["create", "delete"] }],
      },
      {
        apiVersion: "rbac.authorization.k8s.io/v1",
        kind: "RoleBinding",
        metadata,
        roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
        subjects: [{ kind: "ServiceAccount", ...metadata }],
      },
    ]);
    const token = await kubectl(kubeconfig, ["-n", namespace, "create", "token", name, "--duration=4h"]);
    const administrator = await kubeconfigAccess(kubeconfig);
    const { tls } = await administrator.credentials(false);
    const { ca, servername } = tls;
    const authorization = `Bearer ${token.trim()}`;
    const access = fixedAccess(
      administrator.server.href,
      { authorization },
      { ...(ca !== undefined && { ca }), ...(servername !== undefined && { servername }) },
    );
    const kube = await createKubeClient({ component: "openshell-bench-bare", access });
    return new BareClient(kube, namespace, specimen);
  }

  /** Two Pods, a Service, two Secrets and, unless it is left out, a claim; the name of the pair. */
  async create({ withClaim }: { readonly withClaim: boolean }): Promise<string> {
    const leg = `bare-${randomBytes(5).toString("hex")}`;
    const { pair, service, secrets: originals } = this.#specimen;
    const namespace = this.#namespace;
    const nameOf = new Map(originals.map(({ metadata }, index) => [metadata.name, `${leg}-${index}`]));
    const secretName = (original: string) => nameOf.get(original) ?? original;
    const metadata = (name: string) => ({ name, labels: { [benchLabel]: leg } });
    const ports = (service.spec?.ports ?? []).map(({ nodePort: _, ...port }) => port);
    const { kube } = this;
    await Promise.all([
      kube.create(services, namespace, {
        apiVersion: "v1",
        kind: "Service",
        metadata: metadata(leg),
        spec: { selector: { [benchLabel]: leg }, ports },
      }),
      ...originals.map(({ metadata: { name }, data = {} }) =>
        kube.create(secrets, namespace, {
          apiVersion: "v1",
          kind: "Secret",
          metadata: metadata(secretName(name)),
          data,
        }),
      ),
      ...(withClaim ? [kube.create(persistentVolumeClaims, namespace, bareClaim(this.#specimen, leg))] : []),
      ...pair.map((pod, index) => kube.create(pods, namespace, barePod(pod, { leg, index, secretName, withClaim }))),
    ]);
    return leg;
  }

  [Symbol.dispose](): void {
    this.kube.close();
  }
}

function serviceAccountsOf({ pair }: Specimen): string[] {
  const names = pair.map(({ spec }) => spec?.serviceAccountName ?? "default");
  return [...new Set(names)].filter((name) => name !== "default");
}
