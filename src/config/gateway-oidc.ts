import { z } from "zod";
import { setting } from "./_setting.ts";

/** https anywhere; http only to a loopback address in numbers, which no name server can point elsewhere. */
const issuer = z
  .string()
  .regex(/^$|^https:\/\/[^\s?#@]+$|^http:\/\/(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d{1,5})?(\/[^\s?#@]*)?$/, {
    error:
      'an issuer such as "https://login.example.com/realms/main": https, without query, fragment or user (http only to 127.0.0.1 or [::1])',
  });

const origin = z.string().regex(/^https:\/\/[^\s/?#@]+$/, {
  error: 'an origin such as "https://keys.example.com", without a path',
});

/** `[openshell.gateway.oidc]` */
export const gatewayOidc = z.strictObject({
  issuer: setting(
    issuer.default(""),
    "The OpenID provider whose tokens identify users, exactly as its tokens name it; empty: no user comes with a token. The provider is found by discovery (ISSUER/.well-known/openid-configuration).",
    { example: "https://login.example.com/realms/main" },
  ),
  audience: setting(
    z.string().min(1).default("openshell-cli"),
    "What the aud claim of a token must name. A token for anybody else is refused.",
  ),
  jwks_ttl_secs: setting(
    z.int().min(1).max(604_800).default(3600),
    "How long the provider's keys count before they are fetched anew. While the provider cannot be reached they count for as long again. A key that is not known yet is asked for at once, at most every 10 seconds.",
    { unit: "seconds" },
  ),
  jwks_allowed_origins: setting(
    z.array(origin).default([]),
    "Where the provider may keep its keys besides the issuer's own origin. A jwks_uri anywhere else is not followed.",
    { example: ["https://keys.example.com"] },
  ),
  dangerously_allow_insecure_http: setting(
    z.boolean().default(false),
    "Take an issuer without TLS, on a loopback address only. For development: whoever answers there says who everybody is.",
  ),
  ca_cert_path: setting(
    z
      .string()
      .regex(/^$|^\//, { error: "an absolute path of a file that the gateway can read, or empty" })
      .default(""),
    "Authorities of the provider's certificate, PEM, beside those that everyone knows. Read at every fetch. Empty: the file that SSL_CERT_FILE names, if any.",
    { example: "/etc/openshell-oidc/ca.crt" },
  ),
  roles_claim: setting(
    z.string().min(1).default("realm_access.roles"),
    "Where a token lists its user's roles: a claim, or a path through claims with dots.",
  ),
  admin_role: setting(
    z.string().default("openshell-admin"),
    "The role, as the provider calls it, of a platform administrator: every RPC for users. With user_role empty too, whoever has a valid token is one.",
  ),
  user_role: setting(
    z.string().default("openshell-user"),
    "The role, as the provider calls it, of a user of every workspace. A token with neither role is authenticated and may do nothing else.",
  ),
  scopes_claim: setting(
    z.string().default(""),
    "The claim that lists a token's scopes, such as scope or scp: each RPC then also needs its own, such as sandbox:write; openshell:all stands for every one. Empty: scopes are not looked at.",
    { example: "scope" },
  ),
});

/** Settings of OIDC, under their TOML names. */
export type OidcSettings = z.output<typeof gatewayOidc>;
