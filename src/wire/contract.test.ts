import { existsSync, readFileSync } from "node:fs";
import { createFileRegistry, type DescFile, fromBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { compute, datamodel, extension, openshell, options, sandbox } from "./index.ts";

const published = new URL("../../../shared/contracts/wire.fds", import.meta.url);
const ours: readonly DescFile[] = [
  openshell.file_openshell,
  compute.file_compute_driver,
  datamodel.file_datamodel,
  sandbox.file_sandbox,
  options.file_options,
  extension.file_extension,
];

describe.skipIf(!existsSync(published))(
  "the wire compared with ../shared/contracts (extra: skipped where that folder is absent)",
  () => {
    it.each(ours.map((file) => [file.name, file] as const))(
      "%s.proto is the published descriptor, field by field",
      (name, file) => {
        const set = fromBinary(FileDescriptorSetSchema, readFileSync(published));
        const theirs = createFileRegistry(set).getFile(`${name}.proto`);
        expect(descriptor(file)).toEqual(descriptor(theirs as DescFile));
      },
    );
  },
);

it("has the 84 methods that published clients may call, each with its authorization", () => {
  expect(openshell.OpenShell.methods).toHaveLength(84);
  const modes = new Set(openshell.OpenShell.methods.map((method) => method.proto.options?.$unknown?.length));
  expect(modes).toEqual(new Set([1]));
});

/** The descriptor without what a compiler adds: comments, derived JSON names, the order of imports. Options (authorization, secret) stay, as their bytes. */
function descriptor(file: DescFile): unknown {
  const { sourceCodeInfo: _, ...rest } = toJson(FileDescriptorProtoSchema, file.proto) as Record<string, unknown>;
  const options = file.services.flatMap((service) =>
    service.methods.map((method) => [
      method.name,
      method.proto.options?.$unknown?.map((field) => Buffer.from(field.data).toString("hex")),
    ]),
  );
  (rest.dependency as string[] | undefined)?.sort();
  return { file: JSON.parse(JSON.stringify(rest, (key, value) => (key === "jsonName" ? undefined : value))), options };
}
