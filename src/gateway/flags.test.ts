import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { Command } from "commander";
import { afterEach, describe, expect, it, vi } from "vitest";
import { flagOrVariable, switchOf } from "./flags.ts";

const variable = "OPENSHELL_FLAGS_TEST";
const read = (...argv: string[]) =>
  new Command().addOption(flagOrVariable("--some <text>", variable)).parse(argv, { from: "user" }).opts();

afterEach(() => vi.unstubAllEnvs());

describe("a flag that a variable may stand for", () => {
  it("comes from the variable, and from the flag before it", () => {
    vi.stubEnv(variable, "of-the-variable");
    expect(read()).toEqual({ some: "of-the-variable" });
    expect(read("--some", "of-the-flag")).toEqual({ some: "of-the-flag" });
  });

  it("is absent where the variable is empty", () => {
    vi.stubEnv(variable, "");
    expect(read()).toEqual({});
  });

  it("is no value by an empty variable in any command of the gateway", () => {
    const main = join(import.meta.dirname, "main.ts");
    const words =
      "BIND_ADDRESS SERVER_PORT HEALTH_PORT METRICS_PORT LOG_LEVEL TLS_CERT TLS_KEY TLS_CLIENT_CA DISABLE_TLS";
    const names = [...words.split(" "), "GATEWAY_CONFIG", "DB_URL", "OIDC_ISSUER"].map((name) => `OPENSHELL_${name}`);
    const env = { ...process.env, XDG_CONFIG_HOME: "/nowhere", ...Object.fromEntries(names.map((name) => [name, ""])) };
    // The file's own want of certificates, and nothing that a variable is said to have asked for.
    const options = { encoding: "utf8", env, timeout: 30_000, killSignal: "SIGKILL" } as const;
    const { status, stderr } = spawnSync(process.execPath, [main, "serve"], options);
    expect(stderr).toContain("the gateway listens with TLS but has no certificate");
    for (const flag of ["--bind-address", "--port", "--health-port", "log_level"]) expect(stderr).not.toContain(flag);
    expect(status).toBe(2);
  });
});

describe("a switch in the environment", () => {
  it.each([
    ["1", true],
    ["True", true],
    ["0", false],
    ["false", false],
    ["", undefined],
  ])("that says %j is %s", (text, wanted) => {
    vi.stubEnv(variable, text);
    expect(switchOf(variable)).toBe(wanted);
  });

  it("that says something else is refused by its name", () => {
    vi.stubEnv(variable, "perhaps");
    expect(() => switchOf(variable)).toThrow(`${variable}: "perhaps" is neither true nor false`);
  });
});
