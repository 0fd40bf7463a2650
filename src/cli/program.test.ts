import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { PassThrough } from "node:stream";
import { extract, pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import type { openshell as openshellWire } from "../wire/index.ts";
import { type Outcome, type RunOptions, TestGateway, TestUser } from "./_test-gateway.ts";

let user: TestUser;
let gateway: TestGateway;

beforeEach(async () => {
  user = await TestUser.create();
  gateway = await new TestGateway().start();
});
afterEach(async () => {
  await gateway[Symbol.asyncDispose]();
  await user[Symbol.asyncDispose]();
});

/** A command line at the test gateway. */
function openshell(line: string, options: RunOptions = {}): Promise<Outcome> {
  return user.openshell(line.split(" "), {
    ...options,
    env: { OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint, ...options.env },
  });
}

describe("the command line itself", () => {
  it.each([
    ["", 2, "Usage: openshell"],
    ["sandbox", 2, "Usage: openshell sandbox"],
    ["sandbox lst", 2, "openshell: unknown command 'lst' (Did you mean one of list, ls?)\n"],
    ["sandbox get", 2, "openshell: missing required argument 'name'\n"],
    ["sandbox list --colour", 2, "openshell: unknown option '--colour'\n"],
    ["sandbox list -o xml", 2, 'openshell: -o "xml": expected one of table, json, yaml\n'],
    ["sandbox exec", 125, "openshell: name the sandbox to run the command in\n"],
    ["sandbox exec box", 125, "openshell: what should run in box? Write it after --"],
    ["sandbox exec --shell", 125, "openshell: unknown option '--shell'"],
    ["sandbox create --env A", 2, 'openshell: --env "A": write it as KEY=VALUE\n'],
    ["sandbox create --restart sometimes", 2, "Allowed choices are never, on-failure, always"],
    ["sandbox create --timeout soon", 2, 'openshell: --timeout "soon": expected seconds, such as 30'],
    ["sandbox create --timeout 0x10", 2, 'openshell: --timeout "0x10": expected seconds, such as 30'],
    ["sandbox create --gpu=none", 2, 'openshell: --gpu "none": expected how many'],
    ["sandbox create --driver-config-json {oops", 2, "openshell: --driver-config-json is not JSON: "],
    ["sandbox create --driver-config-json []", 2, "openshell: --driver-config-json must be a JSON object"],
    [
      "sandbox create --detach --until ready",
      2,
      "openshell: --until needs a sandbox that is waited for: leave --detach",
    ],
    ["sandbox create --detach --timeout 5 -- false", 2, "openshell: --timeout needs a sandbox that is waited for"],
    ["sandbox create --restart always", 2, "openshell: --restart is for the command after --, and there is none\n"],
    ["sandbox create --tty", 2, "openshell: --tty is for the command after --, and there is none\n"],
    ["sandbox create --no-git-ignore", 2, "openshell: --no-git-ignore is for what --upload takes, and there is none\n"],
    ["sandbox delete", 2, "openshell: name the sandboxes to delete, or write --all"],
    [
      "sandbox delete --all foo",
      2,
      "openshell: --all is every sandbox of the workspace: leave out --all, or the names\n",
    ],
    ["sandbox list --names --ids", 2, "openshell: option '--names' cannot be used with option '--ids'\n"],
    [
      "sandbox list --names -o json",
      2,
      "openshell: option '--names' cannot be used with option '-o, --output <format>'\n",
    ],
    ["sandbox list --ids -o json", 2, "openshell: option '--ids' cannot be used with option '-o, --output <format>'\n"],
    [
      "sandbox stop box --no-wait --timeout 5",
      2,
      "option '--no-wait' cannot be used with option '--timeout <seconds>'\n",
    ],
    [
      "status -o xml --gateway-endpoint http://127.0.0.1:1",
      2,
      'openshell: -o "xml": expected one of table, json, yaml\n',
    ],
    ["help nope", 2, "openshell: unknown command 'nope'\n"],
    ["help sandbox nope", 2, "openshell: unknown command 'nope'\n"],
    ["sandbox help nope", 2, "openshell: unknown command 'nope'\n"],
    ["help status nope", 2, "openshell: unknown command 'nope'\n"],
    ["sandbox get box --request-timeout -1", 2, "openshell: --request-timeout"],
    ["gateway list -- ls", 2, "openshell: only create and exec take a command after --\n"],
  ])('answers "%s" with code %i', async (line, code, start) => {
    const outcome = await user.openshell(line === "" ? [] : line.split(" "), {
      env: { OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint },
    });
    expect(outcome.stderr).toContain(start);
    expect(outcome.code).toBe(code);
    if (start.startsWith("openshell:")) expect(outcome.stderr.trim().split("\n")).toHaveLength(1);
  });

  it("prints help and version on standard output with code 0", async () => {
    expect(await openshell("--version")).toEqual({ code: 0, stdout: "0.1.0\n", stderr: "" });
    expect((await openshell("sandbox create --help")).stdout).toContain("--driver-config-json");
  });

  it.each([
    ["help", "--help"],
    ["help sandbox", "sandbox --help"],
    ["help sandbox exec", "sandbox exec --help"],
    ["help sb ls", "sandbox list --help"],
    ["gateway help add", "gateway add --help"],
  ])('shows by "%s" what "%s" shows', async (line, same) => {
    const shown = await openshell(line);
    expect(shown).toEqual(await openshell(same));
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Usage: openshell/) });
  });

  it("shows one usage of a command in its own help and in the list of commands", async () => {
    const usage = "exec [options] [name] -- command...";
    expect((await openshell("sandbox --help")).stdout).toContain(`  ${usage} `);
    expect((await openshell("sandbox exec --help")).stdout).toContain(`Usage: openshell sandbox ${usage}\n`);
  });

  it.each(["sandbox create", "sandbox exec"])("shows the global options and no empty default with %s", async (line) => {
    const { stdout } = await openshell(`${line} --help`);
    expect(stdout).toMatch(/\nGlobal Options:\n.*--request-timeout/s);
    expect(stdout).not.toMatch(/default: (\[\]|"0")/);
  });

  it("takes global options before and after the command", async () => {
    gateway.put("box", "READY");
    for (const line of [`-g x sandbox get box -o json`, `sandbox get box -o json -g x`]) {
      const { code, stderr } = await openshell(line, { env: { OPENSHELL_GATEWAY_ENDPOINT: "" } });
      expect([code, stderr]).toEqual([3, expect.stringContaining('there is no gateway "x"')]);
    }
  });

  it.each([
    "sandbox -w team exec box -- true",
    "sb --workspace=team exec box -- true",
    "-w sandbox sandbox exec box -- true",
    "-g sb sandbox exec box -- true",
    "-vw sandbox sandbox exec box -- true",
    "sandbox -g nope exec box -- true",
    "sandbox exec box -w",
    "sandbox --colour exec box -- true",
    "sandbox -w team create -- true",
    "--request-timeout 3 sb create -v -- true",
  ])('has code 125 for what keeps "%s" from running it', async (line) => {
    expect((await user.openshell(line.split(" "))).code).toBe(125);
  });

  it.each([
    ["-w exec sandbox list", 7],
    ["-g sandbox status exec", 2],
    ["gateway use sandbox exec", 2],
    ["sandbox -w exec get box", 7],
    ["sandbox -w team create --until ready -- true", 7],
  ])('lets "%s", which runs no command, fail with code %i', async (line, code) => {
    expect((await user.openshell(line.split(" "))).code).toBe(code);
  });

  it("explains a failure further with --verbose", async () => {
    expect((await openshell("sandbox get nobody -v")).stderr).toContain("OpenShellError: sandbox nobody not found");
    expect((await openshell("sandbox get nobody")).stderr).toBe("openshell: sandbox nobody not found\n");
  });
});

describe("what a sandbox says of itself", () => {
  const hostile = "no\x1b]0;owned\x07\x1b[2J\u009b31m\nopenshell\u202eis ready";
  const clean = "no ]0;owned [2J 31m openshell is ready";

  it("is shown as one line without control characters when it fails something", async () => {
    gateway.failures.set("notes.txt", hostile);
    for (const verbose of ["", " -v"]) {
      const { code, stderr } = await openshell(`sandbox download box notes.txt ${user.home}${verbose}`);
      const [first, ...trace] = stderr.split("\n");
      expect([code, first]).toEqual([7, `openshell: ${clean}`]);
      expect(trace.length > 1).toBe(verbose !== "");
      expect(trace.join("")).not.toMatch(/[\p{Cc}\u202e]/u);
    }
  });

  it.each([true, false])("is shown so while it is waited for (on a terminal: %s)", async (tty) => {
    gateway.script = [
      ["PROVISIONING", `Bad: ${hostile}`],
      ["ERROR", `Worse: ${hostile}`],
    ];
    const { stderr } = await openshell("sandbox create --name box", { tty, env: { NO_COLOR: "1" } });
    expect(stderr.replaceAll("\r\x1b[2K", "").split(/(?<=\))\n?|\n/)).toEqual([
      `box: PROVISIONING (Bad: ${clean})`,
      `openshell: the sandbox "box" failed: Worse: ${clean}`,
      "",
    ]);
  });
});

describe("known gateways", () => {
  const add = (name: string, rest = "") =>
    user.openshell(`gateway add ${name} --endpoint http://127.0.0.1:7443${rest}`.split(" "));

  it("are files that other clients read too, private and whole", async () => {
    expect((await add("local")).stdout).toBe("Gateway local (http://127.0.0.1:7443) added and in use.\n");
    const directory = join(user.home, "config", "openshell");
    expect(JSON.parse(await readFile(join(directory, "gateways", "local", "metadata.json"), "utf8"))).toEqual({
      name: "local",
      gateway_endpoint: "http://127.0.0.1:7443",
      is_remote: false,
      gateway_port: 7443,
      auth_mode: "plaintext",
    });
    expect(await readFile(join(directory, "active_gateway"), "utf8")).toBe("local\n");
    expect((await stat(join(directory, "gateways", "local", "metadata.json"))).mode & 0o777).toBe(0o600);
    expect(await readdir(join(directory, "gateways", "local"))).toEqual(["metadata.json"]);
  });

  it("are listed, chosen and forgotten", async () => {
    await add("one");
    await add("two");
    expect((await user.openshell(["gateway", "use", "two"])).stdout).toBe("Gateway two is in use.\n");
    expect(JSON.parse((await user.openshell(["gateway", "list", "-o", "json"])).stdout)).toEqual([
      { name: "one", endpoint: "http://127.0.0.1:7443", auth_mode: "plaintext", active: false },
      { name: "two", endpoint: "http://127.0.0.1:7443", auth_mode: "plaintext", active: true },
    ]);
    expect((await user.openshell(["gateway", "remove", "two"])).code).toBe(0);
    expect((await user.openshell(["status"])).stderr).toContain("no gateway is chosen");
    expect(await user.openshell(["gateway", "use", "two"])).toMatchObject({
      code: 3,
      stderr: 'openshell: there is no gateway "two"; known are one\n',
    });
  });

  it("are chosen by flag, then environment, then the file", async () => {
    await user.openshell(["gateway", "add", "live", "--endpoint", gateway.endpoint]);
    await user.openshell(["gateway", "add", "dead", "--endpoint", "http://127.0.0.1:1"]);
    const status = async (args: string[], env: Record<string, string>) =>
      (await user.openshell(["status", ...args], { env })).code;
    expect(await status([], {})).toBe(0);
    expect(await status([], { OPENSHELL_GATEWAY: "dead" })).toBe(5);
    expect(await status(["-g", "live"], { OPENSHELL_GATEWAY: "dead" })).toBe(0);
    expect(await status(["--gateway-endpoint", gateway.endpoint], { OPENSHELL_GATEWAY: "dead" })).toBe(0);
  });

  it.each([
    ["gateway add x --endpoint 127.0.0.1:8080", "is not an endpoint: write it as https://HOST:PORT"],
    ["gateway add x --endpoint https://:pw@h:1/", "may hold only a scheme, a host and a port"],
    ["gateway add x --endpoint https://h:1/#x", "may hold only a scheme, a host and a port"],
    ["gateway add x --endpoint https://h:1 --oidc-issuer https://me:pw@login", "write it as the provider does"],
    ["gateway add x --endpoint https://h:1/path", "may hold only a scheme, a host and a port"],
    ["gateway add ../x --endpoint https://h:1", "cannot be a gateway's name"],
    ["gateway add x --endpoint https://h:1 --ca /nowhere", "openshell: /nowhere does not exist\n"],
    ["gateway add x --endpoint https://h:1 --cert a", "give --ca, and --cert and --key together"],
    ["gateway add x --endpoint https://h:1 --ca a --from-secret b", "from one place"],
    ["gateway add x --endpoint https://h:1 --from-kubernetes one", "write it as NAMESPACE/SECRET"],
    ["gateway add x --endpoint https://h:1 --from-kubernetes a/b", "needs kubectl on the PATH"],
  ])('refuses "%s" and leaves nothing half made', async (line, sentence) => {
    const { code, stderr } = await user.openshell(line.split(" "), { env: { PATH: user.home } });
    expect(stderr).toContain(sentence);
    expect(code).not.toBe(0);
    expect((await user.openshell(["gateway", "list", "-o", "json"])).stdout).toBe("[]\n");
  });

  it("refuses files that are no certificates", async () => {
    const secret = join(user.home, "secret.json");
    await writeFile(secret, JSON.stringify({ data: { "ca.crt": "eA==", "tls.crt": "eA==", "tls.key": "eA==" } }));
    const add = ["gateway", "add", "x", "--endpoint", "https://h:1"];
    expect((await user.openshell([...add, "--from-secret", secret])).stderr).toContain("the CA certificate is not PEM");
    expect((await user.openshell([...add, "--ca", secret])).stderr).toContain("the CA certificate is not PEM");
    expect((await user.openshell([...add, "--from-secret", secret])).stderr).toContain(`: ${secret}: the CA`);
    expect((await user.openshell([...add, "--ca", secret])).stderr).toContain(`: ${secret}: the CA`);
    expect((await user.openshell([...add, "--oidc-issuer", "https://i", "--oidc-ca", secret])).stderr).toContain(
      `: ${secret}: the CA certificate of the OIDC provider is not PEM`,
    );
    await writeFile(secret, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n-----END ENCRYPTED PRIVATE KEY-----\n");
    expect((await user.openshell([...add, "--ca", secret])).stderr).toBe(
      `openshell: ${secret}: the CA certificate cannot be read: it is damaged, or encrypted and has to be decrypted first\n`,
    );
    await writeFile(secret, "data: {tls.crt: eA==}");
    expect((await user.openshell([...add, "--from-secret", secret])).stderr).toContain("has no ca.crt");
    await writeFile(secret, "{");
    expect((await user.openshell([...add, "--from-secret", secret])).stderr).toContain("neither YAML nor JSON");
  });

  it.each([
    ["https://127.0.0.1:9", true],
    ["http://127.0.0.1:9", false],
    ["https://127.0.0.1:9 --oidc-issuer https://login.example.com", false],
    ["https://127.0.0.1:9 --bearer-token-file token", false],
  ])("are said not to know their user where nothing says who that is (%s: %s)", async (rest, isSaid) => {
    const { code, stderr } = await user.openshell(`gateway add local --endpoint ${rest}`.split(" "));
    expect([code, stderr]).toEqual([
      0,
      isSaid
        ? "openshell: no client certificate was given, and without one the gateway will not know who you are: add it again with --ca, --cert and --key, --from-secret or --from-kubernetes (or with --oidc-issuer)\n"
        : "",
    ]);
  });

  it("are private, though somebody made their folders", async () => {
    const directory = join(user.home, "config", "openshell", "gateways", "local");
    await mkdir(directory, { recursive: true });
    await chmod(directory, 0o777);
    await add("local");
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
  });

  it("do not wait for a kubectl that hangs", async () => {
    await writeFile(join(user.home, "kubectl"), "#!/bin/sh\nexec /bin/sleep 60\n", { mode: 0o755 });
    expect(
      await user.openshell(
        "gateway add x --endpoint https://h:1 --from-kubernetes a/b --request-timeout 0.3".split(" "),
        { env: { PATH: user.home } },
      ),
    ).toMatchObject({
      code: 4,
      stderr: "openshell: kubectl did not give the Secret a/b in time; --request-timeout gives it longer\n",
    });
  });

  it.each(["hurt", "../gone"])("need not be whole where an endpoint is given (in use: %s)", async (active) => {
    await add("hurt");
    const directory = join(user.home, "config", "openshell");
    await writeFile(join(directory, "gateways", "hurt", "metadata.json"), "{");
    await writeFile(join(directory, "active_gateway"), `${active}\n`);
    expect(await openshell("status -o json")).toMatchObject({ code: 0, stdout: expect.stringContaining('"ada"') });
    expect((await openshell("status -g hurt")).code).toBe(7);
  });

  it("are none where the one in use can be no gateway", async () => {
    await add("one");
    await writeFile(join(user.home, "config", "openshell", "active_gateway"), "../gone\n");
    expect((await user.openshell(["status"])).stderr).toMatch(/^openshell: no gateway is chosen: add one/);
    expect((await user.openshell(["gateway", "logout"])).stderr).toBe(
      "openshell: no gateway is chosen: name the one that is meant\n",
    );
  });

  it("names the file when one was damaged", async () => {
    await add("local");
    await writeFile(join(user.home, "config", "openshell", "gateways", "local", "metadata.json"), "{");
    const { code, stderr } = await user.openshell(["status"]);
    expect([code, stderr]).toEqual([7, expect.stringMatching(/metadata\.json is not JSON; add the gateway again/)]);
  });

  describe("of which one is damaged", () => {
    const damaged = () => join(user.home, "config", "openshell", "gateways", "hurt");
    const names = async () => {
      const { code, stdout, stderr } = await user.openshell(["gateway", "list", "-o", "json"]);
      expect(code).toBe(0);
      return { names: JSON.parse(stdout).map(({ name }: { name: string }) => name), stderr };
    };

    beforeEach(async () => {
      await add("hurt");
      await add("whole");
      await writeFile(join(damaged(), "metadata.json"), "{");
    });

    it("are listed all the same, and the damaged one is named", async () => {
      expect(await names()).toEqual({
        names: ["whole"],
        stderr: `openshell: left out the gateway hurt: ${damaged()}/metadata.json is not JSON; add the gateway again, or correct the file\n`,
      });
      expect((await user.openshell(["gateway", "use", "none"])).stderr).toBe(
        'openshell: there is no gateway "none"; known are hurt, whole\n',
      );
    });

    it.each(["{", "[]", '{"gateway_endpoint": 7}'])("can be mended as the error says, also from %s", async (text) => {
      await writeFile(join(damaged(), "metadata.json"), text);
      expect(await add("hurt")).toMatchObject({ code: 0, stdout: expect.stringContaining("added and in use") });
      expect(await names()).toEqual({ names: ["hurt", "whole"], stderr: "" });
    });

    it("lose it when it is removed, even if nothing of it can be read", async () => {
      await rm(join(damaged(), "metadata.json"));
      await mkdir(join(damaged(), "metadata.json", "deep"), { recursive: true });
      expect((await names()).stderr).toMatch(/^openshell: left out the gateway hurt: cannot read .*EISDIR/);
      expect(await user.openshell(["gateway", "remove", "hurt"])).toMatchObject({ code: 0, stderr: "" });
      expect(await names()).toEqual({ names: ["whole"], stderr: "" });
      expect((await user.openshell(["gateway", "remove", "hurt"])).code).toBe(3);
    });

    it("can become more", async () => {
      expect(await add("third")).toMatchObject({ code: 0, stdout: expect.stringContaining("makes it the one in use") });
      expect((await names()).names).toEqual(["third", "whole"]);
    });
  });

  it("are not what else lies beside them", async () => {
    const gateways = join(user.home, "config", "openshell", "gateways");
    await mkdir(join(gateways, ".trash"), { recursive: true });
    await mkdir(join(gateways, "empty"));
    await writeFile(join(gateways, "notes.txt"), "");
    expect((await add("local")).stdout).toContain("added and in use");
    expect((await user.openshell(["gateway", "list", "-o", "json"])).stdout).toMatch(
      /^\[\s*\{\s*"name": "local"[^{]*$/,
    );
    expect((await user.openshell(["gateway", "remove", "empty"])).code).toBe(3);
  });

  it("are in use as soon as one is added where the one in use is gone", async () => {
    await add("one");
    await writeFile(join(user.home, "config", "openshell", "active_gateway"), "../gone\n");
    expect((await add("two")).stdout).toContain("added and in use");
  });
});

describe("status", () => {
  it("shows the gateway and the user", async () => {
    const { code, stdout } = await openshell("status -o json");
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ status: "HEALTHY", version: "0.1.0", user: "ada", roles: ["user"] });
    expect((await openshell("status")).stdout).toMatch(/^Gateway: .*\nEndpoint: .*\nStatus: {4}HEALTHY\n/);
  });

  it("says what to do when the gateway cannot be reached", async () => {
    const { code, stderr } = await openshell("status", { env: { OPENSHELL_GATEWAY_ENDPOINT: "http://127.0.0.1:1" } });
    expect(code).toBe(5);
    expect(stderr).toBe(
      'openshell: cannot reach the gateway "http://127.0.0.1:1" at http://127.0.0.1:1: connection refused; is the gateway running, and the port forward to it open?\n',
    );
  });

  it.each(["unix", "ipv4"])("takes %s for the host that it is called", async (host) => {
    const env = { OPENSHELL_GATEWAY_ENDPOINT: `https://${host}:8080` };
    const { code, stderr } = await openshell("status --request-timeout 3", { env });
    expect([4, 5]).toContain(code);
    expect(stderr).toMatch(/host name does not resolve|did not answer in time/);
  });

  it("notices that the gateway speaks no TLS", async () => {
    const { code, stderr } = await openshell("status", {
      env: { OPENSHELL_GATEWAY_ENDPOINT: gateway.endpoint.replace("http:", "https:") },
    });
    expect([code, stderr]).toEqual([5, expect.stringMatching(/does not speak TLS|was closed; does its endpoint/)]);
  });
});

describe("a gateway that takes a connection and says nothing", () => {
  const sockets = new Set<Socket>();
  const mute = createServer((socket) => sockets.add(socket.resume()));
  beforeEach(() => new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve)));
  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
    await new Promise<void>((resolve) => mute.close(() => resolve()));
  });

  const endpointOf = (scheme: string) => `${scheme}://127.0.0.1:${(mute.address() as AddressInfo).port}`;

  it.each([
    ["http", "sandbox exec box -- ls", 125],
    ["https", "sandbox exec box -- ls", 125],
    ["https", "sandbox exec --tty box -- ls", 125],
    ["http", "sandbox download box notes.txt", 4],
    ["https", "sandbox get box", 4],
  ])('over %s is given up by "%s" after --request-timeout', async (scheme, line, code) => {
    const modes: boolean[] = [];
    const keyboard = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (raw: boolean) => modes.push(raw) });
    const endpoint = endpointOf(scheme);
    expect(
      await openshell(`--request-timeout 0.2 ${line}`, { keyboard, env: { OPENSHELL_GATEWAY_ENDPOINT: endpoint } }),
    ).toEqual({
      code,
      stdout: "",
      stderr: `openshell: the gateway "${endpoint}" at ${endpoint} did not answer in time; --request-timeout gives it longer\n`,
    });
    // Meanwhile Ctrl-C is a signal.
    expect(modes).toEqual([]);
  });

  it("is given up at an interrupt", async () => {
    const interrupt = new AbortController();
    const connected = once(mute, "connection");
    const env = { OPENSHELL_GATEWAY_ENDPOINT: endpointOf("http") };
    const running = openshell("sandbox exec --tty box -- ls", { signal: interrupt.signal, env });
    await connected;
    interrupt.abort();
    expect((await running).code).toBe(130);
  });
});

describe("sandbox create", () => {
  it("waits until the sandbox is ready and says meanwhile why it is not", async () => {
    const { code, stdout, stderr } = await openshell("sandbox create --name box");
    expect(code).toBe(0);
    expect(stderr).toContain("box: PROVISIONING (Unschedulable: no node fits)\n");
    expect(stdout).toMatch(/^NAME +PHASE +AGE +IMAGE +REASON\nbox +READY/);
  });

  it("asks for what its options say", async () => {
    const line =
      'sandbox create --name box --from img:1 --label a=b --label c=d=e --env X=1 --cpu 500m --memory 1Gi --gpu=2 --runtime-class kata --driver-config-json {"kubernetes":{"pod":{"node_selector":{"k":"v"}}}} --restart always --tty --detach -- claude --flag -o json';
    expect((await openshell(line)).code).toBe(0);
    expect(gateway.requests[0]?.request).toMatchObject({
      name: "box",
      workspaceScope: { selection: { case: "workspace", value: "default" } },
      labels: { a: "b", c: "d=e" },
      spec: {
        command: ["claude", "--flag", "-o", "json"],
        environment: { X: "1" },
        tty: true,
        restartPolicy: 3,
        resourceRequirements: { gpu: { count: 2 } },
        template: {
          image: "img:1",
          runtimeClassName: "kata",
          resources: { requests: { cpu: "500m", memory: "1Gi" }, limits: { cpu: "500m", memory: "1Gi" } },
          driverConfig: { kubernetes: { pod: { node_selector: { k: "v" } } } },
        },
      },
    });
  });

  it("prints one JSON object with the documented keys", async () => {
    const { stdout } = await openshell("sandbox create --name box -o json --workspace default");
    const data = JSON.parse(stdout);
    expect(Object.keys(data).slice(0, 9)).toEqual([
      "id",
      "name",
      "workspace",
      "labels",
      "annotations",
      "resource_version",
      "created_at",
      "phase",
      "current_policy_version",
    ]);
    expect(data).toMatchObject({ id: "id-box", phase: "READY", resource_version: 3 });
  });

  it("does not wait with --detach", async () => {
    gateway.script = [["PROVISIONING"]];
    expect(await openshell("sandbox create --name box --detach")).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("PROVISIONING"),
    });
  });

  it("ends with code 0 when the main process is done already", async () => {
    gateway.script = [["PROVISIONING"], ["COMPLETED"]];
    expect((await openshell("sandbox create -- true")).code).toBe(0);
  });

  it("ends with its own code and the reason when the sandbox fails", async () => {
    gateway.script = [["PROVISIONING"], ["ERROR", "RuntimeClassNotFound: there is no RuntimeClass kata"]];
    expect(await openshell("sandbox create --name box")).toMatchObject({
      code: 8,
      stdout: "",
      stderr: expect.stringContaining(
        'openshell: the sandbox "box" failed: RuntimeClassNotFound: there is no RuntimeClass kata\n',
      ),
    });
  });

  describe("with a command, in the foreground", () => {
    it("has the command's exit code, though the sandbox was READY meanwhile", async () => {
      gateway.script = [["PROVISIONING"], ["READY"], ["ERROR", "MainProcessFailed: exit code 3"]];
      const { code, stdout } = await openshell("sandbox create --name box -- false");
      expect(code).toBe(3);
      expect(stdout).toContain("MainProcessFailed");
      gateway.script = [["PROVISIONING"], ["ERROR"]];
      expect((await openshell("sandbox create --name at-once -- false")).code).toBe(3);
      expect((await openshell("sandbox create --name asked --until ended -- false")).code).toBe(3);
      gateway.script = [["PROVISIONING"], ["READY"], ["COMPLETED"]];
      expect(await openshell("sandbox create -- true")).toMatchObject({
        code: 0,
        stdout: expect.stringContaining("COMPLETED"),
      });
    });

    it("ends with a code of its own when the command was not run or its exit is unknown", async () => {
      gateway.script = [["PROVISIONING"], ["STOPPED"]];
      expect((await openshell("sandbox create --name box -- sleep 9")).code).toBe(125);
      expect(await openshell("sandbox create --name box -- true")).toMatchObject({
        code: 125,
        stderr: "openshell: sandbox box exists\n",
      });
      expect((await openshell("sandbox create --env A -- true")).code).toBe(125);
      gateway.script = [["PROVISIONING"]];
      expect((await openshell("sandbox create --timeout 0.2 -- true")).code).toBe(125);
    });

    it("uploads before it waits for the end", async () => {
      await writeFile(join(user.home, "notes.txt"), "hello");
      gateway.script = [["PROVISIONING"], ["READY"]];
      const running = openshell(
        `sandbox create --name box --upload ${join(user.home, "notes.txt")}:in -- wc in/notes.txt`,
      );
      while (!gateway.uploads.has("in") || gateway.watchers === 0)
        await new Promise((resolve) => setImmediate(resolve));
      gateway.put("box", "COMPLETED", "", 0);
      expect((await running).code).toBe(0);
    });

    it("leaves no sandbox with --no-keep, whatever became of the command", async () => {
      gateway.script = [["PROVISIONING"], ["READY"], ["ERROR", "MainProcessFailed: exit code 3"]];
      expect((await openshell("sandbox create --no-keep -- false")).code).toBe(3);
      gateway.script = [["PROVISIONING"]];
      expect((await openshell("sandbox create --no-keep --timeout 0.2 -- true")).code).toBe(125);
      const interrupt = new AbortController();
      const running = openshell("sandbox create --no-keep -- true", { signal: interrupt.signal });
      while (gateway.watchers === 0) await new Promise((resolve) => setImmediate(resolve));
      interrupt.abort();
      expect(await running).toMatchObject({ code: 130, stderr: expect.not.stringContaining("goes on") });
      await expect.poll(() => gateway.sandboxes.size).toBe(0);
      for (const line of ["sandbox create --no-keep", "sandbox create --no-keep --until ready -- true"]) {
        expect(await openshell(line)).toMatchObject({
          code: 2,
          stderr: "openshell: --no-keep needs a command after -- that is waited for\n",
        });
      }
      expect(gateway.sandboxes.size).toBe(0);
    });

    it("leaves no sandbox with --no-keep at an interrupt before the gateway has answered", async () => {
      const [asked, answered, made] = [1, 2, 3].map(() => Promise.withResolvers<void>());
      await using slow = new TestGateway();
      slow.override = {
        async createSandbox() {
          asked?.resolve();
          await answered?.promise;
          const sandbox = slow.put("box", "PROVISIONING");
          made?.resolve();
          return { sandbox };
        },
      };
      await slow.start();
      const interrupt = new AbortController();
      const running = openshell("sandbox create --no-keep -- true", {
        signal: interrupt.signal,
        env: { OPENSHELL_GATEWAY_ENDPOINT: slow.endpoint },
      });
      await asked?.promise;
      interrupt.abort();
      answered?.resolve();
      expect((await running).code).toBe(130);
      await made?.promise;
      await expect.poll(() => slow.sandboxes.size).toBe(0);
    });

    it("waits for READY only, or for nothing, where it was told so", async () => {
      gateway.script = [["PROVISIONING"], ["READY"]];
      expect((await openshell("sandbox create --until ready -- sleep 9")).code).toBe(0);
      expect((await openshell("sandbox create --name other --detach -- sleep 9")).code).toBe(0);
      expect((await openshell("sandbox create --name other --until ready -- sleep 9")).code).toBe(7);
      expect(await openshell("sandbox create --until ended")).toMatchObject({ code: 2 });
    });
  });

  it("gives up after --timeout, says how far the sandbox is and leaves it", async () => {
    gateway.script = [["PROVISIONING", "Unschedulable: no node fits"]];
    const { code, stderr } = await openshell("sandbox create --name box --timeout 0.3");
    expect(code).toBe(4);
    expect(stderr).toContain(
      'the sandbox "box" was not ready within 0.3 s: it is PROVISIONING (Unschedulable: no node fits); it goes on',
    );
    expect(gateway.sandboxes.has("box")).toBe(true);
  });

  it("ends at an interrupt and says that the sandbox goes on", async () => {
    gateway.script = [["PROVISIONING"]];
    const interrupt = new AbortController();
    const running = openshell("sandbox create --name box", { signal: interrupt.signal });
    while (gateway.watchers === 0) await new Promise((resolve) => setImmediate(resolve));
    interrupt.abort();
    expect(await running).toMatchObject({ code: 130, stderr: expect.stringContaining("The sandbox box goes on") });
  });

  it("says after a failed upload that the sandbox goes on, and what it is called", async () => {
    await writeFile(join(user.home, "notes.txt"), "hello");
    await using broken = new TestGateway();
    broken.override = {
      async *forwardTcp() {
        yield* [];
        throw new OpenShellError("unavailable", "the relay is gone");
      },
    };
    await broken.start();
    const env = { OPENSHELL_GATEWAY_ENDPOINT: broken.endpoint };
    const { code, stderr } = await openshell(`sandbox create --upload ${user.home}/notes.txt`, { env, tty: true });
    expect([code, stderr.split("\r\x1b[2K").at(-1)]).toEqual([
      5,
      'The sandbox made-up goes on; "openshell sandbox delete made-up" removes it.\n\x1b[31mopenshell:\x1b[39m the relay is gone\n',
    ]);
  });

  it("is not begun with an upload that cannot be", async () => {
    const pipe = join(user.home, "pipe");
    execFileSync("mkfifo", [pipe]);
    expect(await openshell(`sandbox create --upload ${pipe}`)).toMatchObject({
      code: 2,
      stderr: `openshell: ${pipe} is not a file or a directory, and nothing else is copied\n`,
    });
    execFileSync("git", ["-C", user.home, "init", "-q", "tree"]);
    const tree = join(user.home, "tree");
    expect(await openshell(`sandbox create --upload ${tree}`, { env: { PATH: user.home } })).toMatchObject({
      code: 7,
      stderr: expect.stringContaining("it is not on the PATH; --no-git-ignore uploads everything"),
    });
    expect(gateway.sandboxes.size).toBe(0);
  });

  it("says that nobody knows whether a sandbox was made when the gateway did not answer in time", async () => {
    await using slow = new TestGateway();
    slow.override = { createSandbox: () => new Promise(() => {}) };
    await slow.start();
    const env = { OPENSHELL_GATEWAY_ENDPOINT: slow.endpoint };
    const { code, stderr } = await openshell("sandbox create --request-timeout 0.2 --no-keep -- true", { env });
    expect([code, stderr.split("\n")[0]]).toEqual([
      125,
      'The sandbox may be made all the same; "openshell sandbox list" shows it.',
    ]);
  });

  it("reports a name that is taken", async () => {
    gateway.put("box", "READY");
    expect(await openshell("sandbox create --name box")).toMatchObject({
      code: 7,
      stderr: "openshell: sandbox box exists\n",
    });
  });

  it("changes one line on a terminal, and colours nothing when NO_COLOR is set", async () => {
    const coloured = await openshell("sandbox create --name box", { tty: true });
    expect(coloured.stderr).toContain("\r\x1b[2K\x1b[2mbox: PROVISIONING");
    expect(coloured.stderr.endsWith("\r\x1b[2K")).toBe(true);
    const plain = await openshell("sandbox create --name other", { tty: true, env: { NO_COLOR: "1" } });
    expect(plain.stdout).not.toContain("\x1b[");
  });

  it("shows what the gateway says without its control characters", async () => {
    gateway.put("evil", "ERROR", "Bad: \x1b[31mred\x07\nsecond line");
    const { stdout } = await openshell("sandbox list");
    expect(stdout).toMatch(/Bad: +\[31mred second line\n$/);
  });
});

describe("sandbox list, get, stop, start, delete", () => {
  it("lists every page, of one workspace or of all", async () => {
    for (const name of ["a", "b", "c", "d", "e"]) gateway.put(name, "READY");
    expect((await openshell("sandbox list --names -l team=x")).stdout).toBe("a\nb\nc\nd\ne\n");
    expect(gateway.requests[0]?.request).toMatchObject({ labelSelector: "team=x" });
    expect((await openshell("sandbox list --ids -A")).stdout).toContain("id-e\n");
    expect(gateway.requests.at(-1)?.request).toMatchObject({
      workspaceScope: { selection: { case: "allWorkspaces" } },
    });
    expect((await openshell("sandbox list -A")).stdout).toMatch(/^WORKSPACE +NAME/);
  });

  it("says so when there are none, and prints an empty list as data", async () => {
    expect((await openshell("sandbox list -w team")).stdout).toBe("No sandboxes in the workspace team.\n");
    expect((await openshell("sandbox list -o yaml")).stdout).toBe("[]\n");
  });

  it("shows one sandbox with its conditions", async () => {
    gateway.put("box", "PROVISIONING", "Unschedulable: no node fits");
    expect((await openshell("sandbox get box")).stdout).toMatch(/Ready: +False {2}Unschedulable {2}no node fits/);
    expect(await openshell("sandbox get nobody")).toMatchObject({ code: 3, stdout: "" });
  });

  it("shows the operator's image as the default, and no name for it as data", async () => {
    gateway.put("box", "READY");
    expect((await openshell("sandbox list")).stdout).toMatch(/^box +READY +\S+ +\(default\)/m);
    expect((await openshell("sandbox get box")).stdout).toMatch(/^Image: +\(default\)$/m);
    expect(JSON.parse((await openshell("sandbox get box -o json")).stdout)).toMatchObject({ image: "" });
  });

  it("waits until a sandbox has stopped, and until it runs again", async () => {
    gateway.put("box", "READY");
    expect((await openshell("sandbox stop box")).stdout).toContain("STOPPED");
    expect((await openshell("sandbox start box")).stdout).toContain("READY");
    expect((await openshell("sandbox stop box --no-wait")).stdout).toContain("STOPPING");
  });

  it("waits until a sandbox is gone", async () => {
    gateway.put("a", "READY");
    gateway.put("b", "ERROR");
    expect(await openshell("sandbox delete a b")).toEqual({
      code: 0,
      stdout: "Sandbox a deleted.\nSandbox b deleted.\n",
      stderr: expect.any(String),
    });
    expect(gateway.sandboxes.size).toBe(0);
    expect((await openshell("sandbox delete a")).code).toBe(3);
    expect((await openshell("sandbox delete a --ignore-missing")).stdout).toBe("Sandbox a was not there.\n");
  });

  it("deletes all, also when somebody else deletes one of them meanwhile", async () => {
    await using shared = new TestGateway();
    shared.override = {
      async listSandboxes() {
        const sandboxes = [...shared.sandboxes.values()];
        shared.sandboxes.delete("b");
        return { sandboxes, nextPageToken: "" };
      },
    };
    await shared.start();
    for (const name of ["a", "b", "c"]) shared.put(name, "READY");
    const env = { OPENSHELL_GATEWAY_ENDPOINT: shared.endpoint };
    expect(await openshell("sandbox delete --all", { env })).toMatchObject({
      code: 0,
      stdout: "Sandbox a deleted.\nSandbox b was not there.\nSandbox c deleted.\n",
    });
    expect(shared.sandboxes.size).toBe(0);
  });

  it("deletes the others when one of several is missing, and fails all the same", async () => {
    gateway.put("a", "READY");
    expect(await openshell("sandbox delete missing a")).toMatchObject({ code: 3, stdout: "Sandbox a deleted.\n" });
  });
});

describe("sandbox exec", () => {
  beforeEach(() => gateway.put("box", "READY"));

  it("has the command's streams and its exit code", async () => {
    expect(await openshell("sandbox exec box -- ls -l /")).toEqual({ code: 42, stdout: "ls -l /", stderr: "warned" });
    expect(await openshell("sandbox exec -n box ls -- -l")).toMatchObject({ stdout: "ls -l" });
  });

  it("hands options to the sandbox", async () => {
    await openshell("sandbox exec box --workdir /tmp --env A=1 --timeout 1.5 --no-login-shell -w team -- id");
    expect(gateway.requests[0]?.request).toMatchObject({
      sandbox: "box",
      workdir: "/tmp",
      environment: { A: "1" },
      executionTimeout: { seconds: 1n, nanos: 500_000_000 },
      noLoginShell: true,
      tty: false,
      workspaceScope: { selection: { value: "team" } },
    });
  });

  it("takes what is less than a millisecond for one, and every name of a variable for a name", async () => {
    await openshell("sandbox exec box --timeout 0.0004 --env __proto__=x -- id");
    const { request } = gateway.requests[0] as { request: openshellWire.ExecSandboxRequest };
    expect(request.executionTimeout).toMatchObject({ seconds: 0n, nanos: 1_000_000 });
    expect(Object.entries(request.environment)).toEqual([["__proto__", "x"]]);
  });

  it("hands what is piped to the command", async () => {
    expect(await openshell("sandbox exec box -- rev", { stdin: "abc" })).toEqual({
      code: 7,
      stdout: "cba",
      stderr: "",
    });
  });

  it("hands the keyboard over in raw mode, tells of a new size, and takes the keyboard back", async () => {
    const modes: boolean[] = [];
    const keyboard = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (raw: boolean) => modes.push(raw) });
    const stdout = Object.assign(new PassThrough(), { isTTY: true, columns: 100, rows: 30 });
    const shown: Buffer[] = [];
    stdout.on("data", (chunk: Buffer) => {
      shown.push(chunk);
      if (shown.length === 1) {
        Object.assign(stdout, { columns: 120, rows: 40 }).emit("resize");
        keyboard.write("\x04");
      }
    });
    const running = openshell("sandbox exec box -- sh", { keyboard, stdout });
    keyboard.write("ab");
    expect((await running).code).toBe(7);
    expect(Buffer.concat(shown).toString()).toBe("ba\x04");
    expect(modes).toEqual([true, false]);
    const [start, resize] = gateway.requests.map(({ request }) => request);
    expect(start).toMatchObject({ tty: true, cols: 100, rows: 30 });
    expect(resize).toMatchObject({ cols: 120, rows: 40 });
  });

  it("gives the keyboard back when the connection is lost", async () => {
    const modes: boolean[] = [];
    const keyboard = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (raw: boolean) => modes.push(raw) });
    const running = openshell("sandbox exec box --tty -- sh", { keyboard });
    while (modes.length === 0) await new Promise((resolve) => setImmediate(resolve));
    while (gateway.requests.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await gateway[Symbol.asyncDispose]();
    expect((await running).code).toBe(125);
    expect(modes).toEqual([true, false]);
  });

  it("has the exit code that the sandbox told, though the connection is lost after it", async () => {
    await using ending = new TestGateway();
    ending.override = {
      async *execSandbox() {
        yield { payload: { case: "exit", value: { exitCode: 5 } } };
        throw new OpenShellError("unavailable", "the connection to the sandbox was lost");
      },
    };
    await ending.start();
    const env = { OPENSHELL_GATEWAY_ENDPOINT: ending.endpoint };
    expect(await openshell("sandbox exec box -- ls", { env })).toEqual({ code: 5, stdout: "", stderr: "" });
  });

  describe("with a keyboard, before the sandbox has said anything", () => {
    let modes: boolean[];
    let keyboard: PassThrough & { isTTY: boolean; setRawMode: (raw: boolean) => unknown };
    let quiet: TestGateway;

    beforeEach(async () => {
      modes = [];
      keyboard = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (raw: boolean) => modes.push(raw) });
      quiet = new TestGateway();
    });
    afterEach(() => quiet[Symbol.asyncDispose]());

    const exec = async () => {
      await quiet.start();
      return openshell("sandbox exec box --tty -- sh", {
        keyboard,
        env: { OPENSHELL_GATEWAY_ENDPOINT: quiet.endpoint },
      });
    };

    it("ends at Ctrl-C where nobody hears it, behind whatever was typed before", async () => {
      quiet.override = {
        async *execSandboxInteractive(_requests, { signal }) {
          await once(signal, "abort");
          yield* [];
        },
      };
      const running = exec();
      for (const key of "sleep 9\r\x03") {
        await new Promise((resolve) => setImmediate(resolve));
        keyboard.write(key);
      }
      expect(await running).toEqual({ code: 130, stdout: "", stderr: "" });
      expect(modes).toEqual([true, false]);
    });

    it("leaves Ctrl-C to a command that does hear it", async () => {
      quiet.override = {
        async *execSandboxInteractive(requests) {
          for await (const { payload } of requests) {
            if (payload.case !== "stdin" || !Buffer.from(payload.value).includes(3)) continue;
            yield { payload: { case: "stdout", value: { data: Buffer.from("^C") } } };
            // Longer than it takes to give up what stays without an answer.
            await new Promise((resolve) => setTimeout(resolve, 1_200));
            yield { payload: { case: "exit", value: { exitCode: 9 } } };
            return;
          }
        },
      };
      const running = exec();
      keyboard.write("\x03");
      expect(await running).toEqual({ code: 9, stdout: "^C", stderr: "" });
    });
  });

  it("wants a terminal for --tty", async () => {
    expect(await openshell("sandbox exec box --tty -- sh", { stdin: "" })).toMatchObject({
      code: 125,
      stderr: expect.stringContaining("--tty needs a terminal"),
    });
  });
});

describe("sandbox upload and download", () => {
  it("sends a file as a tar stream to a directory", async () => {
    await writeFile(join(user.home, "notes.txt"), "hello");
    const { code, stdout } = await openshell(`sandbox upload box ${join(user.home, "notes.txt")} docs`);
    expect([code, stdout]).toEqual([0, "Uploaded 1 file (5 B) to /sandbox/docs in box.\n"]);
    expect(gateway.requests[0]?.request).toMatchObject({ sandbox: "box", serviceId: "openshell.boundary.v1/files" });
    expect(gateway.uploads.get("docs")?.toString()).toContain("notes.txt");
  });

  describe("of a git work tree", () => {
    let tree: string;
    const git = (at: string, ...args: string[]) => execFileSync("git", ["-C", at, ...args], { stdio: "pipe" });
    const put = async (path: string, text = "x") => {
      await mkdir(dirname(join(tree, path)), { recursive: true });
      await writeFile(join(tree, path), text);
    };
    /** Names in the archive that the gateway got, directories with a slash. */
    const uploaded = async () => {
      const archive = extract();
      const names: string[] = [];
      archive.end(gateway.uploads.get("."));
      for await (const entry of archive) {
        names.push(entry.header.name);
        entry.resume();
      }
      return names;
    };
    const env = { PATH: process.env.PATH ?? "" };

    beforeEach(async () => {
      tree = join(user.home, "tree");
      await put(".gitignore", "*.log\n/secret.env\nbuild/\n");
      await put("secret.env");
      await put("src/main.ts");
      await put("src/.gitignore", "generated/\n!kept.log\n");
      await put("src/generated/a.ts");
      await put("src/kept.log");
      await put("src/trace.log");
      await put("build/out.js");
      await put("tracked.log");
      await put("gone.txt");
      git(user.home, "init", "-q", "tree");
      git(tree, "add", "-f", "tracked.log", "gone.txt");
      await rm(join(tree, "gone.txt"));
    });

    it("takes what git would keep, and says what it left out", async () => {
      const { code, stderr } = await openshell(`sandbox upload box ${tree}`, { env });
      expect(code).toBe(0);
      expect(await uploaded()).toEqual([
        "tree/",
        "tree/.gitignore",
        "tree/src/",
        "tree/src/.gitignore",
        "tree/src/kept.log",
        "tree/src/main.ts",
        "tree/tracked.log",
      ]);
      expect(stderr).toMatch(/left out .git and 4 more, as git does; --no-git-ignore takes everything\n$/);
    });

    it("knows the rules of the directories above, and a repository inside has its own", async () => {
      await put("src/inner/own.log");
      await put("src/inner/.gitignore", "*.tmp");
      await put("src/inner/a.tmp");
      git(tree, "init", "-q", "src/inner");
      await openshell(`sandbox upload box ${join(tree, "src")}`, { env });
      expect(await uploaded()).toEqual([
        "src/",
        "src/.gitignore",
        "src/inner/",
        "src/inner/.gitignore",
        "src/inner/own.log",
        "src/kept.log",
        "src/main.ts",
      ]);
    });

    it("takes everything with --no-git-ignore, and a directory that is ignored itself when it is named", async () => {
      await openshell(`sandbox upload box ${tree} --no-git-ignore`, { env });
      expect(await uploaded()).toEqual(expect.arrayContaining(["tree/secret.env", "tree/build/out.js", "tree/.git/"]));
      await openshell(`sandbox upload box ${join(tree, "build")}`, { env });
      expect(await uploaded()).toEqual(["build/", "build/out.js"]);
    });

    it("takes what git would keep when it is named by a link, under the link's name", async () => {
      await symlink(join(tree, "src"), join(user.home, "named"));
      await openshell(`sandbox upload box ${join(user.home, "named")}`, { env });
      expect(await uploaded()).toEqual(["named/", "named/.gitignore", "named/kept.log", "named/main.ts"]);
    });

    it("uploads nothing when git cannot be asked", async () => {
      const { code, stderr } = await openshell(`sandbox upload box ${tree}`, { env: { PATH: user.home } });
      expect([code, stderr]).toEqual([
        7,
        `openshell: ${tree} is in a git work tree, and git cannot say what of it is ignored: it is not on the PATH; --no-git-ignore uploads everything\n`,
      ]);
      expect(gateway.uploads.size).toBe(0);
    });
  });

  it("refuses what is no file, and says what it left out of a directory", async () => {
    expect(await openshell("sandbox upload box /dev/null")).toMatchObject({
      code: 2,
      stderr: "openshell: /dev/null is not a file or a directory, and nothing else is copied\n",
    });
    await mkdir(join(user.home, "tree"));
    execFileSync("mkfifo", [join(user.home, "tree", "pipe")]);
    expect(await openshell(`sandbox upload box ${join(user.home, "tree")}`)).toMatchObject({
      code: 0,
      stderr: "openshell: left out tree/pipe: not a file, directory or symbolic link\n",
    });
  });

  it("says how much will come, so that what cannot fit is refused at once", async () => {
    const tree = join(user.home, "tree");
    await mkdir(join(tree, "sub"), { recursive: true });
    await writeFile(join(tree, "a"), "12345");
    await writeFile(join(tree, "sub", "b"), "678");
    await openshell(`sandbox upload box ${tree}`);
    expect(gateway.requests.find(({ method }) => method === "upload")?.request).toMatchObject({ sizeHint: 8n });
  });

  it("leaves nothing of a download that breaks off, not even the directory that was to be made", async () => {
    const whole = await tarOf("notes.txt", "x".repeat(5_000));
    gateway.downloads.set("notes.txt", whole.subarray(0, 2_000));
    const { code, stderr } = await openshell(`sandbox download box notes.txt ${user.home}/new/deep/`);
    expect([code, stderr]).toEqual([1, "openshell: the archive is damaged or ended early\n"]);
    expect((await openshell(`sandbox download box missing ${user.home}/new/deep/`)).code).toBe(3);
    expect(await readdir(user.home)).toEqual([]);
  });

  /** A tar archive with one file. */
  async function tarOf(name: string, body: string): Promise<Buffer> {
    const archive = pack();
    archive.entry({ name }, body);
    archive.finalize();
    const chunks: Uint8Array[] = [];
    for await (const chunk of archive as AsyncIterable<Uint8Array>) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  it.each([
    ["", "home/notes.txt"],
    ["/copy.txt", "home/copy.txt"],
    ["/new/", "home/new/notes.txt"],
  ])("places a download at HOME%s as %s", async (destination, expected) => {
    gateway.downloads.set("docs/notes.txt", await tarOf("notes.txt", "hello"));
    const target = join(user.home, expected.replace("home/", ""));
    const { code, stdout } = await openshell(`sandbox download box docs/notes.txt ${user.home}${destination}`);
    expect([code, stdout]).toEqual([0, `Downloaded 1 file (5 B) to ${target}.\n`]);
    expect(await readFile(target, "utf8")).toBe("hello");
  });

  it("leaves a pipe where a download was to go, be it named by a link", async () => {
    gateway.downloads.set("notes.txt", await tarOf("notes.txt", "hello"));
    const [pipe, link] = [join(user.home, "pipe"), join(user.home, "link")];
    execFileSync("mkfifo", [pipe]);
    await symlink("pipe", link);
    for (const destination of [pipe, link]) {
      expect(await openshell(`sandbox download box notes.txt ${destination}`)).toMatchObject({
        code: 7,
        stderr: `openshell: ${destination} is a device, a pipe or a socket: a download goes into a file or a directory\n`,
      });
    }
    expect([(await lstat(pipe)).isFIFO(), (await lstat(link)).isSymbolicLink()]).toEqual([true, true]);
  });

  it("takes no other name from the sandbox than the one that was asked for", async () => {
    gateway.downloads.set("notes.txt", await tarOf(".bashrc", "evil"));
    await openshell(`sandbox download box notes.txt ${user.home}`);
    expect((await readdir(user.home)).sort()).toEqual(["notes.txt"]);
  });

  it("reports what is missing on either side", async () => {
    expect(await openshell(`sandbox upload box ${join(user.home, "missing")}`)).toMatchObject({ code: 3 });
    expect(await openshell(`sandbox download box missing ${join(user.home, "x")}`)).toMatchObject({
      code: 3,
      stderr: "openshell: there is no missing\n",
    });
  });

  it("uploads with create a file whose name has a colon", async () => {
    await writeFile(join(user.home, "12:30.log"), "hello");
    await writeFile(join(user.home, "12"), "another");
    expect((await openshell(`sandbox create --upload ${join(user.home, "12:30.log")}`)).code).toBe(0);
    expect(gateway.uploads.get(".")?.toString()).toContain("12:30.log");
  });

  it("uploads with create when the sandbox is ready", async () => {
    await writeFile(join(user.home, "notes.txt"), "hello");
    const line = `sandbox create --name box --upload ${join(user.home, "notes.txt")}:in`;
    expect((await openshell(line)).code).toBe(0);
    expect(gateway.uploads.has("in")).toBe(true);
  });
});
