import { redactedDiff } from "../../clients/diff.ts";
import {
  type ClientSettings,
  type Conflict,
  settingsFiles,
  settingsOf,
  type Writable,
} from "../../clients/settings-files.ts";
import type { Edited } from "../../clients/text-edit.ts";
import { writeConfig } from "../../config/edit-file.ts";
import { freeTokenName, setToken } from "../../config/edit-tools.ts";
import { readText } from "../../config/load.ts";
import type { Tool } from "../../config/schema.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { hashToken, makeToken } from "../../core/token.ts";
import { tokenEntry } from "../tools/token.ts";
import type { Note } from "../ui/messages.ts";
import { terminalDeps, type WriteDeps } from "./means.ts";
import { lookAt, replace, type SettingsFile } from "./settings-file.ts";
import { createUndoStore, digestOf } from "./undo-store.ts";

export interface WriteAsked {
  readonly paths: Paths;
  readonly tool: Pick<Tool, "name" | "tokens">;
  readonly client: Writable;
  /** As people call it. */
  readonly clientName: string;
  readonly origin: string;
  readonly model: string | null;
  /** A cheaper one for small tasks in the background; null: the same. */
  readonly small: string | null;
  /** The person has said yes already. */
  readonly yes: boolean;
}

/** Merges a client's settings into its own file: shows what would change, asks, and keeps the old file. */
export async function writeSettings(asked: WriteAsked, deps: WriteDeps = terminalDeps()): Promise<void> {
  const { client, clientName, yes } = asked;
  const tool = asked.tool.name;
  const looked = await settingsFile(client, deps);
  if (!looked.ok) return deps.fail(looked.reason, EXIT.failed);
  const { file } = looked;
  const planned = await plan(asked, file, deps);
  if (typeof planned === "string") return deps.fail(planned, EXIT.failed);
  if (planned.text === file.found?.text) {
    return deps.print(`${file.path} points ${clientName} at keybearer already; nothing changed`);
  }
  deps.print(...redactedDiff(file.path, file.found?.text ?? null, planned.text));
  if (!yes && !deps.there()) {
    const again = `keybearer use ${tool} --for ${client} --write --yes`;
    return deps.fail(`nobody is here to ask; nothing changed. if you are sure: ${again}`, EXIT.usage);
  }
  if (!yes && !(await deps.confirm(`write this to ${file.path}?`))) {
    return deps.fail("not written; nothing changed", EXIT.failed);
  }
  const fault = await carryOut(asked, file, planned, deps);
  if (fault !== null) return deps.fail(fault, EXIT.failed);
  deps.print(`${file.path} points ${clientName} at keybearer as ${tool}: start ${clientName} anew`);
  deps.print(`to go back: keybearer use ${tool} --for ${client} --undo`);
  if (((file.found?.mode ?? 0) & 0o077) !== 0) {
    deps.note({ what: `others may read ${file.path}, which holds a token`, next: `chmod 600 ${file.path}` });
  }
}

interface Planned {
  readonly text: string;
  /** null: the one in the file works. */
  readonly newToken: string | null;
}

/** What the file is to be. A text: why it cannot be. */
async function plan(asked: WriteAsked, file: SettingsFile, deps: WriteDeps): Promise<Planned | string> {
  const { tool, client, clientName, paths, yes } = asked;
  const settings = settingsOf(client);
  if (settings.needsModel && asked.model === null) {
    const next = `write model: below tools: ${tool.name}: in config.yaml, then run this again`;
    return `${clientName} lists the models that it may use, and none is known: ${next}`;
  }
  const text = textOf(file, settings);
  // A token that is there and works is kept: every new one would be one more that nobody knows of.
  const there = settings.tokenIn(text);
  const newToken = there !== null && hasToken(tool, there) ? null : makeToken();
  // Found out before anybody is asked.
  const addable = newToken === null ? null : await withToken(paths.config, tool.name, client, newToken);
  if (addable?.ok === false) return addable.reason;
  const merged = settings.merge(text, { ...asked, token: newToken ?? there ?? "" });
  const edited = merged.ok ? await withoutConflicts(merged.text, settings, yes, deps) : merged;
  if (!edited.ok) return cannot(file, edited);
  for (const what of settings.notes(edited.text)) deps.note({ what, next: null });
  if (asked.model === null) deps.note(noModel(asked));
  return { text: edited.text, newToken };
}

/** Left to itself the client asks for a model of its maker's, or for the one it had, and the gateway may have neither. */
function noModel({ tool: { name }, clientName }: WriteAsked): Note {
  const what = `no model is written, as none is known: ${clientName} goes on with its own. for another, write model: below tools: ${name}: in config.yaml and run this again; the key's models:`;
  return { what, next: `keybearer models --tool ${name}` };
}

/** The first of the client's files that is there, else the last. */
async function settingsFile(client: Writable, deps: WriteDeps) {
  const files = settingsFiles(client, deps);
  let looked = await lookAt(files[0]);
  for (const path of files.slice(1)) {
    if (!looked.ok || looked.file.found !== null) return looked;
    looked = await lookAt(path);
  }
  return looked;
}

function textOf({ found }: SettingsFile, { empty }: ClientSettings): string {
  return found === null || found.text.trim() === "" ? empty : found.text;
}

/** Asked one by one: it is the person's own setting, and not all of them are ours to judge. */
async function withoutConflicts(
  merged: string,
  settings: ClientSettings,
  yes: boolean,
  deps: WriteDeps,
): Promise<Edited> {
  let result: Edited = { ok: true, text: merged };
  for (const conflict of settings.conflicts(merged)) {
    deps.note({ what: `${conflict.name} is in it: ${conflict.reason}`, next: null });
    const remove = await mayRemove(conflict, yes, deps);
    if (remove && result.ok) result = conflict.remove(result.text);
  }
  return result;
}

async function mayRemove(conflict: Conflict, yes: boolean, deps: WriteDeps): Promise<boolean> {
  // Where nobody can be asked, the diff shows what --yes would do.
  return yes || !deps.there() || (await deps.confirm(`remove ${conflict.name} as well?`));
}

function cannot({ path }: SettingsFile, { reason: why, line }: Extract<Edited, { ok: false }>): string {
  return `${path} was left as it is: ${line === null ? "" : `line ${line}: `}${why}`;
}

/** Undo first, then the token, then the file: whatever fails, the client goes on as before. A text: what failed. */
async function carryOut(
  { paths, client, tool }: WriteAsked,
  file: SettingsFile,
  { text, newToken }: Planned,
  deps: WriteDeps,
): Promise<string | null> {
  const store = createUndoStore(paths.state, deps.clock);
  const mode = file.found?.mode ?? 0o600;
  try {
    const before = file.found?.text ?? null;
    const written = digestOf(text);
    const kept = await store.keep(client, { tool: tool.name, file: file.path, before, mode, written });
    const added = newToken === null ? null : await addToken(paths.config, tool.name, client, newToken);
    const done = added?.ok === false ? added : await replace(file, text, mode);
    if (done.ok) return null;
    await store.drop(kept);
    if (added?.ok) await added.takeBack();
    return done.reason;
  } catch (error) {
    return `nothing was written: the old settings could not be kept in ${paths.state}: ${errorMessage(error)}`;
  }
}

type Added =
  | { readonly ok: true; readonly takeBack: () => Promise<unknown> }
  | { readonly ok: false; readonly reason: string };

async function addToken(config: string, tool: string, client: string, token: string): Promise<Added> {
  const edited = await withToken(config, tool, client, token);
  if (!edited.ok) return edited;
  const { before, text } = edited;
  const written = await writeConfig(config, before, text);
  // Only where nobody has edited it since; else the hash of a token that nobody has stays, and harms nobody.
  return written.ok ? { ok: true, takeBack: () => writeConfig(config, text, before) } : written;
}

function hasToken({ tokens }: Pick<Tool, "tokens">, token: string): boolean {
  const known = hashToken(token);
  return tokens.some(({ hash }) => hash === known);
}

/** config.yaml with the token beside those that the tool has: other clients go on with theirs. */
async function withToken(config: string, tool: string, client: string, token: string) {
  const read = await readText(config);
  if (read.text === null) return { ok: false, reason: `${read.fault} → keybearer init` } as const;
  const name = freeTokenName(read.text, tool, client);
  const edited = setToken(read.text, tool, tokenEntry(name, token), "add");
  return edited.ok ? { ...edited, before: read.text } : edited;
}
