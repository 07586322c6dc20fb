import { setTimeout as pause } from "node:timers/promises";
import type Database from "libsql";
import { background } from "../background.ts";
import type { Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { KeyHeldLine } from "../usage/journal/lines.ts";
import { CallHistory } from "./consoles/http.ts";
import { heldNow, holdersOf } from "./held-here.ts";
import { ConsoleLogins, consoleSecrets, type LoginAnswer, type LoginRequest } from "./login.ts";
import { readAlarms } from "./report/alarms.ts";
import { type DiffOptions, findCompared, listDiff, listDiffInSteps } from "./report/compared.ts";
import { type KeysAnswer, keysAnswer, toolFacts } from "./report/console-keys.ts";
import { type Day, NOTHING_STORED, readDays, type VerdictDay } from "./report/mirror.ts";
import type { ComparedRow, ConsoleStatus, MirrorReport, ToolConsoleFacts } from "./report/shape.ts";
import { forsakenStatus } from "./report/state-words.ts";
import { touchFrom } from "./store/changed-days.ts";
import { heldKeyName, holdKeys } from "./store/keys.ts";
import { acknowledge, forgetConsole, gatewaysIn } from "./store/rows.ts";
import { type ConsoleGateway, hasConsole } from "./sync/connect.ts";
import { GatewayWatch, type MirrorDeps } from "./watch.ts";

/** Our log against the consoles' own. */
export interface Mirror {
  /** A configuration came into force, or keys did. */
  change(to: Snapshot): void;
  status(): ConsoleStatus[];
  report(): MirrorReport[];
  /** What the console lists, read anew where that was a while ago. */
  keys(): Promise<KeysAnswer>;
  factsOf(tool: Tool): ToolConsoleFacts | null;
  /** Begins to read the console now. null: there is no such gateway, or it has no console. */
  sync(gateway: string): ConsoleStatus | null;
  diff(): ComparedRow[];
  /** The same in steps, for whoever has a connection of their own (see openMirrorForReading). */
  diffSteps(db: Database.Database): Generator<undefined, ComparedRow[]>;
  compared(what: string): ComparedRow[];
  /** What comparing came to, day by day; likewise. */
  days(db: Database.Database, days: readonly Day[]): Generator<undefined, VerdictDay[]>;
  /** null: as above. */
  login(gateway: string, account: string | null, asked: LoginRequest): Promise<LoginAnswer | null>;
  /** Returns how many rows were acknowledged; null: there are more than were seen. */
  acknowledge(heard: Heard, peer: string): number | null;
  /** A gateway of the same name was another one before: nothing that its console told holds any more. */
  forget(gateway: string): void;
  /** Records of an earlier log were saved: what was said without them is said anew. */
  compareAgain(): void;
  stop(): Promise<void>;
}

/** An alarm as a person has seen it. Rows after `last_at` they have not seen. null: whatever there is. */
export interface Heard {
  readonly gateway: string | null;
  readonly key: string | null;
  readonly certain: boolean | null;
  readonly last_at: number | null;
  /** Its number of requests. */
  readonly count: number | null;
}

const MAX_DIFFERENCES = 500;

export function createMirror(means: MirrorDeps): Mirror {
  return new ConsoleMirror(means);
}

interface Entry {
  readonly watch: GatewayWatch;
  secrets: string;
}

const HOLD_LATER_MS = 5000;

class ConsoleMirror implements Mirror {
  readonly #means: MirrorDeps;
  readonly #stop = new AbortController();
  readonly #watches = new Map<string, Entry>();
  readonly #logins: ConsoleLogins;
  /** Gateways that are to be forgotten as soon as the database can be written. */
  readonly #forgotten = new Set<string>();
  /** Keys that came while the database could not be written, and when: a leak may show before it can. */
  readonly #came = new Map<string, number>();

  constructor(means: MirrorDeps) {
    this.#means = means;
    const { signal } = this.#stop;
    this.#logins = new ConsoleLogins({
      ...means,
      signal,
      onSkew: () => {},
      onKind: () => {},
      calls: new CallHistory(),
      pause: () => Promise.resolve(),
    });
  }

  change(to: Snapshot): void {
    if (!this.#hold(to)) background(this.#holdLater(), this.#means.log, "recording which keys are held");
    const watched = Object.values(to.config.gateways).filter(hasConsole);
    for (const [name, { watch }] of this.#watches) {
      if (watched.some((gateway) => gateway.name === name)) continue;
      this.#watches.delete(name);
      void watch.stop();
    }
    for (const gateway of watched) this.#watch(gateway, consoleSecrets(gateway, to));
  }

  #watch(gateway: ConsoleGateway, secrets: string): void {
    const entry = this.#watches.get(gateway.name);
    if (entry !== undefined) {
      entry.watch.change(gateway, entry.secrets !== secrets);
      entry.secrets = secrets;
      return;
    }
    // Also before each walk: a log that was damaged or taken away meanwhile begins anew, and knows of no key.
    const watch = new GatewayWatch(gateway, this.#means, () => this.#hold(this.#means.snapshot()));
    this.#watches.set(gateway.name, { watch, secrets });
    void watch.sync();
  }

  /** From when on a key is held here is what tells a leak from history. false: it could not be written now. */
  #hold(to: Snapshot): boolean {
    const now = this.#means.clock.now();
    const held = heldNow(to);
    if (this.#write((db) => holdKeys(db, held, now, this.#came))) {
      this.#came.clear();
      return true;
    }
    const names = new Set(held.map(heldKeyName));
    for (const name of this.#came.keys()) if (!names.has(name)) this.#came.delete(name);
    for (const name of names) if (!this.#came.has(name)) this.#came.set(name, now);
    return false;
  }

  /** At a start there may be no complete index yet. A walk makes one at once; without a console there is no hurry. */
  async #holdLater(): Promise<void> {
    try {
      await pause(HOLD_LATER_MS, undefined, { ref: false, signal: this.#stop.signal });
      await this.#means.usage.catchUp();
    } catch {
      // It was stopped, or cannot be read now: the next walk and the next configuration try again.
      return;
    }
    this.#hold(this.#means.snapshot());
  }

  /** Writes what changes about held keys, to the journal too, after what is to be forgotten. */
  #write(hold: (db: Database.Database) => KeyHeldLine[]): boolean {
    const { database, usage, clock } = this.#means;
    const changed = database.ask((db) => {
      const names = [...this.#forgotten];
      const forgotten = names.flatMap((gateway) => forgetConsole(db, gateway, clock.now(), false));
      return [...forgotten, ...hold(db)];
    });
    if (changed === null) return false;
    this.#forgotten.clear();
    for (const line of changed) usage.append(line);
    return true;
  }

  status(): ConsoleStatus[] {
    // Should the log have been out of reach when the keys came.
    this.#hold(this.#means.snapshot());
    return [...this.#all().map((watch) => watch.status()), ...this.#forsaken()];
  }

  report(): MirrorReport[] {
    const forsaken = this.#forsaken().map((status) => ({
      ...status,
      ...NOTHING_STORED,
      account: null,
      blind: [],
    }));
    return [...this.#all().map((watch) => watch.report()), ...forsaken];
  }

  /** An alarm does not end because its console is taken out of config.yaml. */
  #forsaken(): ConsoleStatus[] {
    const loud = { skew: 0, quiet: () => false };
    const found = this.#means.database.ask((db) =>
      gatewaysIn(db)
        .filter((name) => !this.#watches.has(name))
        .map((name) => ({ name, alarms: readAlarms(db, name, loud) })),
    );
    return (found ?? [])
      .filter(({ alarms }) => alarms.length > 0)
      .map(({ name, alarms }) => forsakenStatus(name, alarms));
  }

  async keys(): Promise<KeysAnswer> {
    await Promise.all(this.#all().map((watch) => watch.freshFacts()));
    const snapshot = this.#means.snapshot();
    const answers = this.#all().map((watch) =>
      keysAnswer(watch.status(), watch.facts, holdersOf(watch.gateway.name, snapshot)),
    );
    return {
      keys: answers.flatMap(({ keys }) => keys),
      problems: answers.flatMap(({ problems }) => problems),
    };
  }

  factsOf(tool: Tool): ToolConsoleFacts | null {
    const facts = this.#watches.get(tool.gateway)?.watch.facts ?? null;
    return facts === null ? null : toolFacts(tool.name, facts, this.#means.snapshot());
  }

  sync(gateway: string): ConsoleStatus | null {
    const watch = this.#watches.get(gateway)?.watch;
    if (watch === undefined) return null;
    void watch.sync();
    return watch.status();
  }

  diff(): ComparedRow[] {
    const { database } = this.#means;
    return this.#all().flatMap(
      (watch) => database.ask((db) => listDiff(db, watch.gateway.name, diffOptions(watch))) ?? [],
    );
  }

  *diffSteps(db: Database.Database): Generator<undefined, ComparedRow[]> {
    const found: ComparedRow[] = [];
    for (const watch of this.#all())
      found.push(...(yield* listDiffInSteps(db, watch.gateway.name, diffOptions(watch))));
    return found;
  }

  compared(what: string): ComparedRow[] {
    const skewOf = (gateway: string) => this.#watches.get(gateway)?.watch.skew ?? 0;
    return this.#means.database.ask((db) => findCompared(db, what, skewOf)) ?? [];
  }

  *days(db: Database.Database, days: readonly Day[]): Generator<undefined, VerdictDay[]> {
    const found: VerdictDay[] = [];
    for (const watch of this.#all()) {
      const means = { skew: watch.skew, quiet: (key: string) => watch.isQuiet(key) };
      found.push(...(yield* readDays(db, watch.gateway.name, days, means)));
    }
    return found;
  }

  async login(gateway: string, account: string | null, asked: LoginRequest): Promise<LoginAnswer | null> {
    const entry = this.#watches.get(gateway);
    if (entry === undefined) return null;
    const answer = await this.#logins.login(entry.watch.gateway, account, asked);
    if (answer.state === "done") {
      this.#means.log.info({ gateway }, "somebody logged in at the console");
      entry.watch.change(entry.watch.gateway, true);
    }
    return answer;
  }

  acknowledge({ gateway, key, certain, last_at, count: seen }: Heard, peer: string): number | null {
    const { database, usage, clock, log } = this.#means;
    // Shown by our clock, stored by the console's.
    const skew = gateway === null ? 0 : (this.#watches.get(gateway)?.watch.skew ?? 0);
    const until = last_at === null ? null : last_at + skew;
    const shown = { gateway, key, certain, until, count: seen };
    const lines = database.ask((db) => acknowledge(db, shown, clock.now()));
    if (lines === null) return null;
    for (const line of lines) usage.append(line);
    const count = lines.length;
    if (count > 0) log.warn({ gateway, fingerprint: key, count, peer }, "the alarm was acknowledged");
    return count;
  }

  forget(gateway: string): void {
    this.#forgotten.add(gateway);
    // At another gateway they are held only from now on.
    this.#came.clear();
    this.#write(() => []);
  }

  compareAgain(): void {
    for (const watch of this.#all()) {
      this.#means.database.ask((db) => touchFrom(db, watch.gateway.name, 0));
      void watch.compareAgain();
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#all().map((watch) => watch.stop()));
  }

  #all(): GatewayWatch[] {
    return [...this.#watches.values()].map(({ watch }) => watch);
  }
}

function diffOptions(watch: GatewayWatch): DiffOptions {
  return { max: MAX_DIFFERENCES, skew: watch.skew, quiet: (key) => watch.isQuiet(key) };
}
