import { createHash } from "node:crypto";
import { lstatSync, mkdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { loadConfig } from "../config/load.ts";
import { type Config, isSameSource } from "../config/schema.ts";
import { escapeControlChars } from "../core/display.ts";
import { hasCode } from "../core/errors.ts";
import { asFields, type JsonObject, parseObject } from "../core/json.ts";
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
import { type ClientSettings, fieldKind, settingsOf, WRITABLE, type Writable } from "./settings-files.ts";
import { type Change, type ChangedField, describeChange, digest } from "./undo.ts";

/** Where an old key is, and its digest. The whole record is the salt: with another address in it, the key is not found. */
export interface StoredKey {
  readonly place: KeyPlace;
  readonly digest: string;
}

/** One write into a client's settings. */
export interface Write {
  readonly client: Writable;
  /** The tool that the client was pointed at. */
  readonly tool: string;
  /** Compared with the client's own files, and never believed. */
  readonly file: string;
  readonly existed: boolean;
  /** The old file's mode, for the case that it is gone since. */
  readonly mode: number;
  /** The hash of the token that was made for it; null: none was. */
  readonly tokenHash: string | null;
}

export interface UndoRecord extends Write {
  readonly id: string;
  readonly change: Change<StoredKey>;
}

const MAX_RECORDS = 5;
const MAX_BYTES = 4_000_000;

/**
 * What --write changed, for --undo. A record holds places, fields and digests. The old key is where a tool has it already,
 * else in the keychain or in a file of keybearer's own, until it goes back.
 */
export class UndoStore {
  readonly #paths: Paths;
  readonly #env: NodeJS.ProcessEnv;
  readonly #folder: string;

  constructor(paths: Paths, env: NodeJS.ProcessEnv) {
    this.#paths = paths;
    this.#env = env;
    this.#folder = join(paths.state, "undo");
  }

  /** Rejects if the keys or the record cannot be stored. */
  async add(write: Write, change: Change<string>): Promise<UndoRecord> {
    const { client } = write;
    const taken = new Set([...this.#ids(client, "json"), ...this.#ids(client, "old")]);
    let now = Date.now();
    while (taken.has(idFor(client, now))) now += 1;
    const record = await this.#save(idFor(client, now), write, change);
    // A record with a key that only we have is kept: it may be the person's only copy.
    const older = this.#ids(client, "json").filter((id) => id !== record.id && !this.#hasOwnKey(id, client));
    for (const id of older.slice(0, -(MAX_RECORDS - 1))) await this.#delete(id);
    return record;
  }

  /** The newest record of a client; null: there is none. Rejects if it cannot be used. */
  async newest(client: Writable): Promise<UndoRecord | null> {
    const id = this.#ids(client, "json").at(-1);
    return id === undefined ? null : this.#read(id, client);
  }

  /** The old key of a field; null: it is not stored any more, or the record was changed. */
  async oldKey(record: UndoRecord, key: StoredKey): Promise<string | null> {
    const found = await readKey(key.place, { env: this.#env, home: this.#paths.own });
    if (!found.ok) return null;
    const text = decode(found.key.reveal());
    return this.isKey(record, key, text) ? text : null;
  }

  isKey({ change, ...write }: UndoRecord, key: StoredKey, text: string): boolean {
    return digest(sealOf(write, change), encode(text)) === key.digest;
  }

  /** Removes a record, and the keys that were stored for it. */
  async remove({ id, change, client }: UndoRecord, keptKeys: readonly StoredKey[] = []): Promise<void> {
    await this.#delete(id);
    const others = this.#ids(client, "json").flatMap((other) => this.#keysOf(other, client));
    for (const key of storedKeys(change)) {
      const isNeeded = [...others, ...keptKeys].some(({ place }) => isSameSource(place, key.place));
      if (isNeeded || !isUndoPlace(key.place, client) || (await isNamed(this.#paths, key.place))) continue;
      // If it stays, it is only a leftover, and the next write may use it again.
      await forgetKey(key.place, { env: this.#env });
    }
  }

  /**
   * Turns records of earlier versions, which are copies of the whole file with a key in it, into ones without.
   * @param files the client's own files. @param current what is in the one of them that exists.
   */
  async convertOld(client: Writable, files: readonly string[], current: string | null): Promise<void> {
    let after = current;
    for (const id of this.#ids(client, "json").toReversed()) {
      const old = oldFacts(this.#readText(`${id}.json`));
      if (old === null || after === null || !files.includes(old.file) || plainDigest(after) !== old.written)
        return;
      const before = old.existed ? this.#readText(`${id}.old`) : null;
      const described = describeChange(settingsOf(client), before, after);
      // It would change other settings than a write does. A person can still look at it.
      if (!described.ok) return;
      const { tool, file, existed, mode, tokenHash } = old;
      await this.#save(id, { client, tool, file, existed, mode, tokenHash }, described.change);
      await rm(join(this.#folder, `${id}.old`), { force: true });
      after = before;
    }
  }

  async #save(id: string, write: Write, change: Change<string>): Promise<UndoRecord> {
    this.#makeFolder();
    const { config } = await loadConfig(this.#paths.config, { home: this.#paths.home, strict: false });
    const tools = config?.tools ?? {};
    const fields: ChangedField<StoredKey>[] = [];
    const keys = new Map<StoredKey, string>();
    for (const { before, ...field } of change.fields) {
      if (before === null || "value" in before) {
        fields.push({ ...field, before });
        continue;
      }
      const key = { place: await this.#store(encode(before.key), write, tools), digest: "" };
      keys.set(key, encode(before.key));
      fields.push({ ...field, before: { key } });
    }
    // The digests come last, because they cover all the rest.
    const seal = sealOf(write, { ...change, fields });
    const sealed = fields.map((field) => {
      const text = field.before === null || "value" in field.before ? undefined : keys.get(field.before.key);
      if (text === undefined || field.before === null || "value" in field.before) return field;
      return { ...field, before: { key: { ...field.before.key, digest: digest(seal, text) } } };
    });
    const record: UndoRecord = { id, ...write, change: { ...change, fields: sealed } };
    await writePrivateFile(
      join(this.#folder, `${id}.json`),
      `${JSON.stringify({ version: 2, ...record }, null, 1)}\n`,
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
      problem = stored.problem;
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

  #read(id: string, client: Writable): UndoRecord {
    const name = join(this.#folder, `${id}.json`);
    const text = this.#readText(`${id}.json`);
    if (oldFacts(text) !== null)
      throw new Error(
        `${name} is of an earlier version, and the settings were changed since. the old ones are in ${join(this.#folder, `${id}.old`)}: copy what you need, then delete both`,
      );
    const record = text === null ? null : parseRecord(id, text, client, this.#paths);
    if (record === null) throw new Error(`${name} is damaged, and was not used: delete it`);
    return record;
  }

  #keysOf(id: string, client: Writable): readonly StoredKey[] {
    const text = this.#readText(`${id}.json`);
    const record = text === null ? null : parseRecord(id, text, client, this.#paths);
    return record === null ? [] : storedKeys(record.change);
  }

  #hasOwnKey(id: string, client: Writable): boolean {
    return this.#keysOf(id, client).some(({ place }) => isUndoPlace(place, client));
  }

  #readText(name: string): string | null {
    return readOwnFile(join(this.#folder, name), MAX_BYTES);
  }

  async #delete(id: string): Promise<void> {
    await rm(join(this.#folder, `${id}.json`), { force: true });
    await rm(join(this.#folder, `${id}.old`), { force: true });
  }

  /** Oldest first. */
  #ids(client: Writable, extension: "json" | "old"): string[] {
    const pattern = new RegExp(`^(${client}-\\d{4}-[\\d-]+T[\\d-]+Z)\\.${extension}$`);
    return namesIn(this.#folder)
      .flatMap((name) => pattern.exec(name)?.[1] ?? [])
      .toSorted();
  }
}

export function storedKeys({ fields }: Change<StoredKey>): StoredKey[] {
  return fields.flatMap(({ before }) => (before === null || "value" in before ? [] : [before.key]));
}

function undoName(client: Writable): string {
  return `undo-${client}`;
}

/** Whether a place is one that the keys of undo records are stored at. */
function isUndoPlace(place: KeyPlace, client: Writable): boolean {
  if (place.kind === "file") return isUndoKey(basename(place.path), [client]);
  return place.service === "keybearer" && isUndoKey(place.account, [client]);
}

/** Whether a name in keys/ is that of an old key for --undo. */
export function isUndoKey(name: string, clients: readonly Writable[] = WRITABLE): boolean {
  const [, stem = name] = /^(.*?)-\d{1,6}$/.exec(name) ?? [];
  return clients.some((client) => stem === undoName(client));
}

function sealOf(write: Write, { salt, written, fields }: Change<StoredKey>): string {
  const { client, tool, file, existed, mode, tokenHash } = write;
  const facts = fields.map(({ path, before, after, made }) => [
    path,
    before !== null && "key" in before ? { place: before.key.place } : before,
    after,
    made,
  ]);
  return JSON.stringify([client, tool, file, existed, mode, tokenHash, salt, written, facts]);
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

function idFor(client: Writable, now: number): string {
  return `${client}-${new Date(now).toISOString().replace(/[:.]/g, "-")}`;
}

function plainDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

// Records are input: every program of this user can write one.

const DIGEST = /^[0-9a-f]{64}$/;

/** null: keybearer would not write such a record for this client. */
function parseRecord(id: string, text: string, client: Writable, paths: Paths): UndoRecord | null {
  const { version, client: of, tool, file, existed, mode, tokenHash, change } = asFields(parseObject(text));
  const { salt, written, fields, layout } = asFields(change);
  const settings = settingsOf(client);
  const isValid =
    version === 2 &&
    of === client &&
    typeof tool === "string" &&
    typeof file === "string" &&
    typeof existed === "boolean" &&
    isCount(mode) &&
    mode <= 0o777 &&
    (tokenHash === null || isDigest(tokenHash)) &&
    isDigest(salt) &&
    isDigest(written) &&
    Array.isArray(fields) &&
    fields.every((field) => isField(asFields(field), settings, paths)) &&
    (layout === null || (Array.isArray(layout) && layout.every((splice) => isSplice(asFields(splice)))));
  if (!isValid) return null;
  return { id, client, tool, file, existed, mode, tokenHash, change: { salt, written, fields, layout } };
}

function isField({ path, before, after, made }: JsonObject, settings: ClientSettings, paths: Paths): boolean {
  if (!Array.isArray(path) || fieldKind(settings, path) === null) return false;
  if (!(after === null || isDigest(after)) || !isCount(made) || made >= path.length) return false;
  if (before === null) return true;
  const { value, key } = asFields(before);
  if (value !== undefined) return key === undefined && ["string", "number", "boolean"].includes(typeof value);
  const { place, digest } = asFields(key);
  return isDigest(digest) && isPlace(asFields(place), paths);
}

function isPlace(place: JsonObject, paths: Paths): boolean {
  const { kind, service, account, path } = place;
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

interface OldFacts extends Omit<Write, "client"> {
  readonly written: string;
}

/** What an earlier version wrote beside its copy of the file; null: it is something else. */
function oldFacts(text: string | null): OldFacts | null {
  const { version, tool, file, existed, mode, written, tokenHash = null } = asFields(parseObject(text ?? ""));
  const isOld =
    version === 1 &&
    typeof tool === "string" &&
    typeof file === "string" &&
    typeof existed === "boolean" &&
    isCount(mode) &&
    isDigest(written) &&
    (tokenHash === null || isDigest(tokenHash));
  return isOld ? { tool, file, existed, mode: mode & 0o777, written, tokenHash } : null;
}
