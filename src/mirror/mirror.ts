import { setImmediate as turn } from "node:timers/promises";
import type Database from "libsql";
import type { Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import { readAlarms } from "./alarms.ts";
import { CallHistory } from "./consoles/http.ts";
import { GatewayMirror, type MirrorDeps } from "./gateway-mirror.ts";
import { HeldKeys } from "./held-keys.ts";
import { ConsoleLogins, consoleSecrets, type LoginAnswer, type LoginRequest } from "./login.ts";
import { compareEntries, diffOrder, findCompared, findDiff } from "./report/compared.ts";
import { type Day, NOTHING_STORED, readDays } from "./report/report.ts";
import type {
  ComparedRow,
  ConsoleStatus,
  KeysAnswer,
  MirrorReport,
  ToolConsoleFacts,
  VerdictDay,
} from "./report/shape.ts";
import { removedConsole } from "./report/words.ts";
import { acknowledge, gatewaysIn } from "./store/rows.ts";
import { hasConsole } from "./sync/connect.ts";

/** An alarm as it was shown to a person. Rows after `last_at` they have not seen. null: all there are. */
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
/** Read at once, before requests get their turn. */
const RECORDS_PER_TURN = 100;

interface Entry {
  readonly mirror: GatewayMirror;
  /** Digests of the login's secrets. */
  secrets: string;
}

/** Our log against the consoles' own, for all gateways with a console. */
export class Mirror {
  readonly #deps: MirrorDeps;
  readonly #stop = new AbortController();
  readonly #heldKeys: HeldKeys;
  readonly #logins: ConsoleLogins;
  readonly #entries = new Map<string, Entry>();

  constructor(deps: MirrorDeps) {
    this.#deps = deps;
    this.#heldKeys = new HeldKeys(deps);
    this.#logins = new ConsoleLogins({
      ...deps,
      signal: this.#stop.signal,
      calls: new CallHistory(),
      onSkew: () => {},
    });
  }

  /** A configuration came into force, or keys did. */
  change(to: Snapshot): void {
    const { log } = this.#deps;
    if (!this.#heldKeys.record(to))
      background(this.#heldKeys.recordLater(this.#stop.signal), log, "recording which keys are held");
    const gateways = Object.values(to.config.gateways).filter(hasConsole);
    for (const [name, { mirror }] of this.#entries) {
      if (gateways.some((gateway) => gateway.name === name)) continue;
      this.#entries.delete(name);
      background(mirror.stop(), log, "stopping to read a console");
    }
    for (const gateway of gateways) {
      const secrets = consoleSecrets(gateway, to);
      const entry = this.#entries.get(gateway.name);
      if (entry === undefined) {
        const mirror = new GatewayMirror(gateway, this.#deps, this.#heldKeys);
        this.#entries.set(gateway.name, { mirror, secrets });
        mirror.startSync();
      } else {
        entry.mirror.change(gateway, entry.secrets !== secrets);
        entry.secrets = secrets;
      }
    }
  }

  /** A gateway of the same name was another one before: nothing that its console said holds any more. */
  forget(gateway: string): void {
    this.#heldKeys.forget(gateway);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#mirrors().map((mirror) => mirror.stop()));
  }

  status(): ConsoleStatus[] {
    // The database may have been out of reach when the keys came.
    this.#heldKeys.record(this.#deps.snapshot());
    return [...this.#mirrors().map((mirror) => mirror.status()), ...this.#removedConsoles()];
  }

  report(): MirrorReport[] {
    const removed = this.#removedConsoles().map((status) => ({
      ...status,
      ...NOTHING_STORED,
      account: null,
      blind: [],
    }));
    return [...this.#mirrors().map((mirror) => mirror.report()), ...removed];
  }

  /** An alarm does not end because its console was removed from config.yaml. */
  #removedConsoles(): ConsoleStatus[] {
    const found = this.#deps.database.ask((db) =>
      gatewaysIn(db)
        .filter((name) => !this.#entries.has(name))
        .map((name) => removedConsole(name, readAlarms(db, name, 0, new Set()))),
    );
    return (found ?? []).filter(({ alarms }) => alarms.length > 0);
  }

  /** The keys that the consoles list. */
  async keys(): Promise<KeysAnswer> {
    const answers = await Promise.all(this.#mirrors().map((mirror) => mirror.keys()));
    return {
      keys: answers.flatMap(({ keys }) => keys),
      problems: answers.flatMap(({ problems }) => problems),
    };
  }

  factsOf(tool: Tool): ToolConsoleFacts | null {
    return this.#mirrorOf(tool.gateway)?.toolFacts(tool.name) ?? null;
  }

  /** Starts to read the console. null: there is no such gateway, or it has no console. */
  sync(gateway: string): ConsoleStatus | null {
    const mirror = this.#mirrorOf(gateway);
    if (mirror === null) return null;
    mirror.startSync();
    return mirror.status();
  }

  /** Rows that deserve a look: foreign ones first, then the newest that differ or are missing. */
  async diff(): Promise<ComparedRow[]> {
    const { database } = this.#deps;
    const found: ComparedRow[] = [];
    for (const { gateway, skew, quietKeys } of this.#mirrors()) {
      const options = { max: MAX_DIFFERENCES, skew, quietKeys };
      let rest = database.ask((db) => findDiff(db, gateway.name, options)) ?? [];
      while (rest.length > 0) {
        await turn();
        const entries = rest.slice(0, RECORDS_PER_TURN);
        rest = rest.slice(RECORDS_PER_TURN);
        found.push(...(database.ask((db) => compareEntries(db, gateway.name, entries, skew)) ?? []));
      }
    }
    return found.sort(diffOrder);
  }

  /** @param text a console row, a request id or a record's id, or the beginning of one */
  compared(text: string): ComparedRow[] {
    const skewOf = (gateway: string) => this.#mirrorOf(gateway)?.skew ?? 0;
    return this.#deps.database.ask((db) => findCompared(db, text, skewOf)) ?? [];
  }

  /** Counts verdicts by day, in steps. @param db see openMirrorForReading */
  *days(db: Database.Database, days: readonly Day[]): Generator<undefined, VerdictDay[]> {
    const found: VerdictDay[] = [];
    for (const { gateway, skew, quietKeys } of this.#mirrors())
      found.push(...(yield* readDays(db, gateway.name, days, skew, quietKeys)));
    return found;
  }

  /** null: there is no such gateway, or it has no console. */
  async login(gateway: string, account: string | null, asked: LoginRequest): Promise<LoginAnswer | null> {
    const mirror = this.#mirrorOf(gateway);
    if (mirror === null) return null;
    const answer = await this.#logins.login(mirror.gateway, account, asked);
    if (answer.state === "done") {
      this.#deps.log.info({ gateway }, "console login succeeded");
      mirror.change(mirror.gateway, true);
    }
    return answer;
  }

  /** Returns how many rows were acknowledged; null: there are others than those that were shown. */
  acknowledge({ gateway, key, certain, last_at, count: shown }: ShownAlarm, peer: string): number | null {
    const { database, usage, clock, log } = this.#deps;
    // Shown by our clock, stored by the console's.
    const skew = gateway === null ? 0 : (this.#mirrorOf(gateway)?.skew ?? 0);
    const until = last_at === null ? null : last_at + skew;
    const alarm = { gateway, key, certain, until, count: shown };
    const lines = database.ask((db) => acknowledge(db, alarm, clock.now()));
    if (lines === null) return null;
    for (const line of lines) usage.append(line);
    const count = lines.length;
    if (count > 0) log.warn({ gateway, fingerprint: key, count, peer }, "alarm acknowledged");
    return count;
  }

  #mirrors(): GatewayMirror[] {
    return [...this.#entries.values()].map(({ mirror }) => mirror);
  }

  #mirrorOf(gateway: string): GatewayMirror | null {
    return this.#entries.get(gateway)?.mirror ?? null;
  }
}
