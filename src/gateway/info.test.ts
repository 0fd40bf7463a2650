import { describe, expect, it } from "vitest";
import { openshell } from "../wire/index.ts";
import { TestGateway } from "./_testing.ts";
import { MemoryDriver } from "./_testing-driver.ts";
import { handshake } from "./info.ts";

type Answer = Awaited<ReturnType<Parameters<typeof handshake>[0]["getCapabilities"]>>;
const contract = "openshell.compute.contract";

/** The handshake with a driver that answers so. */
function meet(answer: object) {
  return handshake({ getCapabilities: async () => answer as Answer }, "1.2.3");
}

const extension = {
  protocolVersion: { major: 1, minor: 4 },
  supportedCapabilities: [contract],
  requiredCapabilities: [contract],
};

describe("GetGatewayInfo", () => {
  it("says who serves: gateway, driver, what the driver can limit, and what the two agreed on", async () => {
    const driver = new MemoryDriver();
    const { getCapabilities } = driver.implementation;
    const resourceCapabilities = {
      cpu: { limitSupported: true },
      memory: { limitSupported: true },
      gpu: { defaultSelectionSupported: true, countSelectionSupported: false },
    };
    Object.assign(driver.implementation, {
      getCapabilities: async (...call: Parameters<NonNullable<typeof getCapabilities>>) => ({
        ...(await getCapabilities?.(...call)),
        resourceCapabilities,
      }),
    });
    await using test = await TestGateway.start({ driver });
    const info = await test.client.getGatewayInfo({});
    expect(info).toMatchObject({
      gatewayVersion: "1.2.3",
      computeDrivers: [
        { name: "memory", capabilities: { driverName: "memory", driverVersion: "1", resourceCapabilities } },
      ],
      extensions: [
        {
          kind: openshell.ExtensionKind.COMPUTE_DRIVER,
          configuredName: "memory",
          implementationName: "openshell/memory",
          implementationVersion: "1",
          protocolMajor: 1,
          protocolMinor: 0,
          supportedCapabilities: [contract],
          requiredCapabilities: [contract],
        },
      ],
    });
    expect([openshell.ServiceStatus.HEALTHY, openshell.ServiceStatus.DEGRADED]).toContain(info.status);
    expect(await test.client.health({})).toMatchObject({ version: "1.2.3" });
  });
});

describe("the handshake with a driver", () => {
  it("takes one of the same major protocol", async () => {
    await expect(meet({ driverName: "k", extension })).resolves.toMatchObject({ driverName: "k" });
  });

  it.each([
    ["does not introduce itself", {}],
    ["speaks protocol 2, this gateway speaks 1", { extension: { ...extension, protocolVersion: { major: 2 } } }],
    [`does not support ${contract}`, { extension: { ...extension, supportedCapabilities: [] } }],
    ["requires openshell.gpu, which", { extension: { ...extension, requiredCapabilities: ["openshell.gpu"] } }],
  ])("refuses one that %s", async (why, answer) => {
    await expect(meet({ driverName: "k", ...answer })).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(`the compute driver k ${why}`),
    });
  });
});
