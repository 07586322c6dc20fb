import { WRITABLE } from "../clients/settings-files.ts";
import { findClient, guessClients } from "../clients/table.ts";
import { advice } from "../core/advice.ts";
import { count } from "../usage/reports/format.ts";
import type { Finding } from "./findings.ts";
import type { KnownSetting } from "./known-settings.ts";

/** All that is kept of a value. `keybearer`, `gateway`: their addresses. `other`: another address, or a key not held here. */
export type SettingValue = "keybearer" | "gateway" | "token" | "incomplete-token" | "other";

interface Place {
  /** null: the environment. */
  readonly path: string | null;
  readonly line: number | null;
  /** Whose file it is; null: every program's. */
  readonly client: string | null;
}

export interface FoundSetting extends Place {
  readonly setting: KnownSetting;
  readonly value: SettingValue;
}

/** A key that keybearer holds, outside keybearer. */
export interface ExposedKey extends Place {
  /** The variable; null: in a file. */
  readonly name: string | null;
}

export interface UnreadFile {
  readonly path: string;
  readonly problem: string;
}

export interface ScanResult {
  readonly found: readonly FoundSetting[];
  readonly exposed: readonly ExposedKey[];
  readonly unread: readonly UnreadFile[];
  /** How many files were read. */
  readonly read: number;
  readonly home: string;
  readonly tools: readonly string[];
}

const ABOUT = "this machine";

export function settingsFindings(scan: ScanResult): Finding[] {
  const { unread, read, home } = scan;
  const findings = [
    ...scan.exposed.map((key) => exposedKeyFinding(key, scan)),
    ...grouped(scan.found).map((group) => settingFinding(group, scan)),
  ].filter((finding) => finding !== null);
  if (findings.length === 0) {
    const what = `no setting in the environment and in ${count(read, "settings file")} leads past keybearer`;
    findings.push({ id: "other-provider", level: "ok", about: ABOUT, what, next: null });
  }
  if (unread.length > 0) {
    const what = `not checked: ${listed(unread.map(({ path, problem }) => `${shortPath(path, home)} ${problem}`))}`;
    findings.push({ id: "not-read", level: "warning", about: ABOUT, what, next: null });
  }
  return findings;
}

function exposedKeyFinding({ name, path, line, client }: ExposedKey, scan: ScanResult): Finding {
  const { home, tools } = scan;
  const id = "own-key";
  if (name !== null) {
    const what = `${name} in the environment is a key that keybearer holds: every program gets it`;
    const next = `remove it where it is set, and use a token: ${advice.use(toolFor(null, tools))}`;
    return { id, level: "problem", about: ABOUT, what, next };
  }
  const what = `a key that keybearer holds is also in ${shortPath(path ?? "", home)}:${line}`;
  // `use --write` leaves other providers alone, so it does not take the key away.
  const remove = path?.endsWith("/.codex/auth.json") ? "codex logout" : "delete the key there";
  const next = isPointedHere(client, scan) ? remove : `${useCommand(client, tools)}; then: ${remove}`;
  return { id, level: "problem", about: ABOUT, what, next };
}

type Group = readonly [FoundSetting, ...FoundSetting[]];

/** One group for each name in the environment and start-up files, and one for each role in a client's file. */
function grouped(found: readonly FoundSetting[]): Group[] {
  const groups = new Map<string, [FoundSetting, ...FoundSetting[]]>();
  for (const each of found) {
    const { setting, value, client, path } = each;
    if (value === "keybearer" || value === "token") continue;
    const id = `${client === null ? setting.name : `${path} ${setting.role}`} ${value}`;
    const group = groups.get(id);
    if (group === undefined) groups.set(id, [each]);
    else group.push(each);
  }
  return [...groups.values()];
}

/** Whether the client's own settings have keybearer's address already. */
function isPointedHere(client: string | null, { found }: ScanResult): boolean {
  return client !== null && found.some((each) => each.client === client && each.value === "keybearer");
}

/** null: it is harmless. */
function settingFinding(group: Group, scan: ScanResult): Finding | null {
  const { found, home, tools } = scan;
  const [first] = group;
  const { setting, value, client, path } = first;
  const where = placesText(group, home);
  const usedClients = setting.clients.filter((id) => tools.some((tool) => isToolOf(tool, id)));
  const readers = clientsText(usedClients.length > 0 ? usedClients : setting.clients);
  const use = useCommand(client ?? usedClients[0] ?? null, tools);
  if (value === "incomplete-token")
    return {
      id: "token",
      level: "problem",
      about: ABOUT,
      what: `${where} holds an incomplete token`,
      next: use,
    };
  if (setting.role === "address" || setting.role === "cloud") {
    // Beside keybearer's own address: another provider in the same file, which `use --write` leaves alone.
    if (isPointedHere(client, scan)) {
      const what = `${where} leads past keybearer, if ${readers} is set to use that provider`;
      const next = "delete it there if you do not need it";
      return { id: "other-provider", level: "warning", about: ABOUT, what, next };
    }
    const level = usedClients.length > 0 && client === null ? "problem" : "warning";
    const what = `${where} sends ${readers} past keybearer`;
    return { id: "other-provider", level, about: ABOUT, what, next: `the right settings: ${use}` };
  }
  const sentHere = isSentToKeybearer(first, found);
  if (setting.role === "helper") {
    if (!sentHere) return null;
    const what = `${where} runs a program for the key: unless it prints a token, keybearer refuses the key`;
    return { id: "other-provider", level: "warning", about: ABOUT, what, next: `remove it, or: ${use}` };
  }
  const remove = path === null && group.length === 1 ? `unset ${setting.name}` : "remove it there";
  if (sentHere) {
    const what = `${where} is not a token, and ${readers} sends it to keybearer, beside a token or instead of one: refused`;
    return { id: "two-credentials", level: "problem", about: ABOUT, what, next: remove };
  }
  const whose = isOfGateway(first, found) ? "a key of your gateway that" : "a key that";
  const what = `${where} is ${whose} keybearer does not hold: programs without other settings spend it, past keybearer`;
  const instead = isPointedHere(client, scan) ? "" : `; the settings instead: ${use}`;
  const next = `${remove} if that is not intended${instead}`;
  return { id: "other-provider", level: "warning", about: ABOUT, what, next };
}

/** Whether the settings that belong to this key have a gateway's own address. */
function isOfGateway({ setting, client }: FoundSetting, found: readonly FoundSetting[]): boolean {
  return found.some(
    (other) =>
      other.value === "gateway" &&
      other.client === client &&
      (client !== null || other.setting.family === setting.family),
  );
}

/**
 * Whether the requests that carry this credential go to keybearer. A client's file can have several providers, each with its
 * own key, so there only variables count, and only those in the same file.
 */
function isSentToKeybearer({ setting, client, path }: FoundSetting, found: readonly FoundSetting[]): boolean {
  const family = setting.role === "helper" ? "anthropic" : setting.family;
  const here = found.filter((other) => other.value === "keybearer" && other.setting.family === family);
  if (client === null || setting.role === "helper") return here.length > 0;
  return family !== client && here.some((other) => other.path === path);
}

/** Each variable once, with all its places. They are the environment's and start-up files'. */
export function variablePlaces(
  found: readonly FoundSetting[],
  home: string,
): { readonly name: string; readonly where: string; readonly isInFile: boolean }[] {
  return [...new Set(found.map(({ setting }) => setting.name))].map((name) => {
    const group = found.filter(({ setting }) => setting.name === name);
    const [first, ...others] = group;
    const where = first === undefined ? name : placesText([first, ...others], home);
    return { name, where, isInFile: group.some(({ path }) => path !== null) };
  });
}

/** OPENAI_API_KEY in the environment and ~/.bashrc:3; apiKey (line 4) and baseURL (line 5) of ~/x.json */
function placesText(group: Group, home: string): string {
  const [{ client, path, setting, line }] = group;
  if (client === null) {
    const places = group.map((each) =>
      each.path === null ? "the environment" : `${shortPath(each.path, home)}:${each.line}`,
    );
    return `${setting.name} in ${listed(places)}`;
  }
  const file = shortPath(path ?? "", home);
  if (group.length === 1) return `${setting.name} in ${file}:${line}`;
  return `${listed(group.map((each) => `${each.setting.name} (line ${each.line})`))} of ${file}`;
}

const MAX_LISTED = 5;

/** a, b and c */
function listed(items: readonly string[]): string {
  if (items.length > MAX_LISTED)
    return `${items.slice(0, MAX_LISTED).join(", ")} and ${items.length - MAX_LISTED} more`;
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

const MAX_CLIENTS = 3;

function clientsText(ids: readonly string[]): string {
  const names = ids.map((id) => findClient(id)?.name ?? id);
  if (names.length <= MAX_CLIENTS) return listed(names);
  return `${names.slice(0, MAX_CLIENTS - 1).join(", ")} and others`;
}

function isToolOf(tool: string, client: string): boolean {
  return guessClients(tool).some(({ id }) => id === client);
}

function toolFor(client: string | null, tools: readonly string[]): string {
  const match = client === null ? undefined : tools.find((tool) => isToolOf(tool, client));
  return match ?? (tools.length === 1 ? tools[0] : undefined) ?? "<tool>";
}

/** The command that prints this client's settings, or writes them where it can. */
function useCommand(client: string | null, tools: readonly string[]): string {
  const tool = toolFor(client, tools);
  if (client === null) return advice.use(tool);
  const guessed = guessClients(tool);
  const named = guessed.length === 1 && guessed[0]?.id === client ? null : client;
  return WRITABLE.some((id) => id === client) ? advice.useWrite(tool, named) : advice.use(tool, named);
}

function shortPath(path: string, home: string): string {
  return path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}
