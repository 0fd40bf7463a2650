/**
 * Test support: who reads a setting, as the compiler knows it. A comment, a text and another thing of the same name are no reading.
 * The compiler's API is not stable yet; package.json holds it to one version.
 */
import { join } from "node:path";
import type { Node } from "typescript/unstable/ast";
import {
  isAssignmentOperator,
  isBinaryExpression,
  isBindingElement,
  isCallExpression,
  isElementAccessExpression,
  isIdentifier,
  isObjectLiteralExpression,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isStringLiteral,
} from "typescript/unstable/ast/is";
import { API, type Project, type Snapshot } from "typescript/unstable/sync";

const repository = join(import.meta.dirname, "..", "..");
const rooms = join(repository, "src");
const config = `${import.meta.dirname}/`;

/** Of libraries the settings' types need zod alone; the others would take most of the time. */
const isNeeded = (path: string) => !/\/node_modules\/(?!zod(\/|$))./.test(path);

/** One setting, or table of settings, in the source. */
interface Declaration {
  readonly name: string;
  /** The names beside it, its own among them. */
  readonly siblings: readonly string[];
  readonly node: Node;
}

/** A program and everything that it imports. */
export class Readers implements Disposable {
  readonly #api: API;
  readonly #snapshot: Snapshot;
  readonly #project: Project;
  readonly #declarations: readonly Declaration[];
  /** Files that have a member of that name, and where. */
  readonly #members = new Map<string, Set<string>>();

  /** @param main of src/, such as `gateway/main.ts`. @param more sources by their path of src/, in place of those that are there */
  constructor(main: string, more: Readonly<Record<string, string>> = {}) {
    const project = join(repository, "tsconfig.readers.json");
    const settings = {
      extends: "./tsconfig.json",
      compilerOptions: { types: [] },
      files: [`src/${main}`],
      include: [],
    };
    const sources = new Map([[project, JSON.stringify(settings)]]);
    for (const [path, text] of Object.entries(more)) sources.set(join(rooms, path), text);
    const isThere = (path: string) => (sources.has(path) ? true : isNeeded(path) ? undefined : false);
    const fs = { readFile: (path: string) => sources.get(path), fileExists: isThere, directoryExists: isThere };
    this.#api = new API({ cwd: repository, fs });
    this.#snapshot = this.#api.updateSnapshot({ openProjects: [project] });
    const [opened] = this.#snapshot.getProjects();
    if (opened === undefined) throw new Error("the compiler opened no project");
    this.#project = opened;
    this.#declarations = this.#look();
  }

  [Symbol.dispose](): void {
    this.#snapshot.dispose();
    this.#api.close();
  }

  /**
   * Files outside src/config that read a setting.
   * @param siblings every name of its table
   */
  readersOf(name: string, siblings: readonly string[]): string[] {
    const declarations = this.#declarations.filter(
      (one) => one.name === name && one.siblings.every((sibling) => siblings.includes(sibling)),
    );
    // A name that no line of the source has, such as supervisor_labels, is put together; nothing else is called so.
    if (declarations.length === 0) return [...(this.#members.get(name) ?? [])];
    const { checker } = this.#project;
    const references = declarations.flatMap(({ node }) =>
      checker.getReferencedSymbolsForNode(node, node.getStart()).flatMap((entry) => entry.references),
    );
    const read = references
      .filter(({ path }) => isOutside(path))
      .filter((handle) => {
        const node = handle.resolve();
        return node !== undefined && isReading(node);
      });
    return [...new Set(read.map(({ path }) => path.slice(rooms.length + 1)))];
  }

  /** Every setting in src/config, and the names of members elsewhere. */
  #look(): Declaration[] {
    const { program } = this.#project;
    const found: Declaration[] = [];
    for (const path of program.getSourceFileNames().filter((file) => file.startsWith(`${rooms}/`))) {
      const visit = (node: Node): void => {
        const declaration = isOutside(path) ? undefined : declarationOf(node);
        if (declaration !== undefined) found.push(declaration);
        if (isOutside(path) && isIdentifier(node) && isReading(node)) this.#addMember(node.text, path);
        node.forEachChild(visit);
      };
      // Generated code reads no settings.
      const file = path.includes("/gen/") ? undefined : program.getSourceFile(path);
      if (file !== undefined) visit(file);
    }
    return found;
  }

  #addMember(name: string, path: string): void {
    const files = this.#members.get(name) ?? new Set();
    this.#members.set(name, files.add(path.slice(rooms.length + 1)));
  }
}

const isOutside = (path: string) => !path.startsWith(config);

/** `name: setting(…)` */
function declarationOf(node: Node): Declaration | undefined {
  if (!isPropertyAssignment(node) || !isIdentifier(node.name) || !isSetting(node.initializer)) return undefined;
  if (!isObjectLiteralExpression(node.parent)) return undefined;
  const siblings = node.parent.properties.flatMap((one) =>
    isPropertyAssignment(one) && isIdentifier(one.name) ? [one.name.text] : [],
  );
  return { name: node.name.text, siblings, node: node.name };
}

function isSetting(node: Node): boolean {
  return isCallExpression(node) && isIdentifier(node.expression) && node.expression.text === "setting";
}

/** `x.name`, `x["name"]` or `const { name } = x`; not `x.name = 1`, nor a key of a new object. */
function isReading(node: Node): boolean {
  const { parent } = node;
  if (isBindingElement(parent)) return (parent.propertyName ?? parent.name) === node;
  const isMember =
    (isPropertyAccessExpression(parent) && parent.name === node) ||
    (isElementAccessExpression(parent) && parent.argumentExpression === node && isStringLiteral(node));
  const isTarget =
    isBinaryExpression(parent.parent) &&
    parent.parent.left === parent &&
    isAssignmentOperator(parent.parent.operatorToken.kind);
  return isMember && !isTarget;
}
