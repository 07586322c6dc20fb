import {
  type ClientDescription,
  type ClientId,
  type ClientSettings,
  isVariableFormat,
  type Offer,
  type Surroundings,
} from "../../clients/description.ts";
import { redactedDiff } from "../../clients/diff.ts";
import { readSettings, replaceSettings, type SettingsFile } from "../../clients/files.ts";
import { findSettings, withinFor } from "../../clients/find.ts";
import type { Format, Path } from "../../clients/format.ts";
import { findDescription } from "../../clients/settings-files.ts";
import type { Target } from "../../clients/snippets.ts";
import { findClient } from "../../clients/table.ts";
import { cannotEditFile, type Edited } from "../../clients/text-edit.ts";
import { contentOf, describeChange } from "../../clients/undo.ts";
import { planUndo, type UndoPlan } from "../../clients/undo-plan.ts";
import { keysIn, type UndoRecord, UndoStore, type WrittenFile } from "../../clients/undo-store.ts";
import { writeConfig } from "../../config/edit-file.ts";
import { freeTokenName, removeToken, setToken, tokenEntry } from "../../config/edit-tools.ts";
import { readText } from "../../config/load.ts";
import { advice } from "../../core/advice.ts";
import { escapeControlChars, type Failed, failed } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { hashToken, makeToken } from "../../core/token.ts";
import { secondCredentials } from "../../doctor/settings-findings.ts";
import { sourceText } from "../../keys/stored-keys.ts";
import { changeHere, loadHere } from "../config-here.ts";
import { surroundings } from "../surroundings.ts";
import { fail, formatNote, type Message, type Note, print, printDiff, printText } from "../ui/messages.ts";
import { agrees, canConfirm, confirm } from "../ui/prompts.ts";
import { ownPaths, stdio } from "../ui/stdio.ts";
import { isInteractive, outputWidth } from "../ui/terminal.ts";
import type { FoundTool } from "./tool.ts";

/** A client whose settings keybearer can write. */
export interface WritableClient {
  readonly id: ClientId;
  /** As people call it. */
  readonly name: string;
}

/**
 * `use --write`: merges a client's settings into its own files. Shows what would change, asks, and notes what there was for
 * --undo. Returns whether the client uses keybearer now.
 */
export async function writeSettings(
  paths: Paths,
  tool: FoundTool,
  client: WritableClient,
  target: Target,
  yes: boolean,
): Promise<boolean> {
  const where = surroundings();
  const description = findDescription(client.id);
  if (description === null) return failFalse(`${client.name} is not known`);
  const open: OpenFile[] = [];
  for (const settings of description.writes(where)) {
    const read = await openFirst(settings, where);
    if (!read.ok) return failFalse(read);
    open.push({ settings, file: read.file });
  }
  const merged = await mergeSettings(paths, tool, client, description, target, open, yes);
  if (!merged.ok) return failFalse(merged);
  await warnOfCredentials(description, where);
  const { files } = merged;
  if (files.length === 0) {
    print(`${named(open)} points ${client.name} at keybearer already; nothing changed`);
    return true;
  }
  for (const { file, settings, text } of files) {
    const before = file.found?.text ?? null;
    printDiff(redactedDiff(file.path, before, text));
    const removed = settings.removed(before ?? "", text);
    if (removed.length > 0) printText(`removed: ${removed.join(", ")}`);
  }
  const command = advice.use(tool.name, client.id);
  if (!canConfirm(advice.useWrite(tool.name, client.id), { yes })) return false;
  if (!yes && !(await agrees(`write this to ${named(files)}?`, "yes", "written"))) return false;
  const problem = await writeAll(paths, where, tool, client.id, merged);
  if (problem !== null) return failFalse(problem);
  printText(`${named(files)} points ${client.name} at keybearer as ${tool.name}: restart ${client.name}`);
  print(`to go back: ${command} --undo`);
  for (const { file } of files)
    if (((file.found?.mode ?? 0) & 0o077) !== 0)
      printNote({
        what: `others may read ${file.path}, which holds a token`,
        next: `chmod 600 ${file.path}`,
      });
  return true;
}

interface OpenFile {
  readonly settings: ClientSettings;
  readonly file: SettingsFile;
}

function named(files: readonly { readonly file: SettingsFile }[]): string {
  return files.map(({ file }) => file.path).join(" and ");
}

/** A second credential wins over the token, or is sent beside it. Names and places only, never a value. */
async function warnOfCredentials(description: ClientDescription, where: Surroundings): Promise<void> {
  const found = await findSettings(where);
  for (const { name, where: places, isInFile } of secondCredentials(found, description, where)) {
    const next = isInFile ? `remove it there, then: unset ${name}` : `unset ${name}`;
    printNote({ what: `${places}: ${description.withVariable(name)}`, next });
  }
}

function failFalse(message: Message): false {
  fail(message, EXIT.failed);
  return false;
}

/** The first of the files that exists, otherwise the last. */
async function openFirst(settings: ClientSettings, where: Surroundings) {
  const [first, ...others] = settings.files(where);
  let read = await readSettings(first, where.home);
  for (const path of others) {
    if (!read.ok || read.file.found !== null) return read;
    read = await readSettings(path, where.home);
  }
  return read;
}

interface ChangedFile extends OpenFile {
  readonly text: string;
}

type Merged =
  | {
      readonly ok: true;
      /** Those that change. */
      readonly files: readonly ChangedFile[];
      /** null: the client has one that works. */
      readonly newToken: string | null;
    }
  | Failed;

/** What the files are to contain. Prints notes, and asks about settings that conflict. */
async function mergeSettings(
  paths: Paths,
  tool: FoundTool,
  client: WritableClient,
  description: ClientDescription,
  { origin, token, model, small = null }: Target,
  open: readonly OpenFile[],
  yes: boolean,
): Promise<Merged> {
  if (description.needsModel && model === null) {
    const next = `write model: below tools: ${tool.name}: in config.yaml, then run this again`;
    return failed(`${client.name} needs the name of a model, and none is known`, next);
  }
  // A token that the client has and that works is kept. A new one would only leave an unused one in config.yaml.
  const variable = description.tokenVariable === null ? undefined : stdio().env[description.tokenVariable];
  const inFiles = open.map(({ settings, file }) =>
    settings.tokenIn(contentOf(settings, file.found?.text ?? null)),
  );
  const known = [...inFiles, variable, token].find(
    (token) => typeof token === "string" && tool.tokens.some(({ hash }) => hash === hashToken(token)),
  );
  const newToken = known === undefined || known === null ? makeToken() : null;
  // Checked before the person is asked anything.
  const addable =
    newToken === null ? null : await configWithToken(paths.config, tool.name, client.id, newToken);
  if (addable?.ok === false) return addable;
  const target = { origin, model, small, token: newToken ?? known ?? "" };
  const files: ChangedFile[] = [];
  for (const { settings, file } of open) {
    const before = contentOf(settings, file.found?.text ?? null);
    const merged = settings.merge(before, target);
    const cleared = merged.ok ? await removeConflicts(merged.text, settings, yes) : merged;
    const offer = cleared.ok ? settings.offers(cleared.text, paths.own, surroundings()) : null;
    // Beside the system service these folders hold no key.
    const isOffered = cleared.ok && offer !== null && paths.mode === "user";
    const edited = isOffered ? await takeOffer(cleared.text, offer, yes) : cleared;
    if (!edited.ok) return cannotEditFile(file.path, edited);
    for (const what of settings.notes(edited.text)) printNote({ what, next: null });
    if (edited.text !== before) files.push({ settings, file, text: edited.text });
  }
  // Without a model the client uses one of its maker's, or the one it had, and the gateway may have neither.
  if (model === null)
    printNote({
      what: `no model is written, because none is known: ${client.name} uses its own. for another, write model: below tools: ${tool.name}: in config.yaml and run this again; the key's models:`,
      next: advice.models(tool.name),
    });
  return { ok: true, files, newToken };
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

/** Without a terminal the diff shows what --yes would do. */
async function takeOffer(text: string, { question, note, add }: Offer, yes: boolean): Promise<Edited> {
  const isTaken = yes || !isInteractive() || (await confirm(question, "yes"));
  if (!isTaken) return { ok: true, text };
  if (note !== null) printNote({ what: note, next: "docs/agents.md shows how to switch it on" });
  return add(text);
}

/** Undo record first, then the token, then the files: if a step fails, the client works as before. Returns what failed, or null. */
async function writeAll(
  paths: Paths,
  where: Surroundings,
  tool: FoundTool,
  client: ClientId,
  { files, newToken }: Extract<Merged, { ok: true }>,
): Promise<Message | null> {
  const store = new UndoStore(ownPaths(paths), where);
  const written: WrittenFile<string>[] = [];
  for (const { settings, file, text } of files) {
    const before = file.found?.text ?? null;
    const described = describeChange(settings, before, text);
    if (!described.ok)
      return { ...described, problem: `${file.path} was left as it is: ${described.problem}` };
    const { format } = settings;
    const mode = file.found?.mode ?? 0o600;
    written.push({ file: file.path, format, existed: before !== null, mode, change: described.change });
  }
  const tokenHash = newToken === null ? null : hashToken(newToken);
  try {
    const record = await store.add({ by: "use", client, tool: tool.name, tokenHash }, written);
    const added = newToken === null ? null : await addToken(paths, tool.name, client, newToken);
    const done = added?.ok === false ? added : await replaceAll(files);
    if (done.ok) return null;
    await store.remove(record);
    if (added?.ok) await added.takeBack();
    return done;
  } catch (error) {
    return `nothing was written, because it could not be undone: ${errorMessage(error)}`;
  }
}

/** All or none: if one fails, those before it get their old text back. */
async function replaceAll(files: readonly ChangedFile[]): Promise<{ readonly ok: true } | Failed> {
  const done: ChangedFile[] = [];
  for (const changed of files) {
    const { file, text } = changed;
    const replaced = await replaceSettings(file, text, file.found?.mode ?? 0o600);
    if (replaced.ok) {
      done.push(changed);
      continue;
    }
    const problems: string[] = [];
    for (const { file, text } of done.toReversed()) {
      const mode = file.found?.mode ?? 0o600;
      const now = { ...file, found: { text, mode, group: file.found?.group ?? -1 } };
      const back = await replaceSettings(now, file.found?.text ?? null, mode);
      if (!back.ok) problems.push(back.problem);
    }
    return failed([replaced.problem, ...problems].join("; "), replaced.next);
  }
  return { ok: true };
}

type AddedToken = { readonly ok: true; readonly takeBack: () => Promise<unknown> } | Failed;

async function addToken(paths: Paths, tool: string, client: ClientId, token: string): Promise<AddedToken> {
  if (paths.mode === "system") return addSystemToken(paths, tool, client, token);
  const { config } = paths;
  const edited = await configWithToken(config, tool, client, token);
  if (!edited.ok) return edited;
  const { before, text } = edited;
  const written = await writeConfig(config, before, text);
  // writeConfig() refuses if the file was edited since. Then the hash of an unused token stays, which is harmless.
  if (!written.ok) return written;
  return { ok: true, takeBack: () => writeConfig(config, text, before) };
}

async function addSystemToken(
  paths: Paths,
  tool: string,
  client: ClientId,
  token: string,
): Promise<AddedToken> {
  let name = "";
  const edited = await changeHere(paths, (text) => {
    name = freeTokenName(text, tool, client);
    return setToken(text, tool, tokenEntry(name, token), "add");
  });
  if (!edited.ok) return edited;
  return { ok: true, takeBack: () => changeHere(paths, (text) => removeToken(text, tool, name)) };
}

/** config.yaml with one more token of the tool, named after the client. Other clients keep theirs. */
async function configWithToken(config: string, tool: string, client: ClientId, token: string) {
  const read = await readText(config);
  if (read.text === null) return failed(read.problem, advice.init());
  const name = freeTokenName(read.text, tool, client);
  const edited = setToken(read.text, tool, tokenEntry(name, token), "add");
  return edited.ok ? { ...edited, before: read.text } : edited;
}

interface PlannedFile {
  readonly written: UndoRecord["files"][number];
  readonly file: SettingsFile;
  readonly plan: Extract<UndoPlan, { ok: true }>;
}

/** `use --undo`: takes back what the last --write changed, where it is still as that left it. */
export async function undoSettings(
  paths: Paths,
  tool: string,
  client: WritableClient,
  yes: boolean,
  force: boolean,
): Promise<void> {
  const where = surroundings();
  const store = new UndoStore(ownPaths(paths), where);
  const record = await store.newest(client.id).catch(errorMessage);
  if (typeof record === "string") return fail(record, EXIT.failed);
  if (record === null)
    return fail(`there is nothing to undo: ${client.name} was not set up with --write`, EXIT.failed);
  await takeBackRecord(paths, where, store, record, { yes, force, command: advice.useUndo(tool, client.id) });
}

export interface TakeBackOptions {
  readonly yes: boolean;
  /** Also what was changed since. */
  readonly force: boolean;
  /** What the person typed. */
  readonly command: string;
  /** Whether a key that was rotated since goes back as the tool's key of today. */
  readonly isRenewed?: boolean;
}

/** Shows what would go back, asks, and writes it. False: nothing was changed, and the reason was printed. */
export async function takeBackRecord(
  paths: Paths,
  where: Surroundings,
  store: UndoStore,
  record: UndoRecord,
  { yes, force, command, isRenewed = false }: TakeBackOptions,
): Promise<boolean> {
  const planned: PlannedFile[] = [];
  // The last file that was written is the first one to go back, so that the client works in between.
  for (const written of record.files.toReversed()) {
    const read = await readSettings(written.file, withinFor(written.file, where));
    if (!read.ok) return failFalse(read);
    const { file } = read;
    const plan = await planUndo(store, record, written, file.found?.text ?? null, { force, isRenewed });
    if (!plan.ok) return failFalse({ problem: `${file.path} ${plan.problem}`, next: `${command} --force` });
    planned.push({ written, file, plan });
  }
  const changed = planned.filter(({ file, plan }) => plan.text !== (file.found?.text ?? null));
  const left = planned.flatMap(({ plan }) => plan.left);
  const lost = planned.flatMap(({ plan }) => plan.lost);
  if (changed.length === 0 && left.length === 0) {
    await store.remove(record);
    printText(`${named(planned)} is as it was before already`, await endToken(paths, store, record));
    return true;
  }
  for (const { file, plan } of changed)
    printDiff(redactedDiff(file.path, file.found?.text ?? null, plan.text));
  for (const { written, plan } of planned) {
    const note = ({ path }: { readonly path: Path }, what: string) =>
      printNote({ what: `${settingName(written.format, path)} ${what}`, next: null });
    for (const field of plan.left) note(field, "was changed since, and stays as it is");
    for (const field of plan.lost) note(field, "does not get its key back, which is not stored any more");
    for (const field of plan.restored)
      note(
        field,
        plan.replaced.some(({ path }) => path === field.path)
          ? `gets ${field.fingerprint}, the current key of ${record.tool}: the one that was there was rotated since`
          : `gets its key ${field.fingerprint} back`,
      );
  }
  if (!canConfirm(force ? `${command} --force` : command, { yes })) return false;
  if (!yes && !(await agreesToUndo(changed))) return false;
  for (const { written, file, plan } of changed) {
    const done = await replaceSettings(file, plan.text, file.found?.mode ?? written.mode);
    if (!done.ok) return failFalse(done);
  }
  const kept = keysIn(left);
  // A key that could not be read may still be there, and may be the only copy.
  await store.remove(record, [...kept, ...keysIn(lost)]);
  for (const { place } of kept)
    printText(`the key that was there before is kept as ${escapeControlChars(sourceText(place, paths))}`);
  for (const each of changed.slice(0, -1)) printText(resultText(each));
  const last = changed.at(-1);
  const result = last === undefined ? named(planned) : resultText(last);
  printText(`${result}: ${howToApply(record.client)}`, await endToken(paths, store, record));
  return true;
}

/** What a person does so that changed settings count. */
function howToApply(client: ClientId): string {
  const other = APPLIED[client];
  return other ?? `restart ${findClient(client)?.name ?? client}`;
}

/** Files that are no client's own. */
const APPLIED: Readonly<Record<ClientId, string>> = {
  shell: "open a new terminal",
  session: "log in again",
  "vscode-terminal": "open a new terminal in VS Code",
  "env-file": "restart the programs that read it",
};

/** A variable has no number for a person. */
function settingName(format: Format, path: Path): string {
  return isVariableFormat(format) ? String(path[0]) : path.join(".");
}

async function agreesToUndo(changed: readonly PlannedFile[]): Promise<boolean> {
  const isRemovedOnly = changed.every(({ plan }) => plan.text === null);
  return isRemovedOnly
    ? agrees(`remove ${named(changed)}?`, "no", "undone")
    : agrees(`put ${named(changed)} back?`, "yes", "undone");
}

function resultText({ written, file, plan }: PlannedFile): string {
  if (plan.text === null) return `${file.path} is removed, as it was not there before`;
  const isAsBefore = plan.left.length === 0 && written.existed;
  return `${file.path} ${isAsBefore ? "is as it was before" : "has its other settings back"}`;
}

/** Ends the token that --write made. Returns what became of it. */
async function endToken(paths: Paths, store: UndoStore, { tool, tokenHash }: UndoRecord): Promise<Message> {
  if (tokenHash === null)
    return { problem: "its token was there before, and still works", next: advice.tokens(tool) };
  // Several files of a client have the same token.
  if (store.all(null).records.some((other) => other.tokenHash === tokenHash))
    return "its token ends with the last of its files";
  const { config } = await loadHere(paths, { strict: false });
  const made = config?.tools[tool]?.tokens.find(({ hash }) => hash === tokenHash);
  if (made === undefined) return "the token that was made for it had ended already";
  const edited = await changeHere(paths, (text) => removeToken(text, tool, made.name));
  if (edited.ok) return `the token that was made for it (${made.name}) has ended`;
  return { problem: `its token still works: ${edited.problem}`, next: advice.revoke(tool, made.name) };
}

function printNote(note: Note): void {
  stdio().stdout.write(`${formatNote(note, outputWidth())}\n`);
}
