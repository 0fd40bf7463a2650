/** Services that a relay can be opened for. */
export const services = {
  launch: "openshell.boundary.v1/launch",
  exec: "openshell.boundary.v1/exec",
  files: "openshell.boundary.v1/files",
  tcp: "openshell.boundary.v1/tcp",
} as const;

/** Services that end in the runtime: the supervisor carries their bytes and reads none. */
export const piped: ReadonlySet<string> = new Set([services.exec, services.files, services.tcp]);
