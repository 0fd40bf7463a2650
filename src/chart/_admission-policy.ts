/** What this chart writes of an `admissionregistration.k8s.io/v1` ValidatingAdmissionPolicy. */
export interface AdmissionPolicyProps {
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly spec: {
    readonly failurePolicy: "Fail";
    readonly matchConstraints: {
      readonly namespaceSelector?: { readonly matchLabels: Readonly<Record<string, string>> };
      readonly resourceRules: readonly {
        readonly apiGroups: readonly string[];
        readonly apiVersions: readonly string[];
        readonly operations: readonly string[];
        readonly resources: readonly string[];
      }[];
    };
    readonly matchConditions: readonly { readonly name: string; readonly expression: string }[];
    readonly variables: readonly { readonly name: string; readonly expression: string }[];
    readonly validations: readonly { readonly expression: string; readonly message: string; readonly reason: string }[];
  };
}

export interface AdmissionPolicyBindingProps {
  readonly metadata: AdmissionPolicyProps["metadata"];
  readonly spec: { readonly policyName: string; readonly validationActions: readonly string[] };
}
