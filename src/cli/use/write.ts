import { redactedDiff } from "../../clients/diff.ts";
import {
  type ClientSettings,
  fieldKind,
  settingsFiles,
  settingsOf,
  type Writable,
} from "../../clients/settings-files.ts";
import type { Target } from "../../clients/snippets.ts";
import type { Edited } from "../../clients/text-edit.ts";
import { describeChange, isEmpty, judgeField, takeBack } from "../../clients/undo.ts";
import { type StoredKey, storedKeys, type UndoRecord, UndoStore } from "../../clients/undo-store.ts";
import { editFile, writeConfig } from "../../config/edit-file.ts";
import { freeTokenName, removeToken, setToken } from "../../config/edit-tools.ts";
import { loadConfig, readText } from "../../config/load.ts";
import { advice } from "../../core/advice.ts";
import { escapeControlChars, withNext } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { hashToken, makeToken } from "../../core/token.ts";
import { variablePlaces } from "../../doctor/settings-findings.ts";
import { secondCredentials } from "../../doctor/settings-scan.ts";
import { sourceText } from "../../keys/stored-keys.ts";
import { tokenEntry } from "../tools/token.ts";
import { fail, formatNote, type Note, print, printDiff, printText } from "../ui/messages.ts";
import { agrees, canConfirm, confirm } from "../ui/prompts.ts";
import { homeFolder, stdio } from "../ui/stdio.ts";
import { isInteractive, outputWidth } from "../ui/terminal.ts";
import { type ReadResult, readSettings, replaceSettings, type SettingsFile } from "./settings-file.ts";
import type { FoundTool } from "./tool.ts";

/** A client whose settings keybearer can write. */
export interface WritableClient {
  readonly id: Writable;
  /** As people call it. */
  readonly name: string;
}

/**
 * `use --write`: merges a client's settings into its own file. Shows what would change, asks, and keeps the old file. Returns
 * whether the client uses keybearer now.
 */
export async function writeSettings(
  paths: Paths,
  tool: FoundTool,
  client: WritableClient,
  target: Target,
  yes: boolean,
): Promise<boolean> {
  const read = await findSettingsFile(client.id);
  if (!read.ok) return failed(read.problem);
  const { file } = read;
  const merged = await mergeSettings(paths, tool, client, target, file, yes);
  if (!merged.ok) return failed(merged.problem);
  await warnOfCredentials(client);
  if (merged.text === file.found?.text) {
    print(`${file.path} points ${client.name} at keybearer already; nothing changed`);
    return true;
  }
  printDiff(redactedDiff(file.path, file.found?.text ?? null, merged.text));
  const removed = settingsOf(client.id).removed(file.found?.text ?? "", merged.text);
  if (removed.length > 0) printText(`removed: ${removed.join(", ")}`);
  const command = advice.use(tool.name, client.id);
  if (!canConfirm(advice.useWrite(tool.name, client.id), { yes })) return false;
  if (!yes && !(await agrees(`write this to ${file.path}?`, "yes", "written"))) return false;
  const problem = await writeAll(paths, tool, client.id, file, merged);
  if (problem !== null) return failed(problem);
  printText(`${file.path} points ${client.name} at keybearer as ${tool.name}: restart ${client.name}`);
  print(`to go back: ${command} --undo`);
  if (((file.found?.mode ?? 0) & 0o077) !== 0)
    printNote({ what: `others may read ${file.path}, which holds a token`, next: `chmod 600 ${file.path}` });
  return true;
}

/** A second credential wins over the token, or is sent beside it. Names and places only, never a value. */
async function warnOfCredentials({ id }: WritableClient): Promise<void> {
  const settings = settingsOf(id);
  const where = { env: stdio().env, home: homeFolder(), cwd: process.cwd(), platform: process.platform };
  const found = await secondCredentials(id, settings.tokenVariable, where);
  for (const { name, where: places, isInFile } of variablePlaces(found, where.home)) {
    const next = isInFile ? `remove it there, then: unset ${name}` : `unset ${name}`;
    printNote({ what: `${places}: ${settings.withVariable(name)}`, next });
  }
}

function failed(problem: string): false {
  fail(problem, EXIT.failed);
  return false;
}

function knownFiles(client: Writable): readonly [string, ...string[]] {
  return settingsFiles(client, { env: stdio().env, home: homeFolder(), cwd: process.cwd() });
}

/** The first of the client's files that exists, otherwise the last. */
async function findSettingsFile(client: Writable): Promise<ReadResult> {
  const [first, ...others] = knownFiles(client);
  let read = await readSettings(first);
  for (const path of others) {
    if (!read.ok || read.file.found !== null) return read;
    read = await readSettings(path);
  }
  return read;
}

type Merged =
  | {
      readonly ok: true;
      readonly text: string;
      /** null: the client has one that works. */
      readonly newToken: string | null;
    }
  | { readonly ok: false; readonly problem: string };

/** What the file is to contain. Prints notes, and asks about settings that conflict. */
async function mergeSettings(
  paths: Paths,
  tool: FoundTool,
  client: WritableClient,
  { origin, token, model, small = null }: Target,
  file: SettingsFile,
  yes: boolean,
): Promise<Merged> {
  const settings = settingsOf(client.id);
  if (settings.needsModel && model === null) {
    const next = `write model: below tools: ${tool.name}: in config.yaml, then run this again`;
    return { ok: false, problem: `${client.name} needs a list of models, and none is known: ${next}` };
  }
  const before = file.found === null || file.found.text.trim() === "" ? settings.empty : file.found.text;
  // A token that the client has and that works is kept. A new one would only leave an unused one in config.yaml.
  const variable = settings.tokenVariable === null ? undefined : stdio().env[settings.tokenVariable];
  const known = [settings.tokenIn(before), variable, token].find(
    (token) => typeof token === "string" && tool.tokens.some(({ hash }) => hash === hashToken(token)),
  );
  const newToken = known === undefined || known === null ? makeToken() : null;
  // Checked before the person is asked anything.
  const addable =
    newToken === null ? null : await configWithToken(paths.config, tool.name, client.id, newToken);
  if (addable?.ok === false) return addable;
  const merged = settings.merge(before, { origin, model, small, token: newToken ?? known ?? "" });
  const edited = merged.ok ? await removeConflicts(merged.text, settings, yes) : merged;
  if (!edited.ok) {
    const line = edited.line === null ? "" : `line ${edited.line}: `;
    return { ok: false, problem: `${file.path} was left as it is: ${line}${edited.problem}` };
  }
  for (const what of settings.notes(edited.text)) printNote({ what, next: null });
  // Without a model the client uses one of its maker's, or the one it had, and the gateway may have neither.
  if (model === null)
    printNote({
      what: `no model is written, because none is known: ${client.name} uses its own. for another, write model: below tools: ${tool.name}: in config.yaml and run this again; the key's models:`,
      next: advice.models(tool.name),
    });
  return { ok: true, text: edited.text, newToken };
}

/** Asks about each one, because it is the person's own setting. Without a terminal the diff shows what --yes would do. */
async function removeConflicts(text: string, settings: ClientSettings, yes: boolean): Promise<Edited> {
  let result: Edited = { ok: true, text };
  for (const conflict of settings.conflicts(text)) {
    printNote({ what: `${conflict.name} is in it: ${conflict.problem}`, next: null });
    const isRemoved = yes || !isInteractive() || (await confirm(`remove ${conflict.name} as well?`, "no"));
    if (isRemoved && result.ok) result = conflict.remove(result.text);
  }
  return result;
}

/** Undo record first, then the token, then the file: if a step fails, the client works as before. Returns what failed, or null. */
async function writeAll(
  paths: Paths,
  tool: FoundTool,
  client: Writable,
  file: SettingsFile,
  { text, newToken }: Extract<Merged, { ok: true }>,
): Promise<string | null> {
  const store = new UndoStore(paths, stdio().env);
  const mode = file.found?.mode ?? 0o600;
  const before = file.found?.text ?? null;
  const described = describeChange(settingsOf(client), before, text);
  if (!described.ok) return `${file.path} was left as it is: ${described.problem}`;
  const tokenHash = newToken === null ? null : hashToken(newToken);
  const write = { client, tool: tool.name, file: file.path, existed: before !== null, mode, tokenHash };
  try {
    await store.convertOld(client, knownFiles(client), before);
    const record = await store.add(write, described.change);
    const added = newToken === null ? null : await addToken(paths.config, tool.name, client, newToken);
    const done = added?.ok === false ? added : await replaceSettings(file, text, mode);
    if (done.ok) return null;
    await store.remove(record);
    if (added?.ok) await added.takeBack();
    return done.problem;
  } catch (error) {
    return `nothing was written, because it could not be undone: ${errorMessage(error)}`;
  }
}

type AddedToken =
  | { readonly ok: true; readonly takeBack: () => Promise<unknown> }
  | { readonly ok: false; readonly problem: string };

async function addToken(config: string, tool: string, client: Writable, token: string): Promise<AddedToken> {
  const edited = await configWithToken(config, tool, client, token);
  if (!edited.ok) return edited;
  const { before, text } = edited;
  const written = await writeConfig(config, before, text);
  // writeConfig() refuses if the file was edited since. Then the hash of an unused token stays, which is harmless.
  if (!written.ok) return failedWith(written.problem);
  return { ok: true, takeBack: () => writeConfig(config, text, before) };
}

/** config.yaml with one more token of the tool, named after the client. Other clients keep theirs. */
async function configWithToken(config: string, tool: string, client: Writable, token: string) {
  const read = await readText(config);
  if (read.text === null) return failedWith(withNext({ problem: read.problem, next: advice.init() }));
  const name = freeTokenName(read.text, tool, client);
  const edited = setToken(read.text, tool, tokenEntry(name, token), "add");
  return edited.ok ? { ...edited, before: read.text } : failedWith(edited.problem);
}

/** `use --undo`: takes back what the last --write changed, where it is still as that left it. */
export async function undoSettings(
  paths: Paths,
  tool: string,
  client: WritableClient,
  yes: boolean,
  force: boolean,
): Promise<void> {
  const store = new UndoStore(paths, stdio().env);
  const record = await newestRecord(store, client.id).catch(errorMessage);
  if (typeof record === "string") return fail(record, EXIT.failed);
  if (record === null)
    return fail(`there is nothing to undo: ${client.name} was not set up with --write`, EXIT.failed);
  // Only a file that the client reads here and now is written, whatever the record says.
  const path = knownFiles(client.id).find((known) => known === record.file);
  if (path === undefined) {
    const what = `the last --write was to ${escapeControlChars(record.file)}, which ${client.name} does not read here`;
    return fail(`${what}; nothing changed`, EXIT.failed);
  }
  const read = await readSettings(path);
  if (!read.ok) return fail(read.problem, EXIT.failed);
  const { file } = read;
  const command = advice.useUndo(tool, client.id);
  const planned = await planUndo(store, record, file.found?.text ?? null, force);
  if (!planned.ok) return fail(`${file.path} ${planned.problem}: ${command} --force`, EXIT.failed);
  const { text, left, lost } = planned;
  const current = file.found?.text ?? null;
  if (text === current && left.length === 0) {
    await store.remove(record);
    return printText(`${file.path} is as it was before already`, await endToken(paths, record));
  }
  printDiff(redactedDiff(file.path, current, text));
  for (const { path } of left)
    printNote({ what: `${path.join(".")} was changed since, and stays as it is`, next: null });
  for (const { path } of lost)
    printNote({ what: `${path.join(".")}: the key that was there is not stored any more`, next: null });
  if (!canConfirm(force ? `${command} --force` : command, { yes })) return;
  const isAgreed =
    yes ||
    (text === null
      ? await agrees(`remove ${file.path}?`, "no", "undone")
      : await agrees(`put ${file.path} back?`, "yes", "undone"));
  if (!isAgreed) return;
  const done = await replaceSettings(file, text, file.found?.mode ?? record.mode);
  if (!done.ok) return fail(done.problem, EXIT.failed);
  const kept = storedKeys({ ...record.change, fields: left });
  // A key that could not be read may still be there, and may be the only copy.
  await store.remove(record, [...kept, ...storedKeys({ ...record.change, fields: lost })]);
  for (const { place } of kept)
    printText(`the key that was there before is kept as ${escapeControlChars(sourceText(place, paths))}`);
  const result = text === null ? "is removed, as it was not there before" : backAgain(left.length);
  printText(`${file.path} ${result}: restart ${client.name}`, await endToken(paths, record));
}

function backAgain(left: number): string {
  return left === 0 ? "is as it was before" : "has its other settings back";
}

/** null: there is none. Rejects if it cannot be used. */
async function newestRecord(store: UndoStore, client: Writable): Promise<UndoRecord | null> {
  const read = await findSettingsFile(client);
  if (read.ok) await store.convertOld(client, knownFiles(client), read.file.found?.text ?? null);
  return store.newest(client);
}

type Fields = UndoRecord["change"]["fields"];

type UndoPlan =
  /** text: null removes the file. left: these were changed since. lost: these had a key that is gone. */
  | { readonly ok: true; readonly text: string | null; readonly left: Fields; readonly lost: Fields }
  /** Continues a sentence that begins with the file. */
  | { readonly ok: false; readonly problem: string };

async function planUndo(
  store: UndoStore,
  record: UndoRecord,
  found: string | null,
  force: boolean,
): Promise<UndoPlan> {
  const { change, existed } = record;
  const settings = settingsOf(record.client);
  if (found === null && !existed) return { ok: true, text: null, left: [], lost: [] };
  if (found === null && !force) return failedWith("is gone. to make it again with the old settings");
  const text = found === null || found.trim() === "" ? settings.empty : found;
  const isKey = (key: StoredKey, value: string) => store.isKey(record, key, value);
  const states = change.fields.map((field) => judgeField(settings, change, field, text, isKey));
  const changed = change.fields.filter((_, index) => states[index] === "changed");
  const taken = change.fields.filter(
    (_, index) => states[index] === "ours" || (force && states[index] === "changed"),
  );
  const left = force ? [] : changed;
  const keys = storedKeys({ ...change, fields: taken });
  // The program that changed the address would get the key.
  const address = left.find(({ path }) => fieldKind(settings, path) === "address");
  if (keys.length > 0 && address !== undefined)
    return failedWith(
      `has another ${address.path.join(".")} since, and the old key belongs to the old one; nothing changed. to put both back`,
    );
  const oldKeys = new Map<StoredKey, string | null>();
  for (const key of keys) oldKeys.set(key, await store.oldKey(record, key));
  const lost = taken.filter(
    ({ before }) => before !== null && "key" in before && oldKeys.get(before.key) === null,
  );
  if (lost.length > 0 && !force)
    return failedWith(
      `was left as it is: the key that was in ${lost[0]?.path.join(".")} is not stored any more. to go back without it`,
    );
  const back = takeBack(settings, change, text, taken, (key) => oldKeys.get(key) ?? null);
  if (!back.ok) return failedWith(`was left as it is: ${back.problem}. to try again`);
  if (back.text === text && left.length > 0)
    return failedWith("holds nothing of the last --write any more; nothing changed. to go back anyway");
  const isGone = !existed && isEmpty(settings, back.text);
  return { ok: true, text: isGone ? null : back.text, left, lost };
}

function failedWith(problem: string): { readonly ok: false; readonly problem: string } {
  return { ok: false, problem };
}

/** Ends the token that --write made. Returns what became of it. */
async function endToken(paths: Paths, { tool, tokenHash }: UndoRecord): Promise<string> {
  if (tokenHash === null) return `its token was there before, and still works: ${advice.tokens(tool)}`;
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  const made = config?.tools[tool]?.tokens.find(({ hash }) => hash === tokenHash);
  if (made === undefined) return "the token that was made for it had ended already";
  const edited = await editFile(paths.config, (text) => removeToken(text, tool, made.name));
  if (edited.ok) return `the token that was made for it (${made.name}) has ended`;
  return withNext({
    problem: `its token still works: ${edited.problem}`,
    next: advice.revoke(tool, made.name),
  });
}

function printNote(note: Note): void {
  stdio().stdout.write(`${formatNote(note, outputWidth())}\n`);
}
