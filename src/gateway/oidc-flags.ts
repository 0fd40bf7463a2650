import type { Option } from "commander";
import type { OidcSettings, SettingOverride } from "../config/index.ts";
import { flagOrVariable } from "./flags.ts";

type Kind = "text" | "number" | "list" | "switch";

/** Every setting of [openshell.gateway.oidc] can be said by a flag and by a variable, whose names follow from the setting's. */
const kinds: Readonly<Record<keyof OidcSettings, Kind>> = {
  issuer: "text",
  audience: "text",
  jwks_ttl_secs: "number",
  jwks_allowed_origins: "list",
  dangerously_allow_insecure_http: "switch",
  ca_cert_path: "text",
  roles_claim: "text",
  admin_role: "text",
  user_role: "text",
  scopes_claim: "text",
};

const names = Object.keys(kinds) as (keyof OidcSettings)[];
const flagOf = (name: string) => `--oidc-${name.replaceAll("_", "-")}`;

const placeholders: Readonly<Record<Kind, string>> = {
  text: "<text>",
  number: "<number>",
  list: "<origins>",
  switch: "[true|false]",
};

/** `--oidc-issuer`, $OPENSHELL_OIDC_ISSUER and so on, for commander. */
export function oidcFlags(): Option[] {
  return names.map((name) =>
    flagOrVariable(
      `${flagOf(name)} ${placeholders[kinds[name]]}`,
      `OPENSHELL_OIDC_${name.toUpperCase()}`,
      `oidc.${name}`,
    ).preset("true"),
  );
}

/** What the flags say over the file. @param given commander's options, flags and variables joined */
export function oidcOverrides(given: object): SettingOverride[] {
  const options = given as Readonly<Record<string, unknown>>;
  return names.flatMap((name) => {
    const text = options[`oidc${name.replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())}`];
    if (typeof text !== "string") return [];
    return [{ key: `openshell.gateway.oidc.${name}`, from: flagOf(name), value: () => readAs(kinds[name], text) }];
  });
}

/** What cannot be read as its kind is left for the settings to refuse by name. */
function readAs(kind: Kind, text: string): unknown {
  switch (kind) {
    case "text":
      return text;
    case "number":
      return /^\d+$/.test(text) ? Number(text) : text;
    case "list":
      return text
        .split(",")
        .map((one) => one.trim())
        .filter((one) => one !== "");
    case "switch":
      return /^(1|true)$/i.test(text) ? true : /^(0|false|)$/i.test(text) ? false : text;
  }
}
