/** A supervisor as its image has it, and everything that it may be given to hold. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it, vi } from "vitest";
import { bundle } from "../images/bundles.ts";
import { supervisorHeap } from "../images/shipped.ts";
import { services } from "../src/boundary/index.ts";
import type { AsyncQueue } from "../src/common/async.ts";
import { parseQuantity, supervisorDefaults } from "../src/config/index.ts";
import { relaysPerSandbox } from "../src/gateway/sessions/relay-broker.ts";
import { testAuthority } from "../src/supervisor/_test-certificates.ts";
import { TestGateway, TestRuntime } from "../src/supervisor/_test-peers.ts";

const mebibyte = 1024 * 1024;
const directory = mkdtempSync(join(tmpdir(), "openshell-paused-"));
const gateway = new TestGateway();
const runtime = new TestRuntime();
let supervisor: ChildProcess | undefined;

afterEach(async () => {
  if (supervisor?.exitCode === null && supervisor.kill("SIGKILL")) await once(supervisor, "exit");
  gateway.server.forceShutdown();
  runtime.server.forceShutdown();
  rmSync(directory, { recursive: true });
});

async function start(): Promise<void> {
  const authority = await testAuthority();
  const files = { ...(await authority.issue("supervisor")), ca: authority.certificate };
  await runtime.listen(authority.certificate, await authority.issue("runtime.g1.openshell.internal"));
  await gateway.listen();
  const contents = {
    "grant.jwt": "grant",
    "tls.crt": files.certificate,
    "tls.key": files.key,
    "boundary-ca.crt": files.ca,
    token: "projected",
  };
  for (const [name, content] of Object.entries(contents)) writeFileSync(join(directory, name), content);
  const env = {
    OPENSHELL_SUPERVISOR_DIR: directory,
    OPENSHELL_TOKEN_FILE: join(directory, "token"),
    OPENSHELL_GATEWAY_ENDPOINT: `http://127.0.0.1:${gateway.port}`,
    OPENSHELL_BOUNDARY_ENDPOINT: `127.0.0.1:${runtime.port}`,
    OPENSHELL_GENERATION_ID: "g1",
    OPENSHELL_SANDBOX_ID: "sb-1",
    OPENSHELL_POD_UID: "uid-1",
    OPENSHELL_READINESS_PORT: "0",
    OPENSHELL_LOG_LEVEL: "warn",
  };
  const program = await bundle("supervisor", directory);
  supervisor = spawn(process.execPath, [...supervisorHeap, program], { env, stdio: "inherit" });
  await Promise.all([gateway.hellos.next(), runtime.hellos.next()]);
}

/** The supervisor's resident memory at its most, in bytes: its own and what of its program's file is in memory. */
function peakMemory(): number {
  const kibibytes = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${supervisor?.pid}/status`, "utf8"))?.[1];
  return Number(kibibytes) * 1024;
}

it.runIf(process.platform === "linux")(
  "holds as many relays as a sandbox may have, all of them stuck both ways, within the memory that it is limited to",
  { timeout: 120_000 },
  async () => {
    await start();
    let sent = 0;
    const chunk = Buffer.alloc(64_000, 1);
    const fill = async <T>(queue: AsyncQueue<T>, message: T) => {
      while (await queue.push(message)) sent += 1;
    };
    const message = { payload: { case: "data" as const, value: chunk } };
    for (let index = 0; index < relaysPerSandbox; index += 1) {
      gateway.open(`c${index}`, services.exec);
      const channel = await runtime.channels.next();
      channel.output.offer({ payload: { case: "opened", value: {} } });
      const relay = await gateway.relays.next();
      void fill(channel.output, message);
      void fill(relay.output, message);
    }
    let before = -1;
    const stands = () => {
      const still = sent === before;
      before = sent;
      return still;
    };
    await vi.waitUntil(stands, { interval: 1_000, timeout: 60_000 });
    // Every one has carried what it can in both directions.
    expect(sent * chunk.length).toBeGreaterThan(relaysPerSandbox * 2 * mebibyte);
    const limit = Number(parseQuantity(supervisorDefaults.limits.memory ?? "") / 1_000_000_000n);
    expect(peakMemory()).toBeLessThan(limit);
  },
);
