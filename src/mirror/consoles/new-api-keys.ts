import { otherShape } from "./answers.ts";
import type { AdapterDeps, ConsoleAdapter, ConsoleGap, ConsoleKey, Page, UnreadKey } from "./console.ts";
import { ConsoleFault } from "./console.ts";
import { asObject, countAt } from "./json.ts";
import { type CallBudget, createBudget } from "./new-api/budget.ts";
import { askWithKey, isTooOld, tooOld } from "./new-api/key-answer.ts";
import { bareKey, type HeldKey, readKeyFacts, refOf } from "./new-api/key-facts.ts";
import { type KeyRead, readKeyMark, writeKeyMark } from "./new-api/key-mark.ts";
import { readNewApiRow } from "./new-api/row.ts";
import { readStatus } from "./new-api/status.ts";
import { createPageReader } from "./new-api/walk.ts";
import { NEW_API_ID_NAMES } from "./new-api.ts";

export interface NewApiByKeysMeans extends AdapterDeps {
  /** The keys of this gateway that are held here, now. */
  readonly keys: () => readonly HeldKey[];
}

/** The most rows that are told of a key. */
const MOST_ROWS = 1000;
const ABOUT = "the rows of a key";
/** A key's facts are worth a question this often. */
const FACTS_AGE_MS = 3600_000;
/** The clocks of this machine and of the console may be so far apart. */
const APART_MS = 15 * 60_000;

interface Told {
  readonly at: number;
  readonly key: ConsoleKey;
}

/** Nobody logs in: each key tells its own latest rows. */
export function createNewApiByKeys(means: NewApiByKeysMeans): ConsoleAdapter {
  const { client, now } = means;
  const budget = createBudget(now);
  const facts = new Map<string, Told>();
  const unread: UnreadKey[] = [];
  return {
    kind: "new-api",
    idNames: NEW_API_ID_NAMES,
    billsFailures: false,
    socketRowsHaveIds: true,
    rowsPerKey: MOST_ROWS,
    walk: (cursor, since) => walkKeys(means, budget, unread, cursor, since),
    unread: () => unread,
    keys: () => listKeys(means, budget, facts),
    account: async () => ({ balance: null, console_version: (await readStatus(client)).version }),
  };
}

/** Two tools may have one key. */
function heldKeys({ keys }: NewApiByKeysMeans): HeldKey[] {
  const held = keys();
  return held.filter((one, at) => held.findIndex(({ key }) => key.equals(one.key)) === at);
}

/**
 * All keys that are held, so that their rows are known to be theirs, with the facts that there is room to ask for. Rows
 * go first: of every key as much again must be left over.
 */
async function listKeys(
  means: NewApiByKeysMeans,
  budget: CallBudget,
  facts: Map<string, Told>,
): Promise<ConsoleKey[]> {
  const { client, now } = means;
  const held = heldKeys(means);
  const toldAt = (one: HeldKey) => facts.get(refOf(one))?.at ?? 0;
  // What was spent before a restart is not known until the first walk has seen the mark.
  const room = budget.isKnown() ? Math.max(0, budget.room() - held.length) : 0;
  const due = held
    .filter((one) => now() - toldAt(one) >= FACTS_AGE_MS)
    .toSorted((a, b) => toldAt(a) - toldAt(b))
    .slice(0, room);
  if (due.length > 0) {
    const { quotaPerUnit, version } = await readStatus(client);
    if (isTooOld(version)) throw tooOld();
    for (const one of due) {
      budget.spend();
      facts.set(refOf(one), { at: now(), key: await readKeyFacts(client, one, quotaPerUnit, now()) });
    }
  }
  return held.map((one) => facts.get(refOf(one))?.key ?? bareKey(one));
}

async function* walkKeys(
  means: NewApiByKeysMeans,
  budget: CallBudget,
  unread: UnreadKey[],
  mark: string | null,
  since: number,
): AsyncGenerator<Page, void> {
  const { client, now } = means;
  const remembered = readKeyMark(mark);
  budget.take(remembered.calls);
  const { quotaPerUnit, version, time } = await readStatus(client);
  if (isTooOld(version)) throw tooOld();
  const ahead = time === null ? 0 : time - now();
  const held = heldKeys(means);
  if (held.length === 0)
    throw new ConsoleFault("login-needed", "was not read: no key of this gateway can be had here");
  // Keys that are no longer held are forgotten. The others stand in the order in which they were read.
  const names = new Set(held.map(({ fingerprint }) => fingerprint));
  const reads = new Map([...remembered.keys].filter(([fingerprint]) => names.has(fingerprint)));
  const order = [...reads.keys()];
  const turn = held
    .toSorted((a, b) => order.indexOf(a.fingerprint) - order.indexOf(b.fingerprint))
    .slice(0, budget.room());
  const markNow = () => writeKeyMark({ calls: budget.times(), keys: reads });
  if (turn.length === 0) throw usedUp(budget.wait());
  const skipped = held.filter((one) => !turn.includes(one));
  unread.splice(
    0,
    unread.length,
    ...skipped.map(({ fingerprint }) => ({
      key: fingerprint,
      until: reads.get(fingerprint)?.accepted ?? null,
    })),
  );
  let done = 0;
  let letIn = 0;
  for (const one of turn) {
    budget.spend();
    const items = await askWithKey(client, "/api/log/token", one.key, ABOUT);
    if (items !== null && !Array.isArray(items)) throw otherShape(ABOUT, "data");
    if (items !== null) letIn += 1;
    const before = reads.get(one.fingerprint);
    const page = readPage(one, items ?? [], quotaPerUnit);
    const accepted = items === null ? (before?.accepted ?? null) : now();
    reads.delete(one.fingerprint);
    reads.set(one.fingerprint, { read: now(), newest: page.newest ?? before?.newest ?? null, accepted });
    done += page.rows.length;
    const { fingerprint: key } = one;
    // A disabled or deleted key lists nothing: what was called with it since is not known.
    const refused = { from: accepted === null ? since : accepted + ahead, to: now() + ahead };
    const gap: ConsoleGap | null =
      items === null ? { ...refused, key, why: "refused" } : gapOf(key, page, before, since);
    yield { rows: page.rows, cursor: markNow(), done, total: null, gap };
  }
  if (turn.length > 0 && letIn === 0) {
    const once = [...reads.values()].some(({ accepted }) => accepted !== null);
    if (!once && isTooOld(version) === null) throw tooOld();
    throw new ConsoleFault("login-needed", "accepts no key that is held here");
  }
}

/** A sync that read nothing is not a sync. */
function usedUp(wait: number): ConsoleFault {
  const minutes = Math.max(1, Math.ceil(wait / 60_000));
  return new ConsoleFault(
    "rate-limited",
    `allows 20 questions about keys in 20 minutes, and can be asked again in ${minutes} min; an access token has no such limit`,
    Math.ceil(wait / 1000),
  );
}

interface KeyPage {
  readonly rows: Page["rows"];
  readonly full: boolean;
  /** Milliseconds by the console's clock; null: there is no row. */
  readonly oldest: number | null;
  readonly newest: number | null;
}

function readPage(one: HeldKey, items: readonly unknown[], quotaPerUnit: number): KeyPage {
  const read = createPageReader((raw) => {
    const row = readNewApiRow(raw, quotaPerUnit);
    return typeof row === "string" ? row : { ...row, key_ref: refOf(one) };
  });
  const times = items
    .map((item) => countAt(asObject(item) ?? {}, "created_at"))
    .filter((time) => time !== null)
    .toSorted((a, b) => a - b);
  const [oldest = null] = times;
  const newest = times.at(-1) ?? null;
  return {
    rows: read({ rows: items, total: null }).rows,
    full: items.length >= MOST_ROWS,
    oldest: oldest === null ? null : oldest * 1000,
    newest: newest === null ? null : newest * 1000,
  };
}

/** Nothing that is older than the oldest row of a full page can be seen: a gap, unless it had been seen before. */
function gapOf(
  key: string,
  { full, oldest }: KeyPage,
  before: KeyRead | undefined,
  since: number,
): ConsoleGap | null {
  if (!full || oldest === null) return null;
  const emptyUntil = before?.accepted == null ? since : before.accepted - APART_MS;
  const seen = before?.newest ?? Math.max(since, emptyUntil);
  return oldest > seen ? { from: seen, to: oldest, key, why: "many" } : null;
}
