import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { Secret } from "../core/secret.ts";
import { tokenShape } from "../core/token.ts";
import {
  type ClientId,
  type DescribedFile,
  fillPattern,
  type KeyField,
  matchingPaths,
  matchPattern,
  type Names,
  type Surroundings,
} from "./description.ts";
import { readForSearch, readSettings } from "./files.ts";
import { type Format, formatFor, type Path, type Setting } from "./format.ts";
import { readLooseVariables } from "./loose-variables.ts";
import { DESCRIPTIONS } from "./settings-files.ts";
import { findKeysByShape, kindOfValue } from "./shapes.ts";
import { findVariable, type KnownVariable, referenceIn } from "./variables.ts";

/* Reads the files of all known clients, and finds the keys in them and the address that each key is sent to. Changes nothing. */

/** A setting in a file. */
export interface Place {
  /** Whose file it is: a client, or `shell` and others for files that every program's variables come from. */
  readonly client: ClientId;
  readonly file: DescribedFile;
  readonly path: Path;
  readonly line: number;
  /** The environment variable that it sets; null: a field of the client's own. */
  readonly variable: string | null;
  /** Where it comes in the order in which files are read. Of two that set the same, the later one wins. */
  readonly order: number;
}

/** Where a key is sent. */
export type Address =
  | {
      readonly known: true;
      readonly url: string;
      /** Whether the client takes an address with the version segment. */
      readonly base: "root" | "v1";
      /** Where it is set; null: it is built into the client, or comes from the environment. */
      readonly place: Place | null;
    }
  | { readonly known: false; readonly problem: string };

export interface FoundKey extends Place {
  readonly key: Secret;
  readonly address: Address;
  /** Where its address belongs in the same file, set or not; null: this file cannot hold it. */
  readonly slot: Path | null;
  /** The field that holds it; null: a variable. */
  readonly field: KeyField | null;
  /** What stands before and after the key in the value. */
  readonly around: Around;
  /** Clients' own settings that name this variable instead of a key. */
  readonly references: readonly Reference[];
  /** Why keybearer leaves this file alone; null: it may change it. */
  readonly problem: string | null;
}

interface Around {
  readonly before: string;
  readonly after: string;
}

/** A field of a client that says: the key is in this variable. */
export interface Reference extends Place {
  readonly name: string;
  readonly field: KeyField;
  /** null: the file sets none. Empty: it is no literal. */
  readonly url: string | null;
  readonly slot: Path | null;
  /** The field that takes a key instead of a variable's name; null: there is none. */
  readonly keyPath: Path | null;
}

/** A keybearer token: its client is set up already. */
export interface FoundToken extends Place {
  readonly token: Secret;
  /** False: a part of it is missing. */
  readonly isComplete: boolean;
}

/** What else decides where requests go, or with which credential. */
export interface FoundSwitch extends Place {
  /** A switch to another cloud that is on, the variable of a login, or a program that prints the key. */
  readonly role: "cloud" | "login" | "helper";
}

/** An address that a client's settings or a variable have. */
export interface FoundAddress extends Place {
  /** Empty: it is no literal, so only the client knows it. */
  readonly url: string;
}

/** A key that only its form shows, or that keybearer holds: in a comment, or in a field that is not known. */
export interface ShapedKey {
  readonly client: ClientId;
  readonly file: DescribedFile;
  readonly line: number;
  readonly key: Secret;
}

export interface FoundSettings {
  readonly keys: readonly FoundKey[];
  readonly shaped: readonly ShapedKey[];
  readonly addresses: readonly FoundAddress[];
  readonly tokens: readonly FoundToken[];
  readonly switches: readonly FoundSwitch[];
  /** Variables of this process that hold a key which is in no file. */
  readonly environment: readonly { readonly name: string; readonly key: Secret }[];
  /** A login (OAuth, a subscription) belongs to a person's account. */
  readonly logins: readonly { readonly client: ClientId; readonly path: string }[];
  /** Programs that encrypt their keys or store them in a database. */
  readonly opaque: readonly { readonly client: ClientId; readonly file: DescribedFile }[];
  readonly unread: readonly UnreadFile[];
  /** The files that are there, for each client that reads them. */
  readonly files: readonly ThereFile[];
  /** How many files were read. */
  readonly read: number;
}

export interface ThereFile {
  readonly client: ClientId;
  readonly file: DescribedFile;
  readonly order: number;
}

interface UnreadFile {
  readonly path: string;
  /** To continue a sentence that begins with the file. */
  readonly problem: string;
}

interface ReadFile extends ThereFile {
  readonly text: string;
  readonly settings: readonly Setting[];
  /** Why the file is left alone; null: it may be changed. */
  readonly problem: string | null;
}

/** @param held keys that keybearer holds: they are found anywhere in these files. */
export async function findSettings(
  where: Surroundings,
  held: readonly Secret[] = [],
): Promise<FoundSettings> {
  const reader = new Reader(where);
  const files: ReadFile[] = [];
  const opaque: { client: ClientId; file: DescribedFile }[] = [];
  let order = 0;
  for (const { client, files: describedFiles } of DESCRIPTIONS) {
    for (const file of describedFiles(where)) {
      order += 1;
      if (file.isOpaque) {
        if (existsSync(file.path)) opaque.push({ client, file });
        continue;
      }
      // One at a time: most do not exist, and a slow disk gets no queue.
      const read = await reader.read(file.path, file.format);
      if (read !== null) files.push({ client, file, ...read, order });
      for (const { path, format } of file.keys.flatMap(({ elsewhere }) => elsewhere?.files ?? []))
        await reader.read(path, format);
    }
  }
  const found = new Finder(files, reader, where, held).find();
  return { ...found, opaque, unread: reader.unread, files, read: reader.count };
}

type Text = Pick<ReadFile, "text" | "settings" | "problem">;

/** Reads each file once, because several clients read the same. */
class Reader {
  readonly unread: UnreadFile[] = [];
  readonly #where: Surroundings;
  readonly #texts = new Map<string, Text | null>();

  constructor(where: Surroundings) {
    this.#where = where;
  }

  get count(): number {
    return [...this.#texts.values()].filter((text) => text !== null).length;
  }

  /** null: there is no such file, or it cannot be used, which is noted. */
  async read(path: string, format: Format | "text"): Promise<Text | null> {
    const known = this.#texts.get(path);
    if (known !== undefined) return known;
    const text = await this.#readText(path, format);
    this.#texts.set(path, text);
    return text;
  }

  textOf(path: string): string | null {
    return this.#texts.get(path)?.text ?? null;
  }

  async #readText(path: string, format: Format | "text"): Promise<Text | null> {
    const read = await readSettings(path, withinFor(path, this.#where));
    if (read.ok && read.file.found === null) return null;
    const text = read.ok ? read.file.found?.text : await readForSearch(path);
    const problem = read.ok ? null : read.problem;
    if (text === undefined || text === null) {
      this.unread.push({ path, problem: problem?.replace(`${path} `, "") ?? "is no text" });
      return null;
    }
    if (format === "text") return { text, settings: readLooseVariables(text), problem };
    const parsed = formatFor(format).read(text);
    if (parsed.ok) return { text, settings: parsed.settings, problem };
    const line = parsed.line === null ? "" : ` in line ${parsed.line}`;
    this.unread.push({ path, problem: `cannot be read${line}: ${parsed.problem}` });
    // Its keys can still be recognized by their form.
    return { text, settings: [], problem };
  }
}

/** The other files of a client that reads only one of several. */
export interface FilesAround {
  readonly client: ClientId;
  /** What it reads if this one is deleted; null: nothing. */
  readonly without: string | null;
  /** What it reads although this one is there; null: it reads this one. */
  readonly instead: string | null;
}

/** null: no client that is used here reads it in this way. */
export function filesAround({ file, variable }: Place, { files }: FoundSettings): FilesAround | null {
  const readers = variable === null ? [] : (findVariable(variable)?.clients ?? []);
  const reader = files.find(
    (each) =>
      each.file.path === file.path &&
      each.file.replacesEarlier &&
      readers.includes(each.client) &&
      files.some((other) => other.client === each.client && !other.file.isShared),
  );
  if (reader === undefined) return null;
  const { client } = reader;
  const folder = projectOf(file);
  const others = files
    .filter((each) => each.client === client && each.file.replacesEarlier)
    .map((each) => each.file)
    // In another project, the client reads the files of that one.
    .filter((other) => !other.isProject || `${folder}/`.startsWith(`${projectOf(other)}/`));
  const at = others.findIndex(({ path }) => path === file.path);
  const instead = others.slice(at + 1).find((other) => projectOf(other) === folder);
  return { client, without: others[at - 1]?.path ?? null, instead: instead?.path ?? null };
}

/** The folder of a project's .env or .gemini/.env; empty: it is the user's. */
function projectOf({ path, isProject }: DescribedFile): string {
  const folder = dirname(path);
  if (!isProject) return "";
  return basename(folder).startsWith(".") ? dirname(folder) : folder;
}

/** The folder that a link of this file may not lead out of: home, or that of a project elsewhere. */
export function withinFor(path: string, { home, cwd, folders }: Surroundings): string {
  return [home, ...folders, cwd].find((folder) => path.startsWith(`${folder}/`)) ?? home;
}

/** A key before its address is known. */
interface BareKey extends Place {
  readonly key: Secret;
  readonly field: KeyField | null;
  readonly names: Names;
  readonly around: Around;
  readonly problem: string | null;
}

class Finder {
  readonly #files: readonly ReadFile[];
  readonly #reader: Reader;
  readonly #where: Surroundings;
  readonly #held: readonly Secret[];
  /** The clients that have a file of their own here. */
  readonly #used: ReadonlySet<ClientId>;
  readonly #keys = new Map<string, BareKey>();
  readonly #addresses = new Map<string, FoundAddress>();
  readonly #references: Reference[] = [];
  readonly #tokens = new Map<string, FoundToken>();
  readonly #switches = new Map<string, FoundSwitch>();
  readonly #logins = new Map<string, { client: ClientId; path: string }>();

  constructor(files: readonly ReadFile[], reader: Reader, where: Surroundings, held: readonly Secret[]) {
    this.#held = held;
    this.#files = files;
    this.#reader = reader;
    this.#where = where;
    this.#used = new Set(files.filter(({ file }) => !file.isShared).map(({ client }) => client));
  }

  find(): Omit<FoundSettings, "opaque" | "unread" | "files" | "read"> {
    for (const file of this.#files) {
      this.#readFields(file);
      this.#readLogins(file);
    }
    // References say which other variables hold keys.
    for (const file of this.#files) this.#readVariables(file);
    const keys = [...this.#keys.values()]
      .toSorted((one, other) => one.order - other.order)
      .map((key) => this.#withAddress(key));
    return {
      keys,
      shaped: this.#findShaped(),
      addresses: [...this.#addresses.values()],
      tokens: [...this.#tokens.values()],
      switches: [...this.#switches.values()],
      environment: this.#readEnvironment(keys),
      logins: [...this.#logins.values()],
    };
  }

  #readFields(read: ReadFile): void {
    for (const setting of read.settings) {
      const isAddress = read.file.addresses.some((pattern) => matchPattern(pattern, setting.path) !== null);
      if (isAddress) this.#addAddress({ ...placeOf(read, setting, null), url: urlOf(setting) });
    }
    for (const field of read.file.keys) {
      for (const setting of read.settings) {
        const place = placeOf(read, setting, null);
        if (field.address !== null && matchPattern(field.address, setting.path) !== null)
          this.#addAddress({ ...place, url: urlOf(setting) });
        if (typeof setting.value !== "string") continue;
        const names = matchPattern(field.key, setting.path);
        if (names === null) continue;
        const name = field.isName ? setting.value : referenceIn(setting.value);
        if (name !== null) this.#addReference(read, place, field, names, name);
        else this.#addFieldKey(read, place, field, names, setting.value);
      }
    }
  }

  #addFieldKey({ problem }: ReadFile, place: Place, field: KeyField, names: Names, value: string): void {
    if (field.within === null) {
      this.#addKey({ ...place, field, names, around: NOTHING_AROUND, problem }, value);
      return;
    }
    const [, before = "", key, after = ""] = field.within.exec(value) ?? [];
    if (key !== undefined) this.#addKey({ ...place, field, names, around: { before, after }, problem }, key);
    else if (field.isCommand && value.trim() !== "")
      this.#addPlace(this.#switches, { ...place, role: "helper" });
  }

  #addReference(read: ReadFile, place: Place, field: KeyField, names: Names, name: string): void {
    const slot = field.address === null ? null : fillPattern(field.address, names);
    const address = read.settings.find(({ path }) => slot !== null && isDeepStrictEqual(path, slot));
    const url = address === undefined ? null : urlOf(address);
    const taking = field.isName ? read.file.keys.find((other) => takesKey(other, field)) : field;
    const keyPath = taking === undefined ? null : fillPattern(taking.key, names);
    this.#references.push({ ...place, name, field, url, slot, keyPath });
  }

  #readLogins({ client, file, settings }: ReadFile): void {
    const isLogin = ({ path, value }: Setting) =>
      value !== "" && file.logins.some((pattern) => matchPattern(pattern, path) !== null);
    if (settings.some(isLogin)) this.#logins.set(file.path, { client, path: file.path });
  }

  #readVariables(read: ReadFile): void {
    const { variables } = read.file;
    if (variables === null) return;
    const lines = read.text.split("\n");
    for (const setting of read.settings) {
      const isInside = isDeepStrictEqual(setting.path.slice(0, variables.length), variables);
      if (!isInside) continue;
      const name = String(setting.path[variables.length] ?? "");
      const known = findVariable(name);
      const place = placeOf(read, setting, name);
      const role = known === null ? null : roleOfSwitch(known, setting, lines[setting.line - 1] ?? "");
      if (role !== null) this.#addPlace(this.#switches, { ...place, role });
      if (known?.role === "address") this.#addAddress({ ...place, url: urlOf(setting) });
      if (typeof setting.value !== "string") continue;
      if (known?.role === "key" || this.#references.some((reference) => reference.name === name))
        this.#addKey(
          { ...place, field: null, names: [], around: NOTHING_AROUND, problem: read.problem },
          setting.value,
        );
    }
  }

  #addAddress(address: FoundAddress): void {
    this.#addPlace(this.#addresses, address);
  }

  #addKey(place: Omit<BareKey, "key">, value: string): void {
    const kind = kindOfValue(value);
    if (kind === "token") {
      const isComplete = tokenShape(value.trim()) === "complete";
      this.#addPlace(this.#tokens, { ...place, token: new Secret(value.trim()), isComplete });
    } else if (kind === "login")
      this.#logins.set(place.file.path, { client: place.client, path: place.file.path });
    else if (kind === "key") this.#addPlace(this.#keys, { ...place, key: new Secret(value.trim()) });
  }

  /** Several clients read the same file. A setting is listed once, for the client that it is most likely meant for. */
  #addPlace<Found extends Place>(found: Map<string, Found>, place: Found): void {
    const id = JSON.stringify([place.file.path, place.path]);
    const known = found.get(id);
    if (known === undefined || this.#likelihood(place) > this.#likelihood(known)) found.set(id, place);
  }

  #likelihood({ client, file, variable }: Place): number {
    // A field of the client's own may be a variable as well.
    if (!file.isShared) return variable === null ? 3 : 4;
    const isRead = variable === null || (findVariable(variable)?.clients.includes(client) ?? false);
    if (isRead && this.#used.has(client)) return 2;
    return client === "env-file" ? 1 : 0;
  }

  #withAddress(bare: BareKey): FoundKey {
    const { names, ...key } = bare;
    const references = this.#references.filter(({ name }) => name === key.variable);
    const address =
      key.field === null ? this.#addressOfVariable(bare, references) : this.#addressOfField(bare, key.field);
    const problem = key.problem ?? this.#editProblem(bare);
    return { ...key, problem, references, slot: this.#slotFor(bare), address };
  }

  /** Why a key cannot be changed the way it is written; null: it can. */
  #editProblem({ file, path, field }: BareKey): string | null {
    const text = this.#reader.textOf(file.path);
    if (text === null || file.format === "text" || file.byHand !== null || field?.move === "by hand")
      return null;
    const edited = formatFor(file.format).set(text, path, field?.move === "rewrite" ? undefined : "kb_");
    return edited.ok ? null : edited.problem;
  }

  #slotFor({ client, file, field, names, variable, path }: BareKey): Path | null {
    if (field !== null) return field.address === null ? null : fillPattern(field.address, names);
    const known = variable === null ? null : findVariable(variable);
    if (known === null || file.variables === null) return null;
    const set = this.#addressesBeside(file, known).at(-1);
    if (set !== undefined) return set.path;
    const name =
      known.address.find((each) => findVariable(each)?.clients.includes(client)) ?? known.address[0];
    if (name === undefined) return null;
    // In a file of variables, a path also says which assignment is meant.
    const assignment = path.slice(file.variables.length + 1).map(() => 0);
    return [...file.variables, name, ...assignment];
  }

  #addressesBeside(file: DescribedFile, { address }: KnownVariable): FoundAddress[] {
    return [...this.#addresses.values()].filter(
      (found) => found.file.path === file.path && found.variable !== null && address.includes(found.variable),
    );
  }

  #addressOfField({ client, file, names }: BareKey, field: KeyField): Address {
    const { address, base, elsewhere, builtIn } = field;
    if (address !== null) {
      const slot = fillPattern(address, names);
      const same = [...this.#addresses.values()].filter(
        (found) => found.client === client && isDeepStrictEqual(found.path, slot),
      );
      const beside = same.filter((found) => found.file.path === file.path);
      const set = beside.length > 0 ? agreedAddress(beside, base) : this.#agreedFor(file, same, base);
      if (set !== null) return set;
    }
    const trees = (elsewhere?.files ?? []).map(({ path, format }) => this.#tree(path, format));
    for (const tree of trees.toReversed()) {
      const there = tree === undefined ? "none" : (elsewhere?.address(tree, names) ?? "none");
      if (there === "ambiguous") return SEVERAL_ADDRESSES;
      if (there !== "none") return { known: true, url: there.address, base, place: null };
    }
    const inVariable = this.#addressInVariables(file, field.addressVariables, base);
    if (inVariable !== null) return inVariable;
    const url = typeof builtIn === "function" ? builtIn(names, this.#tree(file.path, file.format)) : builtIn;
    return url === null ? NO_ADDRESS : { known: true, url, base, place: null };
  }

  #tree(path: string, format: DescribedFile["format"]): unknown {
    const text = this.#reader.textOf(path);
    return text === null || format === "text" ? undefined : formatFor(format).at(text, []);
  }

  #addressOfVariable(bare: BareKey, references: readonly Reference[]): Address {
    const { file, variable, key } = bare;
    const known = variable === null ? null : findVariable(variable);
    const base = known?.base ?? references[0]?.field.base ?? "v1";
    const inFile = known === null ? [] : this.#addressesBeside(file, known);
    const named = references.flatMap((reference) =>
      reference.url === null ? [] : [{ ...reference, url: reference.url }],
    );
    const near = agreedAddress([...inFile, ...named], base);
    if (near !== null) return near;
    if (known === null) return NO_ADDRESS;
    // The same key in a client's own settings says where that client sends it.
    const twins = [...this.#keys.values()].filter((other) => other !== bare && other.key.equals(key));
    const beside = twins.flatMap((twin) => this.#addressesBeside(twin.file, known));
    const same = this.#agreedFor(file, beside, base);
    if (same !== null) return same;
    const far = this.#addressInVariables(file, known.address, base);
    if (far !== null) return far;
    return known.builtIn === null ? NO_ADDRESS : { known: true, url: known.builtIn, base, place: null };
  }

  /** The address that these variables have anywhere, in files or in the environment. */
  #addressInVariables(file: DescribedFile, names: readonly string[], base: "root" | "v1"): Address | null {
    const found = [...this.#addresses.values()].filter(
      ({ variable }) => variable !== null && names.includes(variable),
    );
    const agreed = this.#agreedFor(file, found, base);
    if (agreed !== null) return agreed;
    for (const name of names) {
      const url = this.#where.env[name]?.trim() ?? "";
      if (url !== "") return { known: true, url, base, place: null };
    }
    return null;
  }

  /** A project's address is not used for a key outside the project: its author could steal the key. */
  #agreedFor(file: DescribedFile, found: readonly FoundAddress[], base: "root" | "v1"): Address | null {
    const isOfProject = !file.isProject && found.some((each) => each.file.isProject);
    return isOfProject ? PROJECT_ADDRESS : agreedAddress(found, base);
  }

  #readEnvironment(keys: readonly FoundKey[]): { readonly name: string; readonly key: Secret }[] {
    const found: { name: string; key: Secret }[] = [];
    for (const [name, value = ""] of Object.entries(this.#where.env)) {
      const isKeyName =
        findVariable(name)?.role === "key" || this.#references.some((reference) => reference.name === name);
      if (!isKeyName || kindOfValue(value) !== "key") continue;
      const key = new Secret(value.trim());
      // A shell has it from one of these files.
      if (!keys.some((other) => other.key.equals(key))) found.push({ name, key });
    }
    return found;
  }

  /** Keys in comments, and in fields and files that no description names. */
  #findShaped(): ShapedKey[] {
    const found = new Map<string, ShapedKey>();
    for (const { client, file, text } of this.#files) {
      const known = [...this.#keys.values()].filter((key) => key.file.path === file.path);
      for (const { line, value } of [...findKeysByShape(text), ...linesWith(this.#held, text)]) {
        const isListed = known.some((key) => key.line === line && key.key.equals(value));
        const id = `${file.path}:${line}`;
        if (!isListed && !found.has(id)) found.set(id, { client, file, line, key: value });
      }
    }
    return [...found.values()];
  }
}

const NOTHING_AROUND: Around = { before: "", after: "" };
const NO_ADDRESS: Address = { known: false, problem: "no address is set beside it, and none is built in" };
const SEVERAL_ADDRESSES: Address = {
  known: false,
  problem: "it could go to several addresses, depending on how the program is started",
};

const PROJECT_ADDRESS: Address = {
  known: false,
  problem: "a project has an address for it, and the key is not the project's",
};

function urlOf({ value }: Setting): string {
  return typeof value === "string" ? value : "";
}

/** What a variable decides that holds no key and no address; null: nothing. */
function roleOfSwitch({ role }: KnownVariable, { value }: Setting, line: string): FoundSwitch["role"] | null {
  if (role === "cloud") return isOff(String(value ?? "")) ? null : "cloud";
  if (role === "login") return value === "" ? null : "login";
  if (role !== "key" || value !== null) return null;
  // Another value without a literal is a reference: it only says where the key is.
  return PRINTS_KEY.test(line) ? "helper" : null;
}

/** Whether a switch to another cloud says that it is not used. */
export function isOff(value: string): boolean {
  return /^(?:0|false|no|)$/i.test(value.trim());
}

/** $(pass show key) and `pass show key`; fish writes (pass show key). */
const PRINTS_KEY = /[=\s]["']?(?:\$?\(|`)/;

function linesWith(
  keys: readonly Secret[],
  text: string,
): { readonly line: number; readonly value: Secret }[] {
  return keys
    .filter((key) => key.isIn(text))
    .flatMap((value) =>
      text.split("\n").flatMap((line, at) => (value.isIn(line) ? [{ line: at + 1, value }] : [])),
    );
}

/** Whether an address leads to this machine's keybearer, which listens on these ports. */
export function isOwnAddress(url: string, ports: readonly number[]): boolean {
  return isLocal(url) && ports.includes(portOf(url));
}

/** Whether an address leads to this machine. */
export function isLocal(url: string): boolean {
  return URL.canParse(url) && /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(new URL(url).hostname);
}

function portOf(url: string): number {
  const { port, protocol } = new URL(url);
  return port === "" ? (protocol === "https:" ? 443 : 80) : Number(port);
}

/** The address that all of these places have; null: there is none. */
function agreedAddress(found: readonly FoundAddress[], base: "root" | "v1"): Address | null {
  const last = found.toSorted((a, b) => a.order - b.order).at(-1);
  if (last === undefined) return null;
  if (!URL.canParse(last.url)) return { known: false, problem: "its address is not written there as it is" };
  if (found.some(({ url }) => !isSameAddress(url, last.url))) return SEVERAL_ADDRESSES;
  return { known: true, url: last.url, base, place: last };
}

function isSameAddress(one: string, other: string): boolean {
  return one.replace(/\/+$/, "") === other.replace(/\/+$/, "");
}

function takesKey(field: KeyField, naming: KeyField): boolean {
  return (
    !field.isName &&
    field.within === null &&
    field.move === "in place" &&
    isDeepStrictEqual(field.address, naming.address)
  );
}

function placeOf({ client, file, order }: ReadFile, { path, line }: Setting, variable: string | null): Place {
  return { client, file, path, line, variable, order };
}

/** The paths of the fields that make no sense without a key. */
export function companionPaths({ field }: FoundKey, tree: unknown): readonly Path[] {
  return (field?.companions ?? []).flatMap((pattern) => matchingPaths(tree, pattern));
}
