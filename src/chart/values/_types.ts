/** What the schemas of values share. */
import { z } from "zod";
import {
  anyAnnotations,
  anyLabels,
  dnsLabel,
  hostNameOrWildcard,
  imagePart,
  ipAddress,
  objectName,
  optionalDnsLabelName,
  optionalHostName,
  optionalObjectName,
  orEmpty,
  quantityPattern,
  setting,
} from "../../config/index.ts";

/** A part of an object's name; what is too long is shortened. */
export const namePart = () => z.string().regex(orEmpty(dnsLabel)).default("");
/** The name of a Service, which begins with a letter. */
export const serviceName = /^[a-z]([-a-z0-9]*[a-z0-9])?$/;
export const labelMap = () => anyLabels().default({});
export const annotationMap = () => anyAnnotations().default({});
/** The name of a Secret, ConfigMap, class or other object; empty: as its description says. */
export const objectNameOrNone = () => optionalObjectName().default("");
export const objectNames = () => z.array(objectName()).default([]);
export const namespaceOrNone = () => optionalDnsLabelName().default("");
export const hostOrNone = () => optionalHostName().default("");
export const hosts = () => z.array(hostNameOrWildcard()).default([]);
export const addresses = () => z.array(ipAddress()).default([]);
export const quantityMap = () => z.record(z.string(), z.string().regex(quantityPattern)).default({});
export const anyMap = () => z.record(z.string(), z.unknown()).default({});
export const anyList = () => z.array(z.record(z.string(), z.unknown())).default([]);
export const policy = () => z.enum(["", "Always", "IfNotPresent", "Never"]).default("");
export const nodePort = () => z.int().min(0).max(32_767).default(0);
export const port = (fallback: number) => z.int().min(0).max(65_535).default(fallback);

export const image = (repository: string, what: string) =>
  setting(
    z
      .strictObject({
        registry: setting(imagePart.registry().default(""), "Registry of this image; empty: global.image.registry."),
        repository: setting(imagePart.repository().default(repository), "Name of the image below the registry."),
        tag: setting(imagePart.tag().default(""), "Tag; empty: global.image.tag."),
        digest: setting(imagePart.digest().default(""), "Digest such as sha256:…; it wins over the tag."),
        pullPolicy: setting(policy(), "Pull policy; empty: global.image.pullPolicy."),
      })
      .prefault({}),
    what,
  );

export const resources = (cpu: string, memory: string, limit: string, whose: string) =>
  setting(
    z
      .strictObject({
        requests: setting(quantityMap().default({ cpu, memory }), "Requests by resource name."),
        limits: setting(quantityMap().default({ memory: limit }), "Limits by resource name."),
      })
      .prefault({}),
    `Resources of ${whose}. Non-zero requests keep it out of QoS class BestEffort.`,
  );

export const serviceAccount = (whose: string) =>
  setting(
    z
      .strictObject({
        create: setting(z.boolean().default(true), "Make the ServiceAccount. False: it exists already, under `name`."),
        name: setting(objectNameOrNone(), "Its name; empty: derived from the release."),
        annotations: setting(annotationMap(), "Annotations of the ServiceAccount."),
      })
      .prefault({}),
    `ServiceAccount of ${whose}.`,
  );
