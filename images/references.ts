/** Names of the images that this repository builds. */
export const shippedImages = ["gateway", "supervisor", "runtime"] as const;
/** Images that tests run agents in: only busybox, a glibc userland, and one with no shell at all. */
export const workloadImages = ["busybox", "glibc", "noshell"] as const;

export type ImageName = (typeof shippedImages)[number] | (typeof workloadImages)[number];

export const imageNames: readonly ImageName[] = [...shippedImages, ...workloadImages];

export interface References {
  /** @default "openshell.local" */
  readonly registry?: string;
  /** @default "dev" */
  readonly tag?: string;
}

/** Full reference of an image, e.g. `openshell.local/openshell/gateway:dev`. */
export function referenceOf(name: ImageName, { registry = "openshell.local", tag = "dev" }: References = {}): string {
  const group = (shippedImages as readonly string[]).includes(name) ? "openshell" : "workload";
  return `${registry}/${group}/${name}:${tag}`;
}
