import { setTimeout as pause, setImmediate as turn } from "node:timers/promises";
import type { ConsoleKind } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Secret } from "../core/secret.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import type { Tokens } from "../metering/usage.ts";
import { FAULT_BY_STATE, type KeyFault } from "../proxy/key-health/cause.ts";
import type { UsageRecord } from "../usage/record.ts";
import { hasAlarms, logAlarms } from "./alarms.ts";
import {
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleKey,
  type FaultKind,
  type KeyActions,
  type Page,
} from "./consoles/console.ts";
import { CallHistory, ClockSkew } from "./consoles/http.ts";
import {
  type ConsoleFacts,
  findListed,
  type HeldKeys,
  type Holder,
  holdersOf,
  isUnlisted,
  keyReports,
  keysWithoutAccount,
  linksOf,
  multiplierHere,
  stateAt,
  toolConsoleFacts,
  toolsHolding,
} from "./held-keys.ts";
import { blindSiblings, type Sibling } from "./reconcile/siblings.ts";
import { consoleRemedy, stateMessages, UNREADABLE } from "./report/messages.ts";
import { isMoreThanRounding, type TokenPrices, tokenPrices } from "./report/price-differences.ts";
import { NOTHING_STORED } from "./report/report.ts";
import type {
  Alarm,
  ConsoleStatus,
  KeyReport,
  KeysAnswer,
  MirrorReport,
  ModelFactor,
  ToolConsoleFacts,
} from "./report/shape.ts";
import { billsAsStreamed } from "./store/aborted-bills.ts";
import type { Correction } from "./store/amendments.ts";
import { type UnreadKey, writeUnreadKeys } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { coverFrom, readTime, writeFact } from "./store/facts.ts";
import { heldTimes, keyLinks, linkKeys } from "./store/keys.ts";
import { queryNumber } from "./store/query.ts";
import {
  claimConsole,
  clearCursor,
  readCursor,
  type WaitingRow,
  writePage,
  writeRows,
} from "./store/rows.ts";
import { tierParts } from "./store/verdicts.ts";
import { Comparer } from "./sync/comparer.ts";
import { adapterDeps, type ConnectDeps, type ConsoleGateway, kindOf, openConsole } from "./sync/connect.ts";
import type { MirrorReader } from "./sync/mirror-thread.ts";
import { SyncSchedule } from "./sync/schedule.ts";
import type { TruncationCheck } from "./truncation-check.ts";
import { askOrFail, catchUp, type MirrorUsage } from "./usage.ts";

export interface MirrorDeps
  extends Pick<ConnectDeps, "clock" | "snapshot" | "vault" | "agentFor" | "keyCalls"> {
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask" | "files" | "noteDamage">;
  readonly reader: Pick<MirrorReader, "ask" | "createThread">;
  readonly usage: MirrorUsage;
  readonly prices: Prices;
  readonly truncationCheck: Pick<TruncationCheck, "gaps">;
  /** All that are known, also while the store cannot be reached. Without a shared store there are none. */
  readonly siblings: () => readonly Sibling[];
  /** A record takes more, or less, from its tool's limits. Called once for each amendment in the journal. */
  readonly onCorrected: (correction: Correction) => void;
  /** Called with the open alarms of a gateway after each comparison. Must not throw. */
  readonly onAlarms: (alarms: readonly Alarm[]) => void;
  /** Whether an unfinished change of a tool's key makes this key of a console, or replaces it. */
  readonly isChanging: (key: Pick<KeyReport, "gateway" | "name" | "ref">) => boolean;
}

const DAY_MS = 86_400_000;
/** The first sync goes back this far, or to the start of our own log. */
const HISTORY_MS = 30 * DAY_MS;
/** Rows in one transaction, which runs on the thread that serves requests. */
const ROWS_PER_WRITE = 100;
/** A key is read early once its own requests reach this share of the rows that the console lists. Others may use it too. */
const NEARLY_FULL = 0.6;
/** Without a schedule in config.yaml, the console is read this often: while tools are active, and otherwise. */
const ACTIVE_INTERVAL_MS = 60_000;
const IDLE_INTERVAL_MS = 5 * 60_000;
/** After a request, tools count as active for this long. */
const ACTIVE_MS = 5 * 60_000;
/** Such syncs use at most a third of the calls that the console allows. */
const BUDGET_SHARE = 3;
/** Facts about keys are read again after this. */
const FACTS_FRESH_MS = 60_000;
/** A list this young explains why a key is refused: ten tools with bad keys need one list. */
const LIST_EXPLAINS_MS = 5000;
/** A caller waits no longer for them. */
const FACTS_WAIT_MS = 8000;
const LOGGED_OUT: readonly FaultKind[] = ["login-needed", "login-refused"];
/** Pending rows are compared again when they are due, within these bounds. */
const RECOMPARE_MIN_MS = 1000;
const RECOMPARE_MAX_MS = 10 * 60_000;

/** One gateway's console: reads its rows, has them compared with our records, and reports the result. */
export class GatewayMirror {
  readonly #deps: MirrorDeps;
  readonly #heldKeys: HeldKeys;
  readonly #stop = new AbortController();
  readonly #skew = new ClockSkew();
  readonly #calls = new CallHistory();
  readonly #schedule: SyncSchedule;
  readonly #comparer: Comparer;
  #gateway: ConsoleGateway;
  /** See connectionOf. */
  #connection: string;
  #kind: ConsoleKind | null;
  #adapter: ConsoleAdapter | null = null;
  #connecting: Promise<ConsoleAdapter> | null = null;
  #facts: ConsoleFacts | null = null;
  /** The list of keys that is being read to explain refusals. */
  #explaining: Promise<void> | null = null;
  #running: Promise<void> | null = null;
  #syncAgain = false;
  /** A sync that began with another number stops: the connection changed, or the rows must be read from the beginning. */
  #generation = 0;
  #fault: ConsoleFault | null = null;
  /** Why the console's rows cannot show a leak. */
  #blind: string | null = null;
  /** The console was read completely at least once since the start. */
  #isSynced = false;
  /** The last complete sync, also of an earlier run. */
  #lastSync: number | null;
  #billsAsStreamed = false;
  #progress: ConsoleStatus["progress"] = null;
  /** How many calls the last sync took. */
  #syncCalls = 0;
  #recompareTimer: NodeJS.Timeout | undefined;
  /** The rows that waited for records of siblings when the last comparison ended. */
  #waitingRows: readonly WaitingRow[] = [];

  constructor(gateway: ConsoleGateway, snapshot: Snapshot, deps: MirrorDeps, heldKeys: HeldKeys) {
    const { clock, log, database, reader, usage, truncationCheck, siblings, onCorrected } = deps;
    this.#gateway = gateway;
    this.#connection = connectionOf(gateway, snapshot);
    this.#deps = deps;
    this.#heldKeys = heldKeys;
    this.#kind = gateway.console.kind;
    this.#lastSync = database.ask((db) => readTime(db, gateway.name, "last_sync"));
    this.#readBillsAsStreamed();
    this.#schedule = new SyncSchedule(
      clock,
      () => background(this.sync(), log, "reading the console"),
      () => this.#interval(),
      () => {
        background(this.syncIfBusy(), log, "checking how busy the keys are");
        background(this.compareIfSeen(), log, "comparing with records of other machines");
      },
    );
    this.#schedule.follow(gateway.console.schedule);
    this.#comparer = new Comparer({
      gateway: gateway.name,
      clock,
      database,
      reader,
      usage,
      truncationCheck,
      siblings,
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

  /** Streams that a client ended were billed by what had been sent, see aborted-bills.ts. */
  get billsAsStreamed(): boolean {
    return this.#billsAsStreamed;
  }

  #readBillsAsStreamed(): void {
    const { database } = this.#deps;
    this.#billsAsStreamed = database.ask((db) => billsAsStreamed(db, this.#gateway.name)) ?? false;
  }

  /** Fingerprints of keys that are used elsewhere on purpose. If several keys share one, all of them must be. */
  get quietKeys(): ReadonlySet<string> {
    const holders = this.#holders();
    const isLoud = (fingerprint: string) =>
      holders.some(({ key, elsewhere }) => key?.fingerprint === fingerprint && !elsewhere);
    const fingerprints = holders.flatMap(({ key }) => key?.fingerprint ?? []);
    return new Set(fingerprints.filter((fingerprint) => !isLoud(fingerprint)));
  }

  change(gateway: ConsoleGateway, snapshot: Snapshot): void {
    const before = this.#connection;
    this.#gateway = gateway;
    this.#connection = connectionOf(gateway, snapshot);
    this.#schedule.follow(gateway.console.schedule);
    if (this.#connection !== before) this.reconnect();
  }

  /** The settings or the login changed. */
  reconnect(): void {
    this.#kind = this.#gateway.console.kind;
    this.#generation += 1;
    this.#adapter = null;
    this.#connecting = null;
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

  /** Reads the console as it is from now on: a sync in flight may have passed the newest rows, so another one follows it. */
  startSync(): void {
    this.#syncAgain = this.#running !== null;
    background(this.sync(), this.#deps.log, "reading the console");
  }

  /** Reads the console now. A call during a sync waits for that one. Failures are in the status. */
  async sync(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#running ??= this.#runSyncs().finally(() => {
      this.#running = null;
      this.#progress = null;
    });
    await this.#running;
  }

  async #runSyncs(): Promise<void> {
    do {
      this.#syncAgain = false;
      await this.#runSync();
    } while (this.#syncAgain && !this.#stop.signal.aborted);
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

  /** Compares again once the records that a row waits for have come. The next sync may be hours away, or fail. */
  async compareIfSeen(): Promise<void> {
    const { siblings } = this.#deps;
    const adapter = this.#adapter;
    const waiting = this.#waitingRows;
    const isSeen = ({ key, began }: WaitingRow) => blindSiblings(key, began, siblings()).length === 0;
    if (adapter === null || this.#running !== null || !waiting.some(isSeen)) return;
    // The next check must not start another comparison.
    this.#waitingRows = [];
    try {
      await this.#compare(adapter);
    } catch {
      // The next sync fails in the same way, and says so.
      this.#waitingRows = waiting;
    }
  }

  /** Milliseconds between two syncs. A sync that took many calls is followed by a longer pause. */
  #interval(): number {
    const { usage, clock } = this.#deps;
    const last = usage.last()?.started_at ?? Number.NEGATIVE_INFINITY;
    const isActive = Math.abs(clock.now() - last) < ACTIVE_MS;
    const usual = isActive ? ACTIVE_INTERVAL_MS : IDLE_INTERVAL_MS;
    const affordable = Math.min(IDLE_INTERVAL_MS, BUDGET_SHARE * this.#calls.timeFor(this.#syncCalls));
    return Math.max(usual, affordable, this.#adapter?.leastInterval?.() ?? 0);
  }

  async #runSync(): Promise<void> {
    this.#schedule.began();
    const sentBefore = this.#calls.sent;
    const generation = this.#generation;
    const isStale = () => this.#stop.signal.aborted || generation !== this.#generation;
    try {
      await this.#syncOnce(isStale);
    } catch (error) {
      if (!isStale()) await this.#fail(error);
    } finally {
      this.#syncCalls = this.#calls.sent - sentBefore;
    }
  }

  async #syncOnce(isStale: () => boolean): Promise<void> {
    const { clock, log, usage } = this.#deps;
    // After a start the index may be incomplete for a while, and rows cannot be written without it.
    await catchUp(usage);
    if (isStale()) return;
    const adapter = await this.#connected();
    if (isStale()) return;
    await this.#readFacts(adapter, isStale);
    if (isStale()) return;
    await this.#readRows(adapter, isStale);
    if (isStale()) return;
    this.#noteRead(adapter);
    await this.#compare(adapter);
    // The other accounts were read and compared; this one needs a person.
    const fault = adapter.fault?.("rows") ?? null;
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
    // Known before the first login: `mirror login` asks for what this kind needs.
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
    this.#billsAsStreamed = false;
    for (const line of held) usage.append(line);
    log.warn({ gateway: name }, "the gateway or its console changed: its rows are read from the beginning");
  }

  /** Runs before the rows are read, so that their keys are known. */
  async #readFacts(adapter: ConsoleAdapter, isStale: () => boolean): Promise<void> {
    const asOf = this.#deps.clock.now();
    const keys = await adapter.keys();
    if (isStale()) return;
    this.#linkKeys(keys);
    const account = await adapter.account();
    if (!isStale()) this.#storeFacts({ account, keys, asOf });
  }

  /** A sync and a key change may both list keys. The list that was asked for last is kept. */
  #storeFacts(facts: ConsoleFacts): void {
    if (this.#facts === null || facts.asOf >= this.#facts.asOf) this.#facts = facts;
  }

  /** Writes down which of the console's keys are ours. True: the rows must be read from the beginning. */
  #linkKeys(keys: readonly ConsoleKey[]): boolean {
    const { database, isChanging } = this.#deps;
    const { name: gateway } = this.#gateway;
    const newlyLinked = database.ask((db) => {
      const known = {
        isChanging: ({ name, ref }: Pick<ConsoleKey, "name" | "ref">) => isChanging({ gateway, name, ref }),
        held: heldTimes(db, gateway),
      };
      const refs = linkKeys(db, gateway, linksOf(keys, this.#holders(), known));
      // Their rows were skipped as other people's.
      if (refs.length > 0) clearCursor(db, gateway);
      return refs;
    });
    return (newlyLinked ?? []).length > 0;
  }

  async #readRows(adapter: ConsoleAdapter, isStale: () => boolean): Promise<void> {
    const { database, snapshot } = this.#deps;
    const { name } = this.#gateway;
    // If mirror.db was damaged or deleted, the new one has no keys yet.
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

  /** In small transactions, with requests in between. The last one has the cursor: until then the page is read again. */
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
      // A walk that has begun does not go back, although older records of another machine may have come since. A time in the
      // future was written before the clock was set back.
      const covered = readTime(db, name, "covered_from") ?? Infinity;
      if (readCursor(db, name) === null || covered > now) coverFrom(db, name, since, now);
      return since;
    });
    return first ?? now - HISTORY_MS;
  }

  #noteRead(adapter: ConsoleAdapter): void {
    const { database, clock } = this.#deps;
    const { name } = this.#gateway;
    const unread = adapter.skippedKeys?.() ?? [];
    const withoutAccount = this.#facts === null ? [] : keysWithoutAccount(this.#facts.keys, this.#holders());
    const unreadKeys = [
      ...unread.map((one): UnreadKey => ({ ...one, why: "not-read" })),
      ...withoutAccount.map((key): UnreadKey => ({ key, until: null, why: "no-account" })),
    ];
    database.ask((db) => {
      // If an account could not be read, its requests must not become missing.
      if ((adapter.fault?.("rows") ?? null) === null) writeFact(db, name, "last_sync", String(clock.now()));
      writeUnreadKeys(db, name, unreadKeys);
    });
  }

  async #compare(adapter: ConsoleAdapter): Promise<void> {
    const { reader, clock, siblings } = this.#deps;
    const { name } = this.#gateway;
    const due = await this.#comparer.compare(adapter, this.skew);
    if (this.#stop.signal.aborted) return;
    this.#readBillsAsStreamed();
    this.#blind = await reader.ask("whyBlind", name, clock.now());
    this.#waitingRows =
      siblings().length === 0 ? [] : ((await reader.ask("waitingRows", name, this.skew)) ?? []);
    await this.#logAlarms();
    clearTimeout(this.#recompareTimer);
    if (due === null) return;
    // Timers are limited to 24 days, and the wall clock may be set.
    const wait = Math.min(RECOMPARE_MAX_MS, Math.max(RECOMPARE_MIN_MS, due - clock.now()));
    this.#recompareTimer = setTimeout(() => {
      this.#compare(adapter).catch(() => {
        // The next sync fails in the same way, and says so.
      });
    }, wait).unref();
  }

  async #fail(error: unknown): Promise<void> {
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
    // It may be another console by now, or of another kind. After any other fault the adapter stays, with its session and
    // the time of a refused password.
    if (fault.kind === "not-a-console" || fault.kind === "other-shape") this.#adapter = null;
    if (before?.kind !== fault.kind || before.message !== fault.message)
      log.warn({ gateway: name, kind: fault.kind }, `the console ${fault.message}`);
    // Earlier alarms stay open, and are logged again when they are due.
    await this.#logAlarms();
  }

  async status(): Promise<ConsoleStatus> {
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
      ...stateMessages(name, condition),
      last_sync: this.#lastSync,
      next_sync: this.#schedule.next,
      interval: this.#schedule.interval,
      limited_until: { rows: this.#calls.waitsUntil("rows"), keys: this.#calls.waitsUntil("keys") },
      progress: this.#progress,
      skew: this.#skew.known,
      alarms: await this.#alarms(),
    };
  }

  async report(): Promise<MirrorReport> {
    const { reader, clock } = this.#deps;
    const { quietKeys, skew } = this;
    const { name, groups } = this.#gateway;
    const elsewhere = this.#holders().flatMap(({ tool, key }) =>
      key !== null && quietKeys.has(key.fingerprint) ? [{ tool, key: key.fingerprint }] : [],
    );
    const multipliers = Object.fromEntries(
      Object.entries(groups).map(([group, { multiplier }]) => [group, multiplier]),
    );
    const siblings = this.#deps.siblings();
    const options = { now: clock.now(), skew, elsewhere, multipliers, siblings };
    const stored = await reader.ask("report", name, options);
    // A command that follows a sync asks several times a second.
    const models = this.#running === null ? await this.#explainPrices(stored) : (stored?.models ?? []);
    const status = await this.status();
    // A sync in progress waits for the index, or ends with the reason why it cannot be read.
    const isUnreadable = stored === null && status.state !== "syncing";
    const shown = isUnreadable ? { ...status, ...UNREADABLE } : status;
    const blind = await reader.ask("blindSpots", shown, this.#adapter?.kind ?? null);
    return {
      ...shown,
      ...(stored ?? NOTHING_STORED),
      models,
      account: this.#facts?.account ?? null,
      blind: blind ?? ["anything: the usage log cannot be read"],
    };
  }

  /** The models' lines, with the reason where money differs. */
  async #explainPrices(
    stored: Pick<MirrorReport, "models" | "tools"> | null,
  ): Promise<readonly ModelFactor[]> {
    const { models, tools } = stored ?? NOTHING_STORED;
    const { reader } = this.#deps;
    const differing = models.filter(({ difference_microdollars: difference, requests }) =>
      isMoreThanRounding(difference, requests),
    );
    if (differing.length === 0) return models;
    const lines = differing.map((line) => ({ ...line, prices: this.#tokenPrices(line) }));
    const names = tools.map(({ tool }) => tool);
    const explanations = await reader.ask("explainLines", this.#gateway.name, lines, names);
    return models.map((line) => {
      const explanation = explanations?.[differing.indexOf(line)] ?? null;
      return explanation === null ? line : { ...line, explanation };
    });
  }

  #tokenPrices({ model, tier }: ModelFactor): TokenPrices | null {
    const { prices, snapshot, clock } = this.#deps;
    const { service, isLongContext } = tierParts(tier);
    const names = { asked: model, answered: null };
    const own = snapshot().config.prices;
    return tokenPrices((tokens) => prices.priceOf(names, tokens, clock.now(), own, service), isLongContext);
  }

  /** The console's keys, each beside the tools that hold it here. Reads them again where that was a while ago. */
  async keys(): Promise<KeysAnswer> {
    await this.#refreshFacts();
    const { gateway, state, why, next } = await this.status();
    const keys = this.#keyReports();
    if (this.#facts !== null && why === null) return { keys, problems: [] };
    const isEarly = state === "syncing" || state === "waiting";
    const unread = isEarly ? "its keys were not read yet" : "it lists no keys";
    return { keys, problems: [{ gateway, why: why ?? unread, next }] };
  }

  /** The same, read now. If the console cannot be read, its keys are as it last listed them. */
  async refreshKeys(): Promise<KeysAnswer> {
    let fault: ConsoleFault | null;
    try {
      await this.listKeys();
      fault = this.#adapter?.fault?.("keys") ?? null;
    } catch (error) {
      if (!(error instanceof ConsoleFault)) throw error;
      fault = error;
    }
    const keys = this.#keyReports();
    if (fault === null) return { keys, problems: [] };
    const gateway = this.#gateway.name;
    const problem = { gateway, why: `the console ${fault.message}`, next: consoleRemedy(fault, gateway) };
    return { keys, problems: [problem] };
  }

  /** The console's keys as it lists them now, also during a sync, which may take minutes. Throws a ConsoleFault. */
  async listKeys(): Promise<KeyReport[]> {
    const adapter = await this.#connected();
    const asOf = this.#deps.clock.now();
    const keys = await adapter.keys();
    // A key may be gone when the next sync lists them: one that is about to be deleted is still the tool's.
    if (this.#linkKeys(keys) && this.#running !== null) {
      // A sync in flight would write its own cursor.
      this.#generation += 1;
      this.#syncAgain = true;
    }
    this.#storeFacts({ keys, account: await adapter.account(), asOf });
    return this.#keyReports();
  }

  /** What the login's list says is wrong with a key that the gateway refuses; null: nothing, or there is no such list now. */
  async keyFault(key: Secret): Promise<KeyFault | null> {
    const { clock } = this.#deps;
    const age = this.#facts === null ? Number.POSITIVE_INFINITY : Math.abs(clock.now() - this.#facts.asOf);
    const known = age < LIST_EXPLAINS_MS ? this.#listedFault(key) : null;
    if (known !== null) return known;
    this.#explaining ??= this.#listWithLogin().finally(() => {
      this.#explaining = null;
    });
    try {
      await this.#waitFor(this.#explaining);
    } catch (error) {
      if (!(error instanceof ConsoleFault)) throw error;
      // The next sync reports it. The gateway can still be asked with the key itself.
      return null;
    }
    return this.#listedFault(key);
  }

  /** Without a login, a list would take one call with each key, and these are few. */
  async #listWithLogin(): Promise<void> {
    const adapter = await this.#connected();
    if (adapter.keyActions !== undefined) await this.listKeys();
  }

  #listedFault(key: Secret): KeyFault | null {
    if (this.#facts === null || this.#adapter?.keyActions === undefined) return null;
    const listed = findListed(key, this.#facts.keys);
    if (listed !== undefined) return FAULT_BY_STATE[stateAt(this.#consoleNow(), listed)] ?? null;
    return this.#isUnlisted(key.fingerprint) ? "key-deleted" : null;
  }

  #keyReports(): KeyReport[] {
    const facts = this.#facts;
    return facts === null ? [] : keyReports(this.#gateway.name, facts, this.#holders(), this.#consoleNow());
  }

  /** A key was deleted here. The next list may come late, or fail, and until then an alarm would ask to delete it. */
  noteDeleted(ref: string): void {
    if (this.#facts === null) return;
    const keys = this.#facts.keys.filter((key) => key.ref !== ref);
    // A list that was asked for before still has it.
    this.#facts = { ...this.#facts, keys, asOf: this.#deps.clock.now() };
  }

  /** Whether the login can change keys. true also while that is not known yet. */
  get canChangeKeys(): boolean {
    const isLoggedOut = this.#fault !== null && LOGGED_OUT.includes(this.#fault.kind);
    if (isLoggedOut && this.#fault?.account === null) return false;
    return this.#adapter === null || this.#adapter.keyActions !== undefined;
  }

  /** Throws a ConsoleFault where the login cannot change keys. */
  async keyActions(account: string | null): Promise<KeyActions> {
    const adapter = await this.#connected();
    const actions = adapter.keyActions?.(account);
    if (actions !== undefined) return actions;
    throw new ConsoleFault(
      "login-needed",
      "can be read with the keys of your tools, but changing keys needs a login",
    );
  }

  /** One connection for syncs and key actions: a second session would use up the first one's refresh token. */
  async #connected(): Promise<ConsoleAdapter> {
    if (this.#adapter !== null) return this.#adapter;
    const connecting = this.#connecting ?? this.#connect();
    this.#connecting = connecting;
    try {
      const adapter = await connecting;
      if (this.#connecting === connecting) this.#adapter = adapter;
      return adapter;
    } finally {
      if (this.#connecting === connecting) this.#connecting = null;
    }
  }

  async #refreshFacts(): Promise<void> {
    const { clock } = this.#deps;
    if (this.#facts !== null && Math.abs(clock.now() - this.#facts.asOf) < FACTS_FRESH_MS) return;
    // A page that asks for the keys every second must not make us call a failing console every second.
    if (this.#schedule.isWaiting) return;
    await this.#waitFor(this.sync());
  }

  /** For a caller that must not wait for a whole first sync, or for the console's limit. */
  async #waitFor(work: Promise<void>): Promise<void> {
    const over = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, over.signal]);
    const timeout = pause(FACTS_WAIT_MS, undefined, { ref: false, signal }).catch(() => {
      // The work is done, or keybearer stops.
    });
    try {
      await Promise.race([work, timeout]);
    } finally {
      // Otherwise every call would leave a timer for eight seconds.
      over.abort();
    }
  }

  /** What the console says of one tool's key; null: it does not list it. */
  toolFacts(tool: string): ToolConsoleFacts | null {
    if (this.#facts === null) return null;
    const holder = this.#holders().filter((one) => one.tool === tool);
    const key = this.#facts.keys.find(({ shown }) => toolsHolding(shown, holder)?.length === 1);
    if (key === undefined) return null;
    const multiplier = multiplierHere(tool, this.#deps.snapshot().config);
    return toolConsoleFacts(key, this.#facts, multiplier, this.#consoleNow());
  }

  #consoleNow(): number {
    return this.#deps.clock.now() + this.skew;
  }

  async #alarms(): Promise<Alarm[]> {
    const { database, reader } = this.#deps;
    const { name } = this.#gateway;
    if (database.ask((db) => hasAlarms(db, name)) !== true) return [];
    const alarms = (await reader.ask("alarms", name, this.skew, this.quietKeys)) ?? [];
    return alarms.map((alarm) => (this.#isUnlisted(alarm.key) ? { ...alarm, unlisted: true } : alarm));
  }

  /** Whether the console listed this key once, and does not any more. A login that lists no other keys cannot know that. */
  #isUnlisted(fingerprint: string): boolean {
    const { database } = this.#deps;
    const isComplete =
      this.#adapter?.keyActions !== undefined && (this.#adapter.fault?.("keys") ?? null) === null;
    if (this.#facts === null || !isComplete || !isUnlisted(fingerprint, this.#facts.keys)) return false;
    const links = database.ask((db) => keyLinks(db, this.#gateway.name));
    return links !== null && [...links.keys.values()].includes(fingerprint);
  }

  async #logAlarms(): Promise<void> {
    const { database, log, clock } = this.#deps;
    const alarms = await this.#alarms();
    logAlarms(this.#gateway.name, alarms, database, log, clock.now());
    this.#deps.onAlarms(alarms);
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

const LOGIN_SECRETS = ["password", "access_token", "refresh_token"] as const;

/** The settings of a connection, and digests of its secrets. If they change, the console is connected to again. */
function connectionOf(gateway: ConsoleGateway, snapshot: Snapshot): string {
  const { console, proxy, authority, baseUrl } = gateway;
  const secrets = console.logins.flatMap((login) =>
    LOGIN_SECRETS.map((name) => {
      const state = snapshot.consoleSecret(gateway, login.name, name);
      return state?.state === "ready" ? state.key.digest("same") : (state?.state ?? null);
    }),
  );
  return JSON.stringify([console.kind, console.url, console.logins, proxy, authority, baseUrl, secrets]);
}
