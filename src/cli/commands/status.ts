/** `openshell status`: whether the gateway answers, and as whom it knows the user. */
import { hasCode, OpenShellError } from "../../common/errors.ts";
import { openshell } from "../../wire/index.ts";
import { type CommandContext, outputFormat } from "../context.ts";
import { printResult, propertiesOf } from "../output.ts";

export async function showStatus(context: CommandContext, options: { readonly output?: string }): Promise<void> {
  const format = outputFormat(options.output);
  using connection = await context.connect();
  const { client, target } = connection;
  const health = await client.health({}, context.call);
  const user = await client.getCurrentUser({}, context.call);
  const info = await unlessRefused(client.getGatewayInfo({}, context.call));
  const data = {
    gateway: target.name,
    endpoint: target.endpoint.url,
    status: openshell.ServiceStatus[health.status] ?? "UNKNOWN",
    version: health.version,
    user: user.subject,
    roles: user.roles,
    compute_drivers: (info?.computeDrivers ?? []).map(({ name }) => name),
  };
  await printResult(context.terminal, format, data, () =>
    propertiesOf([
      ["Gateway", data.gateway],
      ["Endpoint", data.endpoint],
      ["Status", data.status],
      ["Version", data.version],
      ["User", data.user],
      ["Roles", data.roles.join(", ")],
      ["Drivers", data.compute_drivers.join(", ")],
    ]),
  );
  if (health.status !== openshell.ServiceStatus.HEALTHY) {
    throw new OpenShellError("unavailable", `the gateway "${target.name}" answers, and is ${data.status}`);
  }
}

/** Only a platform administrator may ask for the gateway's inside; others see the rest. */
async function unlessRefused<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (hasCode(error, "permission-denied", "unimplemented")) return undefined;
    throw error;
  }
}
