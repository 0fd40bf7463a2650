import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:tls";
import { compactVerify, importSPKI } from "jose";
import { describe, expect, test } from "vitest";
import { runtimeServerName } from "../manifests/index.ts";
import { spkiSha256 } from "../pki/certificates.ts";
import { generationIdentity, masterKidOf, supervisorFiles, workloadFiles } from "./identity.ts";

const master = new Uint8Array(32).fill(1);
const generation = "a".repeat(32);
const workloadOf = async (id = generation, secret = master) =>
  workloadFiles(await generationIdentity(secret, id), { sandboxId: "s", podUid: "w" });
const supervisorOf = async (id = generation, secret = master) =>
  supervisorFiles(await generationIdentity(secret, id), { sandboxId: "s", podUid: "p", session: 3 }, "CA");

describe("a generation's identity", () => {
  test("is derived: a restarted gateway has the same key and the same authority", async () => {
    const [one, two] = await Promise.all([
      generationIdentity(master, generation),
      generationIdentity(master, generation),
    ]);
    expect(two.publicKeyPem).toBe(one.publicKeyPem);
    expect(two.authority).toEqual(one.authority);
  });

  test("differs for another generation and for another master secret", async () => {
    const keys = await Promise.all([
      generationIdentity(master, generation),
      generationIdentity(master, "b".repeat(32)),
      generationIdentity(new Uint8Array(32).fill(2), generation),
    ]);
    expect(new Set(keys.map(({ publicKeyPem }) => publicKeyPem)).size).toBe(3);
  });

  test("the master secret is named without being given away", () => {
    expect(masterKidOf(master)).toMatch(/^[0-9a-f]{16}$/);
  });
});

describe("a session grant", () => {
  test("names sandbox, generation, session, Pod and TLS key, never expires, and verifies by the generation's key", async () => {
    const [workload, supervisor] = await Promise.all([workloadOf(), supervisorOf()]);
    const key = await importSPKI(workload["generation.pub"], "EdDSA");
    const { payload, protectedHeader } = await compactVerify(supervisor["grant.jwt"], key);
    expect(protectedHeader.alg).toBe("EdDSA");
    expect(JSON.parse(new TextDecoder().decode(payload))).toEqual({
      sandbox: "s",
      generation,
      session: 3,
      pod: "p",
      tls: spkiSha256(supervisor["tls.crt"]),
    });
  });

  test("of another generation does not", async () => {
    const [workload, other] = await Promise.all([workloadOf(), supervisorOf("b".repeat(32))]);
    const key = await importSPKI(workload["generation.pub"], "EdDSA");
    await expect(compactVerify(other["grant.jwt"], key)).rejects.toThrow();
  });
});

describe("the boundary's handshake with these files", () => {
  async function handshake(supervisor: Awaited<ReturnType<typeof supervisorOf>>): Promise<string> {
    const workload = await workloadOf();
    const server = createServer(
      {
        cert: workload["tls.crt"],
        key: workload["tls.key"],
        ca: workload["boundary-ca.crt"],
        requestCert: true,
        rejectUnauthorized: true,
        minVersion: "TLSv1.3",
      },
      (socket) => socket.end("accepted"),
    );
    server.on("tlsClientError", () => undefined);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    try {
      return await new Promise((resolve) => {
        const { port } = server.address() as AddressInfo;
        const socket = connect({
          port,
          host: "127.0.0.1",
          servername: runtimeServerName(generation),
          cert: supervisor["tls.crt"],
          key: supervisor["tls.key"],
          ca: supervisor["boundary-ca.crt"],
        });
        socket.on("data", (data) => resolve(String(data)));
        socket.on("error", () => resolve("refused"));
        socket.on("close", () => resolve("closed"));
      });
    } finally {
      server.close();
    }
  }

  test("lets the generation's supervisor in, and no other pair's", async () => {
    expect(await handshake(await supervisorOf())).toBe("accepted");
    const other = await supervisorOf("b".repeat(32));
    const { "boundary-ca.crt": ca } = await supervisorOf();
    expect(await handshake(other)).not.toBe("accepted");
    // Even when it knows whom to trust.
    expect(await handshake({ ...other, "boundary-ca.crt": ca })).not.toBe("accepted");
  });
});
