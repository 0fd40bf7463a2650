/** Where the gateway finds its files: mounted by the StatefulSet, named in gateway.toml. */
export const mounts = {
  config: "/etc/openshell/gateway.toml",
  serverTls: "/etc/openshell-tls/server",
  clientCa: "/etc/openshell-tls/client-ca",
  jwt: "/etc/openshell-jwt",
  keys: "/etc/openshell-keys",
  data: "/var/openshell",
  tmp: "/tmp",
} as const;

export const files = {
  serverCertificate: `${mounts.serverTls}/tls.crt`,
  serverKey: `${mounts.serverTls}/tls.key`,
  clientCa: `${mounts.clientCa}/ca.crt`,
  jwtSigningKey: `${mounts.jwt}/signing.pem`,
  jwtPublicKey: `${mounts.jwt}/public.pem`,
  jwtKid: `${mounts.jwt}/kid`,
  masterSecret: `${mounts.keys}/master-secret`,
  keyEncryptionKey: `${mounts.keys}/key-encryption-key`,
  database: `sqlite:${mounts.data}/openshell.db`,
} as const;
