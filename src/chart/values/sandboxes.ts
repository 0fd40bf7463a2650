import { z } from "zod";
import { setting } from "../../config/index.ts";
import { stringMap } from "./_types.ts";

/** The namespace of sandboxes, and what bounds it. */
export const sandboxValues = {
  sandboxNamespace: setting(
    z
      .strictObject({
        name: setting(z.string().default(""), "Namespace of all sandboxes; empty: <release namespace>-sandboxes."),
        create: setting(
          z.boolean().default(true),
          "Make the namespace, with Pod Security labels. It is kept on uninstall. False: it exists already.",
        ),
        podSecurity: setting(
          z.enum(["restricted", "baseline", "privileged"]).default("restricted"),
          "Pod Security level that the namespace enforces.",
        ),
        labels: setting(stringMap(), "More labels of the namespace."),
      })
      .prefault({}),
    "Where sandboxes run: apart from the gateway and its keys.",
  ),
} as const;
