import fc from "fast-check";
import { stringify } from "smol-toml";
import { describe, expect, it } from "vitest";
import { OpenShellError } from "../common/errors.ts";
import { defaultSettings, jsonSchemaOf, parseSettings, settingRules, tables } from "./index.ts";
import { holds, keysOf } from "./rules.ts";

const head = "[openshell]\nversion = 2\n";

function refusal(toml: string, purpose: "serve" | "render" = "render"): OpenShellError {
  try {
    parseSettings(toml, "gateway.toml", purpose);
  } catch (error) {
    if (error instanceof OpenShellError) return error;
    throw error;
  }
  throw new Error("the settings were accepted");
}

const problems = (toml: string, purpose?: "serve" | "render") =>
  refusal(toml, purpose).details.violations?.map(({ description }) => description);

const driver = (lines: string) => `${head}[openshell.drivers.kubernetes]\n${lines}\n`;

describe("reading gateway.toml", () => {
  it("gives the defaults for what is not written", () => {
    expect(parseSettings(head, "gateway.toml", "render")).toEqual(defaultSettings());
    expect(defaultSettings().kubernetes.sandbox_runtime.pod_anti_affinity).toBe("off");
    expect(defaultSettings().kubernetes.supervisor_resources.requests).toEqual({ cpu: "50m", memory: "96Mi" });
  });

  it("reads what is written", () => {
    const { kubernetes } = parseSettings(
      driver(
        'default_runtime_class_name = "kata"\nsupervisor_runtime_class_name = "runc"\nsandbox_runtime = { pod_anti_affinity = "required" }',
      ),
      "gateway.toml",
      "render",
    );
    expect(kubernetes).toMatchObject({
      default_runtime_class_name: "kata",
      supervisor_runtime_class_name: "runc",
      sandbox_runtime: { pod_anti_affinity: "required", boundary_port: 5500 },
    });
  });

  it("takes any host name where only the chart reads it, and the chart's schema has the form", () => {
    const { gateway } = parseSettings(
      `${head}[openshell.gateway]\nserver_sans = ["192.0.2.10", "Gateway.example.com"]\n`,
      "gateway.toml",
      "render",
    );
    expect(gateway.server_sans).toEqual(["192.0.2.10", "Gateway.example.com"]);
    const form = new RegExp(String(jsonSchemaOf(tables["openshell.gateway"]).properties?.server_sans?.items?.pattern));
    const names = ["gateway.example.com", "*.example.com", ...gateway.server_sans];
    expect(names.filter((name) => form.test(name))).toEqual(["gateway.example.com", "*.example.com"]);
  });

  it("merges resources key by key and lets an empty text remove a default", () => {
    const { kubernetes } = parseSettings(
      driver(
        'supervisor_resources = { requests = { cpu = "", memory = "64Mi", "example.com/fpga" = "1" }, limits = { memory = "", "example.com/fpga" = "1" } }',
      ),
      "gateway.toml",
      "render",
    );
    expect(kubernetes.supervisor_resources).toEqual({
      requests: { memory: "64Mi", "example.com/fpga": "1" },
      limits: { "example.com/fpga": "1" },
    });
  });

  it.each([
    "my_app:dev",
    "team/my__app",
    "localhost:5000/a-b/c_d:1",
    `registry.example.com/x@sha256:${"a".repeat(64)}`,
  ])("takes the image %j", (image) => {
    expect(parseSettings(driver(`default_image = "${image}"`), "x", "render").kubernetes.default_image).toBe(image);
  });

  it.each([
    ["if_not_present", "IfNotPresent"],
    ["always", "Always"],
    ["Never", "Never"],
    ["", ""],
  ])("takes the pull policy %j", (given, expected) => {
    expect(parseSettings(driver(`image_pull_policy = "${given}"`), "x", "render").kubernetes.image_pull_policy).toBe(
      expected,
    );
  });

  it.each([
    [0, 3600],
    [-5, 3600],
    [60, 600],
    [1000, 1000],
    [999_999, 86_400],
  ])("brings a token life of %d s to %d s", (given, expected) => {
    expect(parseSettings(driver(`sa_token_ttl_secs = ${given}`), "x", "render").kubernetes.sa_token_ttl_secs).toBe(
      expected,
    );
  });
});

describe("the version", () => {
  it.each([
    [
      "",
      "missing_version",
      "gateway.toml: openshell.version is required: begin the file with [openshell] and version = 2",
    ],
    [
      "[openshell.gateway]\n",
      "missing_version",
      "gateway.toml: openshell.version (line 1) is required: begin the file with [openshell] and version = 2",
    ],
    [
      "[openshell]\nversion = 1\n",
      "legacy_schema_v1",
      "gateway.toml: openshell.version (line 2) is 1, which is no longer read: set version = 2 and repeat in each driver's table what it inherited from [openshell.gateway]",
    ],
    [
      "[openshell]\nversion = 3\n",
      "future_version",
      "gateway.toml: openshell.version (line 2) is 3, but this gateway reads version 2: use a newer gateway or set version = 2",
    ],
    [
      '[openshell]\nversion = "2"\n',
      "unsupported_version",
      'gateway.toml: openshell.version (line 2) is "2": set version = 2',
    ],
    ["[openshell\n", "malformed", expect.stringMatching(/^gateway\.toml: line 1, column \d+: not valid TOML: /)],
  ])("of %j is refused as %s", (toml, reason, sentence) => {
    const error = refusal(toml);
    expect(error.details.reason).toBe(reason);
    expect(error.message).toEqual(sentence);
    expect(error.code).toBe("invalid-argument");
  });
});

const nodeTerms = "workload_affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
const nodeTerm = (term: string) => `${nodeTerms} = [${term}]`;
const nodeExpressions = `${nodeTerms}[0].matchExpressions`;
const nodeExpression = (expression: string) => nodeTerm(`{ matchExpressions = [${expression}] }`);

describe("a wrong setting", () => {
  const path = "openshell.drivers.kubernetes";
  it.each([
    ['pod_anti_afinity = "off"', "pod_anti_afinity (line 4): is unknown; known here: "],
    ["supervisor_resource = {}", "supervisor_resource (line 4): is unknown; did you mean supervisor_resources?"],
    ["allow_driver_config = 1", "allow_driver_config (line 4): expected true or false, found 1"],
    ["namespace = 5", "namespace (line 4): expected text in quotes, found 5"],
    ["sandbox_uid = 1.5", "sandbox_uid (line 4): expected a whole number, found 1.5"],
    ["sandbox_uid = 0", "sandbox_uid (line 4): expected a number of at least 1, found 0"],
    ["sandbox_uid = 2147483648", "sandbox_uid (line 4): expected a number of at most 2147483647, found 2147483648"],
    [
      'workload_resources = { requests = { cpus = "1" } }',
      'workload_resources.requests.cpus (line 4): expected cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or an extended resource such as "nvidia.com/gpu"',
    ],
    [
      "workload_affinity = { nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecutions = {} } }",
      "workload_affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecutions (line 4): is unknown; did you mean requiredDuringSchedulingIgnoredDuringExecution?",
    ],
    [
      'supervisor_affinity = { podAntiAffinity = { requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "zone", matchLabelKeys = ["x"] }] } }',
      "supervisor_affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys (line 4): is unknown; known here: labelSelector, namespaces, namespaceSelector, topologyKey",
    ],
    ["image_pull_secrets = {}", "image_pull_secrets (line 4): expected an array, found {}"],
    ["supervisor_labels = []", "supervisor_labels (line 4): expected a table, found []"],
    [
      'workspace_default_storage_size = "2 GB"',
      'workspace_default_storage_size (line 4): expected a Kubernetes quantity above zero such as "500m", "1.5" or "2Gi", found "2 GB"',
    ],
    [
      'workload_resources = { limits = { memory = "127Mi" } }',
      'workload_resources.limits.memory (line 4): expected a memory limit of at least 128Mi, because the runtime and the agent share it, found "127Mi"',
    ],
    [
      'supervisor_resources.requests.memory = "300Mi"',
      'supervisor_resources.requests.memory (line 4): expected a request that is not above its limit 256Mi; lower the request or raise limits.memory, found "300Mi"',
    ],
    [
      'supervisor_resources.limits.memory = "64Mi"',
      'supervisor_resources.limits.memory (line 4): expected a limit of at least 96Mi, the default request; raise it or lower requests.memory, found "64Mi"',
    ],
    [
      'workload_resources.limits = { "nvidia.com/gpu" = "0.5" }',
      'workload_resources.limits."nvidia.com/gpu" (line 4): expected a whole number such as "1" of an extended resource, found "0.5"',
    ],
    [
      'workload_resources.limits = { "example.com/nic" = "1500m" }',
      'workload_resources.limits."example.com/nic" (line 4): expected a whole number such as "1" of an extended resource, found "1500m"',
    ],
    [
      'workload_resources.requests = { "nvidia.com/gpu" = "1" }',
      'workload_resources.requests."nvidia.com/gpu" (line 4): expected a request that is also the limit, as Kubernetes wants it of all but cpu, memory and ephemeral-storage; remove the request, or set its limit to the same, found "1"',
    ],
    [
      'workload_resources = { requests = { hugepages-2Mi = "2Mi" }, limits = { hugepages-2Mi = "4Mi" } }',
      'workload_resources.requests.hugepages-2Mi (line 4): expected a request that is also the limit, as Kubernetes wants it of all but cpu, memory and ephemeral-storage; remove the request, or set its limit to the same, found "2Mi"',
    ],
    [
      nodeExpression('{ key = "a b", operator = "Exists" }'),
      `${nodeExpressions}[0].key (line 4): expected a key such as "team" or "example.com/team", found "a b"`,
    ],
    [
      nodeExpression('{ key = "team", operator = "In" }'),
      `${nodeExpressions}[0].values (line 4): is required: expected at least one value, since operator "In" compares with them`,
    ],
    [
      nodeExpression('{ key = "team", operator = "NotIn", values = [] }'),
      `${nodeExpressions}[0].values (line 4): expected at least one value, since operator "NotIn" compares with them, found []`,
    ],
    [
      nodeExpression('{ key = "team", operator = "Exists", values = ["a"] }'),
      `${nodeExpressions}[0].values (line 4): expected no values, since operator "Exists" looks at the key alone, found ["a"]`,
    ],
    ...['["a"]', '["1", "2"]', "[]"].map((values): [string, string] => [
      nodeExpression(`{ key = "cpus", operator = "Gt", values = ${values} }`),
      `${nodeExpressions}[0].values (line 4): expected one whole number in quotes, since operator "Gt" compares with it, found ${values.replaceAll(", ", ",")}`,
    ]),
    [
      nodeExpression('{ key = "team", operator = "In", values = ["a b"] }'),
      `${nodeExpressions}[0].values[0] (line 4): expected a label value: letters, digits, '-', '_' and '.', at most 63 characters, found "a b"`,
    ],
    [
      nodeTerm('{ matchFields = [{ key = "spec.name", operator = "In", values = ["a"] }] }'),
      `${nodeTerms}[0].matchFields[0].key (line 4): expected "metadata.name", found "spec.name"`,
    ],
    [
      nodeTerm('{ matchFields = [{ key = "metadata.name", operator = "In", values = ["a", "b"] }] }'),
      `${nodeTerms}[0].matchFields[0].values (line 4): expected an array with at most one entry, found ["a","b"]`,
    ],
    [
      'supervisor_affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "a zone" }]',
      'supervisor_affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey (line 4): expected a key such as "team" or "example.com/team", found "a zone"',
    ],
    [
      'sandbox_runtime.pod_anti_affinity = "require"',
      'sandbox_runtime.pod_anti_affinity (line 4): expected one of "off", "preferred", "required", found "require"; did you mean "required"?',
    ],
    [
      'workspace_mode = "mine"',
      'workspace_mode (line 4): expected one of "shared", "managed", "operator", found "mine"',
    ],
    [
      "sandbox_runtime.boundary_port = 80",
      "sandbox_runtime.boundary_port (line 4): expected a number of at least 1024, found 80",
    ],
    [
      'image_pull_policy = "newer"',
      'image_pull_policy (line 4): expected one of "", "Always", "IfNotPresent", "Never", "always", "if_not_present", "never", found "newer"',
    ],
    [
      'supervisor_labels = { "openshell.ai/pair-id" = "x" }',
      'supervisor_labels."openshell.ai/pair-id" (line 4): expected a key outside the reserved prefixes openshell.ai/, internal.openshell.ai/, agents.x-k8s.io/',
    ],
    [
      'managed_namespaces.labels = { "pod-security.kubernetes.io/enforce-version" = "v1.30" }',
      'managed_namespaces.labels."pod-security.kubernetes.io/enforce-version" (line 4): expected a key outside the reserved prefixes openshell.ai/, internal.openshell.ai/, agents.x-k8s.io/, and outside pod-security.kubernetes.io/, which pod_security decides about',
    ],
    [
      'grpc_endpoint = "https://me:secret@host:1"',
      'grpc_endpoint (line 4): expected an endpoint such as "https://gateway.example.com:8080", without path, query or user, found ',
    ],
    [
      'app_armor_profile = "none"',
      'app_armor_profile (line 4): expected empty, Unconfined, RuntimeDefault or Localhost/<profile>, found "none"',
    ],
    [
      'workload_tolerations = [{ key = "a", effect = "NoSchedul" }]',
      'workload_tolerations[0].effect (line 4): expected one of "NoSchedule", "PreferNoSchedule", "NoExecute", found "NoSchedul"; did you mean "NoSchedule"?',
    ],
    [
      'workload_tolerations = [{ key = "a", operator = "Exists", value = "b" }]',
      'workload_tolerations[0].value (line 4): expected no value, since operator "Exists" looks at the key alone, found "b"',
    ],
    [
      'supervisor_tolerations = [{ value = "b", effect = "NoSchedule" }]',
      'supervisor_tolerations[0] (line 4): expected a toleration with a key, or with operator "Exists" for every taint, found {"value":"b","effect":"NoSchedule"}',
    ],
    [
      'workload_tolerations = [{ key = "a", effect = "NoSchedule", tolerationSeconds = 5 }]',
      'workload_tolerations[0].tolerationSeconds (line 4): expected no time, or effect "NoExecute" beside it, found 5',
    ],
    [
      'https_proxy = "http://proxy:3128"',
      "https_proxy (line 4): is not a setting of this gateway: a NetworkPolicy of yours, named in sandbox_runtime.tolerated_network_policies, opens the way",
    ],
    ["constructor = 1", "constructor (line 4): is unknown; known here: "],
    ...["workload_labels", "workload_annotations", "supervisor_labels", "supervisor_node_selector"].flatMap((setting) =>
      ["constructor", "__proto__"].map((key): [string, string] => [
        `${setting} = { ${key} = "x" }`,
        `${setting}.${key} (line 4): expected a key other than "constructor" and "__proto__"`,
      ]),
    ),
    [
      'workload_affinity = { podAffinity = { requiredDuringSchedulingIgnoredDuringExecution = [{ topologyKey = "a", labelSelector = { matchLabels = { __proto__ = "x" } } }] } }',
      'workload_affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels.__proto__ (line 4): expected a key other than "constructor" and "__proto__"',
    ],
    [
      'provisioning_timeout = "5 minutes"',
      'provisioning_timeout (line 4): expected a duration of at least one second such as "30s", "10m" or "2h", or "" for none, found "5 minutes"',
    ],
    ...["0s", "0h", "999ms", "00m"].map((given): [string, string] => [
      `provisioning_timeout = "${given}"`,
      `provisioning_timeout (line 4): expected a duration of at least one second such as "30s", "10m" or "2h", or "" for none, found "${given}"`,
    ]),
  ])("%s is explained", (line, sentence) => {
    const found = problems(driver(line));
    expect(found).toHaveLength(1);
    expect(found?.[0]).toContain(`${path}.${sentence}`);
  });

  it("is none of what Kubernetes takes", () => {
    const { kubernetes } = parseSettings(
      driver(`workload_resources.limits = { "example.com/nic" = "2k", hugepages-2Mi = "4Mi" }
workload_resources.requests = { "example.com/nic" = "2000", hugepages-2Mi = "4Mi" }
provisioning_timeout = "1000ms"
${nodeTerm(
  `{ matchExpressions = [
    { key = "team", operator = "In", values = ["a", ""] },
    { key = "example.com/team", operator = "DoesNotExist", values = [] },
    { key = "cpus", operator = "Lt", values = ["16"] },
  ], matchFields = [{ key = "metadata.name", operator = "NotIn", values = ["node-1"] }] }`,
)}`),
      "gateway.toml",
      "render",
    );
    expect(kubernetes.workload_affinity.nodeAffinity).toBeDefined();
  });

  it.each([
    ["openshell.gateway.oidc.issuer", "https://me:hunter2@login.example.com"],
    ["openshell.gateway.oidc.jwks_allowed_origins", ["https://keys.example.com", "https://me:hunter@2@a.example.com"]],
    ["openshell.drivers.kubernetes.grpc_endpoint", "https://me:hunter2@gateway:8080"],
    ["openshell.drivers.kubernetes.namespace", "https://hunter2@gateway:8080/x@y"],
  ])("never tells a password: %s", (key, value) => {
    const table = key.slice(0, key.lastIndexOf("."));
    const error = refusal(`${head}[${table}]\n${key.slice(table.length + 1)} = ${JSON.stringify(value)}\n`);
    expect(error.message).toContain("//…@");
    expect(JSON.stringify([error.message, error.details])).not.toContain("hunter");
  });

  it.each([
    "[:::::]:8080",
    "[1.2.3.4]:8080",
    "[::1%lo]:8080",
    "01.2.3.4:8080",
    "1.2.3.256:8080",
    "::1:8080",
    "0.0.0.0:65536",
  ])("is the address %s", (address) => {
    expect(problems(`${head}[openshell.gateway]\nbind_address = "${address}"\n`)).toEqual([
      `openshell.gateway.bind_address (line 4): expected an address and a port such as "0.0.0.0:8080" or "[::]:8080", found "${address}"`,
    ]);
  });

  it.each(["0.0.0.0:8080", "[::]:8080", "[2001:db8::10]:1", "[::ffff:192.0.2.1]:65535"])("is not %s", (address) => {
    const toml = `${head}[openshell.gateway]\nbind_address = "${address}"\n`;
    expect(parseSettings(toml, "gateway.toml", "render").gateway.bind_address).toBe(address);
  });

  it("does not hide a rule that another one breaks, where a default is in its way", () => {
    const toml = `${head}[openshell.gateway]\nhealth_bind_address = "127.0.0.1:17670"\n[openshell.drivers.kubernetes.supervisor_resources.limits]\nmemory = "64Mi"\n`;
    expect(problems(toml)).toEqual([
      expect.stringContaining("health_bind_address and bind_address are the same address"),
      expect.stringContaining("supervisor_resources.limits.memory (line 6): expected a limit of at least 96Mi"),
    ]);
  });

  it("does not hide another one: all are named, in the order of their lines", () => {
    const toml = `${head}[openshell.gateway]\nlog_level = "inof"\nbind_adress = "x"\n[openshell.drivers.docker]\nx = 1\n[openshell.drivers.kubernetes]\nsandbox_uid = 0\nsupervisor_resources = { requests = { cpu = "5x", memory = "1Gi" } }\n`;
    expect(problems(toml)?.map((problem) => problem.split(":")[0])).toEqual([
      "openshell.gateway.log_level (line 4)",
      "openshell.gateway.bind_adress (line 5)",
      "openshell.drivers.docker (line 6)",
      "openshell.drivers.kubernetes.sandbox_uid (line 9)",
      "openshell.drivers.kubernetes.supervisor_resources.requests.cpu (line 10)",
      "openshell.drivers.kubernetes.supervisor_resources.requests.memory (line 10)",
    ]);
    expect(refusal(toml).message).toMatch(/^gateway\.toml has 6 problems:\n {2}openshell/);
  });

  it("is never answered with anything but settings or an explained refusal", () => {
    const value = fc.oneof(
      fc.string(),
      fc.integer(),
      fc.boolean(),
      fc.array(fc.string()),
      fc.dictionary(fc.stringMatching(/^[a-z]{1,4}$/), fc.string()),
    );
    const keys = Object.keys(defaultSettings().kubernetes);
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...keys, "other"), value, { maxKeys: 6 }), (table) => {
        const toml = stringify({ openshell: { version: 2, drivers: { kubernetes: table } } });
        try {
          parseSettings(toml, "x", "render");
        } catch (error) {
          expect(error).toBeInstanceOf(OpenShellError);
          expect((error as OpenShellError).details.violations?.length).toBeGreaterThan(0);
        }
      }),
    );
  });
});

describe("settings that contradict each other", () => {
  const tls = '[openshell.gateway.tls]\ncert_path = "/c"\nkey_path = "/k"\n';
  const jwt = '[openshell.gateway.gateway_jwt]\nsigning_key_path = "/s"\npublic_key_path = "/p"\nkid_path = "/i"\n';
  const endpoint = '[openshell.drivers.kubernetes]\ngrpc_endpoint = "https://g:1"\n';
  const gateway = (lines: string) => `${head}[openshell.gateway]\n${lines}\n`;
  const complete =
    gateway('master_secret_path = "/m"') + tls.replace("key_path", 'client_ca_path = "/ca"\nkey_path') + jwt + endpoint;

  it("are none in a complete file", () => {
    expect(
      parseSettings(`${complete}[openshell.gateway.mtls_auth]\nenabled = true\n`, "x").gateway.mtls_auth.enabled,
    ).toBe(true);
  });

  it("are none with users by token, by certificate, or by both", () => {
    const oidc = '[openshell.gateway.oidc]\nissuer = "https://login.example.com/realms/main/"\n';
    const both = `${complete}${oidc}admin_role = ""\nuser_role = ""\n[openshell.gateway.mtls_auth]\nenabled = true\n`;
    expect(parseSettings(complete + oidc, "x").gateway.oidc).toEqual({
      issuer: "https://login.example.com/realms/main/",
      audience: "openshell-cli",
      jwks_ttl_secs: 3600,
      jwks_allowed_origins: [],
      dangerously_allow_insecure_http: false,
      ca_cert_path: "",
      roles_claim: "realm_access.roles",
      admin_role: "openshell-admin",
      user_role: "openshell-user",
      scopes_claim: "",
    });
    expect(parseSettings(both, "x").gateway.mtls_auth.enabled).toBe(true);
    const local = "dangerously_allow_insecure_http = true\n";
    expect(
      parseSettings(complete + oidc.replace("https://login.example.com", "http://[::1]:8") + local, "x"),
    ).toBeDefined();
  });

  it.each([
    "login.example.com",
    "http://login.example.com",
    "http://localhost:8080",
    "http://127.0.0.1.example.com",
    "https://user:secret@login.example.com",
    "https://login.example.com?tenant=1",
    "ftp://127.0.0.1",
  ])("know no issuer like %s", (issuer) => {
    expect(problems(gateway(`oidc.issuer = ${JSON.stringify(issuer)}`))).toEqual([
      expect.stringMatching(/^openshell\.gateway\.oidc\.issuer \(line 4\): expected an issuer such as /),
    ]);
  });

  it("let no setting of OIDC stand without an issuer, but those that say what holds anyway", () => {
    const others = {
      audience: '"a"',
      jwks_ttl_secs: "60",
      jwks_allowed_origins: '["https://keys.example.com"]',
      dangerously_allow_insecure_http: "true",
      ca_cert_path: '"/ca"',
      roles_claim: '"groups"',
      admin_role: '"a"',
      user_role: '"u"',
      scopes_claim: '"scope"',
    };
    const { issuer: _, ...defaults } = defaultSettings().gateway.oidc;
    expect(Object.keys(others)).toEqual(Object.keys(defaults));
    const sentence = /have no effect without oidc\.issuer; name the provider or leave them out$/;
    for (const [name, value] of Object.entries(others)) {
      const found = problems(gateway(`oidc.${name} = ${value}`), "render");
      expect(found, name).toEqual([expect.stringMatching(sentence)]);
      expect(
        parseSettings(gateway(`oidc = { ${name} = ${JSON.stringify(defaults[name as "audience"])} }`), "x", "render"),
      ).toBeDefined();
    }
  });

  const broken: readonly (readonly [string, string])[] = [
    ["disable_tls = true listens", gateway("disable_tls = true") + tls],
    ["the gateway listens with TLS but has no certificate", head],
    ["mtls_auth.enabled = true needs TLS,", gateway("disable_tls = true\nmtls_auth.enabled = true")],
    ["mtls_auth.enabled = true needs tls.client_ca_path", gateway("mtls_auth.enabled = true") + tls],
    ["no user could connect: ", complete],
    ["no user could connect, because without TLS", gateway("disable_tls = true")],
    ["oidc.issuer is an http:// address", gateway('oidc.issuer = "http://127.0.0.1:9/a"')],
    ["oidc.admin_role and oidc.user_role go together", gateway('oidc = { issuer = "https://i", admin_role = "" }')],
    ["oidc.admin_role and oidc.user_role go together", gateway('oidc = { issuer = "https://i", user_role = "" }')],
    ["the settings of [openshell.gateway.oidc] have no effect without oidc.issuer", gateway('oidc.audience = "a"')],
    ["no supervisor could connect", head],
    ["the keys of sandboxes are derived from a secret", head],
    ["gateway_jwt.gateway_id and gateway_id of", `${head + jwt}[openshell.drivers.kubernetes]\ngateway_id = "other"\n`],
    [
      "health_bind_address and bind_address are the same",
      gateway('bind_address = "0.0.0.0:1"\nhealth_bind_address = "0.0.0.0:1"'),
    ],
    [
      "metrics_bind_address and bind_address are the same",
      gateway('bind_address = "0.0.0.0:1"\nmetrics_bind_address = "0.0.0.0:1"'),
    ],
    [
      "metrics_bind_address and health_bind_address are the same",
      gateway('health_bind_address = "0.0.0.0:1"\nmetrics_bind_address = "0.0.0.0:1"'),
    ],
    ['workspace_mode = "operator" has to know', driver('workspace_mode = "operator"')],
    [
      "operator_namespace_file and operator_namespace_label both",
      driver('workspace_mode = "operator"\noperator_namespace_label = "team"\noperator_namespace_file = "/list"'),
    ],
    [
      "operator_namespace_label and operator_namespace_file are read only",
      driver('workspace_mode = "managed"\noperator_namespace_label = "team"'),
    ],
    ["image_pull_secrets name Secrets", driver('workspace_mode = "managed"\nimage_pull_secrets = ["registry"]')],
    ["supervisors need grpc_endpoint", head],
    ["grpc_endpoint is an http:// address", driver('grpc_endpoint = "http://g:1"')],
  ];
  it.each(broken)("are refused: %s", (sentence, toml) => {
    const rule = settingRules.find((candidate) => candidate.sentence.startsWith(sentence));
    expect(rule).toBeDefined();
    expect(problems(toml, "serve")?.some((problem) => problem.endsWith(`: ${rule?.sentence}`))).toBe(true);
  });

  it("are all covered by the table above, and name every setting they read", () => {
    const uncovered = settingRules.filter((rule) => !broken.some(([start]) => rule.sentence.startsWith(start)));
    expect(uncovered.map(({ sentence }) => sentence)).toEqual([]);
    for (const rule of settingRules) expect(rule.keys).toEqual(expect.arrayContaining(keysOf(rule.refusedWhen)));
  });

  it("are not complained about when one of them is wrong by itself", () => {
    expect(problems(gateway('disable_tls = "yes"') + tls)).toEqual([
      'openshell.gateway.disable_tls (line 4): expected true or false, found "yes"',
    ]);
  });

  it("treats text, lists and tables alike as empty", () => {
    for (const value of ["", [], {}, undefined, null]) expect(holds({ empty: "x" }, () => value)).toBe(true);
    for (const value of ["a", [0], { a: 1 }, false, 0]) expect(holds({ empty: "x" }, () => value)).toBe(false);
  });
});
