import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { parse } from "yaml";
import { compareQuantities, parseSettings } from "../config/index.ts";
import { find, helmPrograms, refusal, render, sentenceOf, template } from "./_helm.ts";
import { expression, printExpression } from "./layer/index.ts";
import { isAbove, quantityHelper } from "./quantities.ts";

vi.setConfig({ testTimeout: 120_000 });

const [program = ""] = helmPrograms;
const driver = "openshell.drivers.kubernetes";
const withSettings = (settings: object) => ({ gatewayConfig: { [driver]: settings } });

describe.skipIf(helmPrograms.length === 0)("a request above its limit", () => {
  it.each<[object, string]>([
    [
      { resources: { requests: { memory: "2Gi" } } },
      "resources.requests.memory: 2Gi is above its limit 512Mi; lower the request or raise limits.memory",
    ],
    [
      { pkiInitJob: { resources: { requests: { cpu: "1" }, limits: { cpu: "999m" } } } },
      "pkiInitJob.resources.requests.cpu: 1 is above its limit 999m; lower the request or raise limits.cpu",
    ],
    [
      withSettings({ supervisor_resources: { requests: { memory: "300Mi" } } }),
      `gatewayConfig: ${driver}.supervisor_resources.requests.memory: 300Mi is above its limit 256Mi; lower the request or raise limits.memory`,
    ],
    [
      { gatewayConfig: { [`${driver}.workload_resources.limits`]: { cpu: "10m" } } },
      `gatewayConfig: ${driver}.workload_resources.requests.cpu: 50m is above its limit 10m; lower the request or raise limits.cpu`,
    ],
    [
      withSettings({ workload_resources: { limits: { memory: "127Mi" } } }),
      `gatewayConfig: ${driver}.workload_resources.limits.memory: 127Mi is too little; it takes at least 128Mi, because the runtime and the agent share it`,
    ],
    [
      withSettings({ workload_resources: { requests: { "nvidia.com/gpu": "1" } } }),
      `gatewayConfig: ${driver}.workload_resources.requests.nvidia.com/gpu: 1 is not the limit too, as Kubernetes wants it of all but cpu, memory and ephemeral-storage; remove the request, or set its limit to the same`,
    ],
    [
      { resources: { requests: { "example.com/nic": "1" }, limits: { "example.com/nic": "2" } } },
      "resources.requests.example.com/nic: 1 is not the limit too, as Kubernetes wants it of all but cpu, memory and ephemeral-storage; remove the request, or set its limit to the same",
    ],
    [
      { limitRange: { enabled: true, min: { memory: "1Gi" }, max: { memory: "512Mi" } } },
      "limitRange.min.memory: 1Gi is above limitRange.max.memory 512Mi; lower the first, or raise the second",
    ],
    [
      { limitRange: { enabled: true, defaultRequest: { cpu: "1" }, default: { cpu: "900m" } } },
      "limitRange.defaultRequest.cpu: 1 is above limitRange.default.cpu 900m; lower the first, or raise the second",
    ],
    [
      { limitRange: { enabled: true, max: { memory: "128Mi" } } },
      "limitRange.max.memory: 128Mi forbids every supervisor, whose limits.memory are 256Mi; raise it, or change supervisor_resources in gatewayConfig",
    ],
    [
      { limitRange: { enabled: true, min: { cpu: "1" } } },
      "limitRange.min.cpu: 1 forbids every supervisor, whose requests.cpu are 50m; lower it, or change supervisor_resources in gatewayConfig",
    ],
  ])("in %j is refused before anything is installed", (values, sentence) => {
    expect(sentenceOf(program, { values })).toBe(sentence);
  });

  it("is none where its limit is taken away, or where both are the same in other words", () => {
    const settings = {
      supervisor_resources: { requests: { memory: "300Mi", cpu: "0.1" }, limits: { memory: "", cpu: "100m" } },
      workload_resources: {
        requests: { cpu: "", memory: "1Gi", "example.com/nic": "2k", "example.com/fpga": "" },
        limits: { memory: "1073741824", "example.com/nic": "2000" },
      },
    };
    const objects = render(program, { values: withSettings(settings) });
    const { kubernetes } = parseSettings(find(objects, "ConfigMap").data["gateway.toml"], "gateway.toml");
    expect(kubernetes.supervisor_resources.limits).toEqual({ cpu: "100m" });
  });

  it("is no text at all: what is no amount is refused by the schema", () => {
    expect(refusal(program, { values: { resources: { requests: { cpu: "lots" } } } })).toMatch(/requests[./]cpu/);
  });

  it("is told as the gateway tells it, whatever the units", () => {
    const units = ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"];
    const quantity = fc
      .tuple(fc.integer({ min: 1, max: 4096 }), fc.constantFrom("", ".5", "."), fc.constantFrom(...units))
      .map((parts) => parts.join(""));
    const chart = mkdtempSync(join(tmpdir(), "openshell-quantities-"));
    try {
      mkdirSync(join(chart, "templates"));
      writeFileSync(join(chart, "Chart.yaml"), "apiVersion: v2\nname: quantities\nversion: 0.0.0\n");
      writeFileSync(join(chart, "templates", "_helpers.tpl"), quantityHelper.print());
      const [left, right] = ["left", "right"].map((name) => expression<string>({ kind: "variable", name }));
      const verdict = printExpression(isAbove(left ?? "", right ?? ""));
      writeFileSync(
        join(chart, "templates", "verdicts.yaml"),
        `verdicts:\n{{- range $.Values.pairs }}{{- $left := index . 0 }}{{- $right := index . 1 }}\n- {{ ${verdict} }}\n{{- end }}\n`,
      );
      const pairs = fc.sample(fc.tuple(quantity, quantity), 400);
      // Units that mean the same, which chance would hardly pair.
      pairs.push(["100m", "0.1"], ["1Gi", "1073741824"], ["2e3", "2k"], ["1000n", "1u"], ["7", "7."]);
      const { verdicts } = parse(template(program, { chart, values: { pairs } }));
      expect(verdicts).toEqual(pairs.map(([one, other]) => compareQuantities(one, other) > 0));
    } finally {
      rmSync(chart, { recursive: true, force: true });
    }
  });
});
