/**
 * Settings, by table, that operators know from other gateways of OpenShell and that this one does not have: what takes their place, or why
 * nothing has to.
 */
export const notHere: ReadonlyMap<string, ReadonlyMap<string, string>> = tables({
  openshell: {
    credential_drivers: "this gateway keeps no credentials of providers",
    supervisor: "nobody stands between a sandbox and its supervisor",
  },
  "openshell.gateway": {
    compute_driver_socket: "the Kubernetes driver is part of this gateway",
    credential_drivers: "this gateway keeps no credentials of providers",
    default_credential_driver: "this gateway keeps no credentials of providers",
    provider_profile_sources: "there are no provider profiles",
    ssh_session_ttl_secs: "there is no SSH: terminals and files go over the gateway under the caller's own identity",
    grpc_rate_limit_requests: "limit requests where they enter the cluster, and sandboxes by the chart's resourceQuota",
    grpc_rate_limit_window_seconds: "limit requests where they enter the cluster",
    mutation_admission_limit_per_caller: "limit sandboxes by the chart's resourceQuota",
    policy_validation_failure_mode: "a policy that this gateway cannot keep is refused when the sandbox is created",
    enable_loopback_service_http: "the gateway publishes no service of a sandbox",
    enable_websocket_tunnel:
      "an ingress in front of this gateway speaks gRPC: the chart's grpcRoute, tlsRoute or ingress",
    enable_gateway_service_routing: "the gateway publishes no service of a sandbox",
    guest_tls_ca: "sandboxes on Kubernetes have certificates of their own, made for each start",
    guest_tls_cert: "sandboxes on Kubernetes have certificates of their own, made for each start",
    guest_tls_key: "sandboxes on Kubernetes have certificates of their own, made for each start",
    otlp: "no traces are exported; metrics are on metrics_bind_address",
    ocsf_log: "the log is JSON on standard output",
    interceptors: "nobody stands between a caller and this gateway",
  },
  "openshell.gateway.tls": {
    external_cert_path: "one certificate has all names: cert_path",
    external_key_path: "one certificate has all names: key_path",
    external_server_names:
      "one certificate has all names; the chart's certManager.serverDnsNames and pkiInitJob.serverDnsNames add some",
  },
  "openshell.drivers.kubernetes": {
    resource_admission:
      "callers cannot attach Secrets, claims or volumes; classes are bounded by allowed_runtime_class_names and allowed_priority_class_names",
    managed_ssh_ingress: "there is no SSH, and no port of a sandbox that the gateway has to reach",
    ssh_socket_path: "there is no SSH",
    client_tls_secret_name: "supervisors and runtimes have certificates of their own, made for each start",
    host_gateway_ip: "a Pod has no host to go back to",
    https_proxy:
      "a NetworkPolicy of yours, named in sandbox_runtime.tolerated_network_policies, opens the way to a proxy; give its address in the sandbox's environment",
    no_proxy: "give it in the sandbox's environment",
    proxy_auth_secret_name: "a proxy that asks for a password gets it from the sandbox's environment",
    proxy_auth_secret_key: "a proxy that asks for a password gets it from the sandbox's environment",
    proxy_auth_allow_insecure: "the supervisor sends nothing to a proxy",
    proxy_connect_by_hostname: "the supervisor sends nothing to a proxy",
    proxy_ca_bundle: "put the proxy's authority into the sandbox's image",
    provider_spiffe_workload_api_socket_path: "this gateway keeps no credentials of providers",
    topology: "there is one: a pair of Pods",
    sidecar: "there is one topology: a pair of Pods",
    supervisor_sideload_method: "the supervisor has a Pod of its own",
    proxy_uid: "the supervisor has a Pod of its own",
    process_enforcement: "processes are held by the runtime in the workload's Pod, always",
  },
  "openshell.drivers.kubernetes.sandbox_runtime": {
    network_policy_enforced: "it is tried before an agent starts: fence_check",
  },
});

function tables(given: Readonly<Record<string, Readonly<Record<string, string>>>>) {
  return new Map(Object.entries(given).map(([table, keys]) => [table, new Map(Object.entries(keys))]));
}
