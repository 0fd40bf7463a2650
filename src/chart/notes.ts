import { defaultSettings } from "../config/index.ts";
import { values } from "./_values.ts";
import { effective, gatewayId } from "./gateway-toml.ts";
import {
  and,
  type Block,
  call,
  type Expr,
  equal,
  helm,
  not,
  notEqual,
  or,
  output,
  when,
  write,
} from "./layer/index.ts";
import { fullname, names, sandboxNamespace, secretName, secrets } from "./names.ts";
import { endpoint, endsTls, gatewayName, leadIn } from "./ways-in.ts";

const driver = "openshell.drivers.kubernetes";
const gateway = "openshell.gateway";
const mode = effective<string>(`${driver}.workspace_mode`);
const isPlain = values.server.disableTls;

/** Who may come in, and how. */
const users = {
  certificates: effective<boolean>(`${gateway}.mtls_auth.enabled`),
  everyone: effective<boolean>(`${gateway}.auth.allow_unauthenticated_users`),
  issuer: effective<string>(`${gateway}.oidc.issuer`),
  audience: effective<string>(`${gateway}.oidc.audience`),
  adminRole: effective<string>(`${gateway}.oidc.admin_role`),
  userRole: effective<string>(`${gateway}.oidc.user_role`),
};

/** Another authority than the release's own signed the gateway's certificate. */
const isForeign = or(secrets.serverTls.given, and(values.certManager.enabled, values.certManager.serverIssuerRef.name));

/** Users see the gateway's own certificate. */
const showsOwn = not(or(isPlain, endsTls));

function saveKey(secret: Expr<string>, key: string, file: string): Block {
  return [
    write("\n  kubectl -n "),
    output(helm.releaseNamespace),
    write(" get secret "),
    output(secret),
    write(` -o jsonpath='{.data.${key.replaceAll(".", "\\.")}}' | base64 -d > ${file}`),
  ];
}

/** For who has no certificate of their own, and so nothing that names the gateway's authority. */
const saveAuthority: Block = [when(showsOwn, saveKey(secretName(secrets.serverTls), "ca.crt", "gateway-ca.crt"))];
const withAuthority = when(showsOwn, [write(" --ca gateway-ca.crt")]);

/** With the administrator's certificate, which the hook or cert-manager made, or with one of an authority that was given. */
const withCertificate: Block = [
  when(
    secrets.clientCa.given,
    [...saveAuthority, ...addGateway([withAuthority, write(" --cert FILE --key FILE")])],
    [
      when(
        isForeign,
        // The Secret's own ca.crt is not who signed the gateway's.
        [
          ...saveAuthority,
          write("\n  umask 077"),
          ...saveKey(names.clientTlsSecret, "tls.crt", "admin.crt"),
          ...saveKey(names.clientTlsSecret, "tls.key", "admin.key"),
          ...addGateway([withAuthority, write(" --cert admin.crt --key admin.key")]),
        ],
        addGateway([
          write(" --from-kubernetes "),
          output(helm.releaseNamespace),
          write("/"),
          output(names.clientTlsSecret),
        ]),
      ),
    ],
  ),
  write("\n  openshell status\n"),
  when(secrets.clientCa.given, [
    write("\nFILE: a certificate that the authority of Secret "),
    output(secrets.clientCa.given),
    write(" signed, and its key.\n"),
  ]),
  when(isForeign, [
    write(
      "\nWhere the gateway's certificate comes from an authority that everyone knows, its Secret has no ca.crt: --ca then takes the bundle of your system.\n",
    ),
  ]),
];

/** NOTES.txt: what was installed, how to connect, and what an operator should know about the values chosen. */
export const notes: Block = [
  write("OpenShell gateway "),
  output(fullname),
  write(" "),
  output(helm.appVersion),
  write(", gateway_id "),
  output(gatewayId),
  when(
    equal(mode, "shared"),
    [write("\n\n  Sandboxes run in namespace "), output(sandboxNamespace)],
    [
      write("\n\n  Each workspace has a namespace of its own: workspace_mode is "),
      output(mode),
      write(", in which no other gateway of the cluster may have that gateway_id"),
    ],
  ),
  write("; pod_anti_affinity is "),
  output(effective(`${driver}.sandbox_runtime.pod_anti_affinity`)),
  write(".\n\nConnect from your machine:\n"),
  ...leadIn,
  when(and(equal(users.certificates, true), not(endsTls)), withCertificate, [
    when(users.everyone, [...saveAuthority, ...addGateway([withAuthority]), write("\n  openshell status\n")]),
  ]),
  when(users.issuer, oidcConnect()),
  when(and(endsTls, call("hasPrefix", "https:", endpoint)), [
    write(
      "\nTLS ends before the gateway: add --ca FILE where that certificate comes from an authority that not everyone knows.\n",
    ),
  ]),
  when(values.server.disableTls, [
    write(
      "\nWARNING: server.disableTls is true. Whatever passes between users, gateway and supervisors can be read and changed on the way.\n",
    ),
  ]),
  when(equal(users.everyone, true), [
    write("\nWARNING: allow_unauthenticated_users is true. Whoever reaches the gateway's port owns every sandbox.\n"),
  ]),
  when(equal(effective<string>(`${driver}.sandbox_runtime.fence_check`), "off"), [
    write(
      "\nWARNING: fence_check is off. An agent may reach the network of its node before, or without, its NetworkPolicy.\n",
    ),
  ]),
  when(equal(effective<string>(`${driver}.app_armor_profile`), "Unconfined"), [
    write("\nWARNING: app_armor_profile is Unconfined, which Pod Security `restricted` refuses.\n"),
  ]),
  when(
    and(
      notEqual(mode, "shared"),
      or(values.resourceQuota.enabled, values.limitRange.enabled, values.admissionPolicy.enabled),
    ),
    [
      write("\nresourceQuota, limitRange and admissionPolicy cover namespace "),
      output(sandboxNamespace),
      write(
        " only, for the sandboxes of workspace_mode shared that are still there. A workspace's\nnamespace has a quota and limits by charts/openshell-workspace, where an operator makes it, or none; the gateway restores labels in every one.\n",
      ),
    ],
  ),
  when(equal(effective<string>(`${driver}.default_image`), ""), [
    write("\nNo default workload image is set (sandbox.image.repository): a sandbox must name one.\n"),
  ]),
  write(
    "\nThe chart decides, and gatewayConfig cannot change: listen addresses, TLS, paths of certificates and keys, the driver's namespace and\nServiceAccount. They come from service, server, sandboxNamespace and sandboxServiceAccount.\n",
  ),
  write(
    "\n`helm uninstall` leaves: the sandboxes' namespace, the gateway's volume, and the Secrets of the PKI hook; in every namespace of sandboxes,\nwhoever made it, also the sandboxes, which run on, and what fences them: NetworkPolicies openshell-workload-",
  ),
  output(gatewayId),
  write(" and\nopenshell-supervisor-"),
  output(gatewayId),
  write(". Delete those after the sandboxes.\n"),
];

/** Adds the gateway, with more options. */
function addGateway(options: Block): Block {
  return [
    write("\n  openshell gateway add "),
    output(gatewayName),
    write(" --endpoint "),
    output(endpoint),
    ...options,
  ];
}

/** What users of the OpenID provider do; an administrator's certificate is nothing for them. */
function oidcConnect(): Block {
  return [
    write("\nUsers of "),
    output(users.issuer),
    write(" log in:\n"),
    ...saveAuthority,
    ...addGateway([
      withAuthority,
      write(" --oidc-issuer "),
      output(users.issuer),
      // The default is what providers write for the usual client by themselves.
      when(notEqual(users.audience, defaultSettings().gateway.oidc.audience), [
        write(" --oidc-audience '"),
        output(users.audience),
        write("'"),
      ]),
    ]),
    write("\n  openshell gateway login "),
    output(gatewayName),
    write("\n"),
    write("\nAdd --oidc-ca FILE where the provider's authority is not one that everyone knows"),
    when(endsTls, [write(".\n")], [write("; no --ca where the gateway's certificate comes from one that is.\n")]),
    when(and(call("empty", users.adminRole), call("empty", users.userRole)), [
      write(
        "\nWARNING: admin_role and user_role are empty. Whoever gets a token from the provider is an administrator of every sandbox.\n",
      ),
    ]),
  ];
}
