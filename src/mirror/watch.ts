import { setTimeout as pause } from "node:timers/promises";
import type { ConsoleKind } from "../config/shape.ts";
import type { Logger } from "../logger.ts";
import { microdollars, type Prices } from "../metering/prices.ts";
import { tellAlarms } from "./alarm.ts";
import type { ConsoleAdapter, ConsoleKey } from "./consoles/console.ts";
import { ConsoleFault } from "./consoles/console.ts";
import { CallHistory } from "./consoles/http.ts";
import { holdersOf, linksOf, unlistedKeys } from "./held-here.ts";
import { readAlarms } from "./report/alarms.ts";
import { NOTHING_STORED, readMirror } from "./report/mirror.ts";
import type { Alarm, ConsoleStatus, MirrorReport } from "./report/shape.ts";
import { blindInWords, stateInWords, UNREADABLE } from "./report/state-words.ts";
import { readLogGaps, type UnreadKey, writeUnreadKeys } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { readFact, readTime, writeFact } from "./store/facts.ts";
import { heldTimes, linkKeys } from "./store/keys.ts";
import { clearCursor } from "./store/rows.ts";
import type { Correction } from "./store/verdicts.ts";
import { claimFor, firstDay } from "./sync/beginning.ts";
import { busiestKey } from "./sync/busiest-key.ts";
import { Comparer } from "./sync/comparer.ts";
import { type ConnectDeps, type ConsoleGateway, connect } from "./sync/connect.ts";
import { blindness } from "./sync/sight.ts";
import { createSkew, type Skew } from "./sync/skew.ts";
import { type ConsoleFacts, Syncer, sameConsole } from "./sync/syncer.ts";
import { unseenInWords } from "./sync/unseen-words.ts";
import type { TruncationCheck } from "./truncation-check.ts";
import { catchUp, type MirrorUsage } from "./usage.ts";

export interface MirrorDeps extends Omit<ConnectDeps, "onSkew" | "onKind" | "pause" | "calls" | "signal"> {
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask" | "files">;
  readonly usage: MirrorUsage;
  readonly prices: Prices;
  readonly truncationCheck: Pick<TruncationCheck, "gaps">;
  /** A record takes more, or less, from its tool's limits. Called once for each amendment, when it is in the journal. */
  readonly onCorrected: (correction: Correction) => void;
}

const FRESH_MS = 60_000;
const PATIENCE_MS = 8000;

/** One gateway's console and its rows, compared with our records. */
export class GatewayWatch {
  readonly #means: MirrorDeps;
  readonly #stop = new AbortController();
  readonly #skew: Skew = createSkew();
  readonly #calls = new CallHistory();
  readonly #syncer: Syncer;
  readonly #comparer: Comparer;
  #gateway: ConsoleGateway;
  #kind: ConsoleStatus["kind"];
  #blind: string | null = null;
  #lastSync: number | null;

  constructor(gateway: ConsoleGateway, means: MirrorDeps, onWalk: () => void) {
    this.#means = means;
    this.#gateway = gateway;
    this.#kind = gateway.console.kind;
    this.#lastSync = means.database.ask((db) => readTime(db, gateway.name, "last_sync"));
    const { clock, log, database, usage, truncationCheck } = means;
    const shared = { gateway: gateway.name, clock, log, database };
    this.#comparer = new Comparer({
      ...shared,
      usage,
      truncationCheck,
      skew: () => this.skew,
      priceOf: (record, tokens) => {
        const { prices } = means.snapshot().config;
        const names = { asked: record.model, answered: record.model_answered };
        const price = means.prices.priceOf(names, tokens, record.started_at, prices);
        if (price === null) return null;
        return { list: microdollars(price), cost: microdollars(price, record.multiplier) };
      },
      onCorrected: means.onCorrected,
      onCompared: () => this.#judged(),
    });
    this.#syncer = new Syncer({
      ...shared,
      // At a start the index may be incomplete for a while, and it may be damaged or deleted at any time.
      prepare: async () => void (await catchUp(usage)),
      connect: () => this.#connect(),
      since: () => {
        onWalk();
        return firstDay(this.#gateway.name, this.#means);
      },
      onKeys: (keys) => this.#link(keys),
      onRows: async (adapter) => {
        database.ask((db) => {
          // What an account did not show must not be called missing.
          if ((adapter.fault?.() ?? null) === null)
            writeFact(db, gateway.name, "last_sync", String(clock.now()));
          writeUnreadKeys(db, gateway.name, this.#unseen(adapter));
        });
        await this.#comparer.compare(adapter);
      },
      onFailed: () => this.#tell(),
      busiestKey: async (since) => {
        await catchUp(usage);
        return database.ask((db) => busiestKey(db, gateway.name, since)) ?? 0;
      },
    });
    this.#syncer.follow(gateway.console);
  }

  get gateway(): ConsoleGateway {
    return this.#gateway;
  }

  get skew(): number {
    return this.#skew.known() ?? 0;
  }

  get facts(): ConsoleFacts | null {
    return this.#syncer.facts;
  }

  /** What it was made from changed, or the secrets it logs in with did. */
  change(gateway: ConsoleGateway, renew: boolean): void {
    const before = this.#gateway;
    this.#gateway = gateway;
    this.#syncer.follow(gateway.console);
    if (!renew && sameConsole(before, gateway)) return;
    this.#kind = gateway.console.kind;
    this.#syncer.renew();
  }

  sync(): Promise<void> {
    return this.#syncer.sync();
  }

  /** Reads the console where that was a while ago, but waits for it only so long. */
  async freshFacts(): Promise<void> {
    const { clock } = this.#means;
    if (this.facts !== null && Math.abs(clock.now() - this.facts.asOf) < FRESH_MS) return;
    const given = pause(PATIENCE_MS, undefined, { ref: false, signal: this.#stop.signal }).catch(() => {});
    // Whoever asks for the keys every second must not ask a failing console every second.
    await Promise.race([this.#syncer.look(), given]);
  }

  /** Something of ours came late: everything from then on is compared again. */
  async compareAgain(): Promise<void> {
    const { adapter } = this.#syncer;
    // Should it fail, the next sync says so.
    if (adapter !== null) await this.#comparer.compare(adapter).catch(() => {});
  }

  status(): ConsoleStatus {
    const { running, fault, last_sync, next_sync, progress } = this.#syncer.state();
    const { name, console } = this.#gateway;
    const lastSync = last_sync ?? this.#lastSync;
    return {
      gateway: name,
      kind: this.#kind,
      detected: console.kind === null && this.#kind !== null,
      url: console.url,
      ...stateInWords({ gateway: name, running, fault, synced: last_sync !== null, blind: this.#blind }),
      last_sync: lastSync,
      next_sync,
      progress,
      skew: this.#skew.known(),
      alarms: this.#alarms(),
    };
  }

  report(): MirrorReport {
    const { database, clock } = this.#means;
    const { name } = this.#gateway;
    const elsewhere = this.#holders().flatMap(({ tool, key }) =>
      key !== null && this.isQuiet(key.fingerprint) ? [{ tool, key: key.fingerprint }] : [],
    );
    const stored = database.ask((db) =>
      readMirror(db, name, { now: clock.now(), skew: this.skew, elsewhere }),
    );
    const known = this.status();
    // A sync that runs waits for the index, or says at its end why it cannot be read.
    const isUnreadable = stored === null && known.state !== "syncing";
    const status = isUnreadable ? { ...known, ...UNREADABLE } : known;
    const account = this.facts?.account ?? null;
    const lost = database.ask(readLogGaps) ?? [];
    const blind = blindInWords(status, this.#syncer.adapter, this.#givenUp(), lost);
    const unseen = database.ask((db) => unseenInWords(db, name, this.skew)) ?? [];
    return { ...status, ...(stored ?? NOTHING_STORED), account, blind: [...unseen, ...blind] };
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([this.#comparer.stop(), this.#syncer.stop()]);
  }

  async #connect() {
    claimFor(this.#gateway, this.#means);
    const signal = this.#stop.signal;
    return connect(this.#gateway, {
      ...this.#means,
      signal,
      calls: this.#calls,
      onSkew: (skew) => this.#skew.note(skew),
      // Also where no one has logged in yet: `mirror login` asks for what this kind needs.
      onKind: (kind) => this.#setKind(kind),
      pause: (milliseconds) => pause(milliseconds, undefined, { signal, ref: false }).catch(stopped),
    });
  }

  #setKind(kind: ConsoleKind): void {
    if (this.#kind === null)
      this.#means.log.info({ gateway: this.#gateway.name }, `the console is of kind ${kind}`);
    this.#kind = kind;
  }

  #link(keys: readonly ConsoleKey[]): void {
    const { name } = this.#gateway;
    this.#means.database.ask((db) => {
      const newly = linkKeys(db, name, linksOf(keys, this.#holders()));
      // Their rows were passed over as somebody else's: they are read once more.
      if (newly.length > 0) clearCursor(db, name);
    });
  }

  #unseen(adapter: ConsoleAdapter): UnreadKey[] {
    const unread = adapter.unread?.() ?? [];
    const unlisted = unlistedKeys(this.facts?.keys ?? null, this.#holders());
    return [
      ...unread.map((one): UnreadKey => ({ ...one, why: "not-read" })),
      ...unlisted.map((key): UnreadKey => ({ key, until: null, why: "no-account" })),
    ];
  }

  #judged(): void {
    const { database, clock } = this.#means;
    this.#blind = database.ask((db) => blindness(db, this.#gateway.name, clock.now()));
    this.#tell();
  }

  #tell(): void {
    const { clock, log, database } = this.#means;
    const { name } = this.#gateway;
    tellAlarms(this.#alarms(), {
      gateway: name,
      clock,
      log,
      readTold: () => database.ask((db) => readFact(db, name, "told")),
      writeTold: (told) => void database.ask((db) => writeFact(db, name, "told", told)),
    });
  }

  #alarms(): Alarm[] {
    const { name } = this.#gateway;
    const means = { skew: this.skew, quiet: (key: string) => this.isQuiet(key) };
    return this.#means.database.ask((db) => readAlarms(db, name, means)) ?? [];
  }

  /** Two keys can end alike: only where all that do are used elsewhere on purpose nobody needs to be told. */
  isQuiet(fingerprint: string): boolean {
    const alike = this.#holders().filter(({ key }) => key?.fingerprint === fingerprint);
    return alike.length > 0 && alike.every(({ elsewhere }) => elsewhere);
  }

  /** Keys that a tool had which is gone: what they do is nobody's business here, and must be said. */
  #givenUp(): string[] {
    const held = this.#means.database.ask((db) => heldTimes(db, this.#gateway.name)) ?? new Map();
    return [...held].flatMap(([key, { until, replaced }]) => (until !== null && !replaced ? [key] : []));
  }

  #holders() {
    return holdersOf(this.#gateway.name, this.#means.snapshot());
  }
}

function stopped(): never {
  throw new ConsoleFault("unreachable", "was not waited for: keybearer is stopping");
}
