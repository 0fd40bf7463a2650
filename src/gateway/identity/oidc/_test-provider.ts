import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { RequestListener, Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportJWK, generateKeyPair } from "jose";
import { type Configuration, type JWK, Provider } from "oidc-provider";
import { requestJson } from "../../../common/https-json.ts";
import { issueAuthority, issueLeaf } from "../../../pki/certificates.ts";
import type { OidcOptions } from "./oidc-users.ts";

/** Clients of the provider, each with the roles that its tokens list. Every secret is "secret". */
export const clientRoles = {
  nobody: [],
  ann: ["openshell-user", "another"],
  root: ["openshell-admin"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type ClientName = keyof typeof clientRoles;

/** Scopes of the contract, and the one that stands for all. */
export const scopes = [
  ...["sandbox:read", "sandbox:write", "provider:read", "provider:write", "config:read", "config:write"],
  ...["workspace:read", "workspace:write", "openshell:all"],
];

/** A public client for people: device authorization, refresh tokens. */
export const publicClient = "openshell-cli";

/** A real OpenID provider on an address of this machine, with TLS under an authority made for the test. */
export class TestProvider implements AsyncDisposable {
  issuer = "";
  /** File of the authority that signed its certificate. */
  readonly caPath: string;
  /** Times that its keys were asked for. */
  keyFetches = 0;
  provider!: Provider;
  readonly #host: string;
  readonly #directory: string;
  #server!: Server;
  #handler: RequestListener = (_, response) => response.writeHead(503).end();
  #ca = "";
  #port = 0;
  #keys: JWK[] = [];

  private constructor(host: string) {
    this.#host = host;
    this.#directory = mkdtempSync(join(tmpdir(), "openshell-oidc-"));
    this.caPath = join(this.#directory, "ca.crt");
  }

  /**
   * @param up false: nobody listens yet, though the issuer's address is known
   * @param host an address of this machine
   */
  static async start({ up = true, host = "127.0.0.1" } = {}): Promise<TestProvider> {
    const made = new TestProvider(host);
    const validity = { notBefore: new Date(Date.now() - 60_000), notAfter: new Date(Date.now() + 3_600_000) };
    const authority = await issueAuthority({ commonName: "provider CA", algorithm: "ecdsa-p256", ...validity });
    const leaf = { authority, commonName: "provider", ipAddresses: [host] };
    const { certPem: cert, keyPem: key } = await issueLeaf({ ...leaf, usages: ["server"], ...validity });
    made.#ca = authority.certPem;
    writeFileSync(made.caPath, authority.certPem);
    made.#server = createTlsServer({ cert, key }, (request, response) => {
      if (request.url?.startsWith("/jwks")) made.keyFetches += 1;
      made.#handler(request, response);
    }) as unknown as Server;
    await made.up();
    made.issuer = `https://${host}:${made.#port}`;
    await made.rotate();
    if (!up) await made.down();
    return made;
  }

  async up(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.#port, this.#host, resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async down(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  /** From now on it answers nothing. Resolves when it is asked. */
  hang(): Promise<void> {
    return new Promise((resolve) => {
      this.#handler = () => resolve();
    });
  }

  /** New keys in place of the ones before. */
  async rotate(): Promise<void> {
    const { privateKey } = await generateKeyPair("RS256", { extractable: true });
    const kid = `key-${crypto.randomUUID()}`;
    this.#keys = [{ ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid } as JWK];
    this.provider = new Provider(this.issuer, this.#configuration());
    this.#handler = this.provider.callback() as unknown as RequestListener;
  }

  /** The private key that it signs with now. */
  get key(): JWK {
    return this.#keys[0] as JWK;
  }

  /** An access token by the client-credentials grant. @param resource for whom; default the gateway */
  async token(client: ClientName, { scope = "", resource = gatewayResource } = {}): Promise<string> {
    const form = { grant_type: "client_credentials", client_id: client, client_secret: "secret", scope, resource };
    const { status, body } = await requestJson(`${this.issuer}/token`, { form, ca: this.#ca });
    const { access_token: token } = body as { access_token?: string };
    if (token === undefined) throw new Error(`the provider answered ${status} ${JSON.stringify(body)}`);
    return token;
  }

  /** What the public client gets when a person has signed in: an access token and an ID token. */
  async tokensOf(person: string): Promise<{ readonly access_token: string; readonly id_token: string }> {
    const ask = async (path: string, form: Record<string, string>) => {
      const { status, body } = await requestJson(`${this.issuer}${path}`, { form, ca: this.#ca });
      if (status !== 200) throw new Error(`the provider answered ${status} ${JSON.stringify(body)}`);
      return body as Record<"device_code" | "user_code" | "access_token" | "id_token", string>;
    };
    const client = { client_id: publicClient };
    const { device_code, user_code } = await ask("/device/auth", { ...client, scope: "openid offline_access" });
    await approveDevice(this, user_code, person);
    const grant_type = "urn:ietf:params:oauth:grant-type:device_code";
    return ask("/token", { ...client, grant_type, device_code });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.down();
    rmSync(this.#directory, { recursive: true });
  }

  #configuration(): Configuration {
    return {
      jwks: { keys: this.#keys },
      cookies: { keys: ["test"] },
      scopes: ["openid", "offline_access", ...scopes],
      clients: [
        ...Object.keys(clientRoles).map((client_id) => ({
          client_id,
          client_secret: "secret",
          grant_types: ["client_credentials"],
          redirect_uris: [],
          response_types: [],
          token_endpoint_auth_method: "client_secret_post" as const,
        })),
        {
          client_id: publicClient,
          grant_types: ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
          redirect_uris: [],
          response_types: [],
          token_endpoint_auth_method: "none" as const,
        },
      ],
      ttl: {
        ClientCredentials: 600,
        AccessToken: 600,
        DeviceCode: 600,
        RefreshToken: 86_400,
        Grant: 86_400,
        IdToken: 600,
      },
      findAccount: (_context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
      issueRefreshToken: () => true,
      extraTokenClaims: (_context, token) => {
        const roles: readonly string[] = clientRoles[token.clientId as ClientName] ?? clientRoles.ann;
        return { realm_access: { roles: [...roles] } };
      },
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        deviceFlow: { enabled: true },
        resourceIndicators: {
          enabled: true,
          defaultResource: () => gatewayResource,
          useGrantedResource: () => true,
          getResourceServerInfo: (_context, resource) => ({
            scope: scopes.join(" "),
            audience: resource === gatewayResource ? "openshell-cli" : resource,
            accessTokenFormat: "jwt",
            jwt: { sign: { alg: "RS256" } },
          }),
        },
      },
    };
  }
}

/** The settings of a gateway whose users come with the provider's tokens. */
export function oidcOf(provider: TestProvider, more: Partial<OidcOptions> = {}): OidcOptions {
  return {
    issuer: provider.issuer,
    audience: "openshell-cli",
    jwksTtlSeconds: 3600,
    jwksAllowedOrigins: [],
    allowInsecureHttp: false,
    caPath: provider.caPath,
    rolesClaim: "realm_access.roles",
    adminRole: "openshell-admin",
    userRole: "openshell-user",
    scopesClaim: "",
    ...more,
  };
}

/** The gateway as the provider knows it; its tokens' audience is "openshell-cli". */
export const gatewayResource = "urn:openshell:gateway";

/** What the provider does when a person signs in and confirms a code. */
export async function approveDevice({ provider }: TestProvider, userCode: string, accountId: string): Promise<void> {
  const code = await provider.DeviceCode.findByUserCode(userCode.replaceAll("-", ""));
  if (code === undefined) throw new Error(`the provider knows no code ${userCode}`);
  const grant = new provider.Grant({ accountId, clientId: publicClient });
  grant.addOIDCScope("openid offline_access");
  grant.addResourceScope(gatewayResource, "");
  const scope = "openid offline_access";
  const authTime = Math.floor(Date.now() / 1000);
  Object.assign(code, { accountId, grantId: await grant.save(), scope, resource: gatewayResource, authTime });
  // The types leave out how long it is kept, in seconds.
  await (code as unknown as { save(seconds: number): Promise<string> }).save(600);
}
