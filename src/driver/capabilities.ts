import { OpenShellError } from "../common/errors.ts";
import type { KubernetesSettings } from "../config/index.ts";
import type { compute, extension } from "../wire/index.ts";

const contract = "openshell.compute.contract";
const protocol = { major: 1, minor: 0 };

/**
 * The handshake of gateway and driver: both name the contract as required, and the major version has to be the same.
 *
 * @throws failed-precondition when the gateway cannot work with this driver
 */
export function checkGateway(gateway: extension.PeerMetadata | undefined): void {
  if (gateway === undefined) throw mismatch("the gateway sent no metadata");
  const major = gateway.protocolVersion?.major;
  if (major !== protocol.major)
    throw mismatch(`the gateway speaks protocol ${major ?? "(none)"}, the driver ${protocol.major}`);
  for (const capability of gateway.requiredCapabilities) {
    if (capability !== contract) throw mismatch(`the gateway requires ${capability}`);
  }
  if (!gateway.supportedCapabilities.includes(contract)) throw mismatch(`the gateway does not support ${contract}`);
}

function mismatch(why: string): OpenShellError {
  return new OpenShellError("failed-precondition", `the gateway and the Kubernetes driver do not fit: ${why}`, {
    reason: "PeerMismatch",
  });
}

/** What this driver is and can do. */
export function capabilitiesOf(settings: KubernetesSettings, version: string) {
  const policy: compute.GetCapabilitiesResponse["resourceAdmissionPolicy"] = `v1:${JSON.stringify({
    allow_driver_config: settings.allow_driver_config,
    // driver_config of this driver names no objects of the namespace, so there is nothing to admit by label.
    resource_admission: { enabled: false, required_labels: {} },
  })}`;
  return {
    driverName: "kubernetes",
    driverVersion: version,
    defaultImage: settings.default_image,
    gatewayManagesLifecycle: true,
    supportsSandboxAuthentication: true,
    driverReportsRuntimeReadiness: false,
    resourceCapabilities: {
      cpu: { limitSupported: true },
      memory: { limitSupported: true },
      gpu: { defaultSelectionSupported: true, countSelectionSupported: true },
    },
    extension: {
      protocolVersion: protocol,
      implementationName: "openshell/kubernetes",
      implementationVersion: version,
      supportedCapabilities: [contract],
      requiredCapabilities: [contract],
    },
    resourceAdmissionPolicy: policy,
  };
}
