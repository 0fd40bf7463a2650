/** What the command line answers to a wrong command, a wrong value or a wrong gateway: one line that says what and where, and what to do; the exit code. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { run } from "../src/cli/program.ts";
import { parseDriverConfig } from "../src/driver/driver-config.ts";
import { TestGateway } from "../src/gateway/_testing.ts";
import { MemoryDriver } from "../src/gateway/_testing-driver.ts";
import { type CertificateAndKey, issueAuthority, issueLeaf } from "../src/pki/index.ts";

const hour = 3_600_000;
const valid = { notBefore: new Date(Date.now() - hour), notAfter: new Date(Date.now() + hour) };
const past = { notBefore: new Date(Date.now() - 2 * hour), notAfter: new Date(Date.now() - hour) };

let home: string;
let open: TestGateway;
let strict: TestGateway;

beforeAll(async () => {
  const driver = new MemoryDriver();
  // The rules of the real driver, which needs no cluster to refuse.
  const validateSandboxCreate: MemoryDriver["implementation"]["validateSandboxCreate"] = async ({ sandbox }) => {
    parseDriverConfig(sandbox?.spec?.template?.driverConfig ?? {});
    return {};
  };
  Object.assign(driver.implementation, { validateSandboxCreate });
  open = await TestGateway.start({ driver, allowDriverConfig: true });
  strict = await TestGateway.start();
});
afterAll(async () => {
  await open[Symbol.asyncDispose]();
  await strict[Symbol.asyncDispose]();
});
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "openshell-bad-input-"));
});
afterEach(() => rm(home, { recursive: true }));

/** The exit code, and what was said, which must be one line. */
async function openshell(line: string, env: Record<string, string> = {}): Promise<[number, string]> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const said: Buffer[] = [];
  stderr.on("data", (chunk: Buffer) => said.push(chunk));
  stdout.resume();
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const environment = { HOME: home, OPENSHELL_GATEWAY_ENDPOINT: `http://127.0.0.1:${open.gateway.port}`, ...env };
  const signal = new AbortController().signal;
  const code = await run(line.split(" "), { stdin, stdout, stderr, env: environment, signal }, "0.1.0");
  await new Promise((resolve) => setImmediate(resolve));
  const text = Buffer.concat(said).toString();
  expect(text).toMatch(/^openshell: [^\n]+\n$/);
  return [code, text.slice("openshell: ".length, -1)];
}

const none = { OPENSHELL_GATEWAY_ENDPOINT: "" };
const sandboxes = async () => (await open.client.listSandboxes({ workspaceScope: inDefault })).sandboxes.length;
const inDefault = { selection: { case: "workspace", value: "default" } } as const;

describe("a sandbox that cannot be", () => {
  it.each([
    [
      "--name this-is-a-name-of-26-chars",
      2,
      'name: "this-is-a-name-of-26-chars" is no valid name: 1 to 19 characters of a-z, 0-9 and single "-", not at either end',
    ],
    ["--name Box", 2, 'name: "Box" is no valid name: 1 to 19 characters of a-z, 0-9 and single "-", not at either end'],
    [
      '--driver-config-json {"kubernetes":{"pod":{"node_selectr":{}}}}',
      2,
      "template.driver_config.kubernetes.pod.node_selectr: unknown field; did you mean node_selector?",
    ],
    [
      '--driver-config-json {"docker":{}}',
      2,
      "spec.template.driver_config.docker: is for no driver of this gateway; expected kubernetes",
    ],
    ['--driver-config-json {"kubernetes":{"pod":}}', 2, "--driver-config-json is not JSON: Unexpected token '}'"],
    ["--env OPENSHELL_X=1", 2, "spec.environment[OPENSHELL_X]: names beginning with OPENSHELL_ are the sandbox's own"],
    ["--env 9A=1", 2, "spec.environment[9A]: is no variable name"],
    ["--cpu -1", 2, '--cpu "-1": must be above zero'],
    ["--cpu 0", 2, '--cpu "0": must be above zero; leave it out for what the operator gives'],
    ["--memory 0Mi", 2, '--memory "0Mi": must be above zero'],
    ["--memory 4GB", 2, '--memory "4GB": expected an amount, such as 512Mi or 4Gi'],
    ["--cpu two", 2, '--cpu "two": expected an amount, such as 500m or 2'],
    ["--label -x=1", 2, "labels[-x]: is no valid key"],
    ["--workspace nowhere", 3, "workspace nowhere not found"],
    ["--timeout soon", 2, '--timeout "soon": expected seconds, such as 30 (0 for no limit)'],
    ["--upload /no/such/file", 3, "--upload /no/such/file: ENOENT: no such file or directory"],
  ] as const)("is refused for %s with code %i, and nothing is made", async (options, code, sentence) => {
    const before = await sandboxes();
    const [got, said] = await openshell(`sandbox create ${options}`);
    expect(said).toContain(sentence);
    expect(got).toBe(code);
    expect(await sandboxes()).toBe(before);
  });

  it("is refused for an empty name, which is no wish for one that the gateway makes up", async () => {
    const before = await sandboxes();
    expect(await openshell("sandbox create --detach --name ")).toEqual([
      2,
      "--name is empty: write a name, or leave the option out",
    ]);
    expect(await sandboxes()).toBe(before);
  });

  it("is refused when its name is taken", async () => {
    await open.client.createSandbox({ workspaceScope: inDefault, name: "taken" });
    expect(await openshell("sandbox create --name taken")).toEqual([
      7,
      "sandbox taken already exists in workspace default: choose another name, or delete it first",
    ]);
  });

  it("is refused where the operator takes no driver_config", async () => {
    const endpoint = { OPENSHELL_GATEWAY_ENDPOINT: `http://127.0.0.1:${strict.gateway.port}` };
    expect(await openshell('sandbox create --driver-config-json {"kubernetes":{}}', endpoint)).toEqual([
      7,
      "spec.template.driver_config: this gateway does not accept driver_config (its operator can set allow_driver_config)",
    ]);
  });
});

describe("a sandbox", () => {
  it("that is not there is named, with its workspace", async () => {
    const sentence = "sandbox nobody not found in workspace default";
    for (const command of [
      "get nobody",
      "stop nobody",
      "start nobody",
      "delete nobody",
      "upload nobody /etc/hostname",
    ]) {
      expect(await openshell(`sandbox ${command}`)).toEqual([3, sentence]);
    }
    expect(await openshell(`sandbox download nobody x ${home}/x`)).toEqual([3, sentence]);
    expect(await readdir(home)).toEqual([]);
    expect(await openshell("sandbox exec nobody -- ls")).toEqual([125, sentence]);
  });

  it.each([
    ["upload nobody ", "local"],
    ["upload nobody /etc/hostname ", "directory"],
    ["download nobody  x", "path"],
    ["get ", "name"],
    ["delete a ", "names"],
  ])("is asked for nothing by %j, since a word is empty", async (command, word) => {
    expect(await openshell(`sandbox ${command}`)).toEqual([2, `the argument ${word} is empty`]);
  });

  it("is sent no word of more than 32 KiB, which is counted as it was typed", async () => {
    const sentence = "command[3]: word 4 of the command has more than 32 KiB";
    expect(await openshell(`sandbox exec nobody -- sh -c true ${"x".repeat(32_769)}`)).toEqual([125, sentence]);
  });

  it("that does not serve says in which phase it is, and why", async () => {
    await open.client.createSandbox({ workspaceScope: inDefault, name: "waits" });
    const sentence = "sandbox is not ready: it is PROVISIONING (";
    expect(await openshell("sandbox exec waits -- ls")).toEqual([125, expect.stringContaining(sentence)]);
    expect(await openshell("sandbox upload waits /etc/hostname")).toEqual([7, expect.stringContaining(sentence)]);
  });
});

describe("a gateway", () => {
  it.each([
    [{}, 7, /^no gateway is chosen: add one with "openshell gateway add NAME --endpoint/],
    [
      { OPENSHELL_GATEWAY: "away" },
      3,
      /^there is no gateway "away": add it with "openshell gateway add away --endpoint/,
    ],
    [{ OPENSHELL_GATEWAY: "../x" }, 2, /^"\.\.\/x" cannot be a gateway's name: use letters/],
    [{ OPENSHELL_GATEWAY_ENDPOINT: "ftp://x" }, 2, /^"ftp:\/\/x" is not an endpoint: write it as https/],
    [
      { OPENSHELL_GATEWAY_ENDPOINT: "http://127.0.0.1:1" },
      5,
      /^cannot reach the gateway .*: connection refused; is the gateway running/,
    ],
    [
      { OPENSHELL_GATEWAY_ENDPOINT: "http://no-such-host.invalid" },
      5,
      /^cannot reach the gateway .*: its host name does not resolve$/,
    ],
  ])("of %o cannot be used", async (env, code, sentence) => {
    const [got, said] = await openshell("status", { ...none, ...env });
    expect(said).toMatch(sentence);
    expect(got).toBe(code);
  });

  it("that does not answer in time is named, with the option that gives it longer", async () => {
    expect(await openshell("status --request-timeout 0.001")).toEqual([
      4,
      expect.stringMatching(
        /^the gateway "http:.*" at http:.* did not answer in time; --request-timeout gives it longer$/,
      ),
    ]);
  });

  it("that was in use and is gone is told apart from one that was asked for", async () => {
    const directory = join(home, ".config", "openshell");
    await mkdir(directory, { recursive: true });
    await writeFile(join(directory, "active_gateway"), "gone\n");
    expect(await openshell("status", none)).toEqual([
      3,
      'there is no gateway "gone", though it is the one in use: choose another with "openshell gateway use NAME", or add it again',
    ]);
  });

  it("cannot be added where nothing can be written", async () => {
    await writeFile(join(home, "file"), "");
    const add = "gateway add x --endpoint http://127.0.0.1:1";
    expect(await openshell(add, { XDG_CONFIG_HOME: join(home, "file") })).toEqual([
      7,
      expect.stringMatching(/^cannot write the configuration: ENOTDIR/),
    ]);
  });
});

describe("a certificate", () => {
  let authority: CertificateAndKey;
  const issue = (options: Partial<Parameters<typeof issueLeaf>[0]>) =>
    issueLeaf({
      authority,
      commonName: "ann",
      organizationalUnits: ["user"],
      usages: ["client"],
      ...valid,
      ...options,
    });

  /** A gateway with TLS, known to the user as "g" with a client certificate. */
  async function known(client: CertificateAndKey, server: Partial<Parameters<typeof issueLeaf>[0]> = {}) {
    const put = async (name: string, text: string) => {
      await writeFile(join(home, name), text);
      return join(home, name);
    };
    const { certPem, keyPem } = await issue({ usages: ["server"], ipAddresses: ["127.0.0.1"], ...server });
    const ca = await put("ca.crt", authority.certPem);
    const tls = { cert: await put("s.crt", certPem), key: await put("s.key", keyPem), clientCa: ca };
    const gateway = await TestGateway.start({ tls, mtlsUsers: true, allowUnauthenticatedUsers: false });
    const files = `--ca ${ca} --cert ${await put("c.crt", client.certPem)} --key ${await put("c.key", client.keyPem)}`;
    const line = `gateway add g --endpoint https://127.0.0.1:${gateway.gateway.port} ${files}`;
    const quiet = () => new PassThrough().resume();
    const signal = new AbortController().signal;
    const terminal = { stdin: new PassThrough(), stdout: quiet(), stderr: quiet(), env: { HOME: home }, signal };
    expect(await run(line.split(" "), terminal, "0.1.0")).toBe(0);
    return gateway;
  }

  beforeEach(async () => {
    authority = await issueAuthority({ commonName: "authority", algorithm: "ecdsa-p256", ...valid });
  });

  it.each([
    [
      "of another authority",
      async () => {
        const other = await issueAuthority({ commonName: "other", algorithm: "ecdsa-p256", ...valid });
        return issue({ authority: other });
      },
    ],
    ["that is over", () => issue(past)],
    ["meant for a server", () => issue({ usages: ["server"] })],
  ])("of a user %s is refused", async (_, client) => {
    await using _gateway = await known(await client());
    const [code, said] = await openshell("status", none);
    expect(code).toBe(6);
    expect(said).toMatch(
      /^the gateway "g" does not accept the stored client certificate \(.*: issued by its client CA, within its dates, meant for clients\): add it again with a valid one$/,
    );
  });

  it("without a role for a call says which role is missing", async () => {
    await using _gateway = await known(await issue({ organizationalUnits: [] }));
    expect(await openshell("sandbox list", none)).toEqual([6, expect.stringMatching(/needs the role user/)]);
  });

  it("of a gateway that has expired is refused", async () => {
    await using _gateway = await known(await issue({}), past);
    expect(await openshell("status", none)).toEqual([
      5,
      expect.stringMatching(
        /^cannot reach the gateway "g" at https:.*: its certificate has expired; upgrade the release to renew it$/,
      ),
    ]);
  });
});
