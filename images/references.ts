/** Names of the images that this repository builds. */
export const shippedImages = ["gateway", "supervisor", "runtime"] as const;
/** Images that tests run agents in: only busybox, a glibc userland, and one with no shell at all. */
export const workloadImages = ["busybox", "glibc", "noshell"] as const;

export type ImageName = (typeof shippedImages)[number] | (typeof workloadImages)[number];

export const imageNames: readonly ImageName[] = [...shippedImages, ...workloadImages];

/** Of images that are put on the nodes by hand: nobody can push to it, and nobody else's program is ever pulled from it. */
export const localRegistry = "openshell.local";

/** Where the nodes of a test cluster get the images from. @default $OPENSHELL_TEST_REGISTRY, else {@link localRegistry} */
export function testRegistry(): string {
  return process.env.OPENSHELL_TEST_REGISTRY || localRegistry;
}

export interface References {
  /** @default {@link testRegistry} */
  readonly registry?: string;
  /** @default "dev" */
  readonly tag?: string;
}

/** Full reference of an image, e.g. `openshell.local/openshell/gateway:dev`. */
export function referenceOf(name: ImageName, { registry = testRegistry(), tag = "dev" }: References = {}): string {
  const group = (shippedImages as readonly string[]).includes(name) ? "openshell" : "workload";
  return `${registry}/${group}/${name}:${tag}`;
}
