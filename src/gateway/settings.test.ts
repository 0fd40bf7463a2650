import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defaultSettings } from "../config/index.ts";
import { openshell } from "../wire/index.ts";
import { configPath, loadSettings, readRegularFile } from "./config-file.ts";
import { printMetrics } from "./metrics.ts";
import { listening } from "./overrides.ts";
import { unknownField } from "./unknown-field.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "openshell-settings-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe("the configuration file", () => {
  it("is the one asked for, else the environment's, else the user's own", () => {
    const environment = { OPENSHELL_GATEWAY_CONFIG: "/env.toml", XDG_CONFIG_HOME: directory };
    expect(configPath("/flag.toml", environment)).toBe("/flag.toml");
    expect(configPath(undefined, environment)).toBe("/env.toml");
    expect(configPath(undefined, { XDG_CONFIG_HOME: directory })).toBeUndefined();
    mkdirSync(join(directory, "openshell"));
    writeFileSync(join(directory, "openshell", "gateway.toml"), "");
    expect(configPath(undefined, { XDG_CONFIG_HOME: directory })).toBe(join(directory, "openshell", "gateway.toml"));
  });

  it("has to be a regular file", () => {
    const file = join(directory, "gateway.toml");
    writeFileSync(file, "text");
    symlinkSync(file, join(directory, "link.toml"));
    expect(readRegularFile(file)).toBe("text");
    for (const [path, reason] of [
      [join(directory, "link.toml"), "non_regular_path"],
      [directory, "non_regular_path"],
      [join(directory, "none.toml"), "missing_path"],
    ] as const) {
      expect(() => readRegularFile(path)).toThrow(
        expect.objectContaining({ details: expect.objectContaining({ reason }) }),
      );
    }
  });

  it("without a version is refused", () => {
    const file = join(directory, "gateway.toml");
    writeFileSync(file, "");
    expect(() => loadSettings(file, "serve")).toThrow(
      expect.objectContaining({ details: expect.objectContaining({ reason: "missing_version" }) }),
    );
  });
});

describe("flags over the file", () => {
  const { gateway, kubernetes } = defaultSettings();
  const settings = {
    kubernetes,
    gateway: { ...gateway, bind_address: "0.0.0.0:8080", health_bind_address: "0.0.0.0:8081", disable_tls: true },
  };

  it("change address and port separately", () => {
    expect(listening(settings, {}).bind).toEqual({ host: "0.0.0.0", port: 8080 });
    expect(listening(settings, { port: "9" }).bind).toEqual({ host: "0.0.0.0", port: 9 });
    expect(listening(settings, { bindAddress: "127.0.0.1" }).bind).toEqual({ host: "127.0.0.1", port: 8080 });
    expect(listening(settings, { bindAddress: "[::1]:7", port: "9" }).bind).toEqual({ host: "::1", port: 9 });
  });

  it("turn the health port off with 0 and put it on the main address", () => {
    expect(listening(settings, {}).health).toEqual({ host: "0.0.0.0", port: 8081 });
    expect(listening(settings, { healthPort: "0" }).health).toBeUndefined();
    expect(listening(settings, { healthPort: "1", bindAddress: "127.0.0.1" }).health).toEqual({
      host: "127.0.0.1",
      port: 1,
    });
  });

  it("that make no sense are refused by name", () => {
    expect(() => listening(settings, { port: "http" })).toThrow('--port: "http" is no port (0 to 65535)');
    expect(() => listening(settings, { logLevel: "loud" })).toThrow(/--log-level: "loud" is none of/);
    expect(() => listening({ ...settings, gateway: { ...settings.gateway, disable_tls: false } }, {})).toThrow(
      /TLS needs a certificate/,
    );
  });
});

describe("a sandbox file's unknown field", () => {
  const find = (json: Parameters<typeof unknownField>[1]) => unknownField(openshell.CreateSandboxRequestSchema, json);

  it("is named by its path", () => {
    expect(find({ nam: "x" })).toBe("nam");
    expect(find({ spec: { template: { imagee: "x" } } })).toBe("spec.template.imagee");
    expect(
      find({ spec: { policy: { network_policies: { web: { endpoints: [{ host: "a" }, { hots: "b" }] } } } } }),
    ).toBe("spec.policy.network_policies[web].endpoints[1].hots");
  });

  it("does not exist in either spelling, in free maps or in structs", () => {
    expect(
      find({ workspace_scope: { workspace: "a" }, spec: { restartPolicy: 1, environment: { ANY: "1" } } }),
    ).toBeUndefined();
    expect(find({ spec: { template: { driver_config: { kubernetes: { anything: 1 } } } } })).toBeUndefined();
  });
});

describe("metrics", () => {
  it("are printed with escaped labels", () => {
    const samples = () => [{ labels: { phase: 'a"b\\c\nd' }, value: 2 }];
    expect(printMetrics([{ name: "openshell_x", kind: "gauge", help: "Help.", samples }])).toBe(
      '# HELP openshell_x Help.\n# TYPE openshell_x gauge\nopenshell_x{phase="a\\"b\\\\c\\nd"} 2\n',
    );
  });
});
