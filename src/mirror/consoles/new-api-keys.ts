import { causeOf } from "../../proxy/cause.ts";
import type { Secret } from "../../secret.ts";
import {
  type AccountFacts,
  type AdapterDeps,
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleGap,
  type ConsoleKey,
  type Page,
  type UnreadKey,
} from "./console.ts";
import { type ConsoleResponse, isDenied, otherShape, readJson } from "./http.ts";
import {
  asObject,
  cleanAt,
  countAt,
  fieldAt,
  flagAt,
  type JsonObject,
  listAt,
  objectAt,
  parseObject,
  wholeAt,
} from "./json.ts";
import type { KeyCallBudget } from "./key-call-budget.ts";
import { PageReader } from "./log-walk.ts";
import { NEW_API_ID_NAMES, quotaAt, readNewApiRow, readStatus } from "./new-api.ts";

interface HeldKey {
  readonly fingerprint: string;
  readonly key: Secret;
}

export interface NewApiByKeysDeps extends AdapterDeps {
  /** The keys of this gateway that are held here now. */
  readonly keys: () => readonly HeldKey[];
  readonly budget: KeyCallBudget;
}

/** The console lists at most this many rows per key. */
const MAX_ROWS = 1000;
/** Facts about a key are asked for again after this. */
const FACTS_AGE_MS = 3600_000;
/** Allowed difference between our clock and the console's. */
const MAX_SKEW_MS = 15 * 60_000;
const ROWS = "the rows of a key";
const FACTS = "the facts of a key";

/** new-api without a login: each key lists its own newest rows. */
export class NewApiByKeys implements ConsoleAdapter {
  readonly kind = "new-api";
  readonly idNames = NEW_API_ID_NAMES;
  readonly billsFailures = false;
  readonly socketRowsHaveIds = true;
  readonly rowsPerKey = MAX_ROWS;
  readonly #deps: AdapterDeps;
  readonly #heldKeys: () => readonly HeldKey[];
  readonly #budget: KeyCallBudget;
  /** By fingerprint. */
  readonly #facts = new Map<string, ConsoleKey>();
  #unread: readonly UnreadKey[] = [];

  constructor(deps: NewApiByKeysDeps) {
    this.#deps = deps;
    this.#heldKeys = deps.keys;
    this.#budget = deps.budget;
  }

  unread(): readonly UnreadKey[] {
    return this.#unread;
  }

  async account(): Promise<AccountFacts> {
    return { balance: null, console_version: (await readStatus(this.#deps.client)).version };
  }

  /** All held keys, with as many facts as the budget allows: one call per key is left for the rows. */
  async keys(): Promise<ConsoleKey[]> {
    const { now } = this.#deps;
    const held = this.#distinctKeys();
    const askedAt = ({ fingerprint }: HeldKey) => this.#facts.get(fingerprint)?.as_of ?? 0;
    // Calls made before a restart are known only once a walk has read the cursor.
    const calls = this.#budget.isRestored ? Math.max(0, this.#budget.left() - held.length) : 0;
    const due = held
      .filter((one) => now() - askedAt(one) >= FACTS_AGE_MS)
      .toSorted((a, b) => askedAt(a) - askedAt(b))
      .slice(0, calls);
    if (due.length > 0) {
      const { quotaPerUnit, version } = await readStatus(this.#deps.client);
      if (isTooOld(version)) throw tooOldFault();
      for (const one of due) {
        const facts = await this.#readFacts(one, quotaPerUnit);
        this.#facts.set(one.fingerprint, { ...facts, as_of: now() });
      }
    }
    return held.map((one) => this.#facts.get(one.fingerprint) ?? keyWithoutFacts(one));
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const { client, now } = this.#deps;
    const { calls, reads: allReads } = readCursor(cursor);
    this.#budget.restore(calls);
    const { quotaPerUnit, version, time } = await readStatus(client);
    if (isTooOld(version)) throw tooOldFault();
    const ahead = time === null ? 0 : time - now();
    const held = this.#distinctKeys();
    if (held.length === 0) {
      throw new ConsoleFault("login-needed", "was not read: no key of this gateway is available here");
    }
    const fingerprints = held.map(({ fingerprint }) => fingerprint);
    // In the order in which the keys were last read. Keys that are no longer held are dropped.
    const reads = new Map([...allReads].filter(([fingerprint]) => fingerprints.includes(fingerprint)));
    const order = [...reads.keys()];
    const sorted = held.toSorted((a, b) => order.indexOf(a.fingerprint) - order.indexOf(b.fingerprint));
    const left = this.#budget.left();
    // A sync that read nothing is not a sync.
    if (left === 0) throw usedUpFault(this.#budget.wait());
    this.#unread = sorted.slice(left).map(({ fingerprint }) => ({
      key: fingerprint,
      until: reads.get(fingerprint)?.accepted ?? null,
    }));
    let done = 0;
    let accepted = 0;
    for (const one of sorted.slice(0, left)) {
      const before = reads.get(one.fingerprint) ?? NEVER_READ;
      const items = await this.#get("/api/log/token", one, ROWS);
      const isAccepted = !(items instanceof Denied);
      if (isAccepted && !Array.isArray(items)) throw otherShape(ROWS, "data");
      const page = readPage(one, Array.isArray(items) ? items : [], quotaPerUnit);
      done += page.rows.length;
      // Inserted again, to move it to the end of the order.
      reads.delete(one.fingerprint);
      let gap: ConsoleGap | null;
      if (!isAccepted) {
        // A disabled or deleted key lists nothing, so calls made with it since are unknown.
        const from = before.accepted === null ? since : before.accepted + ahead;
        gap = { from, to: now() + ahead, key: one.fingerprint, why: "refused" };
        reads.set(one.fingerprint, { ...before, read: now() });
      } else {
        accepted += 1;
        gap = gapBelow(one.fingerprint, page, before, since);
        reads.set(one.fingerprint, { read: now(), newest: page.newest ?? before.newest, accepted: now() });
      }
      yield {
        rows: page.rows,
        cursor: JSON.stringify({ calls: this.#budget.times(), keys: Object.fromEntries(reads) }),
        done,
        total: null,
        gap,
      };
    }
    if (accepted === 0) {
      throw new ConsoleFault("login-needed", "accepts no key that is held here; give it an access token");
    }
  }

  /** Two tools can have the same key. */
  #distinctKeys(): HeldKey[] {
    const held = this.#heldKeys();
    return held.filter((one, at) => held.findIndex(({ key }) => key.equals(one.key)) === at);
  }

  /** The `data` that a path answers to a key. */
  async #get(path: string, { key }: HeldKey, about: string): Promise<unknown | Denied> {
    this.#budget.spend();
    const response = await this.#deps.client.send({ path, bearer: key });
    if (isDenied(response)) return new Denied(deniedState(response));
    let body: JsonObject;
    try {
      body = readJson(response, about);
    } catch (error) {
      const isWebPage = error instanceof ConsoleFault && error.kind === "not-a-console";
      // The status was readable just before, so this version does not know the path.
      const isUnknownPath =
        response.status === 404 || (isWebPage && response.status === 200 && response.text !== "");
      throw isUnknownPath ? tooOldFault() : error;
    }
    // /api/usage/token/ answers `code: true` where all others answer `success`.
    if (flagAt(body, "success") === false || flagAt(body, "code") === false) return new Denied("unknown");
    const data = fieldAt(body, "data");
    if (data === undefined) throw otherShape(about, "data");
    // Go writes an empty list as null.
    return data ?? [];
  }

  async #readFacts(one: HeldKey, quotaPerUnit: number): Promise<ConsoleKey> {
    // With the trailing slash: without it the console answers with a redirect.
    const data = await this.#get("/api/usage/token/", one, FACTS);
    if (data instanceof Denied) return { ...keyWithoutFacts(one), state: data.state };
    const facts = asObject(data);
    if (facts === null) throw otherShape(FACTS, "data");
    const expires = (countAt(facts, "expires_at") ?? 0) * 1000;
    const isUnlimited = flagAt(facts, "unlimited_quota") === true;
    const available = wholeAt(facts, "total_available");
    const isUsedUp = !isUnlimited && available !== null && available <= 0;
    const isExpired = expires > 0 && expires <= this.#deps.now();
    const stateByQuota = isUsedUp ? "quota-exhausted" : "active";
    return {
      ...keyWithoutFacts(one),
      name: cleanAt(facts, "name") ?? one.fingerprint,
      state: isExpired ? "expired" : stateByQuota,
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
  const cause = causeOf({ status, contentType: "application/json", body: text });
  if (cause?.detail === "key-disabled") return "disabled";
  return cause?.isAmbiguous === true ? "deleted" : "unknown";
}

/** Without a login a key is known by its fingerprint, not by the console's number. */
function refOf({ fingerprint }: HeldKey): string {
  return `key:${fingerprint}`;
}

function keyWithoutFacts(one: HeldKey): ConsoleKey {
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
    expires_at: null,
    last_used_at: null,
    as_of: null,
  };
}

/** Rows of one key, and their times by the console's clock; null: no rows. */
interface KeyPage {
  readonly rows: Page["rows"];
  readonly isFull: boolean;
  readonly oldest: number | null;
  readonly newest: number | null;
}

function readPage(one: HeldKey, items: readonly unknown[], quotaPerUnit: number): KeyPage {
  const reader = new PageReader((raw) => {
    const row = readNewApiRow(raw, quotaPerUnit);
    return typeof row === "string" ? row : { ...row, key_ref: refOf(one) };
  });
  const times = items
    .map((item) => countAt(asObject(item) ?? {}, "created_at"))
    .filter((seconds) => seconds !== null)
    .map((seconds) => seconds * 1000)
    .toSorted((a, b) => a - b);
  return {
    rows: reader.read({ rows: items, total: null }).rows,
    isFull: items.length >= MAX_ROWS,
    oldest: times[0] ?? null,
    newest: times.at(-1) ?? null,
  };
}

/** Rows older than the oldest of a full page cannot be read: a gap, unless they were read before. */
function gapBelow(key: string, page: KeyPage, before: KeyRead, since: number): ConsoleGap | null {
  if (!page.isFull || page.oldest === null) return null;
  // A key that had no row when it was last accepted had none up to then.
  const emptyUntil = before.accepted === null ? since : Math.max(since, before.accepted - MAX_SKEW_MS);
  const from = before.newest ?? emptyUntil;
  return page.oldest > from ? { from, to: page.oldest, key, why: "many" } : null;
}

function usedUpFault(wait: number): ConsoleFault {
  const minutes = Math.max(1, Math.ceil(wait / 60_000));
  return new ConsoleFault(
    "rate-limited",
    `allows 20 questions about keys in 20 minutes, and can be asked again in ${minutes} min; an access token has no such limit`,
    Math.ceil(wait / 1000),
  );
}

/** Up to v0.10.7 the key must be sent in the address, where proxies log it: we never do. */
function isTooOld(version: string | null): boolean {
  // 0.0.0 is what an own build calls itself.
  return /^v?0\.(?!0\.0\b)(?:\d\.|10\.[0-7]\b)/.test(version ?? "");
}

function tooOldFault(): ConsoleFault {
  return new ConsoleFault(
    "other-shape",
    "is of a version that needs the key in the address; give it an access token",
  );
}

/** What the cursor remembers of a key, in milliseconds. */
interface KeyRead {
  /** When it was last asked, by our clock. */
  readonly read: number;
  /** The newest row read, by the console's clock; null: none. */
  readonly newest: number | null;
  /** When the console last accepted it, by our clock; null: never. */
  readonly accepted: number | null;
}

const NEVER_READ: KeyRead = { read: 0, newest: null, accepted: null };

function readCursor(text: string | null) {
  const cursor = parseObject(text ?? "") ?? {};
  const reads = new Map<string, KeyRead>();
  for (const [fingerprint, value] of Object.entries(objectAt(cursor, "keys") ?? {})) {
    const stored = asObject(value) ?? {};
    const read = countAt(stored, "read");
    if (read === null) continue;
    // Cursors of earlier versions have only a flag.
    const accepted = countAt(stored, "accepted") ?? (flagAt(stored, "known") === true ? read : null);
    reads.set(fingerprint, { read, newest: countAt(stored, "newest"), accepted });
  }
  const calls = (listAt(cursor, "calls") ?? []).filter((time) => typeof time === "number");
  return { calls, reads };
}
