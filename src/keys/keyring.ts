import { setMaxListeners } from "node:events";
import { isDeepStrictEqual } from "node:util";
import { describeSource, isSameSource, type KeySource } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import { escapeControlChars, type Failed, failed, type Problem, withNext } from "../core/display.ts";
import { Secret } from "../core/secret.ts";
import { Semaphore } from "../core/semaphore.ts";
import { withTimeout } from "../core/timeout.ts";
import { MINUTE_MS } from "../core/units.ts";
import { STOPPED } from "./keychain.ts";
import { type KeyReading, type ReadDeps, readKey } from "./sources.ts";
import type { KeyPlace } from "./stored-keys.ts";
import { listOrigins, type Subject, type Trust, UNKNOWN, type UntrustedChange } from "./trust.ts";

/** One key, or one secret of a console, that a configuration needs. */
export interface WantedKey extends Subject {
  /** Where config.yaml sets it, such as tools.codex.key. */
  readonly path: string;
  /** Variables that a command must not see, because they hold keys of other tools. Default none. */
  readonly withhold?: readonly string[] | undefined;
  /** keybearer's own files and folders: no file: there is a key. Default none. */
  readonly notKeys?: readonly string[] | undefined;
  /** It is a password and not a key. Default false. */
  readonly password?: boolean | undefined;
}

interface KeyringDeps {
  readonly trust: Trust;
  /** For env: and for commands. */
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  /** A key arrived after resolve() had returned: take `current()`. */
  readonly onLate: () => void;
  /** Milliseconds that one source may take. Default 10 s. */
  readonly limit?: number;
}

export interface KeyWarning {
  readonly name: string;
  /** Where config.yaml sets the key. */
  readonly path: string;
  readonly message: string;
}

/** The result of `keybearer trust`. */
type Granted =
  | {
      readonly ok: true;
      /** What was granted, for people. */
      readonly granted: string;
      /** May be needs-trust again: a new command can return a key that is known elsewhere. */
      readonly state: KeyState;
      /** The grant holds, but could not be written to disk. */
      readonly problem: string | null;
    }
  | Failed;

/** Something that waits for confirmation, and the tool or console that it belongs to. */
interface Held extends UntrustedChange {
  readonly name: string;
}

type GrantedAll =
  /** problem: the grant holds, but could not be written to disk. */
  { readonly ok: true; readonly problem: string | null } | Failed;

/** What is known of one key. A key that waits for trust is here, too. */
interface KnownKey {
  readonly state: KeyState;
  readonly key: Secret | null;
  readonly warning: string | null;
}

interface Entry {
  readonly wanted: WantedKey;
  known: KnownKey;
}

interface Reread {
  readonly at: number;
  running: Promise<boolean> | null;
}

const REREAD_EVERY_MS = MINUTE_MS;
/** Replaced keys that are still redacted, because requests in flight use them. */
const MAX_RETIRED = 64;

/**
 * The keys of all tools. States belong to the keys they were read for: use them with that configuration and no other, and
 * settle the trust before.
 */
export class Keyring {
  readonly #deps: KeyringDeps;
  readonly #reads = new SharedReads();
  readonly #rereads = new Map<string, Reread>();
  #entries: ReadonlyMap<string, Entry> = new Map();
  #retired: readonly Secret[] = [];
  #superseded = newAbortController();
  #isLateScheduled = false;
  #secrets: readonly Secret[] | null = null;

  constructor(deps: KeyringDeps) {
    this.#deps = deps;
  }

  /**
   * Reads every source. A source that takes longer than `timeoutMs` has the tool's last state, or is
   * unavailable; `onLate` is called when it arrives. A newer call supersedes this one.
   */
  async resolve(wantedKeys: readonly WantedKey[], timeoutMs: number): Promise<ReadonlyMap<string, KeyState>> {
    const before = this.#entries;
    const entries = new Map(
      wantedKeys.map((wanted) => [wanted.name, this.#entryFor(wanted, before.get(wanted.name))]),
    );
    this.#replaceEntries(entries);
    const older = this.#superseded;
    this.#superseded = newAbortController();
    let hasReturned = false;
    const reads = [...entries.values()].map(async (entry) => {
      if (entry.wanted.source.kind === "literal") return;
      const changed = await this.#refresh(entry);
      if (hasReturned && changed) this.#scheduleLate();
    });
    // Only now, so that a command that both need goes on running and does not ask for a fingerprint twice.
    older.abort();
    await withTimeout(Promise.all(reads), timeoutMs, null);
    hasReturned = true;
    return listStates(entries);
  }

  /** The states for the keys of the newest resolve(). */
  current(): ReadonlyMap<string, KeyState> {
    return listStates(this.#entries);
  }

  /** For a key that the gateway refused: reads it again, at most once a minute. True if the state changed. */
  async reread(name: string): Promise<boolean> {
    const last = this.#rereads.get(name);
    if (last !== undefined && last.running !== null) return last.running;
    const now = this.#deps.clock.elapsed();
    const entry = this.#entries.get(name);
    const isTooSoon = last !== undefined && now - last.at < REREAD_EVERY_MS;
    if (entry === undefined || isTooSoon) return false;
    const running = this.#refresh(entry, { keepReady: true });
    const reread: Reread = { at: now, running };
    this.#rereads.set(name, reread);
    try {
      return await running;
    } finally {
      reread.running = null;
    }
  }

  /** Reads only the keys at this place again, so that no keychain is asked without need. */
  async rereadAt(place: KeyPlace): Promise<void> {
    const entries = [...this.#entries.values()].filter(({ wanted }) =>
      isDeepStrictEqual(wanted.source, place),
    );
    await Promise.all(entries.map((entry) => this.#refresh(entry)));
  }

  /** A person confirmed it. With `seen`, only exactly that: config.yaml may have changed while they thought. */
  async grant(name: string, seen?: UntrustedChange): Promise<Granted> {
    const entry = this.#entries.get(name);
    if (entry === undefined) return failed(`there is no ${name} in config.yaml`);
    const { state, key } = entry.known;
    if (state.state !== "needs-trust") return failed(`nothing of ${name} is held`);
    if (seen !== undefined && !isSameChange(seen, state)) {
      return failed("config.yaml changed again in the meantime", TYPE_AGAIN);
    }
    this.#deps.trust.grant(withOrigin(entry.wanted, key), key);
    // The key that was shown is the one that is used. Only a source that waited for trust is read now.
    if (key === null) await this.#refresh(entry);
    else this.#put(entry, this.#judge(entry.wanted, key, entry.known.warning));
    const { problem } = await this.#deps.trust.settle();
    const now =
      this.#entries.get(name)?.known.state ??
      unavailable(failed(`${name} is no longer in config.yaml`)).state;
    return { ok: true, granted: `${state.what}: ${state.from} → ${state.to}`, state: now, problem };
  }

  /**
   * Everything that a person can confirm at once. After the pins were lost that includes the keys that cannot be read now:
   * they may go only where this says.
   */
  held(): readonly Held[] {
    const held: Held[] = [];
    for (const [name, { wanted, known }] of this.#entries) {
      if (known.state.state === "needs-trust") {
        const { what, from, to } = known.state;
        held.push({ name, what, from, to });
      } else if (this.#deps.trust.isLost && known.key === null) {
        const what = wanted.secret ?? `the key of ${escapeControlChars(name)}, which cannot be read now`;
        const to = listOrigins(wanted).map(escapeControlChars).join(", ") || "where it leads";
        held.push({ name, what, from: UNKNOWN, to });
      }
    }
    return held;
  }

  /** A person confirmed exactly this list. */
  async grantAll(seen: readonly Held[]): Promise<GrantedAll> {
    const held = this.held();
    if (!isDeepStrictEqual(seen, held)) {
      return failed("config.yaml changed in the meantime", TYPE_AGAIN);
    }
    const entries = held.flatMap(({ name }) => this.#entries.get(name) ?? []);
    for (const { wanted, known } of entries) this.#deps.trust.grant(withOrigin(wanted, known.key), known.key);
    this.#deps.trust.endLoss();
    for (const entry of entries) {
      const { key, warning } = entry.known;
      if (key === null) await this.#refresh(entry);
      else this.#put(entry, this.#judge(entry.wanted, key, warning));
    }
    const { problem } = await this.#deps.trust.settle();
    return { ok: true, problem };
  }

  /** Every key that may be in use, also by requests in flight, for redaction. A new list only when they changed. */
  secrets(): readonly Secret[] {
    this.#secrets ??= [...this.#entries.values()]
      .flatMap(({ known }) => known.key ?? [])
      .concat(this.#retired);
    return this.#secrets;
  }

  /** What a person should correct although the key works. */
  warnings(): readonly KeyWarning[] {
    return [...this.#entries.values()].flatMap(({ wanted: { name, path }, known: { warning } }) =>
      warning === null ? [] : [{ name, path, message: warning }],
    );
  }

  /** Ends the commands that still run. */
  close(): void {
    this.#superseded.abort();
  }

  /**
   * Reads an entry's source. True if that changed the state. keepReady: a keychain that is locked at the moment must not
   * remove a key that may work, because nothing would read it again.
   */
  async #refresh(entry: Entry, { keepReady = false } = {}): Promise<boolean> {
    const before = entry.known.state;
    const found = await this.#find(entry);
    if (found === null) return false;
    if (keepReady && before.state === "ready" && found.state.state === "unavailable") return false;
    this.#put(entry, found);
    return !isSameState(before, found.state);
  }

  /** null: the entry was superseded meanwhile. */
  async #find(entry: Entry): Promise<KnownKey | null> {
    const { wanted } = entry;
    const { trust, env, limit } = this.#deps;
    const untrusted = trust.judgeSource(wanted);
    if (untrusted !== null)
      return { state: { state: "needs-trust", ...untrusted }, key: null, warning: null };
    if (wanted.isReceiver) return { state: RECEIVER, key: null, warning: null };
    const { signal } = this.#superseded;
    const reading = await this.#reads.read(wanted.source, { ...wanted, env, limit, signal });
    // Before the key is judged: its first use must not be pinned to where an older configuration sent it.
    if (this.#entries.get(wanted.name) !== entry) return null;
    if (reading.ok) return this.#judge(wanted, reading.key, reading.warning);
    // keybearer was replaced while it runs. The key that was read before holds until the restart.
    if (reading.unasked && entry.known.key !== null) return { ...entry.known, warning: withNext(reading) };
    return unavailable(reading);
  }

  #judge(wanted: WantedKey, key: Secret, warning: string | null): KnownKey {
    const untrusted = this.#deps.trust.judgeKey(withOrigin(wanted, key), key);
    const state: KeyState =
      untrusted === null ? { state: "ready", key } : { state: "needs-trust", ...untrusted };
    return { state, key, warning };
  }

  /** Until its source is read, a tool keeps the key it had, if that may go where the tool goes now. */
  #entryFor(wanted: WantedKey, before: Entry | undefined): Entry {
    const { source } = wanted;
    if (source.kind === "literal") return { wanted, known: this.#judge(wanted, source.secret, null) };
    if (before === undefined || !isSameSource(before.wanted.source, source)) {
      const shown = escapeControlChars(describeSource(source));
      return { wanted, known: unavailable(failed(`${shown} is still being read`, "try again in a moment")) };
    }
    const { key, warning } = before.known;
    return { wanted, known: key === null ? before.known : this.#judge(wanted, key, warning) };
  }

  #replaceEntries(entries: ReadonlyMap<string, Entry>): void {
    for (const [name, { known }] of this.#entries) this.#retire(known.key, entries.get(name)?.known.key);
    for (const name of this.#rereads.keys()) if (!entries.has(name)) this.#rereads.delete(name);
    this.#entries = entries;
    this.#secrets = null;
  }

  #put(entry: Entry, known: KnownKey): void {
    this.#retire(entry.known.key, known.key);
    entry.known = known;
    this.#secrets = null;
  }

  #retire(key: Secret | null, successor: Secret | null | undefined): void {
    if (key === null || successor?.equals(key)) return;
    this.#retired = [...this.#retired.slice(1 - MAX_RETIRED), key];
  }

  /** Many late keys at once are one notice. */
  #scheduleLate(): void {
    if (this.#isLateScheduled) return;
    this.#isLateScheduled = true;
    setImmediate(() => {
      this.#isLateScheduled = false;
      this.#deps.onLate();
    });
  }
}

/** A program that only gets something, and may run. There is no key of it. */
const RECEIVER: KeyState = Object.freeze({ state: "ready", key: new Secret("") });

/** With where it leads, if it is an address. */
function withOrigin(wanted: WantedKey, key: Secret | null): WantedKey {
  const origin = wanted.isAddress ? (key?.origin() ?? null) : null;
  return origin === null ? wanted : { ...wanted, origins: [origin, ...wanted.origins] };
}

const TYPE_AGAIN = "type the command again to see what is held now";

function unavailable({ problem, next, absent = false }: Problem & { readonly absent?: boolean }): KnownKey {
  return { state: { state: "unavailable", problem, absent, next }, key: null, warning: null };
}

function listStates(entries: ReadonlyMap<string, Entry>): ReadonlyMap<string, KeyState> {
  return new Map([...entries].map(([name, { known }]) => [name, known.state]));
}

function isSameState(one: KeyState, other: KeyState): boolean {
  if (one.state === "ready") return other.state === "ready" && one.key.equals(other.key);
  if (one.state === "unavailable") return other.state === "unavailable" && one.problem === other.problem;
  return other.state === "needs-trust" && isSameChange(one, other);
}

function isSameChange(one: UntrustedChange, other: UntrustedChange): boolean {
  return one.what === other.what && one.from === other.from && one.to === other.to;
}

/** All reads of a configuration listen to one signal, so many listeners are no leak. */
function newAbortController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/** Enough to ask every vault at the same time, too few for a long list of tools to overload the machine. */
const MAX_COMMANDS = 16;
const MAX_FILES = 16;
/** Each is a Node process, and more at once are not finished sooner. */
const MAX_KEYCHAINS = 4;

interface SharedRead {
  readonly reading: Promise<KeyReading>;
  readonly controller: AbortController;
  users: number;
}

/** Reads sources, a limited number at once. All who need the same command or keychain entry share one read. */
class SharedReads {
  readonly #running = new Map<string, SharedRead>();
  /** One for each kind, so that a file does not wait behind commands that wait for a fingerprint. */
  readonly #commands = new Semaphore(MAX_COMMANDS);
  readonly #files = new Semaphore(MAX_FILES);
  readonly #keychains = new Semaphore(MAX_KEYCHAINS);

  async read(source: KeySource, deps: ReadDeps & { readonly signal: AbortSignal }): Promise<KeyReading> {
    if (source.kind === "file" || source.kind === "credential")
      return this.#files.run(() => readKey(source, deps));
    if (source.kind === "literal" || source.kind === "env") return readKey(source, deps);
    const id = readId(source, deps);
    const shared = this.#running.get(id) ?? this.#start(id, source, deps);
    shared.users += 1;
    return unlessAborted(shared.reading, deps.signal, () => {
      shared.users -= 1;
      if (shared.users > 0) return;
      // Removed first: a later caller must not join a read that is being ended.
      if (this.#running.get(id) === shared) this.#running.delete(id);
      shared.controller.abort();
    });
  }

  #start(id: string, source: KeySource, deps: ReadDeps): SharedRead {
    const controller = new AbortController();
    const semaphore = source.kind === "keychain" ? this.#keychains : this.#commands;
    const reading = semaphore
      .run(() => readKey(source, { ...deps, signal: controller.signal }))
      .finally(() => {
        if (this.#running.get(id) === shared) this.#running.delete(id);
      });
    const shared: SharedRead = { reading, controller, users: 0 };
    this.#running.set(id, shared);
    return shared;
  }
}

/** Two reads with the same id are the same. A password is checked by other rules than a key. */
function readId(source: KeySource, { withhold = [], password = false }: ReadDeps): string {
  // The keychain sees no variables at all.
  const withheld = source.kind === "keychain" ? [] : withhold.toSorted();
  return JSON.stringify([source, withheld, password]);
}

/** The reading, or a refusal as soon as the signal is aborted. */
async function unlessAborted(
  reading: Promise<KeyReading>,
  signal: AbortSignal,
  onAborted: () => void,
): Promise<KeyReading> {
  let onAbort = () => {};
  const aborted = new Promise<KeyReading>((done) => {
    onAbort = () => {
      onAborted();
      done(failed(STOPPED));
    };
  });
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([reading, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
