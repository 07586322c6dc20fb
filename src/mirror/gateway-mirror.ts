import { setTimeout as pause, setImmediate as turn } from "node:timers/promises";
import type { ConsoleKind } from "../config/schema.ts";
import { background } from "../core/background.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import type { Tokens } from "../metering/usage.ts";
import type { UsageRecord } from "../usage/record.ts";
import { logAlarms, readAlarms } from "./alarms.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleKey,
  type Page,
} from "./consoles/console.ts";
import { CallHistory } from "./consoles/http.ts";
import {
  fingerprintOf,
  type HeldKeys,
  type Holder,
  holdersOf,
  keysWithoutAccount,
  linksOf,
  multiplierHere,
  toolsHolding,
} from "./held-keys.ts";
import { blindSpots, whyBlind } from "./report/blind-spots.ts";
import { NOTHING_STORED, readReport } from "./report/report.ts";
import type { Alarm, ConsoleStatus, KeysAnswer, MirrorReport, ToolConsoleFacts } from "./report/shape.ts";
import { stateInWords, UNREADABLE } from "./report/words.ts";
import type { Correction } from "./store/amendments.ts";
import { type UnreadKey, writeUnreadKeys } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { coverFrom, readTime, writeFact } from "./store/facts.ts";
import { linkKeys } from "./store/keys.ts";
import { queryNumber } from "./store/query.ts";
import { claimConsole, clearCursor, readCursor, writePage, writeRows } from "./store/rows.ts";
import { Comparer } from "./sync/comparer.ts";
import { adapterDeps, type ConnectDeps, type ConsoleGateway, kindOf, openConsole } from "./sync/connect.ts";
import { SyncSchedule } from "./sync/schedule.ts";
import type { TruncationCheck } from "./truncation-check.ts";
import { askOrFail, catchUp, type MirrorUsage } from "./usage.ts";

export interface MirrorDeps
  extends Pick<ConnectDeps, "clock" | "snapshot" | "vault" | "agentFor" | "keyCalls"> {
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask" | "files">;
  readonly usage: MirrorUsage;
  readonly prices: Prices;
  readonly truncationCheck: Pick<TruncationCheck, "gaps">;
  /** A record takes more, or less, from its tool's limits. Called once for each amendment in the journal. */
  readonly onCorrected: (correction: Correction) => void;
}

/** What the console last said beside its rows. */
interface ConsoleFacts {
  readonly account: AccountFacts;
  /** null: it does not list them. */
  readonly keys: readonly ConsoleKey[] | null;
  readonly asOf: number;
}

const DAY_MS = 86_400_000;
/** The first sync goes back this far, or to the beginning of our own log. */
const HISTORY_MS = 30 * DAY_MS;
/** Written in one transaction, on the thread that serves requests. */
const ROWS_PER_WRITE = 250;
/** The share of the rows a console lists of a key that is read early. Others may use the key too. */
const NEARLY_FULL = 0.6;
/** Facts about keys are read again after this, but a caller waits no longer than that for them. */
const FACTS_FRESH_MS = 60_000;
const FACTS_WAIT_MS = 8000;
/** Pending rows are compared again when they are due, within these bounds. */
const RECOMPARE_MIN_MS = 1000;
const RECOMPARE_MAX_MS = 10 * 60_000;

/** One gateway's console: reads its rows, has them compared with our records, and says how that goes. */
export class GatewayMirror {
  readonly #deps: MirrorDeps;
  readonly #heldKeys: HeldKeys;
  readonly #stop = new AbortController();
  readonly #skew = new ClockSkew();
  readonly #calls = new CallHistory();
  readonly #schedule: SyncSchedule;
  readonly #comparer: Comparer;
  #gateway: ConsoleGateway;
  #kind: ConsoleKind | null;
  #adapter: ConsoleAdapter | null = null;
  #facts: ConsoleFacts | null = null;
  #running: Promise<void> | null = null;
  /** How often the connection changed. A sync from before the last change does not count any more. */
  #generation = 0;
  #fault: ConsoleFault | null = null;
  /** Why the console's rows cannot show a leak. */
  #blind: string | null = null;
  /** It was read completely at least once since the start. */
  #isSynced = false;
  /** The last complete sync, also of an earlier run. */
  #lastSync: number | null;
  #progress: ConsoleStatus["progress"] = null;
  #recompareTimer: NodeJS.Timeout | undefined;

  constructor(gateway: ConsoleGateway, deps: MirrorDeps, heldKeys: HeldKeys) {
    const { clock, log, database, usage, truncationCheck, onCorrected } = deps;
    this.#gateway = gateway;
    this.#deps = deps;
    this.#heldKeys = heldKeys;
    this.#kind = gateway.console.kind;
    this.#lastSync = database.ask((db) => readTime(db, gateway.name, "last_sync"));
    this.#schedule = new SyncSchedule(
      clock,
      () => this.startSync(),
      () => background(this.syncIfBusy(), log, "checking how busy the keys are"),
    );
    this.#schedule.follow(gateway.console.schedule);
    this.#comparer = new Comparer({
      gateway: gateway.name,
      clock,
      database,
      usage,
      truncationCheck,
      onCorrected,
      priceOf: (record, tokens) => this.#priceOf(record, tokens),
    });
  }

  get gateway(): ConsoleGateway {
    return this.#gateway;
  }

  /** How far the console's clock is ahead of ours. */
  get skew(): number {
    return this.#skew.known ?? 0;
  }

  /** Fingerprints of keys that are used elsewhere on purpose. If several keys share one, all of them must be. */
  get quietKeys(): ReadonlySet<string> {
    const holders = this.#holders();
    const isLoud = (fingerprint: string) =>
      holders.some(({ key, elsewhere }) => key?.fingerprint === fingerprint && !elsewhere);
    const fingerprints = holders.flatMap(({ key }) => key?.fingerprint ?? []);
    return new Set(fingerprints.filter((fingerprint) => !isLoud(fingerprint)));
  }

  /** @param reconnect a secret of the login changed, or somebody logged in. */
  change(gateway: ConsoleGateway, reconnect: boolean): void {
    const before = this.#gateway;
    this.#gateway = gateway;
    this.#schedule.follow(gateway.console.schedule);
    if (!reconnect && connectionOf(before) === connectionOf(gateway)) return;
    this.#kind = gateway.console.kind;
    this.#generation += 1;
    this.#adapter = null;
    this.#fault = null;
    this.#schedule.succeeded();
    const previous = this.#running ?? Promise.resolve();
    background(
      previous.then(() => this.sync()),
      this.#deps.log,
      "reading the console",
    );
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#recompareTimer);
    this.#schedule.stop();
    await Promise.all([this.#comparer.stop(), this.#running]);
  }

  startSync(): void {
    background(this.sync(), this.#deps.log, "reading the console");
  }

  /** Reads the console now. A call during a sync waits for that one. Failures are in the status. */
  async sync(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#running ??= this.#runSync().finally(() => {
      this.#running = null;
      this.#progress = null;
    });
    await this.#running;
  }

  /** Reads the console early where it would otherwise no longer list all of a key's rows. */
  async syncIfBusy(): Promise<void> {
    const { usage, database } = this.#deps;
    const rowsPerKey = this.#adapter?.rowsPerKey;
    if (rowsPerKey === undefined || !this.#isSynced || this.#running !== null) return;
    await catchUp(usage);
    const busiest = database.ask((db) =>
      queryNumber(
        db,
        `SELECT max(calls) FROM (SELECT count(*) AS calls FROM usage.records
         WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? GROUP BY key)`,
        this.#gateway.name,
        this.#lastSync ?? 0,
      ),
    );
    if ((busiest ?? 0) >= rowsPerKey * NEARLY_FULL && !this.#schedule.isWaiting) await this.sync();
  }

  async #runSync(): Promise<void> {
    const generation = this.#generation;
    const isStale = () => this.#stop.signal.aborted || generation !== this.#generation;
    try {
      await this.#syncOnce(isStale);
    } catch (error) {
      if (!isStale()) this.#fail(error);
    }
  }

  async #syncOnce(isStale: () => boolean): Promise<void> {
    const { clock, log, usage } = this.#deps;
    // At a start the index may be incomplete for a while, and rows cannot be written without it.
    await catchUp(usage);
    if (isStale()) return;
    const adapter = this.#adapter ?? (await this.#connect());
    if (isStale()) return;
    this.#adapter = adapter;
    await this.#readFacts(adapter, isStale);
    if (isStale()) return;
    await this.#readRows(adapter, isStale);
    if (isStale()) return;
    this.#noteRead(adapter);
    await this.#compare(adapter);
    // The other accounts were read and compared; this one needs a person.
    const fault = adapter.fault?.() ?? null;
    if (fault !== null) throw fault;
    if (this.#fault !== null) log.info({ gateway: this.#gateway.name }, "the console can be read again");
    this.#isSynced = true;
    this.#lastSync = clock.now();
    this.#fault = null;
    this.#schedule.succeeded();
  }

  async #connect(): Promise<ConsoleAdapter> {
    this.#claimConsole();
    const gateway = this.#gateway;
    const deps: ConnectDeps = {
      ...this.#deps,
      signal: this.#stop.signal,
      calls: this.#calls,
      onSkew: (skew) => this.#skew.note(skew),
    };
    const shared = adapterDeps(gateway, deps);
    const kind = await kindOf(gateway, shared.client);
    if (this.#kind === null) this.#deps.log.info({ gateway: gateway.name }, `console kind: ${kind}`);
    // Known before anybody has logged in: `mirror login` asks for what this kind needs.
    this.#kind = kind;
    return openConsole(kind, gateway, shared, deps);
  }

  /** Forgets the rows of another gateway or console that had this name before. */
  #claimConsole(): void {
    const { database, usage, clock, log } = this.#deps;
    const { name, baseUrl, console } = this.#gateway;
    const origins = `${new URL(baseUrl).origin} ${new URL(console.url).origin}`;
    const held = database.ask((db) => claimConsole(db, name, origins, clock.now()));
    if (held === null) return;
    for (const line of held) usage.append(line);
    log.warn({ gateway: name }, "the gateway or its console changed: its rows are read from the beginning");
  }

  /** Before the rows, so that it is known whose they are. */
  async #readFacts(adapter: ConsoleAdapter, isStale: () => boolean): Promise<void> {
    const { database, clock } = this.#deps;
    const { name } = this.#gateway;
    const keys = await adapter.keys();
    if (isStale()) return;
    database.ask((db) => {
      const newlyLinked = linkKeys(db, name, linksOf(keys, this.#holders()));
      // Their rows were skipped as those of other people's keys, so they are read again.
      if (newlyLinked.length > 0) clearCursor(db, name);
    });
    const account = await adapter.account();
    if (isStale()) return;
    this.#facts = { account, keys, asOf: clock.now() };
  }

  async #readRows(adapter: ConsoleAdapter, isStale: () => boolean): Promise<void> {
    const { database, snapshot } = this.#deps;
    const { name } = this.#gateway;
    // A damaged or deleted mirror.db was replaced by a new one, which knows of no key.
    this.#heldKeys.record(snapshot());
    const since = this.#firstDay();
    const cursor = askOrFail(database, (db) => readCursor(db, name));
    for await (const page of adapter.walk(cursor, since)) {
      await this.#writePage(page, isStale);
      if (isStale()) return;
      this.#progress = { done: page.done, total: page.total };
      await turn();
    }
  }

  /** In small transactions, with requests in between. The cursor comes with the last: until then the page is read again. */
  async #writePage(page: Page, isStale: () => boolean): Promise<void> {
    const { database } = this.#deps;
    const { name } = this.#gateway;
    let rest = page.rows;
    while (rest.length > ROWS_PER_WRITE) {
      if (isStale()) return;
      const rows = rest.slice(0, ROWS_PER_WRITE);
      askOrFail(database, (db) => writeRows(db, name, rows));
      rest = rest.slice(ROWS_PER_WRITE);
      await turn();
    }
    if (isStale()) return;
    const last = { ...page, rows: rest };
    askOrFail(database, (db) => writePage(db, name, last));
  }

  /** How far back the first walk goes. Older records of ours are never missing. */
  #firstDay(): number {
    const { database, clock } = this.#deps;
    const { name } = this.#gateway;
    const now = clock.now();
    const first = database.ask((db) => {
      const sql = "SELECT min(started_at) FROM usage.records WHERE gateway = ? AND end IS NOT NULL";
      const oldest = queryNumber(db, sql, name) ?? now;
      const since = Math.min(now - HISTORY_MS, oldest - DAY_MS);
      coverFrom(db, name, since, now);
      return since;
    });
    return first ?? now - HISTORY_MS;
  }

  #noteRead(adapter: ConsoleAdapter): void {
    const { database, clock } = this.#deps;
    const { name } = this.#gateway;
    const unread = adapter.skippedKeys?.() ?? [];
    const withoutAccount = keysWithoutAccount(this.#facts?.keys ?? null, this.#holders());
    const unreadKeys = [
      ...unread.map((one): UnreadKey => ({ ...one, why: "not-read" })),
      ...withoutAccount.map((key): UnreadKey => ({ key, until: null, why: "no-account" })),
    ];
    database.ask((db) => {
      // What an account did not show must not be called missing.
      if ((adapter.fault?.() ?? null) === null) writeFact(db, name, "last_sync", String(clock.now()));
      writeUnreadKeys(db, name, unreadKeys);
    });
  }

  async #compare(adapter: ConsoleAdapter): Promise<void> {
    const { database, clock } = this.#deps;
    const due = await this.#comparer.compare(adapter, this.skew);
    if (this.#stop.signal.aborted) return;
    this.#blind = database.ask((db) => whyBlind(db, this.#gateway.name, clock.now()));
    this.#logAlarms();
    clearTimeout(this.#recompareTimer);
    if (due === null) return;
    // Timers do not hold long, and the wall clock may be set.
    const wait = Math.min(RECOMPARE_MAX_MS, Math.max(RECOMPARE_MIN_MS, due - clock.now()));
    this.#recompareTimer = setTimeout(() => {
      this.#compare(adapter).catch(() => {
        // The next sync fails in the same way, and says so.
      });
    }, wait).unref();
  }

  #fail(error: unknown): void {
    const { log } = this.#deps;
    const { name } = this.#gateway;
    const before = this.#fault;
    let fault: ConsoleFault;
    if (error instanceof ConsoleFault) fault = error;
    else {
      log.error({ err: error, gateway: name }, "reading or comparing console rows failed");
      fault = new ConsoleFault("failing", `could not be read and compared: ${errorMessage(error)}`);
    }
    this.#fault = fault;
    this.#schedule.failed(fault.retryAfter);
    // It may be another console by now, or of another kind. Every other fault keeps the adapter, with its session and
    // what that knows of a refused password.
    if (fault.kind === "not-a-console" || fault.kind === "other-shape") this.#adapter = null;
    if (before?.kind !== fault.kind || before.message !== fault.message)
      log.warn({ gateway: name, kind: fault.kind }, `the console ${fault.message}`);
    // Alarms raised before stand, and are logged again in their time.
    this.#logAlarms();
  }

  status(): ConsoleStatus {
    const { name, console } = this.#gateway;
    const condition = {
      isSyncing: this.#running !== null,
      fault: this.#fault,
      isSynced: this.#isSynced,
      blind: this.#blind,
    };
    return {
      gateway: name,
      kind: this.#kind,
      detected: console.kind === null && this.#kind !== null,
      url: console.url,
      ...stateInWords(name, condition),
      last_sync: this.#lastSync,
      next_sync: this.#schedule.next,
      progress: this.#progress,
      skew: this.#skew.known,
      alarms: this.#alarms(),
    };
  }

  report(): MirrorReport {
    const { database, clock } = this.#deps;
    const { quietKeys, skew } = this;
    const elsewhere = this.#holders().flatMap(({ tool, key }) =>
      key !== null && quietKeys.has(key.fingerprint) ? [{ tool, key: key.fingerprint }] : [],
    );
    const { groups } = this.#gateway;
    const multiplierOf = (group: string | null) => (group === null ? 1 : (groups[group]?.multiplier ?? null));
    const stored = database.ask((db) =>
      readReport(db, this.#gateway.name, { now: clock.now(), skew, elsewhere, multiplierOf }),
    );
    const status = this.status();
    // A sync in progress waits for the index, or says at its end why it cannot be read.
    const isUnreadable = stored === null && status.state !== "syncing";
    const shown = isUnreadable ? { ...status, ...UNREADABLE } : status;
    const blind = database.ask((db) => blindSpots(db, shown, this.#adapter?.kind ?? null));
    return {
      ...shown,
      ...(stored ?? NOTHING_STORED),
      account: this.#facts?.account ?? null,
      blind: blind ?? ["anything: the usage log cannot be read"],
    };
  }

  /** The console's keys, each beside the tools that hold it here. Reads them again where that was a while ago. */
  async keys(): Promise<KeysAnswer> {
    await this.#refreshFacts();
    const { gateway, state, why, next } = this.status();
    const holders = this.#holders();
    const listed = this.#facts?.keys ?? null;
    const listedAt = this.#facts?.asOf ?? null;
    const keys = (listed ?? []).map(({ shown, as_of = listedAt, ...key }) => ({
      gateway,
      ...key,
      state: this.#stateNow(key),
      key: fingerprintOf(shown),
      tools: toolsHolding(shown, holders) ?? [],
      as_of,
    }));
    if (listed !== null && why === null) return { keys, problems: [] };
    const isEarly = state === "syncing" || state === "waiting";
    const unread = isEarly ? "its keys were not read yet" : "it lists no keys";
    return { keys, problems: [{ gateway, why: why ?? unread, next }] };
  }

  async #refreshFacts(): Promise<void> {
    const { clock } = this.#deps;
    if (this.#facts !== null && Math.abs(clock.now() - this.#facts.asOf) < FACTS_FRESH_MS) return;
    // Asking for the keys every second must not ask a failing console every second.
    if (this.#schedule.isWaiting) return;
    const { signal } = this.#stop;
    const timeout = pause(FACTS_WAIT_MS, undefined, { ref: false, signal }).catch(() => {
      // Stopping ends the wait.
    });
    await Promise.race([this.sync(), timeout]);
  }

  /** What the console says of one tool's key; null: it does not list it. */
  toolFacts(tool: string): ToolConsoleFacts | null {
    const holder = this.#holders().filter((one) => one.tool === tool);
    const facts = this.#facts;
    const key = facts?.keys?.find(({ shown }) => toolsHolding(shown, holder)?.length === 1);
    if (facts === null || key === undefined) return null;
    const { group, multiplier, quota, quota_used, windows, expires_at } = key;
    // Without a group the multiplier is 1.
    const here = multiplierHere(tool, this.#deps.snapshot().config) ?? 1;
    const differs = multiplier !== null && Math.abs(here - multiplier) > 1e-9;
    return {
      state: this.#stateNow(key),
      group,
      multiplier,
      multiplier_here: differs ? here : null,
      quota,
      quota_used,
      windows,
      expires_at,
      balance: key.subscription === true ? null : facts.account.balance,
      as_of: key.as_of ?? facts.asOf,
    };
  }

  /** A console may list an expired key as active, and what it said may be older than the expiry. */
  #stateNow({ state, expires_at }: Pick<ConsoleKey, "state" | "expires_at">): ConsoleKey["state"] {
    const isExpired = expires_at !== null && expires_at <= this.#deps.clock.now() + this.skew;
    return isExpired && (state === "active" || state === "unknown") ? "expired" : state;
  }

  #alarms(): Alarm[] {
    const { name } = this.#gateway;
    return this.#deps.database.ask((db) => readAlarms(db, name, this.skew, this.quietKeys)) ?? [];
  }

  #logAlarms(): void {
    logAlarms(this.#gateway.name, this.#alarms(), this.#deps);
  }

  #holders(): Holder[] {
    return holdersOf(this.#gateway.name, this.#deps.snapshot());
  }

  #priceOf(record: UsageRecord, tokens: Tokens): { list: number; cost: number } | null {
    const names = { asked: record.model, answered: record.model_answered };
    const { prices } = this.#deps.snapshot().config;
    const price = this.#deps.prices.priceOf(names, tokens, record.started_at, prices);
    if (price === null) return null;
    return { list: microdollars(price), cost: microdollars(price, record.multiplier) };
  }
}

/** What a connection is made from: when it changes, the console is connected to again. */
function connectionOf({ console, proxy, authority, baseUrl }: ConsoleGateway): string {
  return JSON.stringify([console.kind, console.url, console.logins, proxy, authority, baseUrl]);
}

const REMEMBERED = 9;
/** A Date header has whole seconds, and answers take their time: a smaller difference is none. */
const NO_SKEW_MS = 1500;

/** How far a console's clock is ahead of ours, as its answers say. */
class ClockSkew {
  #last: readonly number[] = [];

  note(milliseconds: number): void {
    this.#last = [...this.#last.slice(1 - REMEMBERED), milliseconds];
  }

  /** The median, because one slow answer says little. null: it never answered. */
  get known(): number | null {
    const median = this.#last.toSorted((a, b) => a - b)[Math.floor(this.#last.length / 2)];
    if (median === undefined) return null;
    return Math.abs(median) < NO_SKEW_MS ? 0 : median;
  }
}
