import { setTimeout as pause } from "node:timers/promises";
import type { Config } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import type { AccountFacts, ConsoleKey, ShownKey } from "./consoles/console.ts";
import type { KeyReport, ToolConsoleFacts } from "./report/shape.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { type HeldKey, heldKeyName, holdKeys, type KeyLink } from "./store/keys.ts";
import { forgetConsole } from "./store/rows.ts";
import type { MirrorUsage } from "./usage.ts";

/* Which keys the tools hold, since when, and which of a console's keys they are. */

/** A tool of one gateway. */
export interface Holder {
  readonly tool: string;
  /** null: it cannot be read just now. */
  readonly key: Secret | null;
  /** Its key is used elsewhere on purpose. */
  readonly elsewhere: boolean;
}

export function findHolders(gateway: string, snapshot: Snapshot): Holder[] {
  const tools = Object.values(snapshot.config.tools).filter((tool) => tool.gateway === gateway);
  return tools.map((tool) => {
    const key = snapshot.keyOf(tool);
    return {
      tool: tool.name,
      key: key.state === "ready" ? key.key : null,
      elsewhere: tool.keysElsewhere || tool.watchOnly,
    };
  });
}

/** The key as the console lists it; undefined: it does not. */
export function findListed(key: Secret, keys: readonly ConsoleKey[]): ConsoleKey | undefined {
  return keys.find(({ shown }) => shown.how !== "hidden" && isShown(key, shown));
}

/** The tools that hold a key of the console's list. null: unknown, because the console hides it or a tool's key is unreadable. */
export function toolsHolding(shown: ShownKey, holders: readonly Holder[]): readonly string[] | null {
  if (shown.how === "hidden") return null;
  const found = holders.filter(({ key }) => key !== null && isShown(key, shown)).map(({ tool }) => tool);
  if (found.length > 0) return found;
  return holders.every(({ key }) => key !== null) ? [] : null;
}

function isShown(key: Secret, shown: Exclude<ShownKey, { how: "hidden" }>): boolean {
  return shown.how === "whole" ? key.equals(shown.key) : key.hasEnds(shown.head, shown.tail);
}

/** What is known of a console's keys that no tool holds at the moment. */
interface KnownKeys {
  /** Whether an unfinished change of a tool's key makes this one, or replaces it. */
  readonly isChanging: (key: Pick<ConsoleKey, "name" | "ref">) => boolean;
  /** The fingerprints of the keys that were held here. */
  readonly held: Pick<ReadonlySet<string>, "has">;
}

/** Which of a console's keys are ours. Also by name, because old rows have no id. */
export function findLinks(
  keys: readonly ConsoleKey[],
  holders: readonly Holder[],
  known: KnownKeys,
): KeyLink[] {
  const links: KeyLink[] = [];
  for (const listed of keys) {
    const link = findLink(listed, holders, known);
    if (link === null) continue;
    links.push(link);
    const { ref, name, account } = listed;
    if (ref.startsWith("id:"))
      links.push({ ...link, ref: account === undefined ? `name:${name}` : `name:${account}/${name}` });
  }
  return links;
}

/** null: whose key it is cannot be seen now. */
function findLink(listed: ConsoleKey, holders: readonly Holder[], known: KnownKeys): KeyLink | null {
  const { ref, shown } = listed;
  const tools = toolsHolding(shown, holders);
  const held = holders.find(({ tool }) => tool === tools?.[0])?.key ?? null;
  if (held !== null) return { ref, key: held.fingerprint };
  const key = fingerprintOf(shown);
  // A new key has no tool until the switch, and may be deleted before the console is asked again.
  if (key !== null && known.isChanging(listed)) return { ref, key };
  if (tools === null) return null;
  return { ref, key: null, mayBeOurs: key !== null && known.held.has(key) };
}

/** The held keys that no account lists. None if the console hides keys. */
export function keysWithoutAccount(keys: readonly ConsoleKey[], holders: readonly Holder[]): string[] {
  if (keys.some(({ shown }) => shown.how === "hidden")) return [];
  const listed = new Set(keys.flatMap(({ shown }) => toolsHolding(shown, holders) ?? []));
  const missing = new Set<string>();
  for (const { tool, key } of holders) if (key !== null && !listed.has(tool)) missing.add(key.fingerprint);
  return [...missing];
}

/** What a console last said beside its rows. */
export interface ConsoleListing {
  readonly account: AccountFacts;
  readonly keys: readonly ConsoleKey[];
  readonly asOf: number;
}

/** The keys that a console lists, for `keybearer keys`. @param now by the console's clock */
export function keyReports(
  gateway: string,
  { keys, asOf }: ConsoleListing,
  holders: readonly Holder[],
  now: number,
): KeyReport[] {
  return keys.map(({ shown, as_of = asOf, ...key }) => ({
    gateway,
    ...key,
    state: stateAt(now, key),
    key: fingerprintOf(shown),
    tools: toolsHolding(shown, holders) ?? [],
    as_of,
  }));
}

/** What a console says of one tool's key. @param multiplier config.yaml's; null: the tool has no group */
export function toolConsoleFacts(
  key: ConsoleKey,
  { account, asOf }: ConsoleListing,
  multiplier: number | null,
  now: number,
): ToolConsoleFacts {
  // Without a group the multiplier is 1.
  const here = multiplier ?? 1;
  const differs = key.multiplier !== null && Math.abs(here - key.multiplier) > 1e-9;
  return {
    state: stateAt(now, key),
    group: key.group,
    multiplier: key.multiplier,
    multiplier_here: differs ? here : null,
    quota: key.quota,
    quota_used: key.quota_used,
    windows: key.windows,
    expires_at: key.expires_at,
    balance: key.subscription === true ? null : account.balance,
    as_of: key.as_of ?? asOf,
  };
}

/** A console may list an expired key as active, and the list may be older than the expiry. */
export function stateAt(
  now: number,
  { state, expires_at }: Pick<ConsoleKey, "state" | "expires_at">,
): ConsoleKey["state"] {
  const isExpired = expires_at !== null && expires_at <= now;
  return isExpired && (state === "active" || state === "unknown") ? "expired" : state;
}

/** Whether the console lists no key with this fingerprint. false if it hides keys. */
export function isUnlisted(fingerprint: string, keys: readonly ConsoleKey[]): boolean {
  return keys.every(
    ({ shown, state }) =>
      state === "deleted" || (shown.how !== "hidden" && fingerprintOf(shown) !== fingerprint),
  );
}

/** What may be printed of a key that a console lists. */
function fingerprintOf(shown: ShownKey): string | null {
  if (shown.how === "hidden") return null;
  return shown.how === "whole" ? shown.key.fingerprint : `…${shown.tail.slice(-4)}`;
}

/** The multiplier that config.yaml gives a tool's group; null: none. */
export function multiplierHere(tool: string, { tools, gateways }: Config): number | null {
  const { gateway = "", group = null } = tools[tool] ?? {};
  return group === null ? null : (gateways[gateway]?.groups[group]?.multiplier ?? null);
}

interface HeldKeysDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "append" | "catchUp">;
}

const RETRY_MS = 5000;

/** Records from when to when each key is held here, also in the journal. That distinguishes a leak from earlier use. */
export class HeldKeys {
  readonly #deps: HeldKeysDeps;
  /** recordLater() is in flight. */
  #isRecordingLater = false;
  /** Gateways to forget as soon as the database can be written. */
  readonly #toForget = new Set<string>();
  /** When keys came that could not be written yet. A leak may appear before they can. */
  readonly #unwritten = new Map<string, number>();

  constructor(deps: HeldKeysDeps) {
    this.#deps = deps;
  }

  /** false: the database cannot be written now. */
  record(snapshot: Snapshot): boolean {
    const { database, usage, clock } = this.#deps;
    const now = clock.now();
    const held = heldNow(snapshot);
    const lines = database.ask((db) => [
      ...[...this.#toForget].flatMap((gateway) => forgetConsole(db, gateway, now, false)),
      ...holdKeys(db, held, now, this.#unwritten),
    ]);
    if (lines !== null) {
      this.#toForget.clear();
      this.#unwritten.clear();
      for (const line of lines) usage.append(line);
      return true;
    }
    const names = new Set(held.map(heldKeyName));
    for (const name of this.#unwritten.keys()) if (!names.has(name)) this.#unwritten.delete(name);
    for (const name of names) if (!this.#unwritten.has(name)) this.#unwritten.set(name, now);
    return false;
  }

  /** After a start the index may be incomplete. Tries again a little later. One attempt serves all changes until then. */
  async recordLater(signal: AbortSignal): Promise<void> {
    if (this.#isRecordingLater) return;
    this.#isRecordingLater = true;
    try {
      await pause(RETRY_MS, undefined, { ref: false, signal });
      await this.#deps.usage.catchUp();
    } catch {
      // The mirror stopped, or the index cannot be read: the next sync or configuration tries again.
      return;
    } finally {
      this.#isRecordingLater = false;
    }
    this.record(this.#deps.snapshot());
  }

  /** The next record() deletes what is known of this gateway. Its keys are held from then on. */
  forget(gateway: string): void {
    this.#toForget.add(gateway);
    this.#unwritten.clear();
  }
}

/** At all gateways. */
function heldNow(snapshot: Snapshot): HeldKey[] {
  return Object.keys(snapshot.config.gateways).flatMap((gateway) =>
    findHolders(gateway, snapshot).map(({ tool, key }) => ({ gateway, tool, key: key?.fingerprint ?? null })),
  );
}
