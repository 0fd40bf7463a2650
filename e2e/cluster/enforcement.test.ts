import { expect, test } from "vitest";
import { checkEnforcement } from "./enforcement.ts";
import type { Outcome, Shell } from "./exec.ts";

const said = (stdout: string): Outcome => ({ code: 0, stdout: `${stdout}\n`, stderr: "" });
/** What kubectl itself says when an exec does not come about, by the exit code of a command that failed. */
const broken: Outcome = { code: 1, stdout: "", stderr: "error: unable to upgrade connection" };

class FakeShell implements Shell {
  readonly calls: string[] = [];
  readonly #answers: Outcome[];

  constructor(...answers: Outcome[]) {
    this.#answers = answers;
  }

  async run(_command: string, args: readonly string[]): Promise<string> {
    this.calls.push(args.slice(1).join(" "));
    return "10.1.2.3";
  }

  async attempt(command: string, args: readonly string[]): Promise<Outcome> {
    await this.run(command, args);
    return (args.includes("exec") ? this.#answers.shift() : undefined) ?? said("");
  }

  get namespace(): string | undefined {
    return /--namespace=(\S+)/.exec(this.calls[0] ?? "")?.[1];
  }
}

test("NetworkPolicy is enforced when the Pod itself says that it reaches and then that it does not, whatever kubectl fails with", async () => {
  const shell = new FakeShell(
    broken,
    said("refused"),
    said("reached"),
    broken,
    broken,
    said("reached"),
    said("refused"),
  );
  await checkEnforcement({ kubeconfig: "/k", image: "busybox", shell });
  expect(shell.calls.filter((call) => call.includes(" exec "))).toHaveLength(7);
});

test("a check has a namespace of its own, and takes those of earlier checks with it", async () => {
  const answers = [said("reached"), said("refused")];
  const [first, second] = [new FakeShell(...answers), new FakeShell(...answers)];
  for (const shell of [first, second]) await checkEnforcement({ kubeconfig: "/k", image: "busybox", shell });
  expect(first.namespace).toMatch(/^openshell-enforcement-[0-9a-f]{8}$/);
  expect(first.namespace).not.toBe(second.namespace);
  expect(first.calls.at(-1)).toContain("delete namespace --selector=openshell.ai/enforcement-check --wait=false");
});
