import { describeSource } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import { type Finding, type Granted, isSameHold, isSameSource, isSameState, unavailable } from "./finding.ts";
import type { ReadDeps } from "./read.ts";
import { RetiredKeys } from "./retired-keys.ts";
import { atMost, createRuns, newStop, type Runs } from "./runs.ts";
import type { Held, Subject, Trust } from "./trust.ts";
import { plain } from "./words.ts";

/** What one tool needs. */
export interface Want extends Subject {
  /** Names of variables that a command must not see: they hold keys of other tools. Default none. */
  readonly withhold?: readonly string[] | undefined;
  /** Where keybearer keeps its state: no file: there is a key. Default nowhere. */
  readonly notKeys?: readonly string[] | undefined;
  /** It is a password and not a key. Default false. */
  readonly password?: boolean | undefined;
}

/**
 * The keys of all tools. States belong to the wants they were read for: pair them with that configuration and no
 * other, and settle the trust before they are used.
 */
export interface Keyring {
  /**
   * Reads every source. What is not there after `patience` milliseconds is answered with what the tool had, or as
   * unavailable; `onLate` is called when it arrives. A newer call supersedes this one.
   */
  resolve(wants: readonly Want[], patience: number): Promise<ReadonlyMap<string, KeyState>>;
  /** The states for the wants of the newest resolve. */
  current(): ReadonlyMap<string, KeyState>;
  /** For a key the gateway refused: reads it again, at most once a minute. True when the state changed. */
  reread(tool: string): Promise<boolean>;
  /** A key file changed: only its tools are read again, so that no vault is asked for nothing. */
  rereadFile(path: string): Promise<void>;
  /** A person said yes. With `seen`, only to exactly that: config.yaml may have changed while they thought. */
  grant(tool: string, seen?: Held): Promise<Granted>;
  /** Every key that may be in use, also by requests under way, for a log to blot. Another list only when they changed. */
  secrets(): readonly Secret[];
  /** By tool, what a person should mend although the key works. */
  warnings(): ReadonlyMap<string, string>;
  /** Ends the commands that still run: nobody would hold them to their time any more. */
  close(): void;
}

export interface KeyringOptions extends Pick<ReadDeps, "as"> {
  readonly trust: Trust;
  /** Where env: looks, and what commands inherit. */
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  /** A key arrived after its resolve had answered: take `current()`. */
  readonly onLate: () => void;
  /** Milliseconds a command or a file may take. Default 10 s. */
  readonly limit?: number;
}

interface Entry {
  readonly want: Want;
  finding: Finding;
}

interface Reread {
  readonly at: number;
  flight: Promise<boolean> | null;
}

const REREAD_EVERY = 60_000;

export function createKeyring(options: KeyringOptions): Keyring {
  return new SourceKeyring(options);
}

class SourceKeyring implements Keyring {
  readonly #options: KeyringOptions;
  readonly #runs: Runs = createRuns();
  readonly #rereads = new Map<string, Reread>();
  readonly #retired = new RetiredKeys();
  #entries: ReadonlyMap<string, Entry> = new Map();
  #superseded = newStop();
  #lateToTell = false;
  #secrets: readonly Secret[] | null = null;

  constructor(options: KeyringOptions) {
    this.#options = options;
  }

  async resolve(wants: readonly Want[], patience: number): Promise<ReadonlyMap<string, KeyState>> {
    const before = this.#entries;
    const entries = new Map(wants.map((want) => [want.name, this.#entryFor(want, before.get(want.name))]));
    this.#replaceEntries(entries);
    const older = this.#superseded;
    this.#superseded = newStop();
    let answered = false;
    const jobs = [...entries.values()].map(async (entry) => {
      if (entry.want.source.kind === "literal") return;
      const changed = await this.#refresh(entry, () => true);
      if (answered && changed) this.#tellLate();
    });
    // Only now: a command that both want goes on running, and nobody is asked for their finger twice.
    older.abort();
    await atMost(Promise.all(jobs), patience);
    answered = true;
    return statesOf(entries);
  }

  current(): ReadonlyMap<string, KeyState> {
    return statesOf(this.#entries);
  }

  reread(tool: string): Promise<boolean> {
    const last = this.#rereads.get(tool);
    if (last !== undefined && last.flight !== null) return last.flight;
    const now = this.#options.clock.elapsed();
    const entry = this.#entries.get(tool);
    const tooSoon = last !== undefined && now - last.at < REREAD_EVERY;
    if (entry === undefined || tooSoon) return Promise.resolve(false);
    // A vault that is locked just now must not take away a key that may work: nothing would read it again.
    const flight = this.#refresh(
      entry,
      (found, had) => found.state !== "unavailable" || had.state !== "ready",
    );
    const reread: Reread = { at: now, flight };
    this.#rereads.set(tool, reread);
    return flight.finally(() => {
      reread.flight = null;
    });
  }

  async rereadFile(path: string): Promise<void> {
    const isThere = ({ source }: Want) => source.kind === "file" && source.path === path;
    const entries = [...this.#entries.values()].filter(({ want }) => isThere(want));
    await Promise.all(entries.map((entry) => this.#refresh(entry, () => true)));
  }

  async grant(tool: string, seen?: Held): Promise<Granted> {
    const entry = this.#entries.get(tool);
    if (entry === undefined) return { ok: false, reason: `there is no ${tool} in config.yaml` };
    const { state, key } = entry.finding;
    if (state.state !== "needs-trust") return { ok: false, reason: `nothing of ${tool} waits for trust` };
    if (seen !== undefined && !isSameHold(seen, state)) {
      return {
        ok: false,
        reason: `what waits changed meanwhile: keybearer trust ${tool} shows it as it is now`,
      };
    }
    this.#options.trust.grant(entry.want, key);
    // The key that was shown is the one that is used; only a source that was held is read now.
    if (key === null) await this.#refresh(entry, () => true);
    else this.#put(entry, this.#judged(entry.want, key, entry.finding.warning));
    const { problem } = await this.#options.trust.settle();
    const now =
      this.#entries.get(tool)?.finding.state ?? unavailable(`${tool} is no longer in config.yaml`).state;
    return { ok: true, granted: `${state.what}: ${state.from} → ${state.to}`, state: now, problem };
  }

  secrets(): readonly Secret[] {
    this.#secrets ??= [...this.#entries.values()]
      .flatMap(({ finding }) => finding.key ?? [])
      .concat(this.#retired.all());
    return this.#secrets;
  }

  warnings(): ReadonlyMap<string, string> {
    const found = [...this.#entries].flatMap(([name, { finding }]) =>
      finding.warning === null ? [] : [[name, finding.warning] as const],
    );
    return new Map(found);
  }

  close(): void {
    this.#superseded.abort();
  }

  /** Reads an entry's source and keeps what comes, if it may. True when that changed the tool's state. */
  async #refresh(entry: Entry, may: (found: KeyState, had: KeyState) => boolean): Promise<boolean> {
    const had = entry.finding.state;
    const found = await this.#find(entry);
    if (found === null || !may(found.state, had)) return false;
    this.#put(entry, found);
    return !isSameState(had, found.state);
  }

  /** null: the entry was superseded meanwhile. */
  async #find(entry: Entry): Promise<Finding | null> {
    const { want } = entry;
    const { trust, env, limit, as } = this.#options;
    const held = trust.judgeSource(want);
    if (held !== null) return { state: { state: "needs-trust", ...held }, key: null, warning: null };
    const { signal } = this.#superseded;
    const reading = await this.#runs.read(want.source, { ...want, env, limit, as, signal });
    // Before the key is judged: its first use must not be pinned to where an older configuration sent it.
    if (this.#entries.get(want.name) !== entry) return null;
    if (reading.ok) return this.#judged(want, reading.key, reading.warning);
    // keybearer was replaced while it runs: what it has read before holds until it is started again.
    if (reading.unasked && entry.finding.key !== null) return { ...entry.finding, warning: reading.reason };
    return unavailable(reading.reason, reading.absent);
  }

  #judged(want: Want, key: Secret, warning: string | null): Finding {
    const held = this.#options.trust.judgeKey(want, key);
    return {
      state: held === null ? { state: "ready", key } : { state: "needs-trust", ...held },
      key,
      warning,
    };
  }

  /** Until its source is read, a tool goes on with the key it had, if that may go where the tool goes now. */
  #entryFor(want: Want, before: Entry | undefined): Entry {
    const { source } = want;
    // There is nothing to wait for, and a thousand of them should not take the time of a thousand turns.
    if (source.kind === "literal") return { want, finding: this.#judged(want, source.secret, null) };
    if (before === undefined || !isSameSource(before.want.source, source)) {
      return {
        want,
        finding: unavailable(`${plain(describeSource(source))} is still being read: try again in a moment`),
      };
    }
    const { key, warning } = before.finding;
    return { want, finding: key === null ? before.finding : this.#judged(want, key, warning) };
  }

  #replaceEntries(entries: ReadonlyMap<string, Entry>): void {
    for (const [name, { finding }] of this.#entries) {
      this.#retired.add(finding.key, entries.get(name)?.finding.key);
    }
    for (const name of this.#rereads.keys()) if (!entries.has(name)) this.#rereads.delete(name);
    this.#entries = entries;
    this.#secrets = null;
  }

  #put(entry: Entry, finding: Finding): void {
    this.#retired.add(entry.finding.key, finding.key);
    entry.finding = finding;
    this.#secrets = null;
  }

  /** Many late keys at once are one piece of news. */
  #tellLate(): void {
    if (this.#lateToTell) return;
    this.#lateToTell = true;
    setImmediate(() => {
      this.#lateToTell = false;
      this.#options.onLate();
    });
  }
}

function statesOf(entries: ReadonlyMap<string, Entry>): ReadonlyMap<string, KeyState> {
  return new Map([...entries].map(([name, { finding }]) => [name, finding.state]));
}
