import { expect, test } from "vitest";
import { registrySettings } from "./release.ts";

test("images from a registry of one's own are named and pulled anew everywhere; those put on the nodes by hand are as the presets say", () => {
  expect(registrySettings("r.example/team")).toEqual([
    "--set-string",
    "global.image.registry=r.example/team",
    "--set-string",
    "global.image.pullPolicy=Always",
    "--set-string",
    "sandbox.image.registry=r.example/team",
    "--set-string",
    "sandbox.image.pullPolicy=Always",
  ]);
  expect(registrySettings("openshell.local")).toEqual([]);
});
