import { z } from "zod";
import { OpenShellError } from "./errors.ts";
import { type JsonRequest, requestJson } from "./https-json.ts";

const documentSchema = z.looseObject({
  issuer: z.string(),
  jwks_uri: z.string().optional(),
  token_endpoint: z.string().optional(),
  device_authorization_endpoint: z.string().optional(),
});

/** What a provider says of itself (OpenID Connect Discovery 1.0, section 3). */
export type ProviderDocument = z.output<typeof documentSchema>;

/**
 * Asks a provider for its document.
 * @throws unavailable when it does not answer as it should; failed-precondition when it is not the issuer that was asked for
 */
export async function discoverProvider(issuer: string, request: JsonRequest = {}): Promise<ProviderDocument> {
  const url = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const { status, body } = await requestJson(url, request);
  if (status >= 500) throw new OpenShellError("unavailable", `${url} answered ${status}`);
  if (status !== 200) {
    throw new OpenShellError(
      "failed-precondition",
      `${url} answered ${status}: is the issuer written as the provider writes it?`,
    );
  }
  const document = documentSchema.safeParse(body);
  if (!document.success) {
    throw new OpenShellError("failed-precondition", `${url} is no document of an OpenID provider`, {
      cause: document.error,
    });
  }
  if (!sameIssuer(document.data.issuer, issuer)) {
    throw new OpenShellError(
      "failed-precondition",
      `${url} is the document of ${document.data.issuer}, not of ${issuer}: write the issuer as the provider does`,
    );
  }
  return document.data;
}

/** Issuers are compared as text, apart from one slash at the end, which providers and people treat alike. */
export function sameIssuer(left: string, right: string): boolean {
  return left.replace(/\/$/, "") === right.replace(/\/$/, "");
}
