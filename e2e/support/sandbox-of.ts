import type { MessageInitShape } from "@bufbuild/protobuf";
import { referenceOf } from "../../images/references.ts";
import type { openshell } from "../../src/wire/index.ts";
import { type Conformance, randomName } from "./conformance.ts";
import { TestSandbox } from "./test-sandbox.ts";

/** What a caller may say of a sandbox, in the public API's own fields. */
export interface Wishes extends Omit<MessageInitShape<typeof openshell.SandboxTemplateSchema>, "$typeName"> {
  /** Numeric; `policy.process.run_as_user`. */
  readonly user?: string;
  /** 0: one, without saying how many. */
  readonly gpus?: number;
  /** What the driver takes below `driver_config.kubernetes`. */
  readonly kubernetes?: Readonly<Record<string, unknown>>;
}

/** A sandbox of the suite's smallest image, and of whatever else its caller wishes. */
export function sandboxOf(
  suite: Conformance,
  { user, gpus, kubernetes, ...template }: Wishes,
  name = randomName(),
): Promise<TestSandbox> {
  const spec = {
    template: {
      image: referenceOf("busybox"),
      ...template,
      ...(kubernetes === undefined ? {} : { driverConfig: { kubernetes: kubernetes as never } }),
    },
    ...(user === undefined ? {} : { policy: { version: 1, process: { runAsUser: user } } }),
    ...(gpus === undefined ? {} : { resourceRequirements: { gpu: gpus === 0 ? {} : { count: gpus } } }),
  };
  return TestSandbox.create(() => suite.gateway.client, name, spec, suite.workspace);
}
