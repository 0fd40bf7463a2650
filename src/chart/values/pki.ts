import { z } from "zod";
import { optionalObjectName, setting } from "../../config/index.ts";
import { addresses, hosts, objectNameOrNone, resources } from "./_types.ts";

/** As Go writes one. */
const lifetime = () => z.string().regex(/^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$/);

/** A kind of the Kubernetes API, or the empty string for cert-manager's default. */
const kind = () => z.string().regex(/^([A-Z][A-Za-z0-9]*)?$/);

/** Certificates and keys: who makes them, and under which names they are found. */
export const pkiValues = {
  server: setting(
    z
      .strictObject({
        disableTls: setting(
          z.boolean().default(false),
          "Listen in plain text. For development: everything, exec included, can be read on the way.",
        ),
        tls: setting(
          z
            .strictObject({
              certSecretName: setting(
                objectNameOrNone(),
                "Existing Secret with tls.crt and tls.key (ca.crt too when the issuer is private); empty: the hook makes one.",
              ),
              clientCaSecretName: setting(
                objectNameOrNone(),
                "Existing Secret with ca.crt, the authority of users' client certificates; empty: the hook makes one.",
              ),
            })
            .prefault({}),
          "Certificates of the listener.",
        ),
        jwtSecretName: setting(
          objectNameOrNone(),
          "Existing Secret with signing.pem, public.pem and kid; empty: the hook makes one.",
        ),
        keysSecretName: setting(
          objectNameOrNone(),
          "Existing Secret with master-secret and key-encryption-key; empty: the hook makes one.",
        ),
      })
      .prefault({}),
    "The gateway's listener and keys.",
  ),
  pkiInitJob: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(true),
          "Make and renew certificates and keys before each install and upgrade. False: every Secret is given.",
        ),
        serverDnsNames: setting(hosts(), "More host names of the server certificate.", {
          example: ["gateway.example.com", "*.gateway.example.com"],
        }),
        serverIpAddresses: setting(addresses(), "More addresses, IPv4 or IPv6, of the server certificate.", {
          example: ["192.0.2.10", "2001:db8::10"],
        }),
        asHook: setting(
          z.boolean().default(true),
          "Run as a Helm hook (Argo CD: PreSync). False: the Job is an ordinary object, named after the values, for tools that run no hooks; the gateway waits for its Secrets.",
        ),
        renewalSchedule: setting(
          z.string().default("17 4 * * *"),
          "Cron schedule of the CronJob that renews certificates between upgrades, with rights to the release's own Secrets only; empty: none, and each upgrade renews.",
          { example: "17 4 * * 0" },
        ),
        timeoutSeconds: setting(z.int().min(10).default(120), "How long the hook may take."),
        resources: resources("50m", "96Mi", "256Mi", "the hook"),
      })
      .prefault({}),
    "The hook that makes certificates and keys.",
  ),
  certManager: setting(
    z
      .strictObject({
        enabled: setting(
          z.boolean().default(false),
          "Let cert-manager make and renew the certificates, and the hook only the keys (JWT, master secret, key encryption key).",
        ),
        serverIssuerRef: setting(
          z
            .strictObject({
              name: setting(objectNameOrNone(), "Name; empty: an authority of this release's own."),
              kind: setting(kind().default("ClusterIssuer"), "Kind of the issuer."),
              group: setting(optionalObjectName().default("cert-manager.io"), "API group of the issuer."),
            })
            .prefault({}),
          "Existing issuer of the server certificate. Users' client certificates always come from the release's own authority.",
        ),
        internalNames: setting(
          z.boolean().default(true),
          "Put the Service's names and localhost into the server certificate. False: a public issuer would not sign them; supervisors then need a grpc_endpoint that it does sign.",
        ),
        serverDnsNames: setting(hosts(), "More host names of the server certificate.", {
          example: ["gateway.example.com", "*.gateway.example.com"],
        }),
        serverIpAddresses: setting(addresses(), "More addresses, IPv4 or IPv6, of the server certificate.", {
          example: ["192.0.2.10", "2001:db8::10"],
        }),
        certificateDuration: setting(lifetime().default("2160h"), "How long a certificate is valid; 1h or more.", {
          example: "720h",
        }),
        certificateRenewBefore: setting(
          lifetime().default("720h"),
          "How long before its end it is renewed; 5m or more.",
        ),
      })
      .prefault({}),
    "Certificates by cert-manager.",
  ),
} as const;
