import { describe, expect, it, vi } from "vitest";
import { find, helmPrograms, type Rendered, render, sentenceOf } from "./_helm.ts";
import { refusalsOfMany } from "./_many.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const describeWithHelm = describe.skipIf(helmPrograms.length === 0);
const given = {
  tls: { certSecretName: "my-tls", clientCaSecretName: "my-ca" },
  jwtSecretName: "my-jwt",
  keysSecretName: "my-keys",
};
const argsOf = (objects: Rendered[]): string[] => find(objects, "Job").spec.template.spec.containers[0].args;
const skipped = (objects: Rendered[]) => argsOf(objects).filter((arg) => arg.startsWith("--skip="));
const volumeOf = (objects: Rendered[], name: string) =>
  find(objects, "StatefulSet").spec.template.spec.volumes.find((volume: { name: string }) => volume.name === name);
/** Hooks that run when a release is installed or upgraded. */
const hooksOf = (objects: Rendered[]) =>
  objects.filter(({ metadata }) => /install|upgrade/.test(metadata.annotations?.["helm.sh/hook"] ?? ""));
const kindsOf = (objects: Rendered[]) => objects.map(({ kind }) => kind);

describeWithHelm("the PKI hook", () => {
  it("makes the keys before everything else, with rights that end with the hook", () => {
    const objects = render(program);
    const hook = objects.filter(({ metadata }) => /^openshell[-.]pki$/.test(metadata.name));
    expect(hook).toHaveLength(4);
    for (const object of hook) {
      expect(object.metadata.annotations, object.kind).toMatchObject({
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
      });
    }
    expect(argsOf(objects)).toEqual([
      "pki",
      "converge",
      "--namespace=openshell",
      "--prefix=openshell",
      "--dns-name=openshell",
      "--dns-name=openshell.openshell",
      "--dns-name=openshell.openshell.svc",
      "--dns-name=openshell.openshell.svc.cluster.local",
      "--dns-name=localhost",
      "--ip-address=127.0.0.1",
    ]);
    expect(find(objects, "Role", "openshell.pki").rules).toEqual([
      {
        apiGroups: [""],
        resources: ["secrets"],
        resourceNames: ["ca", "server-tls", "server-client-ca", "client-tls", "jwt-keys", "keys"].map(
          (role) => `openshell-${role}`,
        ),
        verbs: ["get", "patch"],
      },
      { apiGroups: [""], resources: ["secrets"], verbs: ["create"] },
    ]);
  });

  it("gets the names, addresses and Secrets that an operator gave", () => {
    const objects = render(program, {
      values: {
        pkiInitJob: { serverDnsNames: ["gw.example.com"], serverIpAddresses: ["10.0.0.1"] },
        server: { keysSecretName: "my-keys" },
        gatewayConfig: { "openshell.gateway": { server_sans: ["san.example.com"] } },
      },
    });
    expect(argsOf(objects)).toEqual(
      expect.arrayContaining([
        "--dns-name=gw.example.com",
        "--dns-name=san.example.com",
        "--ip-address=10.0.0.1",
        "--skip=openshell-keys",
      ]),
    );
    expect(volumeOf(objects, "keys").secret).toEqual({ secretName: "my-keys", defaultMode: 0o440 });
  });

  it("makes no client certificate that the given authority would not know", () => {
    const objects = render(program, { values: { server: { tls: given.tls } } });
    expect(skipped(objects)).toEqual(
      ["ca", "server-tls", "server-client-ca", "client-tls"].map((role) => `--skip=openshell-${role}`),
    );
    expect(volumeOf(objects, "client-ca").secret).toMatchObject({
      secretName: "my-ca",
      items: [{ key: "ca.crt", path: "ca.crt" }],
    });
  });

  it("is not there, nor any right to write a Secret, when every Secret is given", () => {
    const objects = render(program, { values: { server: given } });
    expect(kindsOf(objects)).not.toContain("Job");
    expect(kindsOf(objects)).not.toContain("CronJob");
    expect(hooksOf(objects)).toEqual([]);
    expect(objects.filter(({ kind }) => kind === "Role").map(({ metadata }) => metadata.name)).toEqual([
      "openshell-driver",
    ]);
    const plain = render(program, {
      presets: ["development"],
      values: { server: { jwtSecretName: "my-jwt", keysSecretName: "my-keys" } },
    });
    expect(kindsOf(plain)).not.toContain("Job");
  });

  it("is an ordinary Job where no hooks run, made anew when a value changes and only then", () => {
    const jobOf = (values: object) =>
      find(render(program, { values: { pkiInitJob: { asHook: false }, ...values } }), "Job");
    const job = jobOf({});
    expect(job.metadata.name).toMatch(/^openshell-pki-[0-9a-f]{8}$/);
    expect(job.metadata.annotations).toBeUndefined();
    expect(job.spec.ttlSecondsAfterFinished).toBeUndefined();
    expect(jobOf({}).metadata.name).toBe(job.metadata.name);
    expect(jobOf({ nodeSelector: { a: "b" } }).metadata.name).not.toBe(job.metadata.name);
    const objects = render(program, { values: { pkiInitJob: { asHook: false } } });
    expect(hooksOf(objects)).toEqual([]);
  });
});

describeWithHelm("the renewal of certificates", () => {
  it("runs the hook's work between upgrades, with rights to the release's own Secrets only", () => {
    const objects = render(program, { values: { pkiInitJob: { renewalSchedule: "0 3 * * 0" } } });
    const { spec } = find(objects, "CronJob");
    const pod = spec.jobTemplate.spec.template.spec;
    expect(spec).toMatchObject({ schedule: "0 3 * * 0", concurrencyPolicy: "Forbid" });
    expect(pod.containers[0].args).toEqual(argsOf(objects));
    expect(pod.serviceAccountName).toBe("openshell-renew");
    const [rule, ...others] = find(objects, "Role", "openshell-renew").rules;
    expect(others).toEqual([]);
    expect(rule).toMatchObject({ resources: ["secrets"], verbs: ["get", "patch"] });
    expect(rule.resourceNames).toHaveLength(6);
  });

  it("is not there without a schedule", () => {
    const objects = render(program, { values: { pkiInitJob: { renewalSchedule: "" } } });
    expect(objects.filter(({ metadata }) => metadata.name === "openshell-renew")).toEqual([]);
  });

  const sentence =
    'pkiInitJob.renewalSchedule is no schedule of a CronJob: write five fields such as "17 4 * * *", a shorthand such as "@weekly", or "" for none';

  it("takes what a CronJob takes for its schedule, and refuses the rest", () => {
    const good = ["@daily", "*/5 0-23/2 1,15 jan-MAR mon-fri", "0 00 ? * 0", "59 23 31 12 6"];
    const bad = ["never", "* * * *", "* * * * * *", "60 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 * 13 *", "0 0 * * 7"];
    const refused = refusalsOfMany(
      program,
      [...good, ...bad, "*/0 * * * *", "@often"].map((renewalSchedule) => ({ pkiInitJob: { renewalSchedule } })),
    );
    expect(refused.slice(0, good.length)).toEqual(good.map(() => []));
    for (const sentences of refused.slice(good.length)) expect(sentences).toEqual([sentence]);
  });

  it("has a name that a CronJob may have, however long the release's is", () => {
    const objects = render(program, { values: { fullnameOverride: "x".repeat(80) } });
    expect(find(objects, "CronJob").metadata.name.length).toBeLessThanOrEqual(52);
  });
});

describeWithHelm("cert-manager", () => {
  const certificates = (objects: Rendered[]) => objects.filter(({ kind }) => kind === "Certificate");

  it("makes the certificates, and the hook only the keys", () => {
    const objects = render(program, { values: { certManager: { enabled: true, serverDnsNames: ["gw.example.com"] } } });
    expect(objects.filter(({ kind }) => kind === "Issuer").map(({ metadata, spec }) => [metadata.name, spec])).toEqual([
      ["openshell-selfsigned", { selfSigned: {} }],
      ["openshell-ca-cert", { ca: { secretName: "openshell-ca-cert" } }],
    ]);
    const [authority, server, client] = certificates(objects);
    expect(authority?.spec).toMatchObject({ isCA: true, secretName: "openshell-ca-cert" });
    expect(server?.spec).toMatchObject({
      secretName: "openshell-server-cert",
      issuerRef: { name: "openshell-ca-cert", kind: "Issuer", group: "cert-manager.io" },
      duration: "2160h",
      renewBefore: "720h",
      ipAddresses: ["127.0.0.1"],
      dnsNames: [
        "openshell",
        "openshell.openshell",
        "openshell.openshell.svc",
        "openshell.openshell.svc.cluster.local",
        "localhost",
        "gw.example.com",
      ],
    });
    expect(client?.spec).toMatchObject({
      commonName: "openshell-admin",
      subject: { organizationalUnits: ["platform-admin"] },
      usages: ["client auth", "digital signature"],
    });
    expect(volumeOf(objects, "server-tls").secret.secretName).toBe("openshell-server-cert");
    // Nothing but the authority's certificate: neither the client's key nor the authority's.
    expect(volumeOf(objects, "client-ca").secret).toEqual({
      secretName: "openshell-client-cert",
      defaultMode: 0o440,
      items: [{ key: "ca.crt", path: "ca.crt" }],
    });
    expect(skipped(objects)).toEqual(
      ["ca", "server-tls", "server-client-ca", "client-tls"].map((role) => `--skip=openshell-${role}`),
    );
  });

  it("can ask another issuer for the server certificate", () => {
    const objects = render(program, {
      values: {
        certManager: {
          enabled: true,
          internalNames: false,
          serverDnsNames: ["gw.example.com"],
          serverIssuerRef: { name: "letsencrypt" },
        },
        gatewayConfig: { "openshell.drivers.kubernetes": { grpc_endpoint: "https://gw.example.com:443" } },
      },
    });
    const server = certificates(objects)[1];
    expect(server?.spec).toMatchObject({
      dnsNames: ["gw.example.com"],
      issuerRef: { name: "letsencrypt", kind: "ClusterIssuer", group: "cert-manager.io" },
    });
    expect(server?.spec.ipAddresses).toBeUndefined();
    expect(certificates(objects)[2]?.spec.issuerRef.name).toBe("openshell-ca-cert");
  });

  it("needs no hook at all when the keys are given", () => {
    const { jwtSecretName, keysSecretName } = given;
    const objects = render(program, {
      values: { certManager: { enabled: true }, server: { jwtSecretName, keysSecretName } },
    });
    expect(kindsOf(objects)).not.toContain("Job");
  });
});

describeWithHelm("a contradiction about certificates and keys", () => {
  const enabled = true;
  it.each<[object, string]>([
    [
      { pkiInitJob: { enabled: false } },
      "pkiInitJob.enabled is false, so nothing makes certificates or keys: set it to true, or give server.tls.certSecretName, server.tls.clientCaSecretName, server.jwtSecretName and server.keysSecretName",
    ],
    [
      { pkiInitJob: { enabled: false }, server: { jwtSecretName: "a", keysSecretName: "b" } },
      "pkiInitJob.enabled is false, so nothing makes certificates: set it to true, or give server.tls.certSecretName and server.tls.clientCaSecretName",
    ],
    [
      { pkiInitJob: { enabled: false }, server: { tls: given.tls } },
      "pkiInitJob.enabled is false, so nothing makes keys: set it to true, or give server.jwtSecretName and server.keysSecretName",
    ],
    [
      {
        certManager: { enabled },
        server: { disableTls: true },
        gatewayConfig: { "openshell.gateway.auth": { allow_unauthenticated_users: true } },
      },
      "certManager.enabled makes certificates, but server.disableTls is true and nothing would use them; set one of the two to false",
    ],
    [
      { certManager: { enabled }, server: { tls: given.tls } },
      "certManager.enabled makes the certificates, but server.tls.certSecretName or server.tls.clientCaSecretName names an existing one; set certManager.enabled to false, or remove the names",
    ],
    [
      { certManager: { enabled }, pkiInitJob: { serverDnsNames: ["a.example.com"] } },
      "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while certManager.enabled is true, because the hook makes no certificate; move them to certManager.serverDnsNames and certManager.serverIpAddresses",
    ],
    ...[
      { serverIssuerRef: { name: "a" } },
      { serverDnsNames: ["a.example.com"] },
      { serverIpAddresses: ["192.0.2.1"] },
    ].map((certManager): [object, string] => [
      { certManager },
      "certManager.serverIssuerRef.name, certManager.serverDnsNames and certManager.serverIpAddresses have no effect while certManager.enabled is false; set certManager.enabled to true, or remove them: more names for the hook's certificate are pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses",
    ]),
    ...[{ certificateDuration: "30m", certificateRenewBefore: "6m" }, { certificateRenewBefore: "4m59s" }].map(
      (lifetime): [object, string] => [
        { certManager: { enabled, ...lifetime } },
        "certManager.certificateDuration is shorter than 1h, or certManager.certificateRenewBefore than 5m, which cert-manager refuses; raise them",
      ],
    ),
    ...["certSecretName", "clientCaSecretName"].map((name): [object, string] => [
      {
        server: { disableTls: true, tls: { [name]: "a" } },
        gatewayConfig: { "openshell.gateway.auth": { allow_unauthenticated_users: true } },
      },
      "server.tls.certSecretName and server.tls.clientCaSecretName have no effect while server.disableTls is true; set it to false, or remove the names",
    ]),
    ...[{ serverDnsNames: ["a.example.com"] }, { serverIpAddresses: ["192.0.2.1"] }].map(
      (pkiInitJob): [object, string] => [
        { server: { tls: { certSecretName: "a" } }, pkiInitJob },
        "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while server.tls.certSecretName names the certificate; remove them, or the name",
      ],
    ),
    [
      { certManager: { enabled, internalNames: false } },
      "certManager.internalNames is false and certManager.serverDnsNames is empty, so the certificate would name nothing; set certManager.internalNames to true, or give certManager.serverDnsNames, and one of them as grpc_endpoint of openshell.drivers.kubernetes in gatewayConfig",
    ],
    [
      { certManager: { enabled, certificateDuration: "24h", certificateRenewBefore: "1440m" } },
      "certManager.certificateRenewBefore is not shorter than certManager.certificateDuration, so a new certificate would be due at once; lower the first, or raise the second",
    ],
    [
      { certManager: { enabled, internalNames: false, serverDnsNames: ["gw.example.com"] } },
      "certManager.internalNames is false, so supervisors would refuse the gateway under its Service's name; set grpc_endpoint of openshell.drivers.kubernetes in gatewayConfig to one of certManager.serverDnsNames",
    ],
  ])("is refused: %j", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });

  it("is refused on a cluster without cert-manager", () => {
    const apis = ["apps/v1/Deployment", "agents.x-k8s.io/v1beta1/Sandbox"];
    expect(sentenceOf(program, { apis, values: { certManager: { enabled } } })).toBe(
      "this cluster does not serve Certificate of cert-manager.io/v1, which certManager.enabled asks for: install cert-manager, or set certManager.enabled to false; or set preflight.enabled to false when the same sync installs it",
    );
  });
});
