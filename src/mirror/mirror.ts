import { setImmediate as turn } from "node:timers/promises";
import type { Gateway, Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import type { Secret } from "../core/secret.ts";
import type { KeyDetail } from "../proxy/key-health/cause.ts";
import { hasAlarms } from "./alarms.ts";
import { ConsoleError, hasConsole, type KeyActions } from "./consoles/console.ts";
import { CallHistory } from "./consoles/http.ts";
import { GatewayMirror, type LoginEnd, type MirrorDeps } from "./gateway-mirror.ts";
import { HeldKeys } from "./held-keys.ts";
import { ConsoleLogins, type LoginAnswer, type LoginRequest } from "./login.ts";
import { diffOrder, findCompared } from "./report/compared.ts";
import { formatReason, removedConsole } from "./report/messages.ts";
import { type Day, NOTHING_STORED } from "./report/report.ts";
import type {
  ComparedRow,
  ConsoleStatus,
  KeyReport,
  KeysAnswer,
  MirrorReport,
  ToolConsoleFacts,
  VerdictDay,
} from "./report/shape.ts";
import { acknowledgeRows, gatewaysIn } from "./store/rows.ts";
import { MirrorReader } from "./sync/mirror-thread.ts";

/** An alarm as a person saw it: without rows after `last_at`. null: any. */
export interface ShownAlarm {
  readonly gateway: string | null;
  readonly key: string | null;
  readonly certain: boolean | null;
  readonly last_at: number | null;
  /** Its number of requests. */
  readonly count: number | null;
}

/** Of each gateway. */
const MAX_DIFFERENCES = 500;
/** Rows that are acknowledged in one transaction, which runs on the thread that serves requests. */
const ROWS_PER_STEP = 100;

/** Our log against the consoles' own, for all gateways with a console. */
export class Mirror {
  readonly #deps: MirrorDeps;
  readonly #reader: MirrorReader;
  readonly #stop = new AbortController();
  readonly #heldKeys: HeldKeys;
  readonly #logins: ConsoleLogins;
  readonly #mirrors = new Map<string, GatewayMirror>();

  constructor(deps: Omit<MirrorDeps, "reader">) {
    this.#reader = new MirrorReader(deps.database, deps.log);
    this.#deps = { ...deps, reader: this.#reader };
    this.#heldKeys = new HeldKeys(deps);
    this.#logins = new ConsoleLogins({
      ...deps,
      signal: this.#stop.signal,
      calls: new CallHistory(),
      onSkew: () => {},
    });
  }

  /** Applies a new configuration, or new keys. */
  change(to: Snapshot): void {
    const { log } = this.#deps;
    if (!this.#heldKeys.record(to))
      background(this.#heldKeys.recordLater(this.#stop.signal), log, "recording which keys are held");
    const gateways = Object.values(to.config.gateways).filter(hasConsole);
    for (const [name, mirror] of this.#mirrors) {
      if (gateways.some((gateway) => gateway.name === name)) continue;
      this.#mirrors.delete(name);
      background(mirror.stop(), log, "stopping to read a console");
    }
    for (const gateway of gateways) {
      const known = this.#mirrors.get(gateway.name);
      const mirror = known ?? new GatewayMirror(gateway, to, this.#deps, this.#heldKeys);
      this.#mirrors.set(gateway.name, mirror);
      if (known === undefined) mirror.startSync();
      else mirror.change(gateway, to);
    }
  }

  /** Another gateway had this name before: deletes what its console said. */
  forget(gateway: string): void {
    this.#heldKeys.forget(gateway);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.stop()));
    await this.#reader.stop();
  }

  async status(): Promise<ConsoleStatus[]> {
    // The database may have been unusable when the keys came.
    this.#heldKeys.record(this.#deps.snapshot());
    const statuses = await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.status()));
    return [...statuses, ...(await this.#removedConsoles())];
  }

  /** When each console was last read completely, without those that never were. */
  lastSyncs(): { readonly gateway: string; readonly at: number }[] {
    const found: { gateway: string; at: number }[] = [];
    for (const [gateway, { lastSync }] of this.#mirrors)
      if (lastSync !== null) found.push({ gateway, at: lastSync });
    return found;
  }

  async report(): Promise<MirrorReport[]> {
    const reports = await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.report()));
    for (const status of await this.#removedConsoles())
      reports.push({ ...status, ...NOTHING_STORED, account: null, blind: [] });
    return reports;
  }

  /** An alarm does not end because its console was removed from config.yaml. */
  async #removedConsoles(): Promise<ConsoleStatus[]> {
    const found: ConsoleStatus[] = [];
    const gateways = this.#deps.database.ask((db) => gatewaysIn(db).filter((name) => hasAlarms(db, name)));
    for (const gateway of gateways ?? []) {
      if (this.#mirrors.has(gateway)) continue;
      const alarms = (await this.#reader.ask("alarms", gateway, 0, new Set())) ?? [];
      if (alarms.length > 0) found.push(removedConsole(gateway, alarms));
    }
    return found;
  }

  /** The keys that the consoles list. */
  async keys(): Promise<KeysAnswer> {
    return together(await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.keys())));
  }

  /** The same, read now. */
  async refreshKeys(): Promise<KeysAnswer> {
    return together(await Promise.all([...this.#mirrors.values()].map((mirror) => mirror.refreshKeys())));
  }

  /** The keys that one console lists now. Throws a ConsoleError. */
  async listKeys(gateway: string): Promise<readonly KeyReport[]> {
    return this.#requireMirror(gateway).listKeys();
  }

  /** What a login's list of keys says is wrong with a key that the gateway refuses; null: nothing, or it is not known. */
  async findKeyDetail(gateway: string, key: Secret): Promise<KeyDetail | null> {
    return (await this.#mirrors.get(gateway)?.findKeyDetail(key)) ?? null;
  }

  /** Throws a ConsoleError where the console or its login cannot change keys. */
  async keyActions(gateway: string, account: string | null): Promise<KeyActions> {
    return this.#requireMirror(gateway).keyActions(account);
  }

  /** Whether a login at the console can change keys. true also while that is not known yet. */
  canChangeKeys(gateway: string): boolean {
    return this.#mirrors.get(gateway)?.canChangeKeys ?? false;
  }

  /** When the logins at consoles end of which that is known. */
  loginEnds(): LoginEnd[] {
    return [...this.#mirrors.values()].flatMap((mirror) => mirror.loginEnds());
  }

  /** By the console's clock. */
  now(gateway: string): number {
    return this.#deps.clock.now() + (this.#mirrors.get(gateway)?.skew ?? 0);
  }

  noteDeleted(gateway: string, ref: string): void {
    this.#mirrors.get(gateway)?.noteDeleted(ref);
  }

  startSync(gateway: string): void {
    this.#mirrors.get(gateway)?.startSync();
  }

  #requireMirror(gateway: string): GatewayMirror {
    const mirror = this.#mirrors.get(gateway);
    if (mirror === undefined) throw new ConsoleError("refused", "is not in config.yaml");
    return mirror;
  }

  /** Whether a gateway bills a stream that the client ended by what it had sent. false: it does not, or it is not known. */
  billsAsStreamed(gateway: string): boolean {
    return this.#mirrors.get(gateway)?.billsAsStreamed ?? false;
  }

  /** Whether a gateway takes the ids of its requests from here. */
  takesCallIds(gateway: Gateway): boolean {
    return this.#mirrors.get(gateway.name)?.takesCallIds(gateway) ?? false;
  }

  factsOf(tool: Tool): ToolConsoleFacts | null {
    return this.#mirrors.get(tool.gateway)?.toolFacts(tool.name) ?? null;
  }

  /** Starts to read the console. null: there is no such gateway, or it has no console. */
  async sync(gateway: string): Promise<ConsoleStatus | null> {
    const mirror = this.#mirrors.get(gateway);
    if (mirror === undefined) return null;
    mirror.startSync();
    return mirror.status();
  }

  /** Rows to check: foreign ones first, then the newest that wait for another machine, differ or are missing. */
  async diff(): Promise<ComparedRow[]> {
    const found: ComparedRow[] = [];
    for (const { gateway, skew, quietKeys } of this.#mirrors.values()) {
      const options = { max: MAX_DIFFERENCES, skew, quietKeys };
      found.push(...((await this.#reader.ask("diff", gateway.name, options)) ?? []));
    }
    return found.sort(diffOrder).map((row) => this.#readable(row));
  }

  /** @param text a console row, a request id or a record's id, or a prefix of one */
  compared(text: string): ComparedRow[] {
    const skewOf = (gateway: string) => this.#mirrors.get(gateway)?.skew ?? 0;
    const found = this.#deps.database.ask((db) => findCompared(db, text, skewOf)) ?? [];
    return found.map((row) => this.#readable(row));
  }

  #readable(compared: ComparedRow): ComparedRow {
    const reason = formatReason(compared.reason, this.#deps.clock.now());
    const { row } = compared;
    return { ...compared, reason, row: row === null ? null : { ...row, reason } };
  }

  /** Counts verdicts by day. */
  async days(days: readonly Day[]): Promise<VerdictDay[]> {
    const found: VerdictDay[] = [];
    for (const { gateway, skew, quietKeys } of this.#mirrors.values())
      found.push(...((await this.#reader.ask("days", gateway.name, days, skew, quietKeys)) ?? []));
    return found;
  }

  /** null: there is no such gateway, or it has no console. */
  async login(gateway: string, account: string | null, asked: LoginRequest): Promise<LoginAnswer | null> {
    const mirror = this.#mirrors.get(gateway);
    if (mirror === undefined) return null;
    const answer = await this.#logins.login(mirror.gateway, account, asked);
    if (answer.state === "done") {
      this.#deps.log.info({ gateway }, "console login succeeded");
      mirror.reconnect();
    }
    return answer;
  }

  /** Returns how many rows were acknowledged; null: there are other rows than the person saw, or they cannot be read. */
  async acknowledge(
    { gateway, key, certain, last_at, count }: ShownAlarm,
    peer: string,
  ): Promise<number | null> {
    const { database, usage, clock, log } = this.#deps;
    // The person saw our time; rows have the console's.
    const skew = gateway === null ? 0 : (this.#mirrors.get(gateway)?.skew ?? 0);
    const until = last_at === null ? null : last_at + skew;
    const open = await this.#reader.ask("openRows", { gateway, key, certain, until });
    if (open === null) return null;
    const total = open.reduce((sum, { identities }) => sum + identities.length, 0);
    if (count !== null && count !== total) return null;
    const now = clock.now();
    let acknowledged = 0;
    for (const rows of open) {
      for (let at = 0; at < rows.identities.length; at += ROWS_PER_STEP) {
        const identities = rows.identities.slice(at, at + ROWS_PER_STEP);
        const lines = database.ask((db) => acknowledgeRows(db, { ...rows, identities }, now));
        if (lines === null) return null;
        for (const line of lines) usage.append(line);
        acknowledged += lines.length;
        await turn();
      }
    }
    if (acknowledged > 0) {
      log.warn({ gateway, fingerprint: key, count: acknowledged, peer }, "alarm acknowledged");
      this.#deps.onAcknowledged();
    }
    return acknowledged;
  }
}

function together(answers: readonly KeysAnswer[]): KeysAnswer {
  return {
    keys: answers.flatMap(({ keys }) => keys),
    problems: answers.flatMap(({ problems }) => problems),
  };
}
