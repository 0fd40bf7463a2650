/** The values that docs/oidc.md shows, as an operator would copy them. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { parse } from "yaml";
import { parseSettings } from "../config/index.ts";
import { find, helmPrograms, refusal, render, repository } from "./_helm.ts";

vi.setConfig({ testTimeout: 120_000 });

const text = readFileSync(join(repository, "docs", "oidc.md"), "utf8");
const [, snippet = ""] = /```yaml\n([\s\S]*?)```/.exec(text) ?? [];

describe.skipIf(helmPrograms.length === 0).each(helmPrograms)("OIDC by %s", (program) => {
  const values = parse(snippet);
  const issuer = "https://login.example.com/realms/main";

  it("is what the docs' values make of the gateway, the provider's private authority included", () => {
    const objects = render(program, { values });
    const settings = parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml", "serve");
    expect(settings.gateway.oidc).toMatchObject(values.gatewayConfig["openshell.gateway.oidc"]);
    expect(settings.gateway.mtls_auth.enabled).toBe(false);
    const { containers, volumes } = find(objects, "StatefulSet").spec.template.spec;
    const [mount] = containers[0].volumeMounts.filter(({ name }: { name: string }) => name === "oidc-ca");
    expect(mount).toMatchObject({ mountPath: dirname(settings.gateway.oidc.ca_cert_path), readOnly: true });
    expect(volumes).toContainEqual({ name: "oidc-ca", configMap: { name: "oidc-ca" } });
  });

  it("needs no more than an issuer, and leaves users with certificates where they are", () => {
    const objects = render(program, { values: { gatewayConfig: { "openshell.gateway.oidc": { issuer } } } });
    const { gateway } = parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml", "serve");
    expect(gateway.oidc).toMatchObject({ issuer, audience: "openshell-cli", admin_role: "openshell-admin" });
    expect(gateway.mtls_auth.enabled).toBe(true);
  });

  it.each([
    [{ issuer: "http://127.0.0.1:8080" }, "oidc.issuer is an http:// address"],
    [{ issuer, user_role: "" }, "oidc.admin_role and oidc.user_role go together"],
    [{ audience: "other" }, "have no effect without oidc.issuer"],
  ])("is refused for %j with a sentence", (oidc, sentence) => {
    expect(refusal(program, { values: { gatewayConfig: { "openshell.gateway.oidc": oidc } } })).toContain(sentence);
  });

  it.each([
    { issuer: "login.example.com" },
    { issuer: "http://login.example.com" },
    { issuer, jwks_ttl_secs: 0 },
    { issuer, jwks_allowed_origins: ["https://keys.example.com/path"] },
    { issuer, ca_cert_path: "ca.crt" },
    { issuer, client_secret: "x" },
  ])("is refused by the schema for %j", (oidc) => {
    const [key = ""] = Object.keys(oidc).reverse();
    expect(refusal(program, { values: { gatewayConfig: { "openshell.gateway.oidc": oidc } } })).toContain(key);
  });
});
