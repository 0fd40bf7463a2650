import { readFile, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { parse } from "yaml";
import { TestUser } from "../../src/cli/_test-gateway.ts";
import { TestProvider } from "../../src/gateway/identity/oidc/_test-provider.ts";
import { kubectl } from "../cluster/clients.ts";
import { GatewayAccess } from "../support/gateway-access.ts";
import { imageValues, install, releaseNamed, uninstall } from "../support/release.ts";

/** The address of this machine that the cluster's Pods reach: the API server's, where that is here. */
async function ownAddress(kubeconfig: string): Promise<string | undefined> {
  const path = "jsonpath={.clusters[0].cluster.server}";
  const server = await kubectl(kubeconfig, ["config", "view", "--minify", "-o", path]);
  const { hostname } = new URL(server.trim());
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return own.some(({ address, internal }) => address === hostname && !internal) ? hostname : undefined;
}

it("a gateway installed with the docs' values knows users by a provider with a private authority, and nobody else", async ({
  skip,
}) => {
  const kubeconfig = inject("kubeconfig");
  const host = await ownAddress(kubeconfig);
  if (host === undefined) return skip("the cluster's Pods reach no address of this machine that is known");
  await using provider = await TestProvider.start({ host });
  const docs = await readFile(new URL("../../docs/oidc.md", import.meta.url), "utf8");
  const values = parse(/```yaml\n([\s\S]*?)```/.exec(docs)?.[1] ?? "");
  values.gatewayConfig["openshell.gateway.oidc"].issuer = provider.issuer;

  const release = releaseNamed("openshell-oidc");
  await using user = await TestUser.create();
  const openshell = (line: string, env: Record<string, string> = {}, ...more: string[]) =>
    user.openshell([...line.split(" "), ...more], { env });
  try {
    await kubectl(kubeconfig, ["create", "namespace", release.namespace]);
    const configMap = ["create", "configmap", "oidc-ca", `--from-file=ca.crt=${provider.caPath}`];
    await kubectl(kubeconfig, ["-n", release.namespace, ...configMap]);
    const presets = ["conformance"];
    await install({ kubeconfig, release, presets, values: { ...values, ...imageValues(inject("gatewayDigest")) } });
    await using gateway = await GatewayAccess.open(kubeconfig, release);

    const ca = join(user.home, "ca.crt");
    await writeFile(ca, gateway.certificate?.ca ?? "");
    const oidc = `--oidc-issuer ${provider.issuer} --oidc-ca ${provider.caPath} --oidc-client-id ann`;
    expect(await openshell(`gateway add g --endpoint ${gateway.endpoint} --ca ${ca} ${oidc}`)).toMatchObject({
      code: 0,
    });
    expect(await openshell("gateway login", { OPENSHELL_OIDC_CLIENT_SECRET: "secret" })).toMatchObject({ code: 0 });
    expect(JSON.parse((await openshell("status -o json")).stdout)).toMatchObject({ user: "ann", roles: ["user"] });

    // The command's exit code, through a real pair; what it was stays visible, and nothing waits for its supervisor.
    expect(await openshell("sandbox create --name ends -- sh -c", {}, "exit 7")).toMatchObject({ code: 7 });
    const { conditions, phase } = JSON.parse((await openshell("sandbox get ends -o json")).stdout);
    expect(phase).toBe("ERROR");
    expect(conditions).not.toContainEqual(expect.objectContaining({ reason: "ReplacingSupervisor" }));

    // Without a token the administrator's certificate is worth nothing here: mTLS is off in the docs' values.
    await expect(gateway.client.getCurrentUser({})).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining(`a bearer token of ${provider.issuer}`),
    });
    expect(
      await openshell("status", { OPENSHELL_BEARER_TOKEN: await provider.token("ann", { resource: "urn:other" }) }),
    ).toMatchObject({
      code: 6,
      stderr: expect.stringContaining('is for "urn:other", not for "openshell-cli"'),
    });
    expect(await openshell("sandbox delete ends")).toMatchObject({ code: 0 });
  } finally {
    await uninstall(kubeconfig, release);
  }
}, 600_000);
