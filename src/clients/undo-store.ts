import { lstatSync, mkdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { loadConfig } from "../config/load.ts";
import { type Config, isSameSource } from "../config/schema.ts";
import { escapeControlChars, withNext } from "../core/display.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import { asFields, asList, type JsonObject, parseObject } from "../core/json.ts";
import { namesIn, readOwnFile } from "../core/own-file.ts";
import type { Paths } from "../core/paths.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { keyProblem, Secret } from "../core/secret.ts";
import { readKey } from "../keys/sources.ts";
import {
  forgetKey,
  freePlace,
  isNamed,
  type KeyPlace,
  keychainThere,
  ownPlace,
  storeKey,
} from "../keys/stored-keys.ts";
import type { ClientId, Surroundings } from "./description.ts";
import { emptyText, type Format, type Path } from "./format.ts";
import { DESCRIPTIONS, findFile, type KnownFile } from "./settings-files.ts";
import { findClient } from "./table.ts";
import { type Before, type Change, type ChangedField, digest, type FileKind } from "./undo.ts";

/** Where an old key is, and its digest. The whole record is the salt: with another address in it, the key is not found. */
export interface StoredKey {
  readonly place: KeyPlace;
  readonly digest: string;
}

/** What was changed in one file. `Key` is as in Change. */
export interface WrittenFile<Key> {
  /** Compared with the files that the client's description names, and never believed. */
  readonly file: string;
  readonly format: Format;
  readonly existed: boolean;
  /** The old file's mode, for the case that it is gone since. */
  readonly mode: number;
  readonly change: Change<Key>;
}

/** One write into a client's settings. */
export interface Write {
  /** use: `use --write`. adopt: keys were moved out. */
  readonly by: "use" | "adopt";
  readonly client: ClientId;
  /** The tool that the client was pointed at. */
  readonly tool: string;
  /** The hash of the token that was made for it; null: none was. */
  readonly tokenHash: string | null;
}

export interface UndoRecord extends Write {
  readonly id: string;
  /** In the order in which they were written. */
  readonly files: readonly WrittenFile<StoredKey>[];
}

/** The version of a record's form. */
const VERSION = 3;

const MAX_RECORDS = 5;
const MAX_BYTES = 4_000_000;
const MAX_FILES = 50;

/**
 * What `use --write` and `adopt` changed, for --undo. A record holds places, fields and digests. The old key is where a tool
 * has it already, else in the keychain or in a file of keybearer's own, until it goes back.
 */
export class UndoStore {
  readonly #paths: Paths;
  readonly #where: Surroundings;
  readonly #env: NodeJS.ProcessEnv;
  readonly #folder: string;

  constructor(paths: Paths, where: Surroundings) {
    this.#paths = paths;
    this.#where = where;
    this.#env = { ...where.env };
    this.#folder = join(paths.state, "undo");
  }

  /** Rejects if the keys or the record cannot be stored. */
  async add(write: Write, files: readonly WrittenFile<string>[]): Promise<UndoRecord> {
    const { client } = write;
    const taken = new Set(this.#ids(client));
    let now = Date.now();
    while (taken.has(idFor(client, now))) now += 1;
    const record = await this.#save(idFor(client, now), write, files);
    // A record with a key that only we have is kept: it may be the person's only copy.
    const older = this.#ids(client).filter((id) => id !== record.id && this.#isExpendable(id, client));
    for (const id of older.slice(0, -(MAX_RECORDS - 1))) await this.#delete(id);
    return record;
  }

  /** The newest record of a client; null: there is none. Rejects if it cannot be used. */
  async newest(client: ClientId): Promise<UndoRecord | null> {
    const id = this.#ids(client).at(-1);
    return id === undefined ? null : this.#read(id, client);
  }

  /** The records of a client, or of all (null), the newest first, and what is wrong with those that cannot be used. */
  all(client: ClientId | null): {
    readonly records: readonly UndoRecord[];
    readonly problems: readonly string[];
  } {
    const records: UndoRecord[] = [];
    const problems: string[] = [];
    const clients = client === null ? DESCRIPTIONS.map((each) => each.client) : [client];
    for (const each of clients) {
      for (const id of this.#ids(each)) {
        try {
          records.push(this.#read(id, each));
        } catch (error) {
          problems.push(errorMessage(error));
        }
      }
    }
    const time = ({ id, client: of }: UndoRecord) => id.slice(of.length);
    return { records: records.toSorted((one, other) => (time(one) < time(other) ? 1 : -1)), problems };
  }

  /** What is known of a file of a record apart from its text. */
  kindOf({ client }: UndoRecord, { file, format }: WrittenFile<StoredKey>): FileKind {
    return { format, empty: findFile(client, file, this.#where)?.empty ?? emptyText(format) };
  }

  /** The old key of a field; null: it is not stored any more, or the record was changed. */
  async oldKey(record: UndoRecord, key: StoredKey): Promise<string | null> {
    const found = await readKey(key.place, { env: this.#env, home: this.#paths.own });
    if (!found.ok) return null;
    const text = decode(found.key.reveal());
    return this.isKey(record, key, text) ? text : null;
  }

  /**
   * The key that the record's tool has today; null: there is none. Every program of this user can change a record, so the key goes
   * back only beside an address of the tool's own gateway.
   */
  async currentKey({ tool: name }: UndoRecord, address: string | null): Promise<string | null> {
    const { config } = await loadConfig(this.#paths.config, { home: this.#paths.home, strict: false });
    const tool = config?.tools[name];
    const gateway = config?.gateways[tool?.gateway ?? ""];
    if (tool === undefined || gateway === undefined || address === null) return null;
    if (![gateway.baseUrl, gateway.messagesUrl].includes(address.replace(/\/+$/, ""))) return null;
    const found = await readKey(tool.key, { env: this.#env, home: this.#paths.own });
    return found.ok ? found.key.reveal() : null;
  }

  isKey(record: UndoRecord, key: StoredKey, text: string): boolean {
    return digest(sealOf(record), encode(text)) === key.digest;
  }

  /** Removes a record, and the keys that were stored for it. */
  async remove(record: UndoRecord, keptKeys: readonly StoredKey[] = []): Promise<void> {
    const { id, client } = record;
    await this.#delete(id);
    const others = this.#ids(client).flatMap((other) => this.#keysOf(other, client));
    for (const key of storedKeys(record)) {
      const isNeeded = [...others, ...keptKeys].some(({ place }) => isSameSource(place, key.place));
      if (isNeeded || !isUndoPlace(key.place, client) || (await isNamed(this.#paths, key.place))) continue;
      // If it stays, it is only a leftover, and the next write may use it again.
      await forgetKey(key.place, { env: this.#env });
    }
  }

  async #save(id: string, write: Write, files: readonly WrittenFile<string>[]): Promise<UndoRecord> {
    this.#makeFolder();
    const { config } = await loadConfig(this.#paths.config, { home: this.#paths.home, strict: false });
    const tools = config?.tools ?? {};
    const keys = new Map<StoredKey, string>();
    const store = async (before: Before<string>): Promise<Before<StoredKey>> => {
      if (before === null || "value" in before) return before;
      const text = encode(before.key);
      const key = { place: await this.#store(text, write, tools), digest: "" };
      keys.set(key, text);
      return { ...before, key };
    };
    const stored: WrittenFile<StoredKey>[] = [];
    for (const file of files) {
      const fields: ChangedField<StoredKey>[] = [];
      for (const field of file.change.fields) fields.push({ ...field, before: await store(field.before) });
      stored.push({ ...file, change: { ...file.change, fields } });
    }
    // The digests come last, because they cover all the rest.
    const open: UndoRecord = { id, ...write, files: stored };
    const seal = sealOf(open);
    const withDigest = (before: Before<StoredKey>): Before<StoredKey> => {
      const text = before === null || "value" in before ? undefined : keys.get(before.key);
      if (text === undefined || before === null || "value" in before) return before;
      return { ...before, key: { ...before.key, digest: digest(seal, text) } };
    };
    const record: UndoRecord = {
      ...open,
      files: stored.map((file) => ({
        ...file,
        change: {
          ...file.change,
          fields: file.change.fields.map((field) => ({ ...field, before: withDigest(field.before) })),
        },
      })),
    };
    await writePrivateFile(
      join(this.#folder, `${id}.json`),
      `${JSON.stringify({ version: VERSION, ...record }, null, 1)}\n`,
    );
    return record;
  }

  /** Where a tool has the key already, else a place of its own. Throws. */
  async #store(text: string, { client, tool }: Write, tools: Config["tools"]): Promise<KeyPlace> {
    const key = new Secret(text);
    const env = this.#env;
    for (const name of new Set([tool, ...Object.keys(tools)])) {
      const place = tools[name] === undefined ? null : ownPlace(tools[name].key, this.#paths);
      const found = place === null ? null : await readKey(place, { env, home: this.#paths.own });
      if (place !== null && found?.ok && found.key.equals(key)) return place;
    }
    const { there } = await keychainThere({ env });
    let problem = "";
    // A locked keychain is no reason to fail: the key was in a file until now.
    for (const store of there ? (["keychain", "file"] as const) : (["file"] as const)) {
      const place = await freePlace({ store, tool: undoName(client), tools, paths: this.#paths, key, env });
      const stored = await storeKey(place, key, { env });
      if (stored.ok) return place;
      problem = withNext(stored);
    }
    throw new Error(problem);
  }

  #makeFolder(): void {
    mkdirSync(this.#paths.state, { recursive: true, mode: 0o700 });
    try {
      mkdirSync(this.#folder, { mode: 0o700 });
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw error;
      if (!lstatSync(this.#folder).isDirectory())
        throw new Error(`${escapeControlChars(this.#folder)} is not a folder`);
    }
  }

  #read(id: string, client: ClientId): UndoRecord {
    const name = join(this.#folder, `${id}.json`);
    const text = this.#readText(`${id}.json`);
    const record = text === null ? null : this.#parse(id, text, client);
    if (record === null) throw new Error(`${name} is damaged, and was not used: delete it`);
    return record;
  }

  #parse(id: string, text: string, client: ClientId): UndoRecord | null {
    return parseRecord(id, text, client, { paths: this.#paths, where: this.#where });
  }

  #recordOrNull(id: string, client: ClientId): UndoRecord | null {
    const text = this.#readText(`${id}.json`);
    try {
      return text === null ? null : this.#parse(id, text, client);
    } catch (error) {
      if (error instanceof OtherFile) return null;
      throw error;
    }
  }

  #keysOf(id: string, client: ClientId): readonly StoredKey[] {
    const record = this.#recordOrNull(id, client);
    return record === null ? [] : storedKeys(record);
  }

  /** Whether a record may go when there are too many. */
  #isExpendable(id: string, client: ClientId): boolean {
    const record = this.#recordOrNull(id, client);
    // It may hold the only copy of a key.
    if (record === null) return false;
    return record.by === "use" && !storedKeys(record).some(({ place }) => isUndoPlace(place, client));
  }

  #readText(name: string): string | null {
    return readOwnFile(join(this.#folder, name), MAX_BYTES);
  }

  async #delete(id: string): Promise<void> {
    await rm(join(this.#folder, `${id}.json`), { force: true });
  }

  /** Oldest first. */
  #ids(client: ClientId): string[] {
    const pattern = new RegExp(`^(${client}-\\d{4}-[\\d-]+T[\\d-]+Z)\\.json$`);
    return namesIn(this.#folder)
      .flatMap((name) => pattern.exec(name)?.[1] ?? [])
      .toSorted();
  }
}

export function storedKeys({ files }: Pick<UndoRecord, "files">): StoredKey[] {
  return files.flatMap(({ change }) => keysIn(change.fields));
}

export function keysIn(fields: readonly ChangedField<StoredKey>[]): StoredKey[] {
  return fields.flatMap(({ before }) => (before === null || "value" in before ? [] : [before.key]));
}

function undoName(client: ClientId): string {
  return `undo-${client}`;
}

/** Whether a place is one that the keys of undo records are stored at. */
function isUndoPlace(place: KeyPlace, client: ClientId): boolean {
  if (place.kind === "file") return isUndoKey(basename(place.path), [client]);
  return place.service === "keybearer" && isUndoKey(place.account, [client]);
}

/** Whether a name in keys/ is that of an old key for --undo. */
export function isUndoKey(name: string, clients: readonly ClientId[] = recordedClients()): boolean {
  const [, stem = name] = /^(.*?)-\d{1,6}$/.exec(name) ?? [];
  return clients.some((client) => stem === undoName(client));
}

/** The clients that a record can be of. */
export function recordedClients(): readonly ClientId[] {
  return DESCRIPTIONS.map(({ client }) => client);
}

/** Everything in a record that decides what --undo does. */
function sealOf({ by, client, tool, tokenHash, files }: UndoRecord): string {
  const facts = files.map(({ file, format, existed, mode, change: { salt, written, fields } }) => [
    [file, format, existed, mode, salt, written],
    fields.map(({ path, holds, before, after, made }) => [
      [path, holds, after, made],
      before !== null && "key" in before ? [before.key.place, before.around] : before,
    ]),
  ]);
  return JSON.stringify([VERSION, by, client, tool, tokenHash, facts]);
}

/** A store takes only what looks like a key. Anything else is stored as hex. */
function encode(text: string): string {
  if (keyProblem(text) === null && !text.startsWith(HEX)) return text;
  return `${HEX}${Buffer.from(text).toString("hex")}`;
}

function decode(stored: string): string {
  return stored.startsWith(HEX) ? Buffer.from(stored.slice(HEX.length), "hex").toString() : stored;
}

const HEX = "hex:undo:";

function idFor(client: ClientId, now: number): string {
  return `${client}-${new Date(now).toISOString().replace(/[:.]/g, "-")}`;
}

// Records are input: every program of this user can write one.

const DIGEST = /^[0-9a-f]{64}$/;

interface ParseDeps {
  readonly paths: Paths;
  readonly where: Surroundings;
}

/** A record of a file that the client does not read here and now. */
class OtherFile extends Error {}

/** null: keybearer would not write such a record for this client. Throws OtherFile. */
function parseRecord(id: string, text: string, client: ClientId, deps: ParseDeps): UndoRecord | null {
  const fields = asFields(parseObject(text));
  const { version, client: of, by, tool, tokenHash } = fields;
  const list = asList(fields.files);
  if (version !== VERSION || of !== client || typeof tool !== "string") return null;
  if (!(tokenHash === null || isDigest(tokenHash)) || !(by === "use" || by === "adopt")) return null;
  if (list.length === 0 || list.length > MAX_FILES) return null;
  const files: WrittenFile<StoredKey>[] = [];
  for (const item of list) {
    const file = parseFile(asFields(item), client, deps);
    if (file === null) return null;
    files.push(file);
  }
  return { id, by, client, tool, tokenHash, files };
}

function parseFile(
  { file, format, existed, mode, change }: JsonObject,
  client: ClientId,
  { paths, where }: ParseDeps,
): WrittenFile<StoredKey> | null {
  const { salt, written, fields, layout } = asFields(change);
  if (typeof file !== "string" || typeof existed !== "boolean" || !isCount(mode) || mode > 0o777) return null;
  if (!isDigest(salt) || !isDigest(written) || !Array.isArray(fields)) return null;
  if (!(layout === null || (Array.isArray(layout) && layout.every((splice) => isSplice(asFields(splice))))))
    return null;
  const known = findFile(client, file, where);
  if (known === null) {
    const name = findClient(client)?.name ?? client;
    const what = `the last write was to ${escapeControlChars(file)}, which ${name} does not read here`;
    throw new OtherFile(`${what}; nothing changed`);
  }
  if (format !== known.format) return null;
  const parsed: ChangedField<StoredKey>[] = [];
  for (const item of fields) {
    const field = parseField(asFields(item), known, paths);
    if (field === null) return null;
    parsed.push(field);
  }
  return { file, format: known.format, existed, mode, change: { salt, written, fields: parsed, layout } };
}

function parseField(
  { path, holds, before, after, made }: JsonObject,
  known: KnownFile,
  paths: Paths,
): ChangedField<StoredKey> | null {
  if (!isPath(path) || !(after === null || isDigest(after)) || !isCount(made) || made >= path.length)
    return null;
  const { key, value } = asFields(before);
  // A variable that only the client's own settings name may get back a key, and nothing that a record says.
  const field = known.field(path, key !== undefined);
  if (field === null || holds !== field.holds) return null;
  const common = { path, holds: field.holds, after, made };
  if (before === null) return { ...common, before };
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return key === undefined ? { ...common, before: { value } } : null;
  const { place, digest } = asFields(key);
  const { around } = asFields(before);
  if (!isPlace(place, paths) || !isDigest(digest) || !isAround(around, field.within)) return null;
  return { ...common, before: { key: { place, digest }, around } };
}

function isPath(value: unknown): value is Path {
  return Array.isArray(value) && value.every((name) => typeof name === "string" || isCount(name));
}

/** Whether a key of this field can be between these two texts. */
function isAround(value: unknown, within: RegExp | null): value is readonly [string, string] {
  const [head, tail, ...others] = asList(value);
  if (typeof head !== "string" || typeof tail !== "string" || others.length > 0) return false;
  if (head === "" && tail === "") return true;
  const [, before, , after] = within?.exec(`${head}sk-0123456789${tail}`) ?? [];
  return before === head && after === tail;
}

function isPlace(place: unknown, paths: Paths): place is KeyPlace {
  const { kind, service, account, path } = asFields(place);
  if (kind === "keychain") return typeof service === "string" && typeof account === "string";
  return kind === "file" && typeof path === "string" && ownPlace({ kind, path }, paths) !== null;
}

function isSplice({ keep, drop, insert }: JsonObject): boolean {
  return (
    isCount(keep) &&
    isCount(drop) &&
    Array.isArray(insert) &&
    insert.every((part) => typeof part === "string" || isCount(part))
  );
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isDigest(value: unknown): value is string {
  return typeof value === "string" && DIGEST.test(value);
}
