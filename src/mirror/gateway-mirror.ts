import type { Gateway } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import type { Logger } from "../core/log.ts";
import type { Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import type { Prices } from "../metering/prices.ts";
import type { KeyDetail } from "../proxy/key-health/cause.ts";
import { hasAlarms, logAlarms } from "./alarms.ts";
import { ConsoleAccount } from "./connect/account.ts";
import { ConsoleConnection } from "./connect/connection.ts";
import type { ConnectDeps } from "./connect/open-console.ts";
import {
  ConsoleError,
  type ConsoleErrorKind,
  type ConsoleGateway,
  type KeyActions,
} from "./consoles/console.ts";
import type { HeldKeys } from "./held-keys.ts";
import { LIST_WAIT_MS, ListedKeys } from "./listed-keys.ts";
import type { LostRecords } from "./lost-records.ts";
import type { Sibling } from "./reconcile/siblings.ts";
import { explainModels } from "./report/explain-models.ts";
import { consoleRemedy, stateMessages, UNREADABLE } from "./report/messages.ts";
import { NOTHING_STORED } from "./report/report.ts";
import type {
  Alarm,
  ConsoleStatus,
  KeyReport,
  KeysAnswer,
  MirrorReport,
  ToolConsoleFacts,
} from "./report/shape.ts";
import type { Correction } from "./store/amendments.ts";
import type { MirrorDatabase } from "./store/database.ts";
import type { VerdictTally } from "./store/verdicts.ts";
import { Comparisons } from "./sync/comparisons.ts";
import { ConsoleSync } from "./sync/console-sync.ts";
import type { MirrorReader } from "./sync/mirror-thread.ts";
import type { MirrorUsage } from "./usage.ts";

export interface MirrorDeps
  extends Pick<ConnectDeps, "clock" | "snapshot" | "vault" | "agentFor" | "keyCalls"> {
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask" | "files" | "noteDamage">;
  readonly reader: Pick<MirrorReader, "ask" | "createThread">;
  readonly usage: MirrorUsage;
  readonly prices: Prices;
  readonly lostRecords: Pick<LostRecords, "gaps">;
  /** All that are known, also while the store cannot be reached. Without a shared store there are none. */
  readonly siblings: () => readonly Sibling[];
  /** A record takes more, or less, from its tool's limits. Called once for each amendment in the journal. */
  readonly onCorrected: (correction: Correction) => void;
  /** Called with the open alarms of a gateway after each comparison. Must not throw. */
  readonly onAlarms: (alarms: readonly Alarm[]) => void;
  /** Called after alarms were acknowledged. Must not throw. */
  readonly onAcknowledged: () => void;
  /** How many rows of a gateway got which verdict. Must not throw. */
  readonly onJudged: (gateway: string, judged: VerdictTally) => void;
  /** Whether an unfinished change of a tool's key makes this key of a console, or replaces it. */
  readonly isChanging: (key: Pick<KeyReport, "gateway" | "name" | "ref">) => boolean;
}

/** A login after whose end a person has to log in again. */
export interface LoginEnd {
  readonly gateway: string;
  /** null: the only one. */
  readonly account: string | null;
  readonly at: number;
}

const LOGGED_OUT: readonly ConsoleErrorKind[] = ["login-needed", "login-refused"];

/** One gateway's console: its rows are read and compared with our records, its keys are listed, and the result is reported. */
export class GatewayMirror {
  readonly #deps: MirrorDeps;
  readonly #stop = new AbortController();
  readonly #connection: ConsoleConnection;
  readonly #listedKeys: ListedKeys;
  readonly #comparisons: Comparisons;
  readonly #sync: ConsoleSync;

  constructor(gateway: ConsoleGateway, snapshot: Snapshot, deps: MirrorDeps, heldKeys: HeldKeys) {
    const { clock, log, vault, agentFor, keyCalls, database, reader, usage, prices } = deps;
    const { lostRecords, siblings, onCorrected, isChanging } = deps;
    const { signal } = this.#stop;
    this.#deps = deps;
    this.#connection = new ConsoleConnection(gateway, snapshot, {
      clock,
      log,
      snapshot: deps.snapshot,
      vault,
      agentFor,
      keyCalls,
      database,
      usage,
      signal,
      onOtherConsole: () => {
        this.#listedKeys.forget();
        this.#comparisons.forget();
        this.#sync.forget();
      },
    });
    this.#listedKeys = new ListedKeys({
      clock,
      snapshot: deps.snapshot,
      database,
      connection: this.#connection,
      signal,
      isChanging,
      onNewlyOurs: () => this.#sync.startOver(),
    });
    this.#comparisons = new Comparisons({
      clock,
      snapshot: deps.snapshot,
      database,
      reader,
      usage,
      prices,
      lostRecords,
      siblings,
      connection: this.#connection,
      signal,
      onCorrected,
      onJudged: (judged) => deps.onJudged(this.gateway.name, judged),
      onCompared: () => this.#logAlarms(),
    });
    this.#sync = new ConsoleSync({
      clock,
      log,
      database,
      usage,
      connection: this.#connection,
      listedKeys: this.#listedKeys,
      comparisons: this.#comparisons,
      recordHeldKeys: () => heldKeys.record(deps.snapshot()),
      signal,
      onCheck: () => {
        background(this.syncIfBusy(), log, "checking how busy the keys are");
        background(this.compareIfSeen(), log, "comparing with records of other machines");
      },
      // Earlier alarms stay open, and are logged again when they are due.
      onFailed: () => this.#logAlarms(),
    });
  }

  get gateway(): ConsoleGateway {
    return this.#connection.gateway;
  }

  /** How far the console's clock is ahead of ours. */
  get skew(): number {
    return this.#connection.skew ?? 0;
  }

  /** Streams that a client ended were billed by what had been sent. */
  get billsAsStreamed(): boolean {
    return this.#comparisons.billsAsStreamed;
  }

  /** See CALL_ID_HEADER. The ids go nowhere but to the console's origin. */
  takesCallIds(gateway: Gateway): boolean {
    return this.#connection.takesCallIds(gateway);
  }

  /** Fingerprints of keys that are used elsewhere on purpose. */
  get quietKeys(): ReadonlySet<string> {
    return this.#listedKeys.quietKeys();
  }

  change(gateway: ConsoleGateway, snapshot: Snapshot): void {
    const mustReconnect = this.#connection.follow(gateway, snapshot);
    this.#sync.followSchedule();
    if (mustReconnect) this.reconnect();
  }

  /** The settings or the login changed. */
  reconnect(): void {
    this.#connection.reset();
    this.#sync.restart();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([this.#comparisons.stop(), this.#sync.stop()]);
  }

  /** When the console was last read completely; null: never. */
  get lastSync(): number | null {
    return this.#sync.times.last_sync;
  }

  /** Reads the console as it is from now on. */
  startSync(): void {
    this.#sync.start();
  }

  /** Reads the console now. A call during a sync waits for that one. Failures are in the status. */
  async sync(): Promise<void> {
    await this.#sync.run();
  }

  /** Reads the console early where it would otherwise no longer list all of a key's rows. */
  async syncIfBusy(): Promise<void> {
    await this.#sync.runIfBusy();
  }

  /** Compares again once the records that a row waits for have come. */
  async compareIfSeen(): Promise<void> {
    if (!this.#sync.isSyncing) await this.#comparisons.compareIfSeen();
  }

  async status(): Promise<ConsoleStatus> {
    const { gateway, kind, calls, skew } = this.#connection;
    const { name, console } = gateway;
    const condition = {
      isSyncing: this.#sync.isSyncing,
      error: this.#sync.error,
      isSynced: this.#sync.isSynced,
      blind: this.#comparisons.blind,
    };
    return {
      gateway: name,
      kind,
      detected: console.kind === null && kind !== null,
      url: console.url,
      ...stateMessages(name, condition),
      ...this.#sync.times,
      limited_until: { rows: calls.waitsUntil("rows"), keys: calls.waitsUntil("keys") },
      skew,
      alarms: await this.#readAlarms(),
    };
  }

  async report(): Promise<MirrorReport> {
    const { reader, clock } = this.#deps;
    const { name, groups } = this.gateway;
    const multipliers = Object.fromEntries(
      Object.entries(groups).map(([group, { multiplier }]) => [group, multiplier]),
    );
    const stored = await reader.ask("report", name, {
      now: clock.now(),
      skew: this.skew,
      elsewhere: this.#listedKeys.quietTools(),
      multipliers,
      siblings: this.#deps.siblings(),
    });
    const lines = stored ?? NOTHING_STORED;
    // A command that follows a sync asks several times a second.
    const models = this.#sync.isSyncing ? lines.models : await explainModels(name, lines, this.#deps);
    const status = await this.status();
    // A sync in progress waits for the index, or ends with the reason why it cannot be read.
    const isUnreadable = stored === null && status.state !== "syncing";
    const shown = isUnreadable ? { ...status, ...UNREADABLE } : status;
    const blind = await reader.ask("blindSpots", shown, this.#connection.adapter?.kind ?? null);
    return {
      ...shown,
      ...lines,
      models,
      account: this.#listedKeys.account,
      blind: blind ?? ["anything: the usage log cannot be read"],
    };
  }

  /** The console's keys, each beside the tools that hold it here. Reads them again where that was a while ago. */
  async keys(): Promise<KeysAnswer> {
    // A page that asks for the keys every second must not make us call a failing console every second.
    if (!this.#listedKeys.isFresh && !this.#sync.isWaiting)
      await withTimeout(this.sync(), LIST_WAIT_MS, null, this.#stop.signal);
    const { gateway, state, why, next } = await this.status();
    const keys = this.#listedKeys.reports();
    if (this.#listedKeys.isKnown && why === null) return { keys, problems: [] };
    const isEarly = state === "syncing" || state === "waiting";
    const unread = isEarly ? "its keys were not read yet" : "it lists no keys";
    return { keys, problems: [{ gateway, why: why ?? unread, next }] };
  }

  /** The same, read now. If the console cannot be read, its keys are as it last listed them. */
  async refreshKeys(): Promise<KeysAnswer> {
    let consoleError: ConsoleError | null;
    try {
      await this.listKeys();
      consoleError = this.#connection.adapter?.lastError?.("keys") ?? null;
    } catch (error) {
      if (!(error instanceof ConsoleError)) throw error;
      consoleError = error;
    }
    const keys = this.#listedKeys.reports();
    if (consoleError === null) return { keys, problems: [] };
    const gateway = this.gateway.name;
    const problem = {
      gateway,
      why: `the console ${consoleError.message}`,
      next: consoleRemedy(consoleError, gateway),
    };
    return { keys, problems: [problem] };
  }

  /** The console's keys as it lists them now. Throws a ConsoleError. */
  async listKeys(): Promise<KeyReport[]> {
    return this.#listedKeys.list();
  }

  /** What the login's list says is wrong with a key that the gateway refuses; null: nothing, or there is no such list now. */
  async findKeyDetail(key: Secret): Promise<KeyDetail | null> {
    return this.#listedKeys.findDetail(key);
  }

  noteDeleted(ref: string): void {
    this.#listedKeys.noteDeleted(ref);
  }

  /** What the console says of one tool's key; null: it does not list it. */
  toolFacts(tool: string): ToolConsoleFacts | null {
    return this.#listedKeys.findToolFacts(tool);
  }

  /** When the logins end of which that is known. */
  loginEnds(): LoginEnd[] {
    const { gateway } = this;
    return gateway.console.logins.flatMap((login) => {
      const at = new ConsoleAccount(gateway, login, this.#deps).endsAt;
      return at === null ? [] : [{ gateway: gateway.name, account: login.name, at }];
    });
  }

  /** Whether the login can change keys. true also while that is not known yet. */
  get canChangeKeys(): boolean {
    const { error } = this.#sync;
    if (error !== null && LOGGED_OUT.includes(error.kind) && error.account === null) return false;
    const { adapter } = this.#connection;
    return adapter === null || adapter.keyActions !== undefined;
  }

  /** Throws a ConsoleError where the login cannot change keys. */
  async keyActions(account: string | null): Promise<KeyActions> {
    return this.#connection.keyActions(account);
  }

  async #readAlarms(): Promise<Alarm[]> {
    const { database, reader } = this.#deps;
    const { name } = this.gateway;
    if (database.ask((db) => hasAlarms(db, name)) !== true) return [];
    const alarms = (await reader.ask("alarms", name, this.skew, this.quietKeys)) ?? [];
    return alarms.map((alarm) =>
      this.#listedKeys.isUnlisted(alarm.key) ? { ...alarm, unlisted: true } : alarm,
    );
  }

  async #logAlarms(): Promise<void> {
    const { database, log, clock, onAlarms } = this.#deps;
    const alarms = await this.#readAlarms();
    logAlarms(this.gateway.name, alarms, database, log, clock.now());
    onAlarms(alarms);
  }
}
