import { basename, dirname } from "node:path";
import type { ClientId, DescribedFile } from "../clients/description.ts";
import { isVariableFormat } from "../clients/description.ts";
import type { FoundKey, FoundSettings, Reference } from "../clients/find.ts";
import type { Path } from "../clients/format.ts";
import { SHARED } from "../clients/settings-files.ts";
import { guessClients } from "../clients/table.ts";
import { findVariable } from "../clients/variables.ts";
import { AMBIGUOUS } from "../config/edit-layout.ts";
import type { Config, Gateway } from "../config/schema.ts";
import type { Secret } from "../core/secret.ts";
import { ownAddress, type Pair } from "./inventory.ts";

/* Which tool and gateway each key gets, and which fields of which files change. Pure: nothing is read or written. */

/** A tool that will hold a key that was found. */
export interface ToolPlan {
  readonly name: string;
  /** False: it is in config.yaml with this very key. */
  readonly isNew: boolean;
  readonly gateway: string;
  readonly isNewGateway: boolean;
  readonly baseUrl: string;
  readonly key: Secret;
  readonly client: ClientId;
  readonly places: readonly FoundKey[];
}

/** What is in config.yaml, and the keys of its tools as far as they can be read. */
export interface Known {
  readonly gateways: Readonly<Record<string, Gateway>>;
  readonly tools: Config["tools"];
  readonly keys: ReadonlyMap<string, Secret>;
}

/**
 * One tool for each client that uses the key, named after the client, or after the project whose .env it is. What is removed beside
 * another key gets none.
 */
export function planTools(all: readonly Pair[], losers: readonly FoundKey[], known: Known): ToolPlan[] {
  const plans: ToolPlan[] = [];
  const pairs = all
    .map((pair) => ({ ...pair, places: pair.places.filter((place) => !losers.includes(place)) }))
    .filter(({ places }) => places.length > 0);
  for (const pair of pairs) {
    const gateway = findGateway(pair.baseUrl, known, plans);
    for (const { client, wanted, places } of groupByUser(pair)) {
      const existing = findTool(pair, gateway.name, wanted, known);
      const name =
        existing ??
        freeName(wanted, gateway.name, [...Object.keys(known.tools), ...plans.map((plan) => plan.name)]);
      plans.push({
        name,
        isNew: existing === null,
        gateway: gateway.name,
        isNewGateway: gateway.isNew,
        baseUrl: pair.baseUrl,
        key: pair.key,
        client,
        places,
      });
    }
  }
  return plans;
}

interface User {
  readonly client: ClientId;
  /** The name of its tool, unless another tool has it. */
  readonly wanted: string;
  readonly places: readonly FoundKey[];
}

function groupByUser(pair: Pair): User[] {
  const users = new Map<string, { client: ClientId; wanted: string; places: FoundKey[] }>();
  for (const place of pair.places) {
    const client = findUser(place, pair);
    const wanted = client === "env-file" && isProjectEnv(place) ? projectName(place) : client;
    const user = users.get(wanted);
    if (user === undefined) users.set(wanted, { client, wanted, places: [place] });
    else user.places.push(place);
  }
  return [...users.values()];
}

/** The folder of a project's .env, as the name of a tool. */
function projectName({ client, file }: FoundKey): string {
  const words =
    basename(dirname(file.path))
      .toLowerCase()
      .match(/[a-z0-9]+/g) ?? [];
  const name = words.join("-").slice(0, MAX_NAME).replace(/-$/, "");
  return /^[a-z]/.test(name) && !AMBIGUOUS.test(name) ? name : client;
}

const MAX_NAME = 30;

/** The client that a key is for: another place of the same key may say so, or the name of its variable. */
function findUser(place: FoundKey, { places }: Pair): ClientId {
  const { client, variable } = place;
  if (!SHARED.includes(client) || isProjectEnv(place) || variable === null) return ownerOf(place);
  const known = findVariable(variable);
  const user = places.find(
    (other) => !SHARED.includes(other.client) && known?.clients.includes(other.client),
  );
  return user?.client ?? ownerOf(place);
}

/** The client that a key is for, as far as its place says so; else the kind of the place, such as shell. */
export function ownerOf(place: FoundKey): ClientId {
  const { client, variable, references } = place;
  if (!SHARED.includes(client) || variable === null) return client;
  const [reference] = references;
  if (reference !== undefined) return reference.client;
  return isProjectEnv(place) ? client : (OWNERS[findVariable(variable)?.family ?? ""] ?? client);
}

/** Its key is for the project's own programs, whatever else reads it there. */
function isProjectEnv({ client, file }: FoundKey): boolean {
  return client === "env-file" && file.isProject;
}

/** Variables that are named after one client. Those of OpenAI are read by too many. */
const OWNERS: Readonly<Record<string, ClientId>> = {
  anthropic: "claude-code",
  gemini: "gemini-cli",
  copilot: "copilot-cli",
};

function findGateway(
  baseUrl: string,
  { gateways }: Known,
  plans: readonly ToolPlan[],
): { readonly name: string; readonly isNew: boolean } {
  const existing = Object.values(gateways).find((gateway) => gateway.baseUrl === baseUrl);
  if (existing !== undefined) return { name: existing.name, isNew: false };
  const planned = plans.find((plan) => plan.baseUrl === baseUrl);
  if (planned !== undefined) return { name: planned.gateway, isNew: true };
  const taken = [...Object.keys(gateways), ...plans.map(({ gateway }) => gateway)];
  const wanted = taken.length === 0 ? "main" : nameFromHost(new URL(baseUrl).hostname);
  return { name: numbered(wanted, taken), isNew: true };
}

/** openai of api.openai.com, example of gateway.example.com. */
function nameFromHost(host: string): string {
  const parts = host.split(".").filter((part) => /^[a-z][a-z0-9-]*$/.test(part));
  return parts.at(-2) ?? parts[0] ?? "gateway";
}

/** A tool of this client or project that holds the same key for the same gateway. */
function findTool({ key }: Pair, gateway: string, wanted: string, { tools, keys }: Known): string | null {
  const same = Object.values(tools).filter(
    (tool) => tool.gateway === gateway && (keys.get(tool.name)?.equals(key) ?? false),
  );
  const named = same.find(
    ({ name }) => name === wanted || guessClients(name).some(({ id }) => id === wanted),
  );
  return named?.name ?? null;
}

/** A tool with another key is never overwritten. */
function freeName(wanted: string, gateway: string, taken: readonly string[]): string {
  return taken.includes(wanted) ? numbered(`${wanted}-${gateway}`, taken) : wanted;
}

function numbered(name: string, taken: readonly string[]): string {
  let free = name;
  for (let number = 2; taken.includes(free); number += 1) free = `${name}-${number}`;
  return free;
}

/** One field of one file. */
export interface Edit {
  readonly path: Path;
  /** undefined: it is removed. */
  readonly value: string | undefined;
  readonly holds: "address" | "key" | "other";
  /** In a file of variables, a new one goes behind this one. */
  readonly near: Path | null;
}

/** The edits of one tool in one file. */
export interface FileEdits {
  readonly tool: string;
  readonly client: ClientId;
  readonly file: DescribedFile;
  readonly edits: readonly Edit[];
  /**
   * The order of writing. After the first file is replaced, the client uses the token; the others only hold what does not
   * count any more. So it works after each of them.
   */
  readonly rank: number;
}

export interface Values {
  readonly token: string;
  /** http://localhost:5397 */
  readonly origin: string;
}

/** What changes in files that hold both key and address, or where a client names a variable. */
export function planEdits(plan: ToolPlan, { token, origin }: Values): FileEdits[] {
  const { name: tool } = plan;
  const files: FileEdits[] = [];
  for (const place of plan.places) {
    const { client, file, path, slot, address, references, field } = place;
    if (!address.known || field?.move === "rewrite") continue;
    const ours = ownAddress(origin, address.base);
    for (const reference of references) files.push(editReference(plan, reference, { token, origin }));
    const { before, after } = place.around;
    const edits: Edit[] = [{ path, value: `${before}${token}${after}`, holds: "key", near: null }];
    if (slot !== null) edits.push({ path: slot, value: ours, holds: "address", near: path });
    const later =
      address.place !== null && address.place.file.path !== file.path && address.place.order > place.order
        ? address.place
        : null;
    if (later !== null) {
      // The address there would win over the one beside the key. So that file gets both, and in one write.
      const key = siblingPath(later.file, place);
      const both: Edit[] = [{ path: later.path, value: ours, holds: "address", near: null }];
      if (key !== null) both.push({ path: key, value: token, holds: "key", near: later.path });
      files.push({ tool, client: later.client, file: later.file, edits: both, rank: 0 });
    }
    files.push({ tool, client, file, edits, rank: later === null && references.length === 0 ? 0 : 1 });
  }
  return files;
}

/** The client gets the token itself instead of the name of a variable, so that one write is enough. */
function editReference({ name: tool }: ToolPlan, reference: Reference, { token, origin }: Values): FileEdits {
  const { client, file, path, keyPath, slot, field } = reference;
  const edits: Edit[] = [];
  if (keyPath !== null) {
    edits.push({ path: keyPath, value: token, holds: "key", near: null });
    if (field.isName) edits.push({ path, value: undefined, holds: "other", near: null });
  }
  if (slot !== null)
    edits.push({ path: slot, value: ownAddress(origin, field.base), holds: "address", near: null });
  return { tool, client, file, edits, rank: 0 };
}

/** Where a key belongs in another file of variables; null: it has none. */
function siblingPath({ variables, format }: DescribedFile, { variable }: FoundKey): Path | null {
  if (variable === null || variables === null) return null;
  return [...variables, variable, ...(isVariableFormat(format) ? [0] : [])];
}

/**
 * Keys that Claude Code sends beside another one, which keybearer refuses. ANTHROPIC_AUTH_TOKEN stays: Claude Code asks the person
 * to approve a new ANTHROPIC_API_KEY.
 */
export function findLosers(found: FoundSettings, moved: readonly FoundKey[]): FoundKey[] {
  return found.keys.filter((place) => {
    if (place.variable !== "ANTHROPIC_API_KEY" || place.file.byHand !== null) return false;
    return moved.some(
      (other) =>
        other.variable === "ANTHROPIC_AUTH_TOKEN" &&
        !other.key.equals(place.key) &&
        isReadTogether(place, other),
    );
  });
}

/** Whether one program reads both: a client's own file, and what every program's variables come from. */
function isReadTogether(one: FoundKey, other: FoundKey): boolean {
  if (one.client === "env-file" || other.client === "env-file") return one.file.path === other.file.path;
  return true;
}
