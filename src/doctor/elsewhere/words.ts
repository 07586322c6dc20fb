import { WRITABLE } from "../../clients/settings-files.ts";
import { guessClients } from "../../clients/table.ts";
import type { Finding } from "../findings.ts";
import { clientName } from "./names.ts";
import type { Setting } from "./settings.ts";

export interface Found extends Setting {
  /** null: the environment. */
  readonly place: string | null;
  /** Whose file it is; null: everybody's. */
  readonly client: string | null;
}

export interface OwnKey {
  /** The variable; null: in a file. */
  readonly name: string | null;
  readonly path: string | null;
  readonly line: number | null;
  readonly client: string | null;
}

export interface Looked {
  readonly found: readonly Found[];
  readonly own: readonly OwnKey[];
  readonly unread: readonly { readonly path: string; readonly why: string }[];
  /** How many files were looked through. */
  readonly read: number;
  readonly home: string;
  readonly tools: readonly string[];
}

const ABOUT = "this machine";

export function inFindings(looked: Looked): Finding[] {
  const findings = [
    ...looked.own.map((own) => ownKey(own, looked)),
    ...together(looked.found).map((group) => otherProvider(group, looked)),
  ].filter((finding) => finding !== null);
  const nothing = findings.length === 0 ? [allFine(looked.read)] : [];
  return [...findings, ...nothing, ...notRead(looked)];
}

function ownKey({ name, path, line, client }: OwnKey, { home, tools }: Looked): Finding {
  const id = "own-key";
  if (name !== null) {
    const what = `${name} in the environment is a key that keybearer holds: every program gets it`;
    const next = `take it out where it is set, and use a token: keybearer use ${toolFor(null, tools)}`;
    return { id, level: "problem", about: ABOUT, what, next };
  }
  const what = `a key that keybearer holds also lies in ${short(path ?? "", home)}:${line}`;
  const next = `take it out there, and use a token instead: ${useFor(client, tools)}`;
  return { id, level: "problem", about: ABOUT, what, next };
}

/** One finding for each name in the environment and start-up files, and one for each file of a client. */
function together(found: readonly Found[]): (readonly [Found, ...Found[]])[] {
  const groups = new Map<string, [Found, ...Found[]]>();
  for (const each of found) {
    if (each.kind === "ours" || each.kind === "token") continue;
    const same = each.client === null ? each.meaning.name : `${each.place} ${each.meaning.role}`;
    const group = groups.get(`${same} ${each.kind}`);
    if (group === undefined) groups.set(`${same} ${each.kind}`, [each]);
    else group.push(each);
  }
  return [...groups.values()];
}

function otherProvider(group: readonly [Found, ...Found[]], looked: Looked): Finding | null {
  const { found, home, tools } = looked;
  const [first] = group;
  const { meaning, kind } = first;
  const where = placesInWords(group, home);
  const inUse = meaning.clients.filter((id) => tools.some((tool) => isOf(tool, id)));
  const readers = clientsInWords(inUse.length > 0 ? inUse : meaning.clients);
  const said = (level: Finding["level"], id: string, what: string, next: string): Finding => ({
    ...{ id, level, about: ABOUT, what, next },
  });
  const settings = useFor(first.client ?? inUse[0] ?? null, tools);
  if (kind === "cut-token")
    return said("problem", "token", `${where} holds a token that is not whole`, settings);
  if (meaning.role === "base" || meaning.role === "detour") {
    const level = inUse.length > 0 && first.client === null ? "problem" : "warning";
    return said(
      level,
      "other-provider",
      `${where} sends ${readers} past keybearer`,
      `the right settings: ${settings}`,
    );
  }
  const pointed = pointsHere(found, first);
  if (meaning.role === "helper") {
    if (!pointed) return null;
    const what = `${where} runs a program for the key: unless that prints a token, keybearer refuses it`;
    return said("warning", "other-provider", what, `take it out, or: ${settings}`);
  }
  const out = first.place === null && group.length === 1 ? `unset ${meaning.name}` : "take it out there";
  if (pointed) {
    const what = `${where} is no token, and ${readers} sends it to keybearer, beside a token or in place of one: refused`;
    return said("problem", "two-credentials", what, out);
  }
  const what = `${where} is a key of another account: what is not told otherwise spends it, past keybearer`;
  return said(
    "warning",
    "other-provider",
    what,
    `${out} if that is not meant; the settings instead: ${settings}`,
  );
}

/**
 * Whether the requests that this would be sent with go to keybearer. A client's file may hold several providers, each with
 * its own key: there only variables say so, and only those of the same file.
 */
function pointsHere(found: readonly Found[], { meaning, client, place }: Found): boolean {
  const family = meaning.role === "helper" ? "anthropic" : meaning.family;
  const here = found.filter((other) => other.kind === "ours" && other.meaning.family === family);
  if (client === null || meaning.role === "helper") return here.length > 0;
  return family !== client && here.some((other) => other.place === place);
}

const MOST_PLACES = 5;

/** OPENAI_API_KEY in the environment and ~/.bashrc:3; apiKey (line 4) and baseURL (line 5) of ~/x.json */
function placesInWords(group: readonly [Found, ...Found[]], home: string): string {
  const [{ client, place, meaning }] = group;
  if (client !== null) {
    const file = short(place ?? "", home);
    if (group.length === 1) return `${meaning.name} in ${file}:${group[0].line}`;
    return `${listed(group.map((each) => `${each.meaning.name} (line ${each.line})`))} of ${file}`;
  }
  const paths = group.map((each) =>
    each.place === null ? "the environment" : `${short(each.place, home)}:${each.line}`,
  );
  return `${meaning.name} in ${listed(paths)}`;
}

function listed(words: readonly string[]): string {
  if (words.length > MOST_PLACES)
    return `${words.slice(0, MOST_PLACES).join(", ")} and ${words.length - MOST_PLACES} more`;
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

const MOST_CLIENTS = 3;

function clientsInWords(ids: readonly string[]): string {
  const names = ids.map(clientName);
  if (names.length <= MOST_CLIENTS) return listed(names);
  return `${names.slice(0, MOST_CLIENTS - 1).join(", ")} and others`;
}

function isOf(tool: string, client: string): boolean {
  return guessClients(tool).some(({ id }) => id === client);
}

function toolFor(client: string | null, tools: readonly string[]): string {
  const meant = client === null ? undefined : tools.find((tool) => isOf(tool, client));
  return meant ?? (tools.length === 1 ? tools[0] : undefined) ?? "<tool>";
}

/** What to type for this client's settings; --write where that is known. */
function useFor(client: string | null, tools: readonly string[]): string {
  const tool = toolFor(client, tools);
  if (client === null) return `keybearer use ${tool}`;
  const named = guessClients(tool);
  const guessed = named.length === 1 && named[0]?.id === client;
  const write = WRITABLE.some((id) => id === client) ? " --write" : "";
  return `keybearer use ${tool}${guessed ? "" : ` --for ${client}`}${write}`;
}

function allFine(read: number): Finding {
  const files = `${read} settings ${read === 1 ? "file" : "files"}`;
  const what = `nothing in the environment and ${files} leads past keybearer`;
  return { id: "other-provider", level: "ok", about: ABOUT, what, next: null };
}

function notRead({ unread, home }: Looked): Finding[] {
  if (unread.length === 0) return [];
  const each = unread.map(({ path, why }) => `${short(path, home)} ${why}`);
  const what = `not looked at: ${listed(each)}`;
  return [{ id: "not-read", level: "warning", about: ABOUT, what, next: null }];
}

function short(path: string, home: string): string {
  return path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}
