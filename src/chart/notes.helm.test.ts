import { describe, expect, it, vi } from "vitest";
import { networkPolicyName } from "../manifests/index.ts";
import { helmPrograms } from "./_helm.ts";
import { textsOfMany } from "./_many.ts";

vi.setConfig({ testTimeout: 60_000 });

const [program = ""] = helmPrograms;
const issuer = "https://login.example.com/realms/main";
const gateway = "openshell.gateway";
const driver = "openshell.drivers.kubernetes";
const oidc = { [`${gateway}.oidc`]: { issuer } };

/** One process of Helm for all of them. */
const cases = {
  defaults: {},
  "another id": { gatewayConfig: { [driver]: { gateway_id: "blue" } } },
  development: {
    server: { disableTls: true },
    gatewayConfig: { [`${gateway}.auth`]: { allow_unauthenticated_users: true } },
  },
  "everyone by TLS": {
    gatewayConfig: {
      [`${gateway}.auth`]: { allow_unauthenticated_users: true },
      [`${gateway}.mtls_auth`]: { enabled: false },
    },
  },
  "also OIDC": { gatewayConfig: oidc },
  "only OIDC": {
    service: { port: 443 },
    server: { tls: { certSecretName: "edge-tls" } },
    gatewayConfig: { ...oidc, [`${gateway}.mtls_auth`]: { enabled: false } },
  },
  "authority of users given": { server: { tls: { clientCaSecretName: "corp-ca" } } },
  "certificate given": { server: { tls: { certSecretName: "public-cert" } } },
  "another issuer": {
    certManager: {
      enabled: true,
      internalNames: false,
      serverDnsNames: ["gw.example.com"],
      serverIssuerRef: { name: "letsencrypt" },
    },
    gatewayConfig: { [driver]: { grpc_endpoint: "https://gw.example.com:443" }, ...oidc },
  },
  "cert-manager": { certManager: { enabled: true } },
  "OIDC with an audience": { gatewayConfig: { [`${gateway}.oidc`]: { issuer, audience: "api://gateway" } } },
  "OIDC without roles": { gatewayConfig: { [`${gateway}.oidc`]: { issuer, admin_role: "", user_role: "" } } },
  "managed and bounded": {
    limitRange: { enabled: true, max: { memory: "4Gi" } },
    gatewayConfig: { [driver]: { workspace_mode: "managed" } },
  },
  bounded: { limitRange: { enabled: true, max: { memory: "4Gi" } } },
  managed: { gatewayConfig: { [driver]: { workspace_mode: "managed" } } },
  "load balancer": { service: { type: "LoadBalancer" } },
  "load balancer with a name": {
    service: { type: "LoadBalancer", port: 443 },
    pkiInitJob: { serverDnsNames: ["*.example.com"] },
  },
  "load balancer with an address": {
    service: { type: "LoadBalancer" },
    certManager: { enabled: true, serverIpAddresses: ["2001:db8::10"] },
  },
  "load balancer in plain text": {
    service: { type: "LoadBalancer" },
    server: { disableTls: true },
    gatewayConfig: { [`${gateway}.auth`]: { allow_unauthenticated_users: true } },
  },
  "load balancer elsewhere": {
    service: { type: "LoadBalancer" },
    server: { tls: { certSecretName: "public-cert" } },
    gatewayConfig: { [driver]: { grpc_endpoint: "https://gw.example.com:443" } },
  },
  "node port": { service: { type: "NodePort" }, server: { tls: { certSecretName: "public-cert" } } },
  "known node port": {
    service: { type: "NodePort", nodePort: 30_080 },
    pkiInitJob: { serverDnsNames: ["node.example.com"] },
  },
  "OpenShift Route": { openshiftRoute: { enabled: true, host: "gw.apps.example.com" } },
  TLSRoute: {
    service: { type: "LoadBalancer" },
    tlsRoute: { enabled: true, hostnames: ["gw.example.com"], gateway: { name: "edge", namespace: "infra" } },
  },
  "Ingress passed through": { ingress: { enabled: true, host: "gw.example.com", passthrough: true } },
  Ingress: {
    ingress: { enabled: true, host: "gw.example.com", tlsSecretName: "edge-tls" },
    gatewayConfig: {
      [`${gateway}.auth`]: { allow_unauthenticated_users: true },
      [`${gateway}.mtls_auth`]: { enabled: true },
    },
  },
  "own Gateway": {
    grpcRoute: {
      enabled: true,
      gateway: { create: true, className: "edge", listener: { port: 8443, certificateSecretNames: ["edge-tls"] } },
      backendTLSPolicy: { enabled: true, caConfigMapName: "ca" },
    },
    gatewayConfig: { ...oidc, [`${gateway}.mtls_auth`]: { enabled: false } },
  },
  "own Gateway in plain text": {
    server: { disableTls: true },
    grpcRoute: {
      enabled: true,
      gateway: { create: true, className: "edge", listener: { port: 80, protocol: "HTTP" } },
    },
    gatewayConfig: { [`${gateway}.auth`]: { allow_unauthenticated_users: true } },
  },
  GRPCRoute: {
    server: { disableTls: true },
    grpcRoute: { enabled: true, hostnames: ["gw.example.com"], gateway: { name: "edge" } },
    gatewayConfig: oidc,
  },
  risks: {
    gatewayConfig: { [driver]: { app_armor_profile: "Unconfined", sandbox_runtime: { fence_check: "off" } } },
  },
} as const;

describe.skipIf(helmPrograms.length === 0)("NOTES", () => {
  let texts: (string | Error)[] | undefined;
  const notesOf = (name: keyof typeof cases): string => {
    texts ??= textsOfMany(program, Object.values(cases), ["NOTES.txt"]);
    const text = texts[Object.keys(cases).indexOf(name)];
    if (typeof text === "string") return text;
    throw text ?? new Error("nothing was rendered");
  };
  const commandsOf = (name: keyof typeof cases) =>
    notesOf(name)
      .split("\n")
      .filter((line) => /^ {2}(openshell|kubectl|ADDRESS|PORT)\b/.test(line))
      .map((line) => line.trim());
  const forward = (port = 8080) => `kubectl -n openshell port-forward service/openshell 8080:${port}`;
  const saveAuthority = (secret: string) =>
    `kubectl -n openshell get secret ${secret} -o jsonpath='{.data.ca\\.crt}' | base64 -d > gateway-ca.crt`;
  const warningsOf = (name: keyof typeof cases) => notesOf(name).match(/WARNING: [^.]*\./g) ?? [];

  it("say how to connect with the administrator's certificate, and what the chart decides", () => {
    expect(commandsOf("defaults")).toEqual([
      forward(),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --from-kubernetes openshell/openshell-client-tls",
      "openshell status",
    ]);
    expect(notesOf("defaults")).toMatch(/^OpenShell gateway openshell 0\.1\.0, gateway_id openshell$/m);
    expect(notesOf("another id")).toMatch(/^OpenShell gateway openshell 0\.1\.0, gateway_id blue$/m);
    expect(notesOf("defaults")).toContain("Sandboxes run in namespace openshell-sandboxes; pod_anti_affinity is off.");
    expect(notesOf("defaults")).toContain("The chart decides, and gatewayConfig cannot change: listen addresses");
    expect(notesOf("defaults")).not.toMatch(/object Object|<no value>|\{\{/);
    expect(warningsOf("defaults")).toEqual([]);
  });

  it("name what an uninstall leaves, also where the chart did not make the namespace", () => {
    const left = notesOf("another id").split("`helm uninstall` leaves: ")[1];
    for (const role of ["workload", "supervisor"] as const) expect(left).toContain(networkPolicyName(role, "blue"));
    expect(left).toMatch(/^the sandboxes' namespace, the gateway's volume, and the Secrets of the PKI hook; /);
  });

  const saveAs = (secret: string, key: string, file: string) =>
    `kubectl -n openshell get secret ${secret} -o jsonpath='{.data.${key.replace(".", "\\.")}}' | base64 -d > ${file}`;
  const saveAdministrator = (secret: string) => [
    saveAs(secret, "tls.crt", "admin.crt"),
    saveAs(secret, "tls.key", "admin.key"),
  ];

  it("say how to connect where the authority of users is somebody else's", () => {
    expect(commandsOf("authority of users given")).toEqual([
      forward(),
      saveAuthority("openshell-server-tls"),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt --cert FILE --key FILE",
      "openshell status",
    ]);
    expect(notesOf("authority of users given")).toContain("a certificate that the authority of Secret corp-ca signed");
  });

  it("take the authority of the gateway from its own Secret where another one signed the administrator's certificate", () => {
    expect(commandsOf("certificate given")).toEqual([
      forward(),
      saveAuthority("public-cert"),
      ...saveAdministrator("openshell-client-tls"),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt --cert admin.crt --key admin.key",
      "openshell status",
    ]);
    expect(commandsOf("another issuer").slice(0, 5)).toEqual([
      saveAuthority("openshell-server-cert"),
      ...saveAdministrator("openshell-client-cert"),
      "openshell gateway add openshell --endpoint https://gw.example.com:443 --ca gateway-ca.crt --cert admin.crt --key admin.key",
      "openshell status",
    ]);
    expect(commandsOf("another issuer").at(-1)).toBe("openshell gateway login openshell");
    expect(notesOf("another issuer")).not.toContain("127.0.0.1");
  });

  it("name no Secret that nobody makes", () => {
    const jobs = textsOfMany(program, Object.values(cases), ["pki.yaml"]);
    const named = Object.keys(cases).map((name, index) => {
      const text = notesOf(name as keyof typeof cases);
      const secrets = [...text.matchAll(/(?:get secret |--from-kubernetes openshell\/)(\S+)/g)].map(
        ([, secret]) => secret,
      );
      for (const secret of secrets) expect(jobs[index], `${name}: ${secret}`).not.toContain(`--skip=${secret}"`);
      return secrets.length;
    });
    expect(Math.max(...named)).toBeGreaterThan(2);
  });

  const balanced = "'{.status.loadBalancer.ingress[0].ip}{.status.loadBalancer.ingress[0].hostname}'";
  const ofService = `kubectl -n openshell get service openshell -o jsonpath=${balanced}`;
  const ofGateway = (name: string, namespace = "openshell") =>
    `kubectl -n ${namespace} get gateways.gateway.networking.k8s.io ${name} -o jsonpath='{.status.addresses[0].value}'`;
  const add = (endpoint: string, options = " --from-kubernetes openshell/openshell-client-tls") =>
    `openshell gateway add openshell --endpoint ${endpoint}${options}`;

  it("say how to connect by a load balancer: where its address is, and what the certificate has to name", () => {
    expect(commandsOf("load balancer").slice(0, 2)).toEqual([`ADDRESS=$(${ofService})`, add("https://$ADDRESS:8080")]);
    expect(notesOf("load balancer")).toContain(
      "The certificate does not name that address: give pkiInitJob.serverDnsNames the name, or serverIpAddresses the\naddress, by which users come, and upgrade.",
    );
    expect(commandsOf("load balancer with a name").slice(0, 2)).toEqual([
      ofService,
      add("https://gateway.example.com:443"),
    ]);
    expect(notesOf("load balancer with a name")).toContain(
      "prints the address that gateway.example.com has to lead to.",
    );
    expect(commandsOf("load balancer with an address").slice(0, 2)).toEqual([
      ofService,
      add("https://[2001:db8::10]:8080", " --from-kubernetes openshell/openshell-client-cert"),
    ]);
    expect(commandsOf("load balancer in plain text").slice(0, 2)).toEqual([
      `ADDRESS=$(${ofService})`,
      add("http://$ADDRESS:8080", ""),
    ]);
    expect(commandsOf("load balancer elsewhere")).toEqual(
      expect.arrayContaining([ofService, expect.stringContaining(" --endpoint https://gw.example.com:443 --ca ")]),
    );
    const named = Object.keys(cases).filter((name) =>
      /The certificate .* that address/.test(notesOf(name as "defaults")),
    );
    expect(named).toEqual(["load balancer", "node port"]);
  });

  it("say how to connect by a port of the nodes", () => {
    const node = "kubectl get nodes -o jsonpath='{.items[0].status.addresses[0].address}'";
    expect(commandsOf("node port").slice(0, 2)).toEqual([
      `ADDRESS=$(${node})`,
      "PORT=$(kubectl -n openshell get service openshell -o jsonpath='{.spec.ports[0].nodePort}')",
    ]);
    expect(notesOf("node port")).toContain("The certificate in Secret public-cert has to name that address.");
    expect(notesOf("node port")).toContain(add("https://$ADDRESS:$PORT", " --ca gateway-ca.crt --cert "));
    expect(commandsOf("known node port").slice(0, 2)).toEqual([node, add("https://node.example.com:30080")]);
  });

  it("say how to connect by a route that passes TLS through", () => {
    expect(commandsOf("OpenShift Route").slice(0, 2)).toEqual([
      "kubectl -n openshell get routes.route.openshift.io openshell -o jsonpath='{.status.ingress[0].routerCanonicalHostname}'",
      add("https://gw.apps.example.com:443"),
    ]);
    expect(commandsOf("TLSRoute").slice(0, 2)).toEqual([ofGateway("edge", "infra"), add("https://gw.example.com:443")]);
    expect(notesOf("TLSRoute")).toContain("443 stands for the port of the Gateway's listener.");
    expect(commandsOf("Ingress passed through").slice(0, 2)).toEqual([
      `kubectl -n openshell get ingress openshell -o jsonpath=${balanced}`,
      add("https://gw.example.com:443"),
    ]);
  });

  it("say how to connect by a route that ends TLS: without a certificate, or by a login", () => {
    expect(commandsOf("Ingress").slice(1)).toEqual([add("https://gw.example.com:443", ""), "openshell status"]);
    expect(commandsOf("own Gateway")).toEqual([
      `ADDRESS=$(${ofGateway("openshell")})`,
      add("https://$ADDRESS:8443", ` --oidc-issuer ${issuer}`),
      "openshell gateway login openshell",
    ]);
    expect(commandsOf("own Gateway in plain text").slice(1, 2)).toEqual([add("http://$ADDRESS:80", "")]);
    expect(commandsOf("GRPCRoute").slice(0, 2)).toEqual([
      ofGateway("edge"),
      add("https://gw.example.com:443", ` --oidc-issuer ${issuer}`),
    ]);
    const ended = Object.keys(cases).filter((name) =>
      notesOf(name as "defaults").includes("TLS ends before the gateway: add --ca FILE"),
    );
    expect(ended).toEqual(["Ingress", "own Gateway", "GRPCRoute"]);
  });

  it("tell of a port-forward only where nothing else leads in", () => {
    const forwarded = Object.keys(cases).filter((name) => notesOf(name as "defaults").includes("port-forward"));
    const others = Object.entries(cases).filter(([name, values]) =>
      "service" in values && "type" in values.service ? true : /Route|Ingress|Gateway|another issuer/.test(name),
    );
    expect(forwarded).toEqual(Object.keys(cases).filter((name) => !others.some(([other]) => other === name)));
    expect(others.length).toBeGreaterThan(12);
  });

  it("say how to connect in plain text, with warnings", () => {
    expect(commandsOf("development")).toEqual([
      forward(),
      "openshell gateway add local --endpoint http://127.0.0.1:8080",
      "openshell status",
    ]);
    expect(warningsOf("development")).toEqual(["WARNING: server.", "WARNING: allow_unauthenticated_users is true."]);
  });

  it("say how to connect with TLS where nobody has to show who they are", () => {
    expect(commandsOf("everyone by TLS")).toEqual([
      forward(),
      saveAuthority("openshell-server-tls"),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt",
      "openshell status",
    ]);
    expect(warningsOf("everyone by TLS")).toEqual(["WARNING: allow_unauthenticated_users is true."]);
  });

  it("say how users of an OpenID provider log in, beside a certificate and without one", () => {
    const login = (secret: string) => [
      saveAuthority(secret),
      `openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt --oidc-issuer ${issuer}`,
      "openshell gateway login local",
    ];
    expect(commandsOf("also OIDC")).toEqual([...commandsOf("defaults"), ...login("openshell-server-tls")]);
    expect(commandsOf("only OIDC")).toEqual([forward(443), ...login("edge-tls")]);
    expect(commandsOf("OIDC with an audience").at(-2)).toBe(
      `${login("openshell-server-tls")[1]} --oidc-audience 'api://gateway'`,
    );
    expect(warningsOf("also OIDC")).toEqual([]);
    expect(warningsOf("OIDC without roles")).toEqual(["WARNING: admin_role and user_role are empty."]);
  });

  it("say where sandboxes run when workspaces have namespaces, and what is risky", () => {
    expect(notesOf("managed")).toContain(
      "Each workspace has a namespace of its own: workspace_mode is managed, in which no other gateway of the cluster may have that gateway_id;",
    );
    const covers = "resourceQuota, limitRange and admissionPolicy cover namespace openshell-sandboxes only";
    expect(notesOf("managed and bounded")).toContain(covers);
    for (const name of ["managed", "bounded"] as const) expect(notesOf(name)).not.toContain("admissionPolicy cover");
    expect(warningsOf("risks")).toEqual([
      "WARNING: fence_check is off.",
      "WARNING: app_armor_profile is Unconfined, which Pod Security `restricted` refuses.",
    ]);
  });
});
