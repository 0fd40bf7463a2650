import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { expect, test } from "vitest";
import { inDefault, TestGateway } from "../_testing.ts";
import { about, create, type Spec } from "../_testing-sandbox.ts";

/** All sandboxes of the workspace, page by page. */
async function pages(test: TestGateway) {
  const found: string[][] = [];
  let pageToken = "";
  do {
    const page = await test.client.listSandboxes({ workspaceScope: inDefault, pageToken });
    found.push(page.sandboxes.map(({ metadata }) => metadata?.name ?? ""));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}

test("sandboxes that are as large as they may be are listed in pages that fit into messages", async () => {
  await using test = await TestGateway.start();
  const text = "x".repeat(8_000);
  const environment = Object.fromEntries(Array.from({ length: 32 }, (_, index) => [`V${index}`, text]));
  const large: Spec = {
    command: Array.from({ length: 32 }, () => text),
    environment,
    template: { environment, annotations: environment },
  };
  const names = ["a", "b", "c", "d", "e"];
  for (const name of names) await create(test, name, large);
  const found = await pages(test);
  expect(found.flat()).toEqual(names);
  expect(found.map(({ length }) => length)).toEqual([4, 1]);
});

test("nothing is kept of what this release does not know in a create", async () => {
  await using test = await TestGateway.start();
  const data = new BinaryWriter().bytes(new Uint8Array(7_000_000)).finish();
  const unknown = { $unknown: [{ no: 9_999, wireType: WireType.LengthDelimited, data }] };
  for (const name of ["a", "b"]) await create(test, name, { ...unknown, template: { image: "x", ...unknown } } as Spec);
  expect(await pages(test)).toEqual([["a", "b"]]);
  const { sandbox } = await test.client.getSandbox(about("a"));
  expect(sandbox?.spec?.template?.image).toBe("x");
  expect(sandbox?.spec?.$unknown).toBeUndefined();
});
