import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { stringify } from "yaml";
import { OpenShellError } from "../../../src/common/errors.ts";
import { kubectlAttempt } from "../clients.ts";
import { type Component, componentPid, startComponent, waitForComponent } from "./component.ts";
import type { Context } from "./context.ts";
import { writeKubeconfig } from "./kubeconfig.ts";
import type { Layout } from "./layout.ts";
import { programPath } from "./programs.ts";

/** Who the programs of the control plane and the administrator are to the API server. */
const clientNames = {
  admin: { commonName: "openshell-admin", organizations: ["system:masters"] },
  "controller-manager": { commonName: "system:kube-controller-manager" },
  scheduler: { commonName: "system:kube-scheduler" },
} as const;

export function controlCgroup({ prefix }: Layout): string {
  return `${prefix}/control`;
}

/** etcd, API server, controller manager and scheduler, as processes of the host. */
export async function startControlPlane(context: Context): Promise<void> {
  await writeCredentials(context);
  const { layout, place, signal } = context;
  const cgroup = controlCgroup(layout);
  const [etcd, apiServer, ...clients] = controlPlane(layout, (name) => context.authority.file(name), cgroup);
  const options = { timeoutMs: 60_000, ...(signal === undefined ? {} : { signal }) };

  await refuseTakenPort(context, etcd, layout.loopback, 2379);
  await startComponent(place, etcd);
  await refuseTakenPort(context, apiServer, layout.hostAddress, layout.apiServerPort);
  await startComponent(place, apiServer);
  await waitForComponent(place, apiServer, "ready", () => isReady(layout), options);
  for (const component of clients) await startComponent(place, component);
}

export function controlPlane(
  layout: Layout,
  pki: (name: string) => string,
  cgroup: string,
): readonly [Component, Component, Component, Component] {
  const { files } = layout;
  const kubernetes = (name: string, flags: Readonly<Record<string, string>>): Component => ({
    name,
    cgroup,
    command: programPath("kubernetes"),
    args: [name, ...Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)],
  });
  const etcdUrl = `http://${layout.loopback}:2379`;
  const client = (name: string) => {
    const kubeconfig = join(files.kubeconfigs, `${name}.yaml`);
    return { kubeconfig, "authentication-kubeconfig": kubeconfig, "authorization-kubeconfig": kubeconfig };
  };
  return [
    {
      name: "etcd",
      cgroup,
      command: "etcd",
      args: [
        `--data-dir=${files.etcd}`,
        `--listen-client-urls=${etcdUrl}`,
        `--advertise-client-urls=${etcdUrl}`,
        `--listen-peer-urls=http://${layout.loopback}:2380`,
        // The cluster is thrown away with the machine's next reboot; syncing every write costs more than all else together.
        "--unsafe-no-fsync",
        "--logger=zap",
        "--log-level=warn",
      ],
    },
    kubernetes("kube-apiserver", {
      "bind-address": layout.hostAddress,
      "advertise-address": layout.hostAddress,
      "secure-port": String(layout.apiServerPort),
      "etcd-servers": etcdUrl,
      "service-cluster-ip-range": layout.serviceSubnet,
      "tls-cert-file": pki("apiserver.crt"),
      "tls-private-key-file": pki("apiserver.key"),
      "client-ca-file": pki("ca.crt"),
      "kubelet-client-certificate": pki("apiserver-kubelet.crt"),
      "kubelet-client-key": pki("apiserver-kubelet.key"),
      "kubelet-certificate-authority": pki("ca.crt"),
      "kubelet-preferred-address-types": "InternalIP",
      "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
      "service-account-key-file": pki("service-accounts.pub"),
      "service-account-signing-key-file": pki("service-accounts.key"),
      // Aggregated APIs, and what the other programs read to authenticate who asks them for metrics.
      "requestheader-client-ca-file": pki("ca.crt"),
      "requestheader-allowed-names": "front-proxy",
      "requestheader-username-headers": "X-Remote-User",
      "requestheader-group-headers": "X-Remote-Group",
      "requestheader-extra-headers-prefix": "X-Remote-Extra-",
      "proxy-client-cert-file": pki("front-proxy.crt"),
      "proxy-client-key-file": pki("front-proxy.key"),
      "authorization-mode": "Node,RBAC",
      "enable-admission-plugins": "NodeRestriction",
      "anonymous-auth": "true",
      "allow-privileged": "true",
      // Off by default in 1.34; the suite tests what admission may do to a Pod with it.
      "feature-gates": "MutatingAdmissionPolicy=true",
      "runtime-config": "admissionregistration.k8s.io/v1beta1=true",
      "audit-policy-file": join(files.config, "audit-policy.yaml"),
      "audit-log-path": join(files.logs, "audit.log"),
      "audit-log-maxsize": "50",
      "audit-log-maxbackup": "2",
    }),
    kubernetes("kube-controller-manager", {
      ...client("controller-manager"),
      "bind-address": layout.loopback,
      "leader-elect": "false",
      "use-service-account-credentials": "true",
      "service-account-private-key-file": pki("service-accounts.key"),
      "root-ca-file": pki("ca.crt"),
      "cluster-signing-cert-file": pki("ca.crt"),
      "cluster-signing-key-file": pki("ca.key"),
      "cluster-cidr": layout.podSubnet,
      "allocate-node-cidrs": "false",
    }),
    kubernetes("kube-scheduler", { ...client("scheduler"), "bind-address": layout.loopback, "leader-elect": "false" }),
  ];
}

async function writeCredentials(context: Context): Promise<void> {
  const { authority, layout } = context;
  await authority.makeSigningKey("service-accounts");
  await authority.issue({
    name: "apiserver",
    commonName: "kube-apiserver",
    hosts: [
      layout.hostAddress,
      layout.kubernetesServiceAddress,
      "127.0.0.1",
      "localhost",
      ...["", ".default", ".default.svc", ".default.svc.cluster.local"].map((suffix) => `kubernetes${suffix}`),
    ],
  });
  await authority.issue({ name: "apiserver-kubelet", commonName: "kube-apiserver", organizations: ["system:masters"] });
  await authority.issue({ name: "front-proxy", commonName: "front-proxy" });
  for (const [name, subject] of Object.entries(clientNames)) {
    const client = await authority.issue({ name, ...subject });
    await writeKubeconfig(join(layout.files.kubeconfigs, `${name}.yaml`), {
      server: layout.apiServer,
      authority: authority.certificate,
      user: name,
      client,
    });
  }
  await mkdir(layout.files.config, { recursive: true });
  await mkdir(layout.files.logs, { recursive: true });
  // Who did what with which client, without bodies: enough to compare a program's calls with the verbs it was given.
  const policy = {
    apiVersion: "audit.k8s.io/v1",
    kind: "Policy",
    omitStages: ["RequestReceived"],
    rules: [{ level: "Metadata" }],
  };
  await writeFile(join(layout.files.config, "audit-policy.yaml"), stringify(policy));
}

async function isReady(layout: Layout): Promise<boolean> {
  const answer = await kubectlAttempt(layout.files.adminKubeconfig, ["get", "--raw=/readyz"], {
    timeoutMs: 5000,
  }).catch(() => undefined);
  return answer?.code === 0;
}

/** A program that cannot bind says so in its log and tries again or ends; this says it in one line. */
async function refuseTakenPort(context: Context, component: Component, address: string, port: number): Promise<void> {
  if ((await componentPid(context.place, component.name, component.cgroup)) !== undefined) return;
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, address, resolve);
    });
  } catch (cause) {
    throw new OpenShellError(
      "failed-precondition",
      `${component.name} needs ${address}:${port} and another program has it: find it with \`ss -ltnp sport = :${port}\`, end it and run again`,
      { cause },
    );
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}
