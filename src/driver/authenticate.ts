import { decodeJwt } from "jose";
import { OpenShellError } from "../common/errors.ts";
import { type KubeClient, type Live, type Pod, type TokenReview, tokenReviews } from "../kube/index.ts";
import { tokenAudience } from "../manifests/index.ts";

/** Who a projected token is for. */
export interface TokenHolder {
  readonly podName: string;
  readonly podUid: string;
  readonly namespace: string;
}

/**
 * Asks the API server whether a token is good, and whose Pod it belongs to.
 *
 * @throws unauthenticated when it is not a token for this gateway of a Pod of this ServiceAccount
 */
export async function reviewToken(
  client: KubeClient,
  token: string,
  expected: { readonly gatewayId: string; readonly namespaces: readonly string[]; readonly serviceAccount: string },
  signal?: AbortSignal,
): Promise<TokenHolder> {
  const audience = tokenAudience(expected.gatewayId);
  const question: TokenReview = { spec: { token, audiences: [audience] } };
  const { status } = await client.review(tokenReviews, question, signal === undefined ? {} : { signal });
  // A server that knows no audiences would accept a token for anybody: it has to say ours back.
  if (status?.authenticated !== true || !status.audiences?.includes(audience)) throw refused();
  const { username, extra = {} } = status.user ?? {};
  const namespace = expected.namespaces.find(
    (name) => username === `system:serviceaccount:${name}:${expected.serviceAccount}`,
  );
  if (namespace === undefined) throw refused();
  const [podName] = extra["authentication.kubernetes.io/pod-name"] ?? [];
  const [podUid] = extra["authentication.kubernetes.io/pod-uid"] ?? [];
  if (!podName || !podUid) throw refused();
  return { podName, podUid, namespace };
}

/** Whose Pod's a token says it is, without looking whether that is true; undefined where it says nothing of the kind. */
export function claimedHolder(token: string): TokenHolder | undefined {
  try {
    const claims = decodeJwt(token)["kubernetes.io"] as PodClaims | undefined;
    const { namespace, pod } = claims ?? {};
    const { name: podName, uid: podUid } = pod ?? {};
    const isWhole = typeof namespace === "string" && typeof podName === "string" && typeof podUid === "string";
    return isWhole ? { namespace, podName, podUid } : undefined;
  } catch {
    // Not a JWT: every API server that projects tokens into Pods makes them such.
    return undefined;
  }
}

/** What the API server writes into a token that is bound to a Pod. */
interface PodClaims {
  readonly namespace?: unknown;
  readonly pod?: { readonly name?: unknown; readonly uid?: unknown };
}

/** The Pod that a holder names, when it is that very Pod and it lives. */
export function isHolder(pod: Live<Pod>, holder: TokenHolder): boolean {
  return pod.metadata.name === holder.podName && pod.metadata.uid === holder.podUid;
}

/** One answer for everything that is wrong with a token. */
export function refused(): OpenShellError {
  return new OpenShellError(
    "unauthenticated",
    "the credential is not the token of a current supervisor Pod of this gateway",
    {
      reason: "BadBootstrapToken",
    },
  );
}
