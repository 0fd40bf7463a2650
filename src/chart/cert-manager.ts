import { Construct } from "constructs";
import { type ChartGuard, isEmpty, lasts, needsApi } from "./_guard.ts";
import { values } from "./_values.ts";
import { isService } from "./endpoint.ts";
import { effective } from "./gateway-toml.ts";
import {
  and,
  call,
  choose,
  each,
  HelmObject,
  helm,
  type Input,
  type Manifest,
  not,
  optional,
  or,
  render,
  text,
} from "./layer/index.ts";
import { externalDnsNames, fullname, internalDnsNames, names, objectLabels } from "./names.ts";
import { unlessEmpty } from "./pods.ts";

const apiVersion = "cert-manager.io/v1";
const namespace = render(helm.releaseNamespace);
const labels = objectLabels("pki");
const { enabled, serverIssuerRef, internalNames, serverDnsNames, serverIpAddresses } = values.certManager;
const { certificateDuration, certificateRenewBefore } = values.certManager;

interface IssuerRef {
  readonly name: string;
  readonly kind: string;
  readonly group: string;
}

/** What this chart writes of a cert-manager Issuer. */
interface IssuerProps extends Manifest {
  readonly spec: { readonly selfSigned: object } | { readonly ca: { readonly secretName: string } };
}

/** What this chart writes of a cert-manager Certificate. */
interface CertificateProps extends Manifest {
  readonly spec: {
    readonly secretName: string;
    readonly issuerRef: IssuerRef;
    readonly duration: string;
    readonly renewBefore: string;
    readonly privateKey: object;
    readonly usages: readonly string[];
    readonly isCA?: boolean;
    readonly commonName?: string;
    readonly subject?: { readonly organizationalUnits: readonly string[] };
    readonly dnsNames?: readonly string[];
    readonly ipAddresses?: readonly string[];
  };
}

export const certManagerGuards: readonly ChartGuard[] = [
  {
    refusedWhen: and(enabled, values.server.disableTls),
    sentence:
      "certManager.enabled makes certificates, but server.disableTls is true and nothing would use them; set one of the two to false",
  },
  {
    refusedWhen: and(
      enabled,
      or(not(isEmpty(values.server.tls.certSecretName)), not(isEmpty(values.server.tls.clientCaSecretName))),
    ),
    sentence:
      "certManager.enabled makes the certificates, but server.tls.certSecretName or server.tls.clientCaSecretName names an existing one; set certManager.enabled to false, or remove the names",
  },
  {
    refusedWhen: and(
      enabled,
      or(not(isEmpty(values.pkiInitJob.serverDnsNames)), not(isEmpty(values.pkiInitJob.serverIpAddresses))),
    ),
    sentence:
      "pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses have no effect while certManager.enabled is true, because the hook makes no certificate; move them to certManager.serverDnsNames and certManager.serverIpAddresses",
  },
  {
    refusedWhen: and(
      not(enabled),
      not(and(isEmpty(serverIssuerRef.name), isEmpty(serverDnsNames), isEmpty(serverIpAddresses))),
    ),
    sentence:
      "certManager.serverIssuerRef.name, certManager.serverDnsNames and certManager.serverIpAddresses have no effect while certManager.enabled is false; set certManager.enabled to true, or remove them: more names for the hook's certificate are pkiInitJob.serverDnsNames and pkiInitJob.serverIpAddresses",
  },
  {
    refusedWhen: and(enabled, not(internalNames), isEmpty(serverDnsNames)),
    sentence:
      "certManager.internalNames is false and certManager.serverDnsNames is empty, so the certificate would name nothing; set certManager.internalNames to true, or give certManager.serverDnsNames, and one of them as grpc_endpoint of openshell.drivers.kubernetes in gatewayConfig",
  },
  {
    refusedWhen: and(enabled, not(internalNames), isService),
    sentence:
      "certManager.internalNames is false, so supervisors would refuse the gateway under its Service's name; set grpc_endpoint of openshell.drivers.kubernetes in gatewayConfig to one of certManager.serverDnsNames",
  },
  {
    refusedWhen: and(enabled, lasts(certificateRenewBefore, ">=", certificateDuration)),
    sentence:
      "certManager.certificateRenewBefore is not shorter than certManager.certificateDuration, so a new certificate would be due at once; lower the first, or raise the second",
  },
  {
    refusedWhen: and(enabled, or(lasts(certificateDuration, "<", "1h"), lasts(certificateRenewBefore, "<", "5m"))),
    sentence:
      "certManager.certificateDuration is shorter than 1h, or certManager.certificateRenewBefore than 5m, which cert-manager refuses; raise them",
  },
  needsApi(
    enabled,
    "Certificate",
    [apiVersion],
    ", which certManager.enabled asks for: install cert-manager, or set certManager.enabled to false",
  ),
];

/**
 * Certificates by cert-manager: an authority of the release's own, the gateway's server certificate, by that authority or by an issuer that
 * exists, and the administrator's client certificate. cert-manager renews them, and the gateway reads them again.
 */
export class CertManagerPki extends Construct {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    const selfSigned = { name: render(text`${fullname}-selfsigned`), kind: "Issuer", group: "cert-manager.io" };
    const authority = { name: render(names.certManagerCa), kind: "Issuer", group: "cert-manager.io" };
    this.issuer("self-signed", selfSigned.name, { selfSigned: {} });
    this.certificate("authority", names.certManagerCa, {
      issuerRef: selfSigned,
      isCA: true,
      commonName: render(text`${fullname} authority`),
      // Ten years. cert-manager signs the certificates anew when it renews the authority.
      duration: "87600h",
      renewBefore: "29200h",
      usages: ["cert sign", "crl sign", "digital signature"],
    });
    this.issuer("authority-issuer", authority.name, { ca: { secretName: render(names.certManagerCa) } });
    const lifetime = {
      duration: render(certificateDuration),
      renewBefore: render(certificateRenewBefore),
    };
    this.certificate("server", names.certManagerServer, {
      issuerRef: {
        name: render(choose(serverIssuerRef.name, serverIssuerRef.name, names.certManagerCa)),
        kind: render(choose(serverIssuerRef.name, serverIssuerRef.kind, "Issuer")),
        group: render(choose(serverIssuerRef.name, serverIssuerRef.group, "cert-manager.io")),
      },
      ...lifetime,
      dnsNames: [
        ...internalDnsNames.map((name) => optional(internalNames, render(text`${name}`))),
        each(effective<readonly string[]>("openshell.gateway.server_sans"), (name) => render(name)),
        each(serverDnsNames, (name) => render(name)),
        ...externalDnsNames.map((list) => each(list, (name) => render(name))),
      ],
      ipAddresses: unlessEmpty(call<string[]>("concat", choose(internalNames, ["127.0.0.1"], []), serverIpAddresses)),
      usages: ["server auth", "digital signature", "key encipherment"],
    });
    this.certificate("client", names.certManagerClient, {
      issuerRef: authority,
      ...lifetime,
      commonName: "openshell-admin",
      subject: { organizationalUnits: ["platform-admin"] },
      usages: ["client auth", "digital signature"],
    });
  }

  private issuer(id: string, name: string, spec: IssuerProps["spec"]): void {
    new HelmObject<IssuerProps>(this, id, {
      apiVersion,
      kind: "Issuer",
      when: enabled,
      manifest: { metadata: { name, namespace, labels }, spec },
    });
  }

  /** The certificate and its Secret have the same name. */
  private certificate(
    id: string,
    name: Input<string>,
    spec: Omit<CertificateProps["spec"], "secretName" | "privateKey">,
  ): void {
    const secretName = render(text`${name}`);
    new HelmObject<CertificateProps>(this, id, {
      apiVersion,
      kind: "Certificate",
      when: enabled,
      manifest: {
        metadata: { name: secretName, namespace, labels },
        spec: { secretName, ...spec, privateKey: { algorithm: "ECDSA", size: 256, rotationPolicy: "Always" } },
      },
    });
  }
}
