import { create } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { createLogger } from "../../common/log.ts";
import { openshell } from "../../wire/index.ts";
import { tokenKeys } from "../_testing.ts";
import { classifyForTests } from "../_testing-driver.ts";
import { afterAction } from "../sandbox/lifecycle.ts";
import { Sandboxes } from "../sandbox/sandboxes.ts";
import { supervisorService } from "../sessions/supervisor-service.ts";
import { Supervisors } from "../sessions/supervisors.ts";
import { Store } from "../store/store.ts";
import { Authenticator, type AuthenticatorOptions } from "./authenticator.ts";
import { SessionTokens } from "./session-tokens.ts";

export const keys = tokenKeys();
export const gatewayId = "test";
export const ttlSeconds = 3600;
export const sandboxId = "id-1";
const { refreshSandboxToken, issueSandboxToken, connectSupervisor, getDraftPolicy } = openshell.OpenShell.method;

/** The part of a gateway that knows session tokens, by a clock that the test sets. It has one sandbox, whose supervisor's Pod is `pod`. */
export class TokenGateway implements Disposable {
  readonly store = new Store(":memory:");
  readonly sandboxes = new Sandboxes({ store: this.store, classify: classifyForTests });
  readonly log = createLogger({ name: "test", level: "error" });
  readonly #service: ReturnType<typeof supervisorService>;
  readonly #authenticator: Authenticator;
  readonly #clock: { ms: number };
  #epoch = 0n;
  pod = "pod-1";

  private constructor(tokens: SessionTokens, clock: { ms: number }) {
    this.#clock = clock;
    const { store, sandboxes, log } = this;
    sandboxes.create(
      create(openshell.SandboxSchema, { metadata: { id: sandboxId, name: "one", workspace: "default" } }),
    );
    sandboxes.change(sandboxId, (life) => afterAction(life, "create", "first"));
    const supervisors = new Supervisors({ store, sandboxes, log });
    this.#service = supervisorService({ store, sandboxes, supervisors, tokens, log });
    const driver = {
      authenticateSandbox: async () => ({ sandboxId, runtimeIdentity: "first" }),
    } as unknown as AuthenticatorOptions["driver"];
    this.#authenticator = new Authenticator({ store, driver, tokens, allowUnauthenticatedUsers: false });
  }

  /** @param lives how long its tokens live */
  static async start(lives: { readonly ttlSeconds?: number } = { ttlSeconds }): Promise<TokenGateway> {
    const clock = { ms: Date.UTC(2026, 0, 1) };
    const tokens = await SessionTokens.create({ keys, gatewayId, ...lives, now: () => clock.ms });
    return new TokenGateway(tokens, clock);
  }

  /** Seconds since 1970. */
  get now(): number {
    return this.#clock.ms / 1000;
  }

  pass(seconds: number): void {
    this.#clock.ms += seconds * 1000;
  }

  /** A token of a new session, for the projected token of `pod`. */
  async issue(): Promise<string> {
    const principal = await this.#authenticate(issueSandboxToken, this.pod);
    return (await this.#service.issueSandboxToken({} as never, { principal } as never)).token ?? "";
  }

  async renew(token: string): Promise<string> {
    const principal = await this.#authenticate(refreshSandboxToken, token);
    return (await this.#service.refreshSandboxToken({} as never, { principal } as never)).token ?? "";
  }

  /** Opens the supervisor's stream with a token, and leaves it. */
  async connect(token: string): Promise<void> {
    const principal = await this.#authenticate(connectSupervisor, token);
    this.#epoch += 1n;
    const value = { sandboxId, instanceId: "i", connectionEpoch: this.#epoch };
    async function* hello() {
      yield create(openshell.SupervisorMessageSchema, { payload: { case: "hello", value } });
    }
    const { signal } = new AbortController();
    for await (const { payload } of this.#service.connectSupervisor(hello(), { principal, signal } as never)) {
      expect(payload?.case).toBe("sessionAccepted");
      return;
    }
  }

  /** Shows a token to an RPC that renews nothing. */
  async use(token: string): Promise<void> {
    await this.#authenticate(getDraftPolicy, token);
  }

  #authenticate(method: Parameters<Authenticator["authenticate"]>[0]["method"], bearer: string) {
    const header = (name: string) => (name === "authorization" ? `Bearer ${bearer}` : undefined);
    const { signal } = new AbortController();
    return this.#authenticator.authenticate({ method, header, peerCertificate: undefined, signal });
  }

  [Symbol.dispose](): void {
    this.store.close();
  }
}

export function claimsOf(token: string): { readonly iat?: number; readonly exp?: number; readonly sid?: string } {
  return JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
}
