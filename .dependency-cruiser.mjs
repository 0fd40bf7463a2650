/** The arrows between the rooms of src/ (docs/architecture.md). A room may import the rooms listed for it, through their doors. */
const arrows = {
  common: [],
  wire: ["common"],
  boundary: ["wire", "common"],
  config: ["common"],
  manifests: ["config", "common"],
  chart: ["config", "manifests", "common"],
  kube: ["common"],
  pki: ["kube", "config", "common"],
  driver: ["manifests", "config", "kube", "pki", "wire", "common"],
  gateway: ["driver", "config", "manifests", "pki", "boundary", "wire", "common"],
  supervisor: ["boundary", "wire", "common"],
  runtime: ["boundary", "wire", "common"],
  cli: ["wire", "boundary", "common"],
};

/** Files besides index.ts that other rooms may import. */
const doors =
  "(?:src/[^/]+/index\\.ts|src/common/[^/]+\\.ts|src/manifests/(?:names|labels|permissions|managed-namespaces-policy)\\.ts|src/pki/certificates\\.ts|src/wire/gen/[^/]+\\.(?:ts|js|d\\.ts))$";

export default {
  forbidden: [
    {
      name: "no-circular",
      severity: "error",
      from: { path: "^(src|e2e|images)" },
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    { name: "no-unresolvable", severity: "error", from: {}, to: { couldNotResolve: true } },
    {
      name: "src-knows-only-src",
      comment: "src/ never imports from e2e/ or images/",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(e2e|images)/" },
    },
    ...Object.entries(arrows).map(([room, allowed]) => ({
      name: `arrows-of-${room}`,
      comment: `src/${room} may import ${allowed.length > 0 ? allowed.join(", ") : "no other room"}`,
      severity: "error",
      from: { path: `^src/${room}/` },
      to: { path: "^src/", pathNot: [room, ...allowed].map((name) => `^src/${name}/`) },
    })),
    ...Object.keys(arrows).map((room) => ({
      name: `through-the-door-of-${room}`,
      comment: "a room is entered through its index.ts or one of its named doors",
      severity: "error",
      from: { path: "^src/", pathNot: `^src/${room}/` },
      to: { path: `^src/${room}/`, pathNot: doors },
    })),
    {
      name: "raw-kubernetes-client-only-in-kube",
      comment: "nothing above src/kube touches a raw client (types may be imported)",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/kube/" },
      to: { path: "node_modules/@kubernetes/client-node", dependencyTypesNot: ["type-only"] },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "^(charts|docs)/" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: { exportsFields: ["exports"], conditionNames: ["import", "node", "default"] },
  },
};
