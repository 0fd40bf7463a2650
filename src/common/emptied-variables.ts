/**
 * Variables by which somebody could make our Node load their code, or write what it does where the agent reads. The Pod spec empties them in
 * every container, and the runtime hands none of the emptied on.
 */
export const emptiedVariables = [
  "NODE_OPTIONS",
  "NODE_PATH",
  "NODE_EXTRA_CA_CERTS",
  "NODE_TLS_REJECT_UNAUTHORIZED",
  "LD_PRELOAD",
  "LD_LIBRARY_PATH",
  "LD_AUDIT",
  "OPENSSL_CONF",
  "OPENSSL_MODULES",
  "NODE_COMPILE_CACHE",
  "NODE_V8_COVERAGE",
  "NODE_DEBUG",
  "NODE_DEBUG_NATIVE",
] as const;
