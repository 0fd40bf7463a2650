/** `openshell gateway add|use|list|remove`: the gateways this user knows. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { parse } from "yaml";
import { z } from "zod";
import { OpenShellError } from "../../common/errors.ts";
import { givenBearer } from "../bearer.ts";
import { type CommandContext, outputFormat } from "../context.ts";
import { type GatewayCertificates, type KnownGateway, parseEndpoint, requireTlsForTokens } from "../gateways.ts";
import { clientLogin, type DevicePrompt, deviceLogin, type OidcClient } from "../oidc-login.ts";
import { printResult, tableOf } from "../output.ts";
import { oneLine, write } from "../terminal.ts";

export interface GatewayAddOptions {
  readonly endpoint: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly fromSecret?: string;
  readonly fromKubernetes?: string;
  readonly oidcIssuer?: string;
  readonly oidcClientId?: string;
  readonly oidcAudience?: string;
  readonly oidcScopes?: string;
  readonly oidcCa?: string;
}

export async function addGateway(context: CommandContext, name: string, options: GatewayAddOptions): Promise<void> {
  const endpoint = parseEndpoint(options.endpoint);
  const certificates = await certificatesFrom(options, context);
  if (certificates !== undefined && !endpoint.tls) {
    throw new OpenShellError(
      "invalid-argument",
      "certificates are of no use with an http:// endpoint: write https://, or leave them out",
    );
  }
  const oidc = await oidcFrom(options);
  if (oidc !== undefined) requireTlsForTokens(endpoint);
  const { gateways, terminal } = context;
  await gateways.add(name, endpoint, certificates, oidc, {
    ...options,
    secret: options.fromSecret ?? options.fromKubernetes,
  });
  const before = await gateways.active();
  const active = before === name || before === undefined || !(await gateways.has(before));
  if (active) await gateways.use(name);
  await write(
    terminal.stdout,
    `Gateway ${name} (${endpoint.url}) added${active ? " and in use" : `; "openshell gateway use ${name}" makes it the one in use`}.\n`,
  );
  const says = oidc ?? givenBearer(context.options.bearerTokenFile, terminal.env);
  if (!endpoint.tls || says !== undefined || (await gateways.certificates(name))?.cert !== undefined) return;
  terminal.stderr.write(
    "openshell: no client certificate was given, and without one the gateway will not know who you are: add it again with --ca, --cert and --key, --from-secret or --from-kubernetes (or with --oidc-issuer)\n",
  );
}

export async function useGateway(context: CommandContext, name: string): Promise<void> {
  await context.gateways.use(name);
  await write(context.terminal.stdout, `Gateway ${name} is in use.\n`);
}

export async function removeGateway(context: CommandContext, name: string): Promise<void> {
  await context.gateways.remove(name, context.terminal.signal);
  await write(context.terminal.stdout, `Gateway ${name} removed.\n`);
}

export async function listGateways(context: CommandContext, options: { readonly output?: string }): Promise<void> {
  const { gateways, terminal } = context;
  const format = outputFormat(options.output);
  const active = await gateways.active();
  const { known, damaged } = await gateways.list();
  for (const { name, damage } of damaged) {
    terminal.stderr.write(`openshell: left out the gateway ${name}: ${oneLine(damage.message)}\n`);
  }
  const rows = known.map(({ name, metadata }) => ({
    name,
    endpoint: metadata.gateway_endpoint,
    auth_mode: metadata.auth_mode ?? "mtls",
    active: name === active,
  }));
  await printResult(terminal, format, rows, () =>
    tableOf(
      [
        { heading: "NAME", cell: (one) => one.name },
        { heading: "ENDPOINT", cell: (one) => one.endpoint },
        { heading: "AUTH", cell: (one) => one.auth_mode },
        { heading: "IN USE", cell: (one) => (one.active ? "*" : "") },
      ],
      rows,
    ),
  );
}

async function oidcFrom(options: GatewayAddOptions): Promise<Partial<OidcClient> | undefined> {
  const { oidcIssuer: issuer, oidcClientId: clientId, oidcAudience: audience, oidcScopes: scopes, oidcCa } = options;
  if (issuer === undefined) {
    if ([clientId, audience, scopes, oidcCa].every((one) => one === undefined)) return undefined;
    throw new OpenShellError(
      "invalid-argument",
      "--oidc-… options are of no use without --oidc-issuer: name the provider",
    );
  }
  const url = URL.parse(issuer);
  if (url === null || !/^https?:$/.test(url.protocol) || url.href !== `${url.origin}${url.pathname}`) {
    throw new OpenShellError(
      "invalid-argument",
      `--oidc-issuer "${issuer}": write it as the provider does, such as https://login.example.com/realms/main`,
    );
  }
  return {
    issuer,
    ...(clientId === undefined ? {} : { clientId }),
    ...(audience === undefined ? {} : { audience }),
    ...(scopes === undefined ? {} : { scopes }),
    ...(oidcCa === undefined ? {} : { ca: await readText(oidcCa) }),
  };
}

/** The gateway that is named, else the one that commands talk to. */
async function chosen(context: CommandContext, name: string | undefined): Promise<KnownGateway> {
  const { terminal, options, gateways } = context;
  const wanted = name ?? options.gateway ?? (terminal.env.OPENSHELL_GATEWAY || (await gateways.active()));
  if (wanted !== undefined) return gateways.get(wanted);
  throw new OpenShellError("failed-precondition", "no gateway is chosen: name the one that is meant");
}

export async function logIn(context: CommandContext, name: string | undefined): Promise<void> {
  const { terminal, gateways } = context;
  const gateway = await chosen(context, name);
  const client = await gateways.oidcClient(gateway, terminal.env);
  if (client === undefined) {
    throw new OpenShellError(
      "failed-precondition",
      `users of the gateway "${gateway.name}" do not log in (auth_mode ${gateway.metadata.auth_mode ?? "mtls"}): add it again with --oidc-issuer`,
    );
  }
  const secret = terminal.env.OPENSHELL_OIDC_CLIENT_SECRET;
  const token = secret
    ? await clientLogin(client, secret, terminal.signal)
    : await deviceLogin(client, (prompt) => askToLogIn(context, prompt), terminal.signal);
  {
    await using _lock = await gateways.lockToken(gateway.name, terminal.signal);
    await gateways.storeToken(gateway.name, token);
  }
  await write(terminal.stdout, `Logged in to the gateway ${gateway.name}.\n`);
}

function askToLogIn({ terminal }: CommandContext, { url, code }: DevicePrompt): void {
  terminal.stderr.write(`Open ${oneLine(url)} in a browser and confirm the code ${oneLine(code)}.\n`);
}

export async function logOut(context: CommandContext, name: string | undefined): Promise<void> {
  const { terminal, gateways } = context;
  const gateway = await chosen(context, name);
  await using _lock = await gateways.lockToken(gateway.name, terminal.signal);
  const was = await gateways.removeToken(gateway.name);
  await write(terminal.stdout, `${was ? "Logged out of" : "There was no login to"} the gateway ${gateway.name}.\n`);
}

async function certificatesFrom(
  options: GatewayAddOptions,
  context: CommandContext,
): Promise<GatewayCertificates | undefined> {
  const files = [options.ca, options.cert, options.key].some((one) => one !== undefined);
  const sources = [files, options.fromSecret !== undefined, options.fromKubernetes !== undefined];
  if (sources.filter(Boolean).length > 1) {
    throw new OpenShellError(
      "invalid-argument",
      "take the certificates from one place: --ca/--cert/--key, --from-secret or --from-kubernetes",
    );
  }
  if (options.fromSecret !== undefined) return fromSecret(await readText(options.fromSecret), options.fromSecret);
  if (options.fromKubernetes !== undefined) return fromKubernetes(options.fromKubernetes, context);
  if (!files) return undefined;
  const { ca, cert, key } = options;
  if (ca === undefined || (cert === undefined) !== (key === undefined)) {
    throw new OpenShellError("invalid-argument", "give --ca, and --cert and --key together");
  }
  return {
    ca: await readText(ca),
    ...(cert === undefined ? {} : { cert: await readText(cert) }),
    ...(key === undefined ? {} : { key: await readText(key) }),
  };
}

/** A Secret as `kubectl get secret -o yaml` or `-o json` prints it. */
const secretSchema = z.object({
  data: z.record(z.string(), z.string()).optional(),
  stringData: z.record(z.string(), z.string()).optional(),
});

/**
 * @throws invalid-argument when it is no Secret with ca.crt, tls.crt and tls.key
 */
export function fromSecret(text: string, where: string): GatewayCertificates {
  let value: unknown;
  try {
    value = parse(text);
  } catch (cause) {
    throw new OpenShellError("invalid-argument", `${where} is neither YAML nor JSON`, { cause });
  }
  const secret = secretSchema.safeParse(value);
  const entry = (key: string) => {
    const plain = secret.data?.stringData?.[key];
    const encoded = secret.data?.data?.[key];
    const found = plain ?? (encoded === undefined ? undefined : Buffer.from(encoded, "base64").toString());
    if (found) return found;
    throw new OpenShellError(
      "invalid-argument",
      `${where} has no ${key}: expected the Secret that the chart makes for clients, with ca.crt, tls.crt and tls.key`,
    );
  };
  return { ca: entry("ca.crt"), cert: entry("tls.crt"), key: entry("tls.key") };
}

async function fromKubernetes(
  reference: string,
  { terminal, callToEnd }: CommandContext,
): Promise<GatewayCertificates> {
  const [namespace, name, ...rest] = reference.split("/");
  if (!namespace || !name || rest.length > 0) {
    throw new OpenShellError("invalid-argument", `--from-kubernetes "${reference}": write it as NAMESPACE/SECRET`);
  }
  try {
    const { stdout } = await promisify(execFile)("kubectl", ["-n", namespace, "get", "secret", name, "-o", "json"], {
      env: { ...terminal.env } as NodeJS.ProcessEnv,
      signal: terminal.signal,
      timeout: callToEnd.timeoutMs ?? 0,
    });
    return fromSecret(stdout, `the Secret ${reference}`);
  } catch (error) {
    if (error instanceof OpenShellError) throw error;
    const { code, stderr, killed } = error as NodeJS.ErrnoException & { stderr?: string; killed?: boolean };
    if (killed) {
      const message = `kubectl did not give the Secret ${reference} in time; --request-timeout gives it longer`;
      throw new OpenShellError("deadline-exceeded", message, { cause: error });
    }
    throw new OpenShellError(
      "failed-precondition",
      code === "ENOENT"
        ? "--from-kubernetes needs kubectl on the PATH; without it save the Secret and use --from-secret FILE"
        : `kubectl cannot read the Secret ${reference}: ${stderr?.trim().split("\n").at(-1) || (error as Error).message}`,
      { cause: error },
    );
  }
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? `${path} does not exist` : `cannot read ${path}: ${message}`;
    throw new OpenShellError("not-found", why, { cause });
  }
}
