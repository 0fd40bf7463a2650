import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { TestUser } from "../../src/cli/_test-gateway.ts";
import type { GatewayAccess } from "./gateway-access.ts";

/** A user of the command line, in this process, who knows a gateway as its administrator. */
export async function administratorOf({ endpoint, certificate }: GatewayAccess): Promise<TestUser> {
  await using undo = new AsyncDisposableStack();
  const user = undo.use(await TestUser.create());
  const files = certificate && { ca: certificate.ca, cert: certificate.certificate, key: certificate.key };
  const options: string[] = [];
  for (const [name, content] of Object.entries(files ?? {})) {
    const path = join(user.home, `${name}.pem`);
    await writeFile(path, content);
    options.push(`--${name}`, path);
  }
  const { code, stderr } = await user.openshell(["gateway", "add", "conformance", "--endpoint", endpoint, ...options]);
  if (code !== 0) throw new Error(`openshell gateway add: ${stderr}`);
  undo.move();
  return user;
}
