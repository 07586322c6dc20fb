import type { Config } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import { MINUTE_MS } from "../core/units.ts";
import { DETAIL_BY_STATE, type KeyDetail } from "../proxy/key-health/cause.ts";
import type { ConsoleConnection } from "./connect/connection.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleError,
  type ConsoleKey,
  type ShownKey,
} from "./consoles/console.ts";
import { findHolders, type Holder } from "./held-keys.ts";
import type { KeyReport, ToolConsoleFacts } from "./report/shape.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { heldTimes, type KeyLink, keyLinks, linkKeys } from "./store/keys.ts";
import { clearCursor } from "./store/rows.ts";

interface ListedKeysDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly connection: ConsoleConnection;
  /** Ends what a caller waits for. */
  readonly signal: AbortSignal;
  /** Whether an unfinished change of a tool's key makes this key of a console, or replaces it. */
  readonly isChanging: (key: Pick<KeyReport, "gateway" | "name" | "ref">) => boolean;
  /** A list has a key that is ours, and was not known to be: its rows must be read from the beginning. */
  readonly onNewlyOurs: () => void;
}

/** What a console last said beside its rows. */
interface ConsoleListing {
  readonly account: AccountFacts;
  readonly keys: readonly ConsoleKey[];
  readonly asOf: number;
}

/** A list is read again after this. */
const FRESH_MS = MINUTE_MS;
/** A list this young explains why a key is refused: ten tools with bad keys need one list. */
const EXPLAINS_MS = 5000;
/** A caller waits no longer for a list. */
export const LIST_WAIT_MS = 8000;

/** The keys that a console lists, as it last did, and which of them the tools here hold. */
export class ListedKeys {
  readonly #deps: ListedKeysDeps;
  /** null: nothing was listed yet. */
  #facts: ConsoleListing | null = null;
  /** Lists are numbered in the order in which they are asked for. */
  #asked = 0;
  /** Lists up to this one are older than what is known. */
  #outdated = 0;
  /** The list that is being read to explain refusals. */
  #explaining: Promise<void> | null = null;

  constructor(deps: ListedKeysDeps) {
    this.#deps = deps;
  }

  /** null: nothing was listed yet. */
  get account(): AccountFacts | null {
    return this.#facts?.account ?? null;
  }

  get isFresh(): boolean {
    return this.#age() < FRESH_MS;
  }

  get isKnown(): boolean {
    return this.#facts !== null;
  }

  /** For a sync, which reads the rows next: by then it must be known which keys are ours. */
  async read(adapter: ConsoleAdapter, isStale: () => boolean): Promise<void> {
    const number = this.#nextNumber();
    const asOf = this.#deps.clock.now();
    const keys = await adapter.keys();
    if (isStale()) return;
    this.#link(keys);
    const account = await adapter.account();
    if (!isStale()) this.#store(number, { account, keys, asOf });
  }

  /** The keys as the console lists them now, also during a sync, which may take minutes. Throws a ConsoleError. */
  async list(): Promise<KeyReport[]> {
    const { clock, connection, onNewlyOurs } = this.#deps;
    const adapter = await connection.open();
    // The connection was reset meanwhile: what this adapter says may be another console's.
    const isStale = () => connection.adapter !== adapter;
    const number = this.#nextNumber();
    const asOf = clock.now();
    const keys = await adapter.keys();
    if (isStale()) return this.list();
    // A key may be gone when the next sync lists them: one that is about to be deleted is still the tool's.
    if (this.#link(keys)) onNewlyOurs();
    const account = await adapter.account();
    if (isStale()) return this.list();
    this.#store(number, { keys, account, asOf });
    return this.reports();
  }

  /** Another console has the gateway's name: forgets what the earlier one listed. */
  forget(): void {
    this.#facts = null;
  }

  /** The keys as they were last listed. */
  reports(): KeyReport[] {
    const { connection } = this.#deps;
    if (this.#facts === null) return [];
    return keyReports(connection.gateway.name, this.#facts, this.#holders(), connection.now());
  }

  /** What the login's list says is wrong with a key that the gateway refuses; null: nothing, or there is no such list now. */
  async findDetail(key: Secret): Promise<KeyDetail | null> {
    const known = this.#age() < EXPLAINS_MS ? this.#listedDetail(key) : null;
    if (known !== null) return known;
    this.#explaining ??= this.#listWithLogin().finally(() => {
      this.#explaining = null;
    });
    try {
      await withTimeout(this.#explaining, LIST_WAIT_MS, null, this.#deps.signal);
    } catch (error) {
      if (!(error instanceof ConsoleError)) throw error;
      // The next sync reports it. The gateway can still be asked with the key itself.
      return null;
    }
    return this.#listedDetail(key);
  }

  /** Without a login, a list would take one call with each key, and these are few. */
  async #listWithLogin(): Promise<void> {
    const adapter = await this.#deps.connection.open();
    if (adapter.keyActions !== undefined) await this.list();
  }

  #listedDetail(key: Secret): KeyDetail | null {
    const { connection } = this.#deps;
    if (this.#facts === null || connection.adapter?.keyActions === undefined) return null;
    const listed = findListed(key, this.#facts.keys);
    if (listed !== undefined) return DETAIL_BY_STATE[stateAt(connection.now(), listed)] ?? null;
    return this.isUnlisted(key.fingerprint) ? "key-deleted" : null;
  }

  /** Whether the console listed this key once, and does not any more. A login that lists no other keys cannot know that. */
  isUnlisted(fingerprint: string): boolean {
    const { database, connection } = this.#deps;
    const { adapter, gateway } = connection;
    const isComplete = adapter?.keyActions !== undefined && (adapter.lastError?.("keys") ?? null) === null;
    if (this.#facts === null || !isComplete || !isUnlisted(fingerprint, this.#facts.keys)) return false;
    const links = database.ask((db) => keyLinks(db, gateway.name));
    return links !== null && [...links.keys.values()].includes(fingerprint);
  }

  /** A key was deleted here. The next list may come late, or fail, and until then an alarm would ask to delete it. */
  noteDeleted(ref: string): void {
    if (this.#facts === null) return;
    // A list that was asked for before still has it.
    this.#outdated = this.#asked;
    const keys = this.#facts.keys.filter((key) => key.ref !== ref);
    this.#facts = { ...this.#facts, keys };
  }

  /** What the console says of one tool's key; null: it does not list it. */
  findToolFacts(tool: string): ToolConsoleFacts | null {
    const { snapshot, connection } = this.#deps;
    if (this.#facts === null) return null;
    const holder = this.#holders().filter((one) => one.tool === tool);
    const key = this.#facts.keys.find(({ shown }) => toolsHolding(shown, holder)?.length === 1);
    if (key === undefined) return null;
    return toolConsoleFacts(key, this.#facts, multiplierHere(tool, snapshot().config), connection.now());
  }

  /** The fingerprints of held keys that no account lists. */
  withoutAccount(): readonly string[] {
    return this.#facts === null ? [] : keysWithoutAccount(this.#facts.keys, this.#holders());
  }

  /** Fingerprints of keys that are used elsewhere on purpose. If several keys share one, all of them must be. */
  quietKeys(): ReadonlySet<string> {
    const holders = this.#holders();
    const isLoud = (fingerprint: string) =>
      holders.some(({ key, elsewhere }) => key?.fingerprint === fingerprint && !elsewhere);
    const fingerprints = holders.flatMap(({ key }) => key?.fingerprint ?? []);
    return new Set(fingerprints.filter((fingerprint) => !isLoud(fingerprint)));
  }

  /** The tools whose keys are quiet. */
  quietTools(): { readonly tool: string; readonly key: string }[] {
    const quiet = this.quietKeys();
    return this.#holders().flatMap(({ tool, key }) =>
      key !== null && quiet.has(key.fingerprint) ? [{ tool, key: key.fingerprint }] : [],
    );
  }

  #age(): number {
    if (this.#facts === null) return Number.POSITIVE_INFINITY;
    return Math.abs(this.#deps.clock.now() - this.#facts.asOf);
  }

  #holders(): Holder[] {
    const { connection, snapshot } = this.#deps;
    return findHolders(connection.gateway.name, snapshot());
  }

  #nextNumber(): number {
    this.#asked += 1;
    return this.#asked;
  }

  /** A sync and a key change may both list keys. The list that was asked for last is kept. */
  #store(number: number, facts: ConsoleListing): void {
    if (number <= this.#outdated) return;
    this.#outdated = number;
    this.#facts = facts;
  }

  /** Writes down which of the console's keys are ours. True: some became ours, and the rows must be read from the beginning. */
  #link(keys: readonly ConsoleKey[]): boolean {
    const { database, isChanging, connection } = this.#deps;
    const gateway = connection.gateway.name;
    const newlyOurs = database.ask((db) => {
      const known = {
        isChanging: ({ name, ref }: Pick<ConsoleKey, "name" | "ref">) => isChanging({ gateway, name, ref }),
        held: heldTimes(db, gateway),
      };
      const refs = linkKeys(db, gateway, findLinks(keys, this.#holders(), known));
      // Their rows were skipped as other people's.
      if (refs.length > 0) clearCursor(db, gateway);
      return refs;
    });
    return (newlyOurs ?? []).length > 0;
  }
}

/** The key as the console lists it; undefined: it does not. */
function findListed(key: Secret, keys: readonly ConsoleKey[]): ConsoleKey | undefined {
  return keys.find(({ shown }) => shown.how !== "hidden" && isShown(key, shown));
}

/** The tools that hold a key of the console's list. null: unknown, because the console hides it or a tool's key is unreadable. */
function toolsHolding(shown: ShownKey, holders: readonly Holder[]): readonly string[] | null {
  if (shown.how === "hidden") return null;
  const found = holders.filter(({ key }) => key !== null && isShown(key, shown)).map(({ tool }) => tool);
  if (found.length > 0) return found;
  return holders.every(({ key }) => key !== null) ? [] : null;
}

function isShown(key: Secret, shown: Exclude<ShownKey, { how: "hidden" }>): boolean {
  if (shown.how === "hash") return key.sha256() === shown.hash;
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
function findLinks(keys: readonly ConsoleKey[], holders: readonly Holder[], known: KnownKeys): KeyLink[] {
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
function keysWithoutAccount(keys: readonly ConsoleKey[], holders: readonly Holder[]): string[] {
  if (keys.some(({ shown }) => shown.how === "hidden")) return [];
  const listed = new Set(keys.flatMap(({ shown }) => toolsHolding(shown, holders) ?? []));
  const missing = new Set<string>();
  for (const { tool, key } of holders) if (key !== null && !listed.has(tool)) missing.add(key.fingerprint);
  return [...missing];
}

/** The keys that a console lists, for `keybearer keys`. @param now by the console's clock */
function keyReports(
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
function toolConsoleFacts(
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
    created_at: key.created_at,
    expires_at: key.expires_at,
    balance: key.subscription === true ? null : account.balance,
    as_of: key.as_of ?? asOf,
  };
}

/** A console may list an expired key as active, and the list may be older than the expiry. */
function stateAt(
  now: number,
  { state, expires_at }: Pick<ConsoleKey, "state" | "expires_at">,
): ConsoleKey["state"] {
  const isExpired = expires_at !== null && expires_at <= now;
  return isExpired && (state === "active" || state === "unknown") ? "expired" : state;
}

/** Whether the console lists no key with this fingerprint. false if it hides keys. */
function isUnlisted(fingerprint: string, keys: readonly ConsoleKey[]): boolean {
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
function multiplierHere(tool: string, { tools, gateways }: Config): number | null {
  const { gateway = "", group = null } = tools[tool] ?? {};
  return group === null ? null : (gateways[gateway]?.groups[group]?.multiplier ?? null);
}
