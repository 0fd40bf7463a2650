/** How users come to the gateway, for NOTES: by what the values make for it, and by a port-forward where nothing else leads in. */
import { ports } from "../manifests/names.ts";
import { values } from "./_values.ts";
import { grpcEndpoint, isElsewhere, verifiedHost } from "./endpoint.ts";
import { effective } from "./gateway-toml.ts";
import {
  and,
  type Block,
  call,
  choose,
  type Expr,
  equal,
  helm,
  type Input,
  more,
  not,
  orElse,
  output,
  text,
  variable,
  when,
  write,
} from "./layer/index.ts";
import { fullname } from "./names.ts";

const { tlsRoute, grpcRoute, ingress, openshiftRoute, service, server } = values;
const isPlain = server.disableTls;
const listener = grpcRoute.gateway.listener;

/** Set by {@link leadIn}: where the gateway is for users. */
export const endpoint = variable<string>("endpoint", "");
/** What they call it. */
export const gatewayName = variable<string>("gatewayName", fullname);
/** Somebody before the gateway ends TLS: neither its certificate nor the users' go all the way. */
export const endsTls = variable<boolean>("endsTls", false);

/** The name that users say; "" where none is known. */
const host = variable<string>("host", "");
const target = orElse(host, "$ADDRESS");

/** What brings users in, the first that is there. */
interface WayIn {
  readonly when: Input<unknown>;
  readonly host: Input<string>;
  /** What the operator does before users can come. */
  readonly says: Block;
  readonly endpoint: Input<string>;
  readonly endsTls?: Input<boolean>;
}

/** The first entry of the lists together, or "". */
const first = (...lists: readonly Input<readonly string[]>[]) =>
  orElse<string>(call("first", call("concat", ...lists)), "");
/** Of `*.example.com` a name that it stands for. */
const oneOf = (name: Expr<string>) => call<string>("replace", "*", "gateway", name);
const bracketed = (address: Expr<string>) => choose(call("contains", ":", address), text`[${address}]`, address);

const { pkiInitJob, certManager } = values;
/** More than the certificate names by itself: a name, else an address. */
const namedInCertificate = orElse(
  oneOf(first(effective("openshell.gateway.server_sans"), pkiInitJob.serverDnsNames, certManager.serverDnsNames)),
  bracketed(first(pkiInitJob.serverIpAddresses, certManager.serverIpAddresses)),
);
/** Of a Service that is open to users. */
const openHost = choose(isElsewhere, verifiedHost, namedInCertificate);
const scheme = choose(isPlain, "http", "https");
const openEndpoint = (port: Input<string | number>) =>
  choose(isElsewhere, grpcEndpoint, text`${scheme}://${target}:${port}`);

/** `kubectl get`, of one field. */
function read(object: Input<string>, field: string, namespace: Input<string> = helm.releaseNamespace): Block {
  return [write("kubectl -n "), output(namespace), write(" get "), output(object), write(` -o jsonpath='${field}'`)];
}

/** Where the name has to lead; without a name, the address itself becomes the shell's ADDRESS. */
function readAddress(command: Block): Block {
  return [
    when(
      host,
      [write("\n  "), ...command, write("\n\nprints the address that "), output(host), write(" has to lead to.\n")],
      [write("\n  ADDRESS=$("), ...command, write(")\n")],
    ),
  ];
}

const balanced = "{.status.loadBalancer.ingress[0].ip}{.status.loadBalancer.ingress[0].hostname}";

function readGateway(name: Input<string>, namespace: Input<string>): Block {
  const object = text`gateways.gateway.networking.k8s.io ${name}`;
  return readAddress(read(object, "{.status.addresses[0].value}", orElse(namespace, helm.releaseNamespace)));
}
const portOfListener = write("443 stands for the port of the Gateway's listener.\n");

/** The certificate has neither name nor address of what is open. */
const nameIt = when(and(not(isPlain), not(host)), [
  when(
    server.tls.certSecretName,
    [write("\nThe certificate in Secret "), output(server.tls.certSecretName), write(" has to name that address.\n")],
    [
      write("\nThe certificate does not name that address: give "),
      output(choose(certManager.enabled, "certManager", "pkiInitJob")),
      write(".serverDnsNames the name, or serverIpAddresses the\naddress, by which users come, and upgrade.\n"),
    ],
  ),
]);

const waysIn: readonly WayIn[] = [
  {
    when: openshiftRoute.enabled,
    host: openshiftRoute.host,
    says: readAddress(
      read(text`routes.route.openshift.io ${fullname}`, "{.status.ingress[0].routerCanonicalHostname}"),
    ),
    endpoint: text`https://${target}:443`,
  },
  {
    when: tlsRoute.enabled,
    host: oneOf(first(tlsRoute.hostnames)),
    says: [...readGateway(tlsRoute.gateway.name, tlsRoute.gateway.namespace), portOfListener],
    endpoint: text`https://${target}:443`,
  },
  {
    when: ingress.enabled,
    host: ingress.host,
    says: readAddress(read(text`ingress ${fullname}`, balanced)),
    endpoint: text`https://${target}:443`,
    endsTls: not(ingress.passthrough),
  },
  {
    when: and(grpcRoute.enabled, grpcRoute.gateway.create),
    host: oneOf(first(grpcRoute.hostnames)),
    says: readGateway(orElse(grpcRoute.gateway.name, fullname), ""),
    endpoint: text`${choose(equal(listener.protocol, "HTTP"), "http", "https")}://${target}:${listener.port}`,
    endsTls: true,
  },
  {
    when: grpcRoute.enabled,
    host: oneOf(first(grpcRoute.hostnames)),
    says: [...readGateway(grpcRoute.gateway.name, grpcRoute.gateway.namespace), portOfListener],
    endpoint: text`https://${target}:443`,
    endsTls: true,
  },
  {
    when: equal(service.type, "LoadBalancer"),
    host: openHost,
    says: [...readAddress(read(text`service ${fullname}`, balanced)), nameIt],
    endpoint: openEndpoint(service.port),
  },
  {
    when: equal(service.type, "NodePort"),
    host: openHost,
    says: [
      ...readAddress([write("kubectl get nodes -o jsonpath='{.items[0].status.addresses[0].address}'")]),
      when(not(more(service.nodePort, 0)), [
        write("\n  PORT=$("),
        ...read(text`service ${fullname}`, "{.spec.ports[0].nodePort}"),
        write(")\n"),
      ]),
      nameIt,
    ],
    endpoint: openEndpoint(choose(more(service.nodePort, 0), text`${service.nodePort}`, "$PORT")),
  },
  { when: isElsewhere, host: "", says: [], endpoint: grpcEndpoint },
];

/** A way in of the operator's machine alone. */
const forward: Block = [
  write("\n  kubectl -n "),
  output(helm.releaseNamespace),
  write(" port-forward service/"),
  output(fullname),
  // Below 1024 a port of one's own machine is not for everyone.
  write(` ${ports.gateway}:`),
  output(service.port),
  write("\n"),
  endpoint.assign(text`${scheme}://127.0.0.1:${ports.gateway}`),
  gatewayName.assign("local"),
];

/** What is to be done before users can come; it sets {@link endpoint}, {@link gatewayName} and {@link endsTls}. */
export const leadIn: Block = [
  host.declaration,
  endpoint.declaration,
  gatewayName.declaration,
  endsTls.declaration,
  ...waysIn.reduceRight<Block>(
    (others, way) => [
      when(
        way.when,
        [
          host.assign(way.host),
          ...way.says,
          endpoint.assign(way.endpoint),
          ...(way.endsTls === undefined ? [] : [endsTls.assign(way.endsTls)]),
        ],
        others,
      ),
    ],
    forward,
  ),
];
