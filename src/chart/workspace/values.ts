/** Values of the chart for one workspace's namespace. */
import { z } from "zod";
import { dnsLabelName, objectName, setting } from "../../config/index.ts";
import { valueReferences } from "../layer/index.ts";
import { annotationMap, labelMap } from "../values/_types.ts";
import { sandboxValues } from "../values/sandboxes.ts";

export const workspaceValuesSchema = z.strictObject({
  enabled: setting(z.boolean().optional(), "For a parent chart's condition; not read by this chart."),
  global: setting(z.strictObject({}).prefault({}), "Shared with other charts; not read by this one."),
  gateway: setting(
    z
      .strictObject({
        id: setting(
          dnsLabelName(33).default("openshell"),
          "gateway_id of the gateway: its ClusterRole is named after it.",
        ),
        serviceAccount: setting(
          z
            .strictObject({
              name: setting(objectName().default("openshell"), "Name of its ServiceAccount."),
              namespace: setting(dnsLabelName().default("openshell"), "Namespace of its ServiceAccount."),
            })
            .prefault({}),
          "Who gets rights in this namespace.",
        ),
      })
      .prefault({}),
    "The gateway whose sandboxes live here.",
  ),
  serviceAccount: setting(
    z
      .strictObject({
        create: setting(z.boolean().default(true), "Make the ServiceAccount of both Pods of a pair. It has no rights."),
        name: setting(
          objectName().default("openshell-sandbox"),
          "Its name: service_account_name of the gateway, <fullname>-sandbox where its chart makes one.",
        ),
        annotations: setting(annotationMap(), "Annotations of the ServiceAccount."),
      })
      .prefault({}),
    "What the Pods of sandboxes run under.",
  ),
  rbac: setting(
    z
      .strictObject({
        create: setting(z.boolean().default(true), "Give the gateway its rights in this namespace."),
        ownRole: setting(
          z.boolean().default(false),
          "By a Role of this namespace; false: by the gateway chart's ClusterRole, which follows its version.",
        ),
      })
      .prefault({}),
    "The gateway's rights.",
  ),
  resourceQuota: setting(sandboxValues.resourceQuota.clone(), "What all sandboxes of this namespace together may use."),
  limitRange: setting(sandboxValues.limitRange.clone(), "What one container of a sandbox in this namespace may use."),
  commonLabels: setting(labelMap(), "More labels of every object."),
});

type WorkspaceValues = Required<z.output<typeof workspaceValuesSchema>>;

export const workspaceDefaults = workspaceValuesSchema.parse({}) as WorkspaceValues;

export const {
  values,
  used: usedWorkspaceValues,
  prepare,
  helpers: prepareHelpers,
} = valueReferences<WorkspaceValues>("openshell-workspace", workspaceDefaults);
