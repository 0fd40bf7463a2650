import type { MessageShape } from "@bufbuild/protobuf";
import { OpenShellError } from "../common/errors.ts";
import { type Client, type compute, type Implementation, openshell } from "../wire/index.ts";
import type { Principal, UserPrincipal } from "./identity/principal.ts";

/** Version of the extension protocol between gateway and driver. */
const protocol = { major: 1, minor: 0 } as const;
const contract = "openshell.compute.contract";

export type DriverCapabilities = MessageShape<typeof compute.GetCapabilitiesResponseSchema>;

/**
 * Introduces the gateway to the driver and checks the driver's answer.
 * @throws failed-precondition when the two do not speak the same protocol
 */
export async function handshake(
  driver: Pick<Client<typeof compute.ComputeDriver>, "getCapabilities">,
  version: string,
): Promise<DriverCapabilities> {
  const capabilities = await driver.getCapabilities(
    {
      gateway: {
        protocolVersion: protocol,
        implementationName: "openshell/gateway",
        implementationVersion: version,
        supportedCapabilities: [contract],
        requiredCapabilities: [contract],
      },
    },
    { timeoutMs: 20_000 },
  );
  const { extension } = capabilities;
  const refuse = (why: string) =>
    new OpenShellError("failed-precondition", `the compute driver ${capabilities.driverName} ${why}`);
  if (extension === undefined) throw refuse("does not introduce itself");
  if (extension.protocolVersion?.major !== protocol.major) {
    throw refuse(`speaks protocol ${extension.protocolVersion?.major ?? "?"}, this gateway speaks ${protocol.major}`);
  }
  if (!extension.supportedCapabilities.includes(contract)) throw refuse(`does not support ${contract}`);
  const unmet = extension.requiredCapabilities.find((one) => one !== contract);
  if (unmet !== undefined) throw refuse(`requires ${unmet}, which this gateway does not have`);
  return capabilities;
}

export interface InfoServiceOptions {
  readonly version: string;
  /** compute_driver as configured. */
  readonly driverName: string;
  readonly capabilities: () => DriverCapabilities;
  /** What keeps the gateway from doing all its work; undefined when nothing does. */
  readonly degraded: () => string | undefined;
}

/** The RPCs about the gateway itself and about the caller. */
export function infoService(
  options: InfoServiceOptions,
): Required<
  Pick<Implementation<typeof openshell.OpenShell, Principal>, "health" | "getGatewayInfo" | "getCurrentUser">
> {
  const { HEALTHY, DEGRADED } = openshell.ServiceStatus;
  const status = () => (options.degraded() === undefined ? HEALTHY : DEGRADED);

  return {
    health: async () => ({ status: status(), version: options.version }),

    async getGatewayInfo() {
      const { driverName, driverVersion, resourceCapabilities, extension } = options.capabilities();
      const { cpu, memory, gpu } = resourceCapabilities ?? {};
      return {
        status: status(),
        gatewayVersion: options.version,
        computeDrivers: [
          {
            name: options.driverName,
            capabilities: {
              driverName,
              driverVersion,
              resourceCapabilities: {
                cpu: { limitSupported: cpu?.limitSupported ?? false },
                memory: { limitSupported: memory?.limitSupported ?? false },
                gpu: {
                  defaultSelectionSupported: gpu?.defaultSelectionSupported ?? false,
                  countSelectionSupported: gpu?.countSelectionSupported ?? false,
                },
              },
            },
          },
        ],
        extensions: [
          {
            kind: openshell.ExtensionKind.COMPUTE_DRIVER,
            configuredName: options.driverName,
            implementationName: extension?.implementationName ?? "",
            implementationVersion: extension?.implementationVersion ?? "",
            protocolMajor: extension?.protocolVersion?.major ?? 0,
            protocolMinor: extension?.protocolVersion?.minor ?? 0,
            supportedCapabilities: extension?.supportedCapabilities ?? [],
            requiredCapabilities: extension?.requiredCapabilities ?? [],
          },
        ],
      };
    },

    async getCurrentUser(_request, context) {
      const { subject, displayName = subject, roles, scopes = [], provider } = context.principal as UserPrincipal;
      return { subject, displayName, roles: [...roles], scopes: [...scopes], identityProvider: provider };
    },
  };
}
