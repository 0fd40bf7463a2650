import { describe, expect, it } from "vitest";
import { commandReference } from "./reference.ts";

describe("the page of the docs", () => {
  it("has the choices of an option, as its help has them", () => {
    const text = commandReference();
    expect(text).toContain("| `--restart <policy>` | of the main process (choices: never, on-failure, always) |");
    expect(text).toMatch(/\| `--until <state>` \| .* \(choices: .*\) \|/);
    expect(text).toMatch(/\| `--request-timeout <seconds>` \| .*; 0 for no limit \(default: 30\) \|/);
    expect(text).toMatch(/\n\| 2 \| .* \(125 for exec, and for a create that waits for its command\) \|\n/);
  });
});
