import type { Snapshot } from "../../config/snapshot.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { type Prices, toMicrodollars } from "../../metering/prices.ts";
import type { Tokens } from "../../metering/usage.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { ConsoleConnection } from "../connect/connection.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { blindSiblings } from "../reconcile/siblings.ts";
import { billsAsStreamed } from "../store/aborted-bills.ts";
import type { WaitingRow } from "../store/rows.ts";
import { Comparer, type ComparerDeps } from "./comparer.ts";
import type { MirrorReader } from "./mirror-thread.ts";

interface ComparisonsDeps extends Omit<ComparerDeps, "gateway" | "reader" | "findPrice"> {
  readonly reader: Pick<MirrorReader, "ask" | "createThread">;
  readonly snapshot: () => Snapshot;
  readonly prices: Prices;
  readonly connection: ConsoleConnection;
  /** The mirror stopped. */
  readonly signal: AbortSignal;
  /** Called after each comparison. */
  readonly onCompared: () => Promise<void>;
}

/** Pending rows are compared again when they are due, within these bounds. */
const AGAIN_MIN_MS = 1000;
const AGAIN_MAX_MS = 10 * MINUTE_MS;

/**
 * The comparisons with one console, and what the last one found. There is one after each sync, when something that is
 * pending is due, and when the records of another machine have come.
 */
export class Comparisons {
  readonly #deps: ComparisonsDeps;
  readonly #comparer: Comparer;
  #againTimer: NodeJS.Timeout | undefined;
  /** The rows that waited for records of siblings. */
  #waitingRows: readonly WaitingRow[] = [];
  #blind: string | null = null;
  #billsAsStreamed = false;

  constructor(deps: ComparisonsDeps) {
    const { clock, database, reader, usage, lostRecords, siblings, onCorrected } = deps;
    this.#deps = deps;
    this.#comparer = new Comparer({
      gateway: deps.connection.gateway.name,
      clock,
      database,
      reader,
      usage,
      lostRecords,
      siblings,
      onCorrected,
      findPrice: (record, tokens) => this.#findPrice(record, tokens),
    });
    this.readBilling();
  }

  /** Why the console's rows cannot show a leak; null: they can. */
  get blind(): string | null {
    return this.#blind;
  }

  /** Streams that a client ended were billed by what had been sent, see aborted-bills.ts. */
  get billsAsStreamed(): boolean {
    return this.#billsAsStreamed;
  }

  /** To be called when what is stored of the console's bills has changed. */
  readBilling(): void {
    const { database, connection } = this.#deps;
    this.#billsAsStreamed = database.ask((db) => billsAsStreamed(db, connection.gateway.name)) ?? false;
  }

  /** Throws a ConsoleError if a database or the journal cannot be used. */
  async compare(adapter: ConsoleAdapter): Promise<void> {
    const { reader, clock, siblings, connection, signal, onCompared } = this.#deps;
    const { name } = connection.gateway;
    const due = await this.#comparer.compare(adapter, connection.skew ?? 0);
    if (signal.aborted) return;
    this.readBilling();
    this.#blind = await reader.ask("findBlindness", name, clock.now());
    const skew = connection.skew ?? 0;
    this.#waitingRows = siblings().length === 0 ? [] : ((await reader.ask("waitingRows", name, skew)) ?? []);
    await onCompared();
    clearTimeout(this.#againTimer);
    if (due !== null) this.#compareAgainAt(due, adapter);
  }

  #compareAgainAt(due: number, adapter: ConsoleAdapter): void {
    // Timers are limited to 24 days, and the wall clock may be set.
    const wait = Math.min(AGAIN_MAX_MS, Math.max(AGAIN_MIN_MS, due - this.#deps.clock.now()));
    this.#againTimer = setTimeout(() => {
      this.compare(adapter).catch(() => {
        // The next sync fails in the same way, and says so.
      });
    }, wait).unref();
  }

  /** Compares again once the records that a row waits for have come. The next sync may be hours away, or fail. */
  async compareIfSeen(adapter: ConsoleAdapter): Promise<void> {
    const { siblings } = this.#deps;
    const waiting = this.#waitingRows;
    const isSeen = ({ key, began }: WaitingRow) => blindSiblings(key, began, siblings()).length === 0;
    if (!waiting.some(isSeen)) return;
    // The next check must not start another comparison.
    this.#waitingRows = [];
    try {
      await this.compare(adapter);
    } catch {
      // The next sync fails in the same way, and says so.
      this.#waitingRows = waiting;
    }
  }

  async stop(): Promise<void> {
    clearTimeout(this.#againTimer);
    await this.#comparer.stop();
  }

  #findPrice(record: UsageRecord, tokens: Tokens): { list: number; cost: number } | null {
    const names = { asked: record.model, answered: record.model_answered };
    const { prices } = this.#deps.snapshot().config;
    const price = this.#deps.prices.findPrice(names, tokens, record.started_at, prices);
    if (price === null) return null;
    return { list: toMicrodollars(price), cost: toMicrodollars(price, record.multiplier) };
  }
}
