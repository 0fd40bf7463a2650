import { values } from "./_values.ts";
import { effective } from "./gateway-toml.ts";
import { type Block, equal, helm, output, when, write } from "./layer/index.ts";
import { fullname, names, sandboxNamespace } from "./names.ts";

const driver = "openshell.drivers.kubernetes";

/** NOTES.txt: what was installed, how to connect, and what an operator should know about the values chosen. */
export const notes: Block = [
  write("OpenShell gateway "),
  output(fullname),
  write(" "),
  output(helm.appVersion),
  write("\n\n  Sandboxes run in namespace "),
  output(sandboxNamespace),
  write("; pod_anti_affinity is "),
  output(effective(`${driver}.sandbox_runtime.pod_anti_affinity`)),
  write(".\n\nConnect from your machine:\n\n  kubectl -n "),
  output(helm.releaseNamespace),
  write(" port-forward service/"),
  output(fullname),
  write(" "),
  output(values.service.port),
  write(":"),
  output(values.service.port),
  write("\n"),
  when(values.server.disableTls, plainConnect(), tlsConnect()),
  write("\n  openshell status\n"),
  when(values.server.disableTls, [
    write(
      "\nWARNING: server.disableTls is true. Whatever passes between users, gateway and supervisors can be read and changed on the way.\n",
    ),
  ]),
  when(equal(effective<boolean>("openshell.gateway.auth.allow_unauthenticated_users"), true), [
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
  when(equal(effective<string>(`${driver}.default_image`), ""), [
    write("\nNo default workload image is set (sandbox.image.repository): a sandbox must name one.\n"),
  ]),
  write(
    "\nThe chart decides, and gatewayConfig cannot change: listen addresses, TLS, paths of certificates and keys, the driver's namespace and\nServiceAccount. They come from service, server, sandboxNamespace and sandboxServiceAccount.\n",
  ),
  write(
    "\n`helm uninstall` leaves: the sandboxes' namespace, the gateway's volume, and the Secrets of the PKI hook.\n",
  ),
];

function plainConnect(): Block {
  return [write("  openshell gateway add local --endpoint http://127.0.0.1:"), output(values.service.port)];
}

function tlsConnect(): Block {
  return [
    write("  openshell gateway add local --endpoint https://127.0.0.1:"),
    output(values.service.port),
    write(" --from-kubernetes "),
    output(helm.releaseNamespace),
    write("/"),
    output(names.clientTlsSecret),
  ];
}
