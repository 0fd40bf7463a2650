import { describe, expect, it, vi } from "vitest";
import { helmPrograms } from "./_helm.ts";
import { textsOfMany } from "./_many.ts";

vi.setConfig({ testTimeout: 60_000 });

const [program = ""] = helmPrograms;
const issuer = "https://login.example.com/realms/main";
const gateway = "openshell.gateway";
const driver = "openshell.drivers.kubernetes";
const oidc = { [`${gateway}.oidc`]: { issuer } };

/** One process of Helm for all of them. */
const cases = {
  defaults: {},
  "another id": { gatewayConfig: { [driver]: { gateway_id: "blue" } } },
  development: {
    server: { disableTls: true },
    gatewayConfig: { [`${gateway}.auth`]: { allow_unauthenticated_users: true } },
  },
  "everyone by TLS": {
    gatewayConfig: {
      [`${gateway}.auth`]: { allow_unauthenticated_users: true },
      [`${gateway}.mtls_auth`]: { enabled: false },
    },
  },
  "also OIDC": { gatewayConfig: oidc },
  "only OIDC": {
    service: { port: 443 },
    server: { tls: { certSecretName: "edge-tls" } },
    gatewayConfig: { ...oidc, [`${gateway}.mtls_auth`]: { enabled: false } },
  },
  "OIDC without roles": { gatewayConfig: { [`${gateway}.oidc`]: { issuer, admin_role: "", user_role: "" } } },
  "managed and bounded": {
    limitRange: { enabled: true, max: { memory: "4Gi" } },
    gatewayConfig: { [driver]: { workspace_mode: "managed" } },
  },
  bounded: { limitRange: { enabled: true, max: { memory: "4Gi" } } },
  managed: { gatewayConfig: { [driver]: { workspace_mode: "managed" } } },
  risks: {
    gatewayConfig: { [driver]: { app_armor_profile: "Unconfined", sandbox_runtime: { fence_check: "off" } } },
  },
} as const;

describe.skipIf(helmPrograms.length === 0)("NOTES", () => {
  let texts: (string | Error)[] | undefined;
  const notesOf = (name: keyof typeof cases): string => {
    texts ??= textsOfMany(program, Object.values(cases), ["NOTES.txt"]);
    const text = texts[Object.keys(cases).indexOf(name)];
    if (typeof text === "string") return text;
    throw text ?? new Error("nothing was rendered");
  };
  const commandsOf = (name: keyof typeof cases) =>
    notesOf(name)
      .split("\n")
      .filter((line) => line.startsWith("  openshell ") || line.startsWith("  kubectl "))
      .map((line) => line.trim());
  const forward = (port = 8080) => `kubectl -n openshell port-forward service/openshell 8080:${port}`;
  const saveAuthority = (secret: string) =>
    `kubectl -n openshell get secret ${secret} -o jsonpath='{.data.ca\\.crt}' | base64 -d > gateway-ca.crt`;
  const warningsOf = (name: keyof typeof cases) => notesOf(name).match(/WARNING: [^.]*\./g) ?? [];

  it("say how to connect with the administrator's certificate, and what the chart decides", () => {
    expect(commandsOf("defaults")).toEqual([
      forward(),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --from-kubernetes openshell/openshell-client-tls",
      "openshell status",
    ]);
    expect(notesOf("defaults")).toMatch(/^OpenShell gateway openshell 0\.1\.0, gateway_id openshell$/m);
    expect(notesOf("another id")).toMatch(/^OpenShell gateway openshell 0\.1\.0, gateway_id blue$/m);
    expect(notesOf("defaults")).toContain("Sandboxes run in namespace openshell-sandboxes; pod_anti_affinity is off.");
    expect(notesOf("defaults")).toContain("The chart decides, and gatewayConfig cannot change: listen addresses");
    expect(notesOf("defaults")).not.toMatch(/object Object|<no value>|\{\{/);
    expect(warningsOf("defaults")).toEqual([]);
  });

  it("say how to connect in plain text, with warnings", () => {
    expect(commandsOf("development")).toEqual([
      forward(),
      "openshell gateway add local --endpoint http://127.0.0.1:8080",
      "openshell status",
    ]);
    expect(warningsOf("development")).toEqual(["WARNING: server.", "WARNING: allow_unauthenticated_users is true."]);
  });

  it("say how to connect with TLS where nobody has to show who they are", () => {
    expect(commandsOf("everyone by TLS")).toEqual([
      forward(),
      saveAuthority("openshell-server-tls"),
      "openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt",
      "openshell status",
    ]);
    expect(warningsOf("everyone by TLS")).toEqual(["WARNING: allow_unauthenticated_users is true."]);
  });

  it("say how users of an OpenID provider log in, beside a certificate and without one", () => {
    const login = (secret: string) => [
      saveAuthority(secret),
      `openshell gateway add local --endpoint https://127.0.0.1:8080 --ca gateway-ca.crt --oidc-issuer ${issuer}`,
      "openshell gateway login local",
    ];
    expect(commandsOf("also OIDC")).toEqual([...commandsOf("defaults"), ...login("openshell-server-tls")]);
    expect(commandsOf("only OIDC")).toEqual([forward(443), ...login("edge-tls")]);
    expect(warningsOf("also OIDC")).toEqual([]);
    expect(warningsOf("OIDC without roles")).toEqual(["WARNING: admin_role and user_role are empty."]);
  });

  it("say where sandboxes run when workspaces have namespaces, and what is risky", () => {
    expect(notesOf("managed")).toContain("Each workspace has a namespace of its own: workspace_mode is managed");
    const covers = "resourceQuota, limitRange and admissionPolicy cover namespace openshell-sandboxes only";
    expect(notesOf("managed and bounded")).toContain(covers);
    for (const name of ["managed", "bounded"] as const) expect(notesOf(name)).not.toContain("admissionPolicy cover");
    expect(warningsOf("risks")).toEqual([
      "WARNING: fence_check is off.",
      "WARNING: app_armor_profile is Unconfined, which Pod Security `restricted` refuses.",
    ]);
  });
});
