import { z } from "zod";
import { bindAddress, hostNameForChart } from "./_grammar.ts";
import { setting } from "./_setting.ts";
import { gatewayOidc } from "./gateway-oidc.ts";

const filePath = () => z.string().regex(/^\//, { error: "an absolute path of a file that the gateway can read" });

const gatewayTls = z.strictObject({
  cert_path: setting(
    filePath(),
    "Certificate chain of the gateway's listener, PEM. Read again when the file changes.",
    {
      example: "/etc/openshell-tls/server/tls.crt",
    },
  ),
  key_path: setting(filePath(), "Private key of cert_path, PEM.", { example: "/etc/openshell-tls/server/tls.key" }),
  client_ca_path: setting(
    filePath().optional(),
    "Certificate authority of the users' client certificates, PEM. Without it no client certificate is asked for.",
    {
      example: "/etc/openshell-tls/client-ca/ca.crt",
    },
  ),
});

const gatewayAuth = z.strictObject({
  allow_unauthenticated_users: setting(
    z.boolean().default(false),
    "Serve users who present no credential, as an administrator. For development only: whoever reaches the port owns every sandbox.",
  ),
});

const mtlsAuth = z.strictObject({
  enabled: setting(
    z.boolean().default(false),
    "Authenticate users by client certificate: the subject's CN is the user, each OU one of the roles platform-admin, admin, user, operator.",
  ),
});

const gatewayJwt = z.strictObject({
  signing_key_path: setting(filePath(), "Private key that signs the supervisors' session tokens, PEM.", {
    example: "/etc/openshell-jwt/signing.pem",
  }),
  public_key_path: setting(filePath(), "Public key of signing_key_path, PEM.", {
    example: "/etc/openshell-jwt/public.pem",
  }),
  kid_path: setting(filePath(), "File with the key id that the tokens carry.", { example: "/etc/openshell-jwt/kid" }),
  gateway_id: setting(
    z.string().min(1).default("openshell"),
    "Who issues the tokens: the issuer is openshell-gateway:<gateway_id>. Equal to gateway_id of the driver.",
  ),
  ttl_secs: setting(
    z.int().min(60).max(86_400).default(3600),
    "How long a session token is valid. A supervisor renews its token before it ends.",
    { unit: "seconds" },
  ),
});

const credentialStorage = z.strictObject({
  key_encryption_key_path: setting(
    filePath(),
    "File with the key, 32 bytes in base64, that encrypts credentials of providers. It is not read here: this gateway keeps none.",
    {
      example: "/etc/openshell-keys/key-encryption-key",
    },
  ),
});

/** `[openshell.gateway]` and the tables below it. */
export const gatewaySchema = z
  .strictObject({
    name: setting(
      z
        .string()
        .refine((text) => text.trim() !== "", { error: "a name that is not blank" })
        .default("openshell"),
      "The gateway's name, as other gateways show it. It is not read here: this gateway goes by gateway_id, and clients choose its name themselves (`openshell gateway add NAME`).",
    ),
    bind_address: setting(bindAddress("required").default("127.0.0.1:17670"), "Where users and supervisors connect.", {
      example: "0.0.0.0:8080",
    }),
    health_bind_address: setting(
      bindAddress("may-be-empty").default(""),
      "Where /healthz and /readyz answer over plain HTTP; empty: nowhere.",
      { example: "0.0.0.0:8081" },
    ),
    metrics_bind_address: setting(
      bindAddress("may-be-empty").default(""),
      "Where /metrics answers over plain HTTP; empty: nowhere.",
      { example: "0.0.0.0:9090" },
    ),
    log_level: setting(
      z.enum(["trace", "debug", "info", "warn", "error"]).default("info"),
      "The least important level that is logged.",
    ),
    compute_driver: setting(z.enum(["kubernetes"]).default("kubernetes"), "The driver that runs sandboxes."),
    // Not read by the gateway, so nothing in it keeps one from starting.
    server_sans: setting(
      z.array(hostNameForChart()).default([]),
      "More host names under which clients reach the gateway. The chart puts them into the certificates that it makes; a certificate that is given has its own names.",
    ),
    disable_tls: setting(
      z.boolean().default(false),
      "Listen in plain text. For development only, or behind a proxy that ends TLS on the same node.",
    ),
    master_secret_path: setting(
      filePath().optional(),
      "File with the secret, 32 random bytes in base64, from which each generation's keys are derived. Losing it ends every running sandbox at its next supervisor replacement.",
      {
        example: "/etc/openshell-keys/master-secret",
      },
    ),
    tls: setting(gatewayTls.optional(), "TLS of the listener."),
    auth: setting(gatewayAuth.prefault({}), "Who may connect without a credential."),
    mtls_auth: setting(mtlsAuth.prefault({}), "Users by client certificate."),
    oidc: setting(gatewayOidc.prefault({}), "Users by bearer token of an OpenID provider."),
    gateway_jwt: setting(gatewayJwt.optional(), "Session tokens of supervisors."),
    credential_storage: setting(
      credentialStorage.optional(),
      "Encryption of the store, as other gateways have it. It is not read here: this gateway keeps no credentials of providers.",
    ),
  })
  .meta({
    description:
      "The gateway process. Everything here applies when the gateway starts; the chart restarts it when its configuration changes.",
  });

/** Settings of the gateway process, under their TOML names. */
export type GatewaySettings = z.output<typeof gatewaySchema>;
