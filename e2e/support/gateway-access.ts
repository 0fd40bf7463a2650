import * as grpc from "@grpc/grpc-js";
import { retry } from "../../src/common/async.ts";
import { hasCode } from "../../src/common/errors.ts";
import { type Client, createChannel, grpcClient, openshell } from "../../src/wire/index.ts";
import { PortForward, readSecret } from "./port-forward.ts";
import type { Release } from "./release.ts";

/** PEM files of a user. */
export interface ClientCertificate {
  readonly ca: Buffer;
  readonly certificate: Buffer;
  readonly key: Buffer;
}

/** A way to one gateway, as the administrator whose certificate the chart's hook made. */
export class GatewayAccess implements AsyncDisposable {
  readonly #forward: PortForward;
  readonly #release: Release;
  readonly #kubeconfig: string;
  #channel: grpc.Client;
  readonly certificate: ClientCertificate | undefined;

  private constructor(
    kubeconfig: string,
    release: Release,
    forward: PortForward,
    certificate: ClientCertificate | undefined,
  ) {
    this.#kubeconfig = kubeconfig;
    this.#release = release;
    this.#forward = forward;
    this.certificate = certificate;
    this.#channel = this.#connect();
  }

  static async open(kubeconfig: string, release: Release, options: { readonly tls: boolean } = { tls: true }) {
    const target = `svc/${release.name}`;
    const forward = await PortForward.open({ kubeconfig, namespace: release.namespace, target, port: 8080 });
    const files = options.tls
      ? await readSecret(kubeconfig, release.namespace, `${release.name}-client-tls`)
      : undefined;
    const certificate = files && {
      ca: files["ca.crt"] ?? Buffer.alloc(0),
      certificate: files["tls.crt"] ?? Buffer.alloc(0),
      key: files["tls.key"] ?? Buffer.alloc(0),
    };
    return new GatewayAccess(kubeconfig, release, forward, certificate);
  }

  /** `http(s)://127.0.0.1:PORT` */
  get endpoint(): string {
    return `${this.certificate === undefined ? "http" : "https"}://127.0.0.1:${this.#forward.localPort}`;
  }

  get client(): Client<typeof openshell.OpenShell> {
    return grpcClient(openshell.OpenShell, this.#channel);
  }

  /** A client with another certificate, or none. */
  clientWith(credentials: grpc.ChannelCredentials): Client<typeof openshell.OpenShell> {
    return grpcClient(openshell.OpenShell, createChannel(`localhost:${this.#forward.localPort}`, credentials));
  }

  /** Finds the gateway's Pod again after it was replaced, and waits until it answers. */
  async reconnect(): Promise<void> {
    // kubectl gives a forward up at the first connection that the Pod refuses, so each try has a new one.
    const attempt = async () => {
      this.#channel.close();
      await this.#forward.reconnect();
      this.#channel = this.#connect();
      await this.client.health({}, { timeoutMs: 5000 });
    };
    await retry(attempt, {
      attempts: 60,
      initialMs: 500,
      maxMs: 1000,
      retryable: (error) => hasCode(error, "unavailable", "deadline-exceeded"),
    });
  }

  /** Name of the gateway's Pod. */
  get podName(): string {
    return `${this.#release.name}-0`;
  }

  get release(): Release {
    return this.#release;
  }

  get kubeconfig(): string {
    return this.#kubeconfig;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#channel.close();
    await this.#forward[Symbol.asyncDispose]();
  }

  #connect(): grpc.Client {
    const { certificate } = this;
    const credentials =
      certificate === undefined
        ? grpc.credentials.createInsecure()
        : grpc.credentials.createSsl(certificate.ca, certificate.key, certificate.certificate);
    return createChannel(`localhost:${this.#forward.localPort}`, credentials, {
      "grpc.initial_reconnect_backoff_ms": 200,
      "grpc.max_reconnect_backoff_ms": 1000,
    });
  }
}
