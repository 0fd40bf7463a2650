import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ClaimRules, displayNameOf, rolesOf, scopesOf } from "./claims.ts";

const rules: ClaimRules = {
  rolesClaim: "realm_access.roles",
  adminRole: "openshell-admin",
  userRole: "openshell-user",
  scopesClaim: "scope",
};

describe("the roles of a token", () => {
  it.each([
    [{ realm_access: { roles: ["openshell-user"] } }, ["user"]],
    [{ realm_access: { roles: ["x", "openshell-admin", "openshell-user"] } }, ["platform-admin"]],
    [{ realm_access: { roles: "openshell-user other" } }, ["user"]],
    [{ "realm_access.roles": ["openshell-user"] }, ["user"]],
    [{ realm_access: { roles: ["openshell-users", 7, null] } }, []],
    [{ realm_access: { roles: { "openshell-admin": true } } }, []],
    [{ realm_access: ["openshell-admin"] }, []],
    [{}, []],
  ])("of %j are %j", (payload, roles) => {
    expect(rolesOf(payload, rules)).toEqual(roles);
  });

  it("are found in claims whose names are URLs", () => {
    const claim = "https://example.com/roles";
    expect(rolesOf({ [claim]: ["openshell-user"] }, { ...rules, rolesClaim: claim })).toEqual(["user"]);
  });

  it("do not matter where none are named in the settings", () => {
    expect(rolesOf({}, { ...rules, adminRole: "", userRole: "" })).toEqual(["platform-admin"]);
  });

  it("are never more than the words that are there, whatever the token holds", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.string({ minLength: 1 }), (payload, rolesClaim) => {
        const found = rolesOf(payload, { ...rules, rolesClaim });
        if (!JSON.stringify(payload).includes("openshell-")) expect(found).toEqual([]);
      }),
    );
    // What every object has is no claim: an empty token's "constructor.name" would otherwise be the role "Object".
    const inherited = { ...rules, adminRole: "Object", userRole: "Array" };
    expect(rolesOf({}, { ...inherited, rolesClaim: "constructor.name" })).toEqual([]);
    expect(rolesOf({ a: [] }, { ...inherited, rolesClaim: "a.constructor.name" })).toEqual([]);
  });
});

describe("the scopes of a token", () => {
  it.each([
    [{ scope: "sandbox:read sandbox:write" }, ["sandbox:read", "sandbox:write"]],
    [{ scope: ["sandbox:read"] }, ["sandbox:read"]],
    [{ scope: "" }, []],
    [{}, []],
  ])("of %j are %j", (payload, scopes) => {
    expect(scopesOf(payload, rules)).toEqual(scopes);
  });

  it("do not matter where the settings name no claim", () => {
    expect(scopesOf({ scope: "x" }, { ...rules, scopesClaim: "" })).toBeUndefined();
  });
});

it("a person's name is the most readable that the token holds", () => {
  expect(displayNameOf({ name: "Ann Other", preferred_username: "ann", email: "a@b" })).toBe("Ann Other");
  expect(displayNameOf({ name: " ", preferred_username: "ann" })).toBe("ann");
  expect(displayNameOf({ email: 7 })).toBeUndefined();
});
