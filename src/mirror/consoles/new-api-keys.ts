import {
  countAt,
  fieldAt,
  flagAt,
  type JsonObject,
  objectAt,
  parseObject,
  wholeAt,
} from "../../core/json.ts";
import type { Secret } from "../../core/secret.ts";
import { HOUR_MS, MINUTE_MS } from "../../core/units.ts";
import { findCause } from "../../proxy/key-health/cause.ts";
import { cleanAt } from "./clean-text.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleError,
  type ConsoleGap,
  type ConsoleKey,
  type Page,
  type SkippedKey,
} from "./console.ts";
import {
  type AdapterDeps,
  type ConsoleResponse,
  isDenied,
  otherShape,
  readJson,
  requiredData,
} from "./http.ts";
import { intervalFor, type KeyCallBudget } from "./key-calls.ts";
import { PageReader } from "./log-walk.ts";
import { readNewApiRow } from "./new-api.ts";
import { ONE_API_ID_NAMES, quotaAt, readStatus, type SiteStatus } from "./one-api-protocol.ts";

interface OwnKey {
  readonly fingerprint: string;
  readonly key: Secret;
}

interface NewApiByKeysDeps extends AdapterDeps {
  /** The keys of this gateway that are held here now. */
  readonly keys: () => readonly OwnKey[];
  readonly keyCalls: KeyCallBudget;
}

/** The console lists at most this many rows per key. */
const MAX_ROWS = 1000;
/** Facts are read for this many keys in a sync: they must not use up the calls that rows need, also after each restart. */
const MAX_FACTS = 3;
/** Facts about a key are asked for again after this. */
const FACTS_AGE_MS = HOUR_MS;
/** Allowed difference between our clock and the console's. */
const MAX_SKEW_MS = 15 * MINUTE_MS;
const ROWS = "the rows of a key";
const FACTS = "the facts of a key";

/** new-api without a login: each key lists its own newest rows. */
export class NewApiByKeys implements ConsoleAdapter {
  readonly kind = "new-api";
  readonly idNames = ONE_API_ID_NAMES;
  readonly billsFailures = false;
  readonly socketRowsHaveIds = true;
  readonly rowsPerKey = MAX_ROWS;
  readonly #deps: AdapterDeps;
  readonly #heldKeys: () => readonly OwnKey[];
  readonly #budget: KeyCallBudget;
  /** By fingerprint. */
  readonly #facts = new Map<string, ConsoleKey>();
  #skipped: readonly SkippedKey[] = [];

  constructor(deps: NewApiByKeysDeps) {
    this.#deps = deps;
    this.#heldKeys = deps.keys;
    this.#budget = deps.keyCalls;
  }

  leastInterval(): number {
    try {
      return intervalFor(this.#distinctKeys().length);
    } catch (error) {
      // No key may be sent there, so nothing is read.
      if (error instanceof ConsoleError) return 0;
      throw error;
    }
  }

  skippedKeys(): readonly SkippedKey[] {
    return this.#skipped;
  }

  async account(): Promise<AccountFacts> {
    return { balance: null, console_version: (await readStatus(this.#deps.client)).version };
  }

  /** All held keys, with as many facts as the budget allows: one call per key is left for the rows. */
  async keys(): Promise<ConsoleKey[]> {
    const { now } = this.#deps;
    const held = this.#distinctKeys();
    const askedAt = ({ fingerprint }: OwnKey) => this.#facts.get(fingerprint)?.as_of ?? 0;
    const due = held
      .filter((one) => now() - askedAt(one) >= FACTS_AGE_MS)
      .toSorted((a, b) => askedAt(a) - askedAt(b))
      .slice(0, Math.max(0, Math.min(MAX_FACTS, this.#budget.left() - held.length)));
    if (due.length > 0) {
      const site = await this.#readStatus();
      for (const one of due) {
        const facts = await this.#readFacts(one, site);
        this.#facts.set(one.fingerprint, { ...facts, as_of: now() });
      }
    }
    return held.map((one) => this.#facts.get(one.fingerprint) ?? keyWithoutFacts(one));
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const { now } = this.#deps;
    const stored = readCursor(cursor);
    const { quotaPerUnit, time } = await this.#readStatus();
    const ahead = time === null ? 0 : time - now();
    const held = this.#distinctKeys();
    if (held.length === 0) {
      throw new ConsoleError("login-needed", "was not read: no key of this gateway is available here");
    }
    const left = this.#budget.left();
    // A sync that read nothing is not a sync.
    if (left === 0) throw usedUpError(this.#budget.wait());
    // The cursor has the keys in the order in which they were last read. Those no longer held are dropped.
    const fingerprints = held.map(({ fingerprint }) => fingerprint);
    const reads = new Map([...stored].filter(([fingerprint]) => fingerprints.includes(fingerprint)));
    const order = [...reads.keys()];
    const sorted = held.toSorted((a, b) => order.indexOf(a.fingerprint) - order.indexOf(b.fingerprint));
    this.#skipped = sorted.slice(left).map(({ fingerprint: key }) => ({
      key,
      until: reads.get(key)?.accepted ?? null,
    }));
    let done = 0;
    let accepted = 0;
    for (const one of sorted.slice(0, left)) {
      const { fingerprint: key } = one;
      const before = reads.get(key) ?? NEVER_READ;
      // Deleted, so that setting it again moves it to the end of the order.
      reads.delete(key);
      const items = await this.#get("/api/log/token", one, ROWS);
      const listed = items instanceof Denied ? [] : items;
      if (!Array.isArray(listed)) throw otherShape(ROWS, "data");
      const { rows, oldest, newest } = readRows(one, listed, quotaPerUnit);
      let gap: ConsoleGap | null = null;
      if (items instanceof Denied) {
        // A disabled or deleted key lists nothing, so calls made with it since are unknown.
        const from = before.accepted === null ? since : before.accepted + ahead;
        gap = { from, to: now() + ahead, key, cause: "refused" };
        reads.set(key, before);
      } else {
        accepted += 1;
        // Rows older than the oldest of a full list cannot be read: a gap, unless they were read before.
        const readUntil = before.newest ?? emptyUntil(before, since);
        const isFull = listed.length >= MAX_ROWS;
        if (isFull && oldest !== null && oldest > readUntil) {
          gap = { from: readUntil, to: oldest, key, cause: "many" };
        }
        reads.set(key, { newest: newest ?? before.newest, accepted: now() });
      }
      done += rows.length;
      const keys = Object.fromEntries(reads);
      yield { rows, cursor: JSON.stringify({ keys }), done, total: null, gap };
    }
    if (accepted === 0) {
      throw new ConsoleError("login-needed", "accepts no key that is held here; give it an access token");
    }
  }

  /** Two tools can have the same key. */
  #distinctKeys(): OwnKey[] {
    const held = this.#heldKeys();
    return held.filter((one, at) => held.findIndex(({ key }) => key.equals(one.key)) === at);
  }

  async #readStatus(): Promise<SiteStatus> {
    const status = await readStatus(this.#deps.client);
    // Up to v0.10.7 the key must be sent in the address, where proxies log it: we never do. 0.0.0 is an own build.
    if (/^v?0\.(?!0\.0\b)(?:\d\.|10\.[0-7]\b)/.test(status.version ?? "")) throw tooOldError();
    return status;
  }

  /** The `data` that a path answers to a key. */
  async #get(path: string, { key }: OwnKey, about: string): Promise<unknown | Denied> {
    this.#budget.spend();
    const response = await this.#deps.client.send({ path, bearer: key });
    if (isDenied(response)) return new Denied(deniedState(response));
    let body: JsonObject;
    try {
      body = readJson(response, about);
    } catch (error) {
      const isNoConsole = error instanceof ConsoleError && error.kind === "not-a-console";
      const isWebPage = isNoConsole && response.status === 200 && response.text !== "";
      // The status was readable just before, so this version does not know the path.
      throw response.status === 404 || isWebPage ? tooOldError() : error;
    }
    // /api/usage/token/ answers `code: true` where all others answer `success`.
    if (flagAt(body, "success") === false || flagAt(body, "code") === false) return new Denied("unknown");
    const data = fieldAt(body, "data");
    if (data === undefined) throw otherShape(about, "data");
    // Go writes an empty list as null.
    return data ?? [];
  }

  async #readFacts(one: OwnKey, { quotaPerUnit, version }: SiteStatus): Promise<ConsoleKey> {
    // With the trailing slash: without it the console answers with a redirect.
    const data = await this.#get("/api/usage/token/", one, FACTS);
    if (data instanceof Denied) return { ...keyWithoutFacts(one), state: data.state };
    const facts = requiredData(data, FACTS);
    const expires = (countAt(facts, "expires_at") ?? 0) * 1000;
    const isUnlimited = flagAt(facts, "unlimited_quota") === true;
    const available = wholeAt(facts, "total_available");
    // v0.13.2 answers the same about a disabled key.
    let state: ConsoleKey["state"] = /^v?0\./.test(version ?? "") ? "unknown" : "active";
    if (!isUnlimited && available !== null && available <= 0) state = "quota-exhausted";
    if (expires > 0 && expires <= this.#deps.now()) state = "expired";
    return {
      ...keyWithoutFacts(one),
      name: cleanAt(facts, "name") ?? one.fingerprint,
      state,
      quota: isUnlimited ? null : quotaAt(facts, "total_granted", quotaPerUnit),
      unlimited: isUnlimited,
      quota_used: quotaAt(facts, "total_used", quotaPerUnit),
      expires_at: expires > 0 ? expires : null,
    };
  }
}

/** The console does not accept a key. */
class Denied {
  readonly state: ConsoleKey["state"];

  constructor(state: ConsoleKey["state"]) {
    this.state = state;
  }
}

/** Here only a disabled key and one that is not in the database are refused. */
function deniedState({ status, text }: ConsoleResponse): ConsoleKey["state"] {
  const cause = findCause({ status, contentType: "application/json", body: text });
  if (cause?.detail === "key-disabled") return "disabled";
  return cause?.name === "incomplete-key" ? "deleted" : "unknown";
}

/** Without a login a key is known by its fingerprint, not by the console's number. */
function refOf({ fingerprint }: OwnKey): string {
  return `key:${fingerprint}`;
}

function keyWithoutFacts(one: OwnKey): ConsoleKey {
  return {
    ref: refOf(one),
    name: one.fingerprint,
    shown: { how: "whole", key: one.key },
    group: null,
    multiplier: null,
    state: "unknown",
    quota: null,
    unlimited: false,
    quota_used: null,
    windows: [],
    created_at: null,
    expires_at: null,
    last_used_at: null,
    as_of: null,
  };
}

/** The rows of one key, with the times of the oldest and the newest in console time. */
function readRows(one: OwnKey, items: readonly unknown[], quotaPerUnit: number) {
  const reader = new PageReader((raw) => {
    const row = readNewApiRow(raw, quotaPerUnit);
    return typeof row === "string" ? row : { ...row, key_ref: refOf(one) };
  });
  const times = items
    .map((item) => countAt(item, "created_at"))
    .filter((seconds) => seconds !== null)
    .map((seconds) => seconds * 1000)
    .toSorted((a, b) => a - b);
  const { rows } = reader.read({ rows: items, total: null });
  return { rows, oldest: times[0] ?? null, newest: times.at(-1) ?? null };
}

function usedUpError(wait: number): ConsoleError {
  const minutes = Math.max(1, Math.ceil(wait / MINUTE_MS));
  return new ConsoleError(
    "rate-limited",
    `allows 20 key lookups in 20 minutes, and can be asked again in ${minutes} min; an access token has no such limit`,
    Math.ceil(wait / 1000),
  );
}

function tooOldError(): ConsoleError {
  const problem = "is of a version that needs the key in the address; give it an access token";
  return new ConsoleError("other-shape", problem);
}

/** What the cursor remembers of a key, in milliseconds. */
interface KeyRead {
  /** The newest row read, in console time; null: none. */
  readonly newest: number | null;
  /** When the console last accepted the key, by our clock; null: never. */
  readonly accepted: number | null;
}

const NEVER_READ: KeyRead = { newest: null, accepted: null };

/** A key without rows had none until it was last accepted. */
function emptyUntil({ accepted }: KeyRead, since: number): number {
  return accepted === null ? since : Math.max(since, accepted - MAX_SKEW_MS);
}

function readCursor(text: string | null): Map<string, KeyRead> {
  const cursor = parseObject(text ?? "");
  const reads = new Map<string, KeyRead>();
  for (const [fingerprint, read] of Object.entries(objectAt(cursor, "keys") ?? {})) {
    reads.set(fingerprint, { newest: countAt(read, "newest"), accepted: countAt(read, "accepted") });
  }
  return reads;
}
