import { existsSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { isObject } from "../core/json.ts";
import { namesIn } from "../core/own-file.ts";
import { emptyText, type Format, formatFor, type Path, type PlainValue } from "./format.ts";
import { valueIn } from "./setting.ts";
import type { Target } from "./snippets.ts";
import type { Edited } from "./text-edit.ts";

/* What a description of a client consists of. The descriptions themselves are in described/, settings-files.ts lists them. */

/** What decides where a client looks for its settings. */
export interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly platform: NodeJS.Platform;
  /** Project folders that were named on the command line. */
  readonly folders: readonly string[];
}

/** An id of the table of clients, or "shell", "session", "vscode-terminal", "env-file", "mcp" and the like. */
export type ClientId = string;

/** In a pattern it stands for every name and every list index. */
export const ANY_NAME = "*";

/** A path in which ANY_NAME and regular expressions stand for names. */
export type Pattern = readonly (string | number | RegExp)[];

/** What ANY_NAME and the regular expressions of a pattern stood for, in their order. */
export type Names = readonly (string | number)[];

/** A setting that a write of keybearer changes. */
export interface Field {
  readonly path: Pattern;
  /**
   * A key may be a token, too. A stamp is a time that the client changes by itself: --undo takes it back with the rest.
   */
  readonly holds: "address" | "key" | "stamp" | "other";
  /** Where a key is in the value, as in KeyField. */
  readonly within: RegExp | null;
}

/** The fields of one file that a write may change. */
export interface FieldSet {
  readonly format: Format;
  /** No other settings are ever taken back. */
  readonly fields: readonly Field[];
  /** The content of a new file. */
  readonly empty: string;
}

/** How to read and change one file of a client, so that the client uses keybearer. */
export interface ClientSettings extends FieldSet {
  /** The files that may hold these settings. The first one that exists is written, else the last one. */
  files(where: Surroundings): readonly [string, ...string[]];
  /** null: there is none, or the token is in another file. */
  tokenIn(text: string): string | null;
  /** moved: where in the client's settings the key is that the token replaces. */
  merge(text: string, target: Target & { readonly token: string; readonly moved?: Path }): Edited;
  /** Settings that keep requests from reaching keybearer, or send a second credential. They can be removed. */
  conflicts(text: string): readonly Conflict[];
  /** Settings beside those for the requests, which keep what the client starts from folders of keybearer. */
  offers(text: string, folders: readonly string[], where: Surroundings): Offer | null;
  /** The settings of the old text that are gone from the new one. */
  removed(before: string, after: string): readonly string[];
  /** What else in the file overrides the settings. */
  notes(text: string): readonly string[];
}

export interface Conflict {
  readonly name: string;
  readonly problem: string;
  remove(text: string): Edited;
}

export interface Offer {
  /** What a person is asked. */
  readonly question: string;
  /** What it does not do. */
  readonly note: string | null;
  add(text: string): Edited;
}

/** A field of a client's own file that holds a key. */
export interface KeyField {
  readonly key: Pattern;
  /**
   * In the same file, with the first of the same names; the field need not be there yet. null: this file has no address for
   * the key.
   */
  readonly address: Pattern | null;
  /**
   * Where requests go if no address is set anywhere; null: not known, so a key without an address is reported. The tree is
   * everything in the file.
   */
  readonly builtIn: string | null | ((names: Names, tree: unknown) => string | null);
  /** Where the address may be, if it is not in the same file. */
  readonly elsewhere: Elsewhere | null;
  /** The variables from which the client takes the address, if no file has it. */
  readonly addressVariables: readonly string[];
  /** Whether the address that the client takes has the version segment. */
  readonly base: "root" | "v1";
  /**
   * in place: token and address replace key and address in the same file. rewrite: the client's settings are written as
   * `use --write` does, then the key is removed here. by hand: keybearer says what to do, and changes nothing.
   */
  readonly move: "in place" | "rewrite" | "by hand";
  /** Where the key is in the value, as three groups: what is before it, the key, what is after it. null: it is the value. */
  readonly within: RegExp | null;
  /** The field holds the name of the variable with the key. */
  readonly isName: boolean;
  /** The value is a command that prints the key. Where `within` finds one, the key is in the command itself. */
  readonly isCommand: boolean;
  /** More fields of the file that make no sense without the key, and are removed with it. */
  readonly companions: readonly Pattern[];
  /** What a person does, if it is moved by hand. */
  readonly byHand: string | null;
}

/** Files of the same client, in which only addresses are looked for. A later one wins. */
export interface Elsewhere {
  readonly files: readonly { readonly path: string; readonly format: Format }[];
  /** The address in one of the files, for a key with these names. ambiguous: the key could belong to several. */
  address(tree: unknown, names: Names): { readonly address: string } | "none" | "ambiguous";
}

/** The usual answer of Elsewhere.address(). */
export function addressAt(tree: unknown, path: Path): { readonly address: string } | "none" {
  const address = valueIn(tree, path);
  return typeof address === "string" && address !== "" ? { address } : "none";
}

export interface DescribedFile {
  readonly path: string;
  /** text: of another format. keybearer does not change it, and finds only known variables and the shapes of keys in it. */
  readonly format: Format | "text";
  readonly keys: readonly KeyField[];
  /** More fields with an address of requests, beside those of `keys`. */
  readonly addresses: readonly Pattern[];
  /** The object whose members are environment variables ([] is the file itself: shells, .env); null: none. */
  readonly variables: Path | null;
  /** Fields that are there after a login (OAuth, a subscription). A login is listed and never touched. */
  readonly logins: readonly Pattern[];
  /** What a person does by hand, for files that keybearer only reports; null: it changes them. */
  readonly byHand: string | null;
  /** In a project's folder: asked one by one, default no. */
  readonly isProject: boolean;
  /** Several clients read it. Listed here for the order; "env-file" or "shell" says what is in it. */
  readonly isShared: boolean;
  /** The client reads it instead of the files before it that have this, too: without it, the one before is read. */
  readonly replacesEarlier: boolean;
  /**
   * The program stores its keys encrypted or in a database. The file is never read: that it is there only shows that the
   * program is used.
   */
  readonly isOpaque: boolean;
}

export interface ClientDescription {
  readonly client: ClientId;
  /** In the order in which the client reads them; a later one wins. Paths need not exist. */
  files(where: Surroundings): readonly DescribedFile[];
  /** Whether `use --write` can write its settings. */
  readonly canWrite: boolean;
  /** What `use --write` writes: one or several files, in this order. The client works after each of them. */
  writes(where: Surroundings): readonly ClientSettings[];
  /** All that `use --write` may have written, also if it would write something else now. */
  mayWrite(where: Surroundings): readonly ClientSettings[];
  /** Whether the settings are useless without the name of a model. */
  readonly needsModel: boolean;
  /** The variable that the printed settings put the token into; null: they put it into a file. */
  readonly tokenVariable: string | null;
  /** What the client does with a credential that it finds in a variable beside the token in its settings. */
  withVariable(name: string): string;
}

// How descriptions are written.

const NO_KEY_FIELD: KeyField = {
  key: [],
  address: null,
  builtIn: null,
  elsewhere: null,
  addressVariables: [],
  base: "v1",
  move: "in place",
  within: null,
  isName: false,
  isCommand: false,
  companions: [],
  byHand: null,
};

export function keyField(key: Pattern, more: Partial<Omit<KeyField, "key">> = {}): KeyField {
  return { ...NO_KEY_FIELD, key, ...more };
}

export function described(
  path: string,
  format: DescribedFile["format"],
  more: Partial<Omit<DescribedFile, "path" | "format">> = {},
): DescribedFile {
  return {
    path,
    format,
    keys: [],
    addresses: [],
    variables: null,
    logins: [],
    byHand: null,
    isProject: false,
    isShared: false,
    replacesEarlier: false,
    isOpaque: false,
    ...more,
  };
}

/** What to do about a key in the settings of a whole machine. */
export const FOR_EVERY_USER =
  "these settings are for every user of this machine: ask its administrator to remove the key";

export function describedClient(
  client: ClientId,
  files: ClientDescription["files"],
  more: Partial<Omit<ClientDescription, "client" | "files" | "canWrite">> = {},
): ClientDescription {
  return {
    client,
    files,
    writes: () => [],
    mayWrite: more.writes ?? (() => []),
    needsModel: false,
    tokenVariable: null,
    withVariable: () => "the client may send it instead of the token",
    ...more,
    canWrite: more.writes !== undefined,
  };
}

type Optional = "empty" | "conflicts" | "offers" | "removed" | "notes";

/** Settings without conflicts and notes of their own, in a file that begins empty. */
export function clientSettings(
  own: Omit<ClientSettings, Optional> & Partial<Pick<ClientSettings, Optional>>,
): ClientSettings {
  const empty = emptyText(own.format);
  return { empty, conflicts: () => [], offers: () => null, removed: () => [], notes: () => [], ...own };
}

export function field(path: Pattern, holds: Field["holds"] = "other"): Field {
  return { path, holds, within: null };
}

/** undefined removes a setting. */
export type Wanted = readonly [path: Path, value: PlainValue | undefined];

export function setAll(format: Format, text: string, wanted: readonly Wanted[]): Edited {
  let edited: Edited = { ok: true, text };
  for (const [path, value] of wanted) {
    if (edited.ok) edited = formatFor(format).set(edited.text, path, value);
  }
  return edited;
}

export function textAt(format: Format, text: string, path: Path): string | null {
  const value = formatFor(format).at(text, path);
  return typeof value === "string" ? value : null;
}

/** The items of a list of objects; none if there is no such list. */
export function itemsAt(format: Format, text: string, path: Path): readonly Record<string, unknown>[] {
  const value = formatFor(format).at(text, path);
  return Array.isArray(value) ? value.map((item) => (isObject(item) ? { ...item } : {})) : [];
}

/** Where a token goes that replaces a key of the same file, and is there before the key is removed. */
export function besideMoved(moved: Path): Path {
  return [...moved.slice(0, -1), `keybearer-${moved.at(-1)}`];
}

/** Whether the file consists of variables, so that a path is a name and the number of the assignment. */
export function isVariableFormat(format: DescribedFile["format"]): boolean {
  return format === "sh" || format === "fish" || format === "dotenv";
}

// Patterns.

/** What the pattern's names stand for in a path; null: it does not match. */
export function matchPattern(pattern: Pattern, path: Path): Names | null {
  if (pattern.length !== path.length) return null;
  const names: (string | number)[] = [];
  for (const [depth, part] of pattern.entries()) {
    const name = path[depth];
    if (name === undefined) return null;
    if (part === ANY_NAME || part instanceof RegExp) {
      if (part instanceof RegExp && !part.test(String(name))) return null;
      names.push(name);
    } else if (part !== name) return null;
  }
  return names;
}

/** The path that a pattern is with these names. Names at the end that it has no place for are left out. */
export function fillPattern(pattern: Pattern, names: Names): Path {
  const rest = [...names];
  return pattern.map((part) => (part === ANY_NAME || part instanceof RegExp ? (rest.shift() ?? "") : part));
}

/** The paths of a tree that match a pattern. */
export function matchingPaths(tree: unknown, pattern: Pattern): readonly Path[] {
  let found: readonly (readonly [path: Path, value: unknown])[] = [[[], tree]];
  for (const part of pattern) {
    found = found.flatMap(([path, value]) =>
      namesOf(value)
        .filter((name) => matchPattern([part], [name]) !== null)
        .map((name) => [[...path, name], valueIn(value, [name])] as const),
    );
  }
  return found.map(([path]) => path);
}

function namesOf(value: unknown): (string | number)[] {
  if (Array.isArray(value)) return value.map((_, index) => index);
  return isObject(value) ? Object.keys(value) : [];
}

// Folders.

/** The XDG specification says that a relative path is to be ignored. */
function xdgFolder(value: string | undefined, otherwise: string): string {
  return value !== undefined && isAbsolute(value) ? value : otherwise;
}

export function configFolder({ env, home }: Surroundings): string {
  return xdgFolder(env.XDG_CONFIG_HOME, join(home, ".config"));
}

export function dataFolder({ env, home }: Surroundings): string {
  return xdgFolder(env.XDG_DATA_HOME, join(home, ".local", "share"));
}

/** Where programs with a window keep their settings. */
export function applicationFolder(where: Surroundings): string {
  return where.platform === "darwin"
    ? join(where.home, "Library", "Application Support")
    : configFolder(where);
}

/** A folder that a variable may name. */
export function folderFrom(variable: string | undefined, otherwise: string, { cwd }: Surroundings): string {
  return variable === undefined || variable === "" ? otherwise : resolve(cwd, variable);
}

const MAX_PARENTS = 50;

/** The current folder and those above it, up to the root of its repository, outermost first; then the named ones. */
export function projectFolders({ home, cwd, folders }: Surroundings): readonly string[] {
  const chain: string[] = [];
  const named = folders.filter((folder) => folder !== home);
  for (let folder = resolve(cwd); chain.length < MAX_PARENTS; folder = dirname(folder)) {
    // Settings in the home folder are the user's, not a project's.
    if (folder === home || folder === dirname(folder)) break;
    chain.push(folder);
    if (existsSync(join(folder, ".git"))) return unique([...chain.reverse(), ...named]);
  }
  const inside = resolve(cwd) === home ? [] : [resolve(cwd)];
  return unique([...inside, ...named]);
}

const MAX_NAMES = 200;

/** The files in a folder that have such a name, in the order of their names. */
export function filesIn(folder: string, name: RegExp): readonly string[] {
  return namesOrNone(folder)
    .filter((each) => name.test(each))
    .toSorted()
    .slice(0, MAX_NAMES)
    .map((each) => join(folder, each));
}

function namesOrNone(folder: string): string[] {
  try {
    return namesIn(folder);
  } catch {
    // A folder that may not be listed holds nothing that we could read.
    return [];
  }
}

function unique(items: readonly string[]): string[] {
  return [...new Set(items)];
}
