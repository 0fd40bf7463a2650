import { readFile } from "node:fs/promises";
import { z } from "zod";
import { OpenShellError } from "../common/errors.ts";

const listOfNames = z.array(z.string().regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/));

/** What `operator_namespace_file` says. @throws failed-precondition when it is no JSON array of names */
export async function namespacesInFile(path: string): Promise<string[]> {
  try {
    return listOfNames.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (error) {
    throw new OpenShellError(
      "failed-precondition",
      `operator_namespace_file ${path} is no JSON array of names of namespaces, such as ["team-a", "team-b"]`,
      { cause: error },
    );
  }
}
