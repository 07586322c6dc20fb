import {
  type FoundKey,
  type FoundSettings,
  isLocal,
  isOff,
  isOwnAddress,
  type Place,
  type ShapedKey,
} from "../clients/find.ts";
import { SHARED, WRITABLE } from "../clients/settings-files.ts";
import { kindOfValue } from "../clients/shapes.ts";
import { findClient, guessClients } from "../clients/table.ts";
import { findVariable, VARIABLES } from "../clients/variables.ts";
import { advice } from "../core/advice.ts";
import { shortenHome } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import type { Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import { tokenShape } from "../core/token.ts";
import { count } from "../usage/reports/format.ts";
import type { Finding } from "./findings.ts";

/*
 * What doctor says about the settings of this machine: which of them send requests past keybearer or with another account, and
 * where keys are that keybearer holds. Names and places only, never a value.
 */

/** This machine, and the keybearer on it. */
export interface Machine {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** The keys that keybearer holds. */
  readonly keys: readonly Secret[];
  /** The ports on which it listens. */
  readonly ports: readonly number[];
  /** The origins of its gateways: https://gateway.example.com */
  readonly gateways: readonly string[];
  /** The names of the tools in config.yaml. */
  readonly tools: readonly string[];
  /** Variables from which config.yaml takes keys, so a key belongs there. */
  readonly sources: readonly string[];
  /** Whether `adopt --write` can move a key. */
  isMovable(key: FoundKey): boolean;
}

/** All that is kept of a value. `keybearer`, `gateway`: their addresses. `other`: another address, or a key not held here. */
type SettingValue = "keybearer" | "gateway" | "token" | "incomplete-token" | "other";

/** A setting that decides where requests go, or with which credential. */
interface Setting {
  readonly name: string;
  /** helper: a program that prints the key. */
  readonly role: "address" | "key" | "cloud" | "helper";
  readonly value: SettingValue;
  /** Settings of one family belong to one request: ANTHROPIC_API_KEY goes where ANTHROPIC_BASE_URL says. */
  readonly family: string;
  /** Ids of the clients that read it. */
  readonly readers: readonly string[];
  /** Whose file it is; null: every program gets it. */
  readonly client: string | null;
  /** null: the environment. */
  readonly place: Place | null;
  /** Only of keys in files. */
  readonly key: FoundKey | null;
  /** Only of addresses. */
  readonly url: string | null;
}

interface Scan extends Machine {
  readonly found: FoundSettings;
  readonly settings: readonly Setting[];
}

const ABOUT = "this machine";

export function settingsFindings(found: FoundSettings, machine: Machine): Finding[] {
  const settings = [...settingsInEnvironment(found, machine), ...settingsInFiles(found, machine)];
  const scan = { ...machine, found, settings };
  const findings = [
    ...exposedInEnvironment(scan),
    ...exposedInFiles(scan),
    ...grouped(settings).map((group) => settingFinding(group, scan)),
    ...found.shaped.map((key) => shapedFinding(key, scan)),
  ].filter((finding) => finding !== null);
  if (findings.length === 0) {
    const what = `no setting in the environment and in ${count(found.read, "settings file")} leads past keybearer`;
    findings.push({ id: "other-provider", level: "ok", about: ABOUT, what, next: null });
  }
  if (found.unread.length > 0) {
    const files = found.unread.map(({ path, problem }) => `${shortenHome(path, machine.home)} ${problem}`);
    findings.push(warning("not-read", `not checked: ${listed(files)}`, null));
  }
  return findings;
}

function problem(id: string, what: string, next: string): Finding {
  return { id, level: "problem", about: ABOUT, what, next };
}

function warning(id: string, what: string, next: string | null): Finding {
  return { id, level: "warning", about: ABOUT, what, next };
}

// What is set, in the environment and in files.

function settingsInEnvironment(
  found: FoundSettings,
  machine: Pick<Machine, "env" | "keys" | "ports" | "gateways">,
) {
  const { env } = machine;
  const known = VARIABLES.map(({ name }) => name);
  // Variables that only a client's own settings name.
  const named = found.environment.map(({ name }) => name).filter((name) => !known.includes(name));
  return [...known, ...named].flatMap((name): Setting[] => {
    const text = env[name]?.trim() ?? "";
    const role = findVariable(name)?.role ?? "key";
    const setting = { ...variable(name), client: null, place: null, key: null, url: null };
    if (role === "address") {
      const value = addressValue(text, machine);
      return value === null ? [] : [{ ...setting, role, value, url: text }];
    }
    if (role === "cloud") return isOff(text) ? [] : [{ ...setting, role, value: "other" }];
    const value = isHeld(text, machine.keys) ? null : credentialValue(text);
    return value === null ? [] : [{ ...setting, role: "key", value }];
  });
}

/** null: it is no credential. */
function credentialValue(text: string): SettingValue | null {
  const kind = kindOfValue(text);
  if (kind === "token") return tokenShape(text) === "complete" ? "token" : "incomplete-token";
  return kind === "key" || kind === "login" ? "other" : null;
}

function settingsInFiles(found: FoundSettings, machine: Pick<Machine, "keys" | "ports" | "gateways">) {
  const settings: (Setting & { readonly place: Place })[] = [];
  for (const address of found.addresses) {
    const value = addressValue(address.url, machine);
    if (value === null || !isOfClient(address)) continue;
    settings.push({ ...inFile(address), role: "address", value, url: address.url });
  }
  for (const token of found.tokens)
    settings.push({ ...inFile(token), role: "key", value: token.isComplete ? "token" : "incomplete-token" });
  for (const place of found.switches) {
    // A variable with $(command) is sent as a key.
    const role =
      place.role === "cloud" || (place.role === "helper" && place.variable === null) ? place.role : "key";
    settings.push({ ...inFile(place), role, value: "other" });
  }
  for (const key of found.keys) {
    // Keys that keybearer holds are reported as exposed. Those of MCP servers and containers are no client's.
    const isOthers = key.field?.move === "by hand" && !key.address.known;
    if (isOthers || machine.keys.some((held) => held.equals(key.key))) continue;
    settings.push({ ...inFile(key), role: "key", value: "other", key });
  }
  return settings.toSorted((a, b) => a.place.order - b.place.order || a.place.line - b.place.line);
}

/** A field of a program that is no client, such as a container, says nothing about clients. */
function isOfClient({ client, variable }: Place): boolean {
  return variable !== null || findClient(client) !== null;
}

function inFile(place: Place) {
  const client = SHARED.includes(place.client) || place.file.isShared ? null : place.client;
  const own = {
    name: String(place.path.findLast((part) => typeof part === "string") ?? ""),
    family: place.client,
    readers: [place.client],
  };
  const named = place.variable === null ? own : variable(place.variable);
  return { ...named, client, place, key: null, url: null };
}

function variable(name: string): Pick<Setting, "name" | "family" | "readers"> {
  const known = findVariable(name);
  return { name, family: known?.family ?? name, readers: known?.clients ?? [] };
}

/** null: another server on this machine, such as a local model, has no account that could be the wrong one. */
function addressValue(
  url: string,
  { ports, gateways }: Pick<Machine, "ports" | "gateways">,
): SettingValue | null {
  if (!URL.canParse(url) || !/^https?:/i.test(url)) return null;
  if (gateways.includes(new URL(url).origin)) return "gateway";
  if (isOwnAddress(url, ports)) return "keybearer";
  return isLocal(url) ? null : "other";
}

// Keys that keybearer holds.

/** Also in variables that no known client reads: every program that is started gets them. */
function exposedInEnvironment({ env, keys, sources, tools, found, isMovable }: Scan): Finding[] {
  return Object.keys(env)
    .filter((name) => isHeld(env[name], keys))
    .filter((name) => !sources.includes(name) || findVariable(name) !== null)
    .map((name) => {
      const what = `${name} in the environment is a key that keybearer holds: every program gets it`;
      const isInFile = found.keys.some((key) => key.variable === name && isMovable(key));
      const byHand = `remove it where it is set, and use a token: ${advice.use(toolFor(null, tools))}`;
      return problem("own-key", what, isInFile ? `${advice.adoptWrite()}; then: unset ${name}` : byHand);
    });
}

function exposedInFiles({ found, keys, home, isMovable }: Scan): Finding[] {
  const isOurs = ({ key }: { readonly key: Secret }) => keys.some((held) => held.equals(key));
  const what = (path: string, line: number) =>
    `a key that keybearer holds is also in ${shortenHome(path, home)}:${line}`;
  return [
    ...found.keys.filter(isOurs).map((key) => {
      const next = isMovable(key) ? advice.adoptWrite() : `${advice.adopt()} says what to do`;
      return problem("own-key", what(key.file.path, key.line), next);
    }),
    ...found.shaped
      .filter(isOurs)
      .map(({ file, line }) =>
        problem("own-key", what(file.path, line), file.byHand ?? "delete the key there"),
      ),
  ];
}

function isHeld(text: string | undefined, keys: readonly Secret[]): boolean {
  return text !== undefined && keys.some((key) => key.isIn(text));
}

// Settings that lead past keybearer.

type Group = readonly [Setting, ...Setting[]];

/** One group for each name in the environment and start-up files, and one for each role in a client's file. */
function grouped(settings: readonly Setting[]): Group[] {
  const groups = new Map<string, [Setting, ...Setting[]]>();
  for (const each of settings) {
    const { name, role, value, client, place } = each;
    if (value === "keybearer" || value === "token") continue;
    const id = `${client === null ? name : `${place?.file.path} ${role}`} ${value}`;
    const group = groups.get(id);
    if (group === undefined) groups.set(id, [each]);
    else group.push(each);
  }
  return [...groups.values()];
}

/** null: it is harmless. */
function settingFinding(group: Group, scan: Scan): Finding | null {
  const [{ role, value, client, readers }] = group;
  const { home, tools } = scan;
  const where = placesText(group, home);
  const usedClients = readers.filter((id) => tools.some((tool) => isToolOf(tool, id)));
  const use = useCommand(client ?? usedClients[0] ?? null, tools);
  if (value === "incomplete-token") return problem("token", `${where} holds an incomplete token`, use);
  const who = clientsText(usedClients.length > 0 ? usedClients : readers);
  if (role === "address" || role === "cloud")
    return addressFinding(group, scan, where, who, usedClients, use);
  const isSentHere = isSentToKeybearer(group[0], scan);
  if (role === "helper") {
    if (!isSentHere) return null;
    const what = `${where} runs a program for the key: unless it prints a token, keybearer refuses the key`;
    return warning("other-provider", what, `remove it, or: ${use}`);
  }
  return keyFinding(group, scan, where, who, isSentHere ? use : null);
}

function addressFinding(
  group: Group,
  scan: Scan,
  where: string,
  who: string,
  usedClients: readonly string[],
  use: string,
): Finding {
  const [{ client }] = group;
  const isMoved = group.some((setting) => isMovedWithKey(setting, scan));
  // Beside keybearer's own address: another provider in the same file, which `use --write` leaves alone.
  if (isPointedHere(client, scan)) {
    const what = `${where} leads past keybearer, if ${who} is set to use that provider`;
    const next = isMoved ? advice.adoptWrite() : "delete it there if you do not need it";
    return warning("other-provider", what, next);
  }
  const what = `${where} sends ${who} past keybearer`;
  const next = isMoved ? `with its key: ${advice.adoptWrite()}` : `the right settings: ${use}`;
  const isInUse = usedClients.length > 0 && client === null;
  return isInUse ? problem("other-provider", what, next) : warning("other-provider", what, next);
}

/** @param use the settings of the client, if the key is sent to keybearer; null: it goes past keybearer. */
function keyFinding(group: Group, scan: Scan, where: string, who: string, use: string | null): Finding {
  const [first] = group;
  const { name, client } = first;
  const isInFile = group.some(({ place }) => place !== null);
  const isMoved = group.some(({ key }) => key !== null && scan.isMovable(key));
  if (use !== null) {
    const what = `${where} is not a token, and ${who} sends it to keybearer, beside a token or instead of one: refused`;
    const remove = isInFile ? "remove it there" : `unset ${name}`;
    const byHand = client === null ? remove : `a token instead: ${use}`;
    return problem("two-credentials", what, isMoved ? advice.adoptWrite() : byHand);
  }
  const whose = isOfGateway(first, scan) ? "a key of your gateway that" : "a key that";
  const what = `${where} is ${whose} keybearer does not hold: programs without other settings spend it, past keybearer`;
  if (isMoved) return warning("other-provider", what, advice.adoptWrite());
  const next = isInFile ? `${advice.adopt()} says what to do` : `unset ${name} if that is not intended`;
  return warning("other-provider", what, next);
}

/** A key in a file whose settings cannot be distinguished, such as a property list. */
function shapedFinding({ key, file, line }: ShapedKey, { keys, home }: Scan): Finding | null {
  if (file.format !== "text" || keys.some((held) => held.equals(key))) return null;
  const what = `a key that keybearer does not hold is in ${shortenHome(file.path, home)}:${line}: programs without other settings spend it, past keybearer`;
  return warning("other-provider", what, `${advice.adopt()} says what to do`);
}

/** Whether the client's own settings have keybearer's address already. */
function isPointedHere(client: string | null, { settings }: Scan): boolean {
  return client !== null && settings.some((each) => each.client === client && each.value === "keybearer");
}

/** Whether `adopt` replaces this address, because it moves a key that is sent there. */
function isMovedWithKey({ url }: Setting, { found, isMovable }: Scan): boolean {
  return found.keys.some((key) => key.address.known && key.address.url === url && isMovable(key));
}

/** Whether requests with this key go to a gateway of keybearer's. */
function isOfGateway({ key, family, client }: Setting, { settings, gateways }: Scan): boolean {
  if (key?.address.known && addressValue(key.address.url, { ports: [], gateways }) === "gateway") return true;
  return settings.some(
    (other) =>
      other.value === "gateway" && client === null && other.client === null && other.family === family,
  );
}

/**
 * Whether the requests that carry this credential go to keybearer. A variable for every program is sent to the address of its family,
 * no matter where that is set. A client's file can have several providers, each with its own key.
 */
function isSentToKeybearer({ role, family, client, key }: Setting, { settings, ports }: Scan): boolean {
  if (client !== null && role === "key")
    return key?.address.known === true && isOwnAddress(key.address.url, ports);
  const wanted = role === "helper" ? "anthropic" : family;
  return settings.some((other) => other.value === "keybearer" && other.family === wanted);
}

// A second credential.

interface SecondCredential {
  readonly name: string;
  /** All its places. */
  readonly where: string;
  readonly isInFile: boolean;
}

/**
 * Credentials in the environment and in start-up files that a client reads, and that are not the token in `tokenVariable`: for
 * `use --write`, which does not change them.
 */
export function secondCredentials(
  found: FoundSettings,
  { client, tokenVariable }: { readonly client: string; readonly tokenVariable: string | null },
  { env, home }: Pick<Machine, "env" | "home">,
): SecondCredential[] {
  const nothing = { env, keys: [], ports: [], gateways: [] };
  const all = [...settingsInEnvironment(found, nothing), ...settingsInFiles(found, nothing)].filter(
    (each) => each.role === "key" && each.client === null && each.readers.includes(client),
  );
  const others = all.filter(({ value, name }) => value !== "token" || name !== tokenVariable);
  return [...new Set(others.map(({ name }) => name))].flatMap((name) => {
    const [first, ...rest] = others.filter((each) => each.name === name);
    if (first === undefined) return [];
    const group: Group = [first, ...rest];
    return [{ name, where: placesText(group, home), isInFile: group.some(({ place }) => place !== null) }];
  });
}

// Words.

/** OPENAI_API_KEY in the environment and ~/.bashrc:3; apiKey (line 4) and baseURL (line 5) of ~/x.json */
function placesText(group: Group, home: string): string {
  const [{ client, name, place }] = group;
  if (client === null) {
    const places = group.map((each) =>
      each.place === null
        ? "the environment"
        : `${shortenHome(each.place.file.path, home)}:${each.place.line}`,
    );
    return `${name} in ${listed(places)}`;
  }
  const file = shortenHome(place?.file.path ?? "", home);
  if (group.length === 1) return `${name} in ${file}:${place?.line}`;
  return `${listed(group.map((each) => `${each.name} (line ${each.place?.line})`))} of ${file}`;
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
  if (ids.length === 0) return "a client that reads it";
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

// The time that the search may take.

const SCAN_TIMEOUT_MS = 10_000;

/** A network folder that hangs must not hold back the other findings. */
export function scanOrProblem(
  scanning: Promise<readonly Finding[]>,
  timeout: number = SCAN_TIMEOUT_MS,
): Promise<readonly Finding[]> {
  const safe = scanning.catch((error) => [notScanned(errorMessage(error))]);
  return withTimeout(safe, timeout, [notScanned("it took too long")]);
}

function notScanned(problem: string): Finding {
  return warning("elsewhere", `other settings could not be checked: ${problem}`, null);
}
