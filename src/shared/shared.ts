import { isDeepStrictEqual } from "node:util";
import type { Shared as SharedConfig, Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { findZone } from "../config/values.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Problem } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { machineName } from "../core/machine-name.ts";
import type { Secret } from "../core/secret.ts";
import type { Ticker } from "../core/ticker.ts";
import type { Level } from "../limits/counters.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Sibling } from "../mirror/reconcile/siblings.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { zoneCalendar } from "./calendar.ts";
import { StoreError } from "./connection.ts";
import { type MachinePart, SharedLimiter } from "./limits.ts";
import { RecordPublisher } from "./records-publisher.ts";
import { type PublishingMachine, RecordSubscriber } from "./records-subscriber.ts";
import { HEARTBEAT_TIMEOUT_MS } from "./scripts.ts";
import { Signer } from "./signature.ts";
import { type KnownSibling, type RotatedKey, StateFile } from "./state-file.ts";
import {
  SHORT_SECRET,
  type SharedMachine,
  type SharedStatus,
  UNKNOWN_TIMEZONE,
  unusableSecret,
} from "./status.ts";
import { type Machine, STOPPED, Store } from "./store.ts";

interface SharedDeps {
  /** state/shared.json */
  readonly file: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly limiter: Limiter;
  readonly snapshot: () => Snapshot;
  /** A function, because the usage log is opened after this. */
  readonly usage: () => Pick<UsageLog, "journal" | "read" | "catchUp">;
  readonly journalFolder: string;
  /** Cuts the requests of a tool that are in flight. Returns how many there were. */
  readonly cut: (tool: string) => number;
}

/** This machine's part in limits and records across machines, while config.yaml has `shared`. */
export class Shared {
  readonly #deps: SharedDeps;
  readonly #file: StateFile;
  #session: Session | null = null;
  /** What the session was made from. */
  #settings: SessionSettings | null = null;
  #lastChange: Promise<void> = Promise.resolve();
  #isStopped = false;
  readonly #endTicks: () => void;

  constructor(deps: SharedDeps) {
    this.#deps = deps;
    this.#file = new StateFile(deps.file);
    this.#endTicks = deps.ticker.every(1, () => this.#session?.tick());
    this.change(deps.snapshot());
  }

  /** Follows a new configuration. From the moment this returns, shared tools take nothing that was not granted. */
  change(snapshot: Snapshot): void {
    const settings = readSettings(snapshot);
    if (this.#isStopped || isSame(settings, this.#settings)) return;
    const old = this.#session;
    old?.limits.retire();
    this.#settings = settings;
    this.#session =
      settings === null ? null : new Session(settings, this.#deps, this.#file, old?.limits ?? null);
    const session = this.#session;
    this.#deps.limiter.followGrants((tool) => session?.limits.granterFor(tool) ?? null);
    this.#lastChange = this.#lastChange.then(() => this.#replace(old, session));
  }

  async #replace(old: Session | null, session: Session | null): Promise<void> {
    try {
      await old?.stop(false);
      await session?.start();
    } catch (error) {
      this.#deps.log.error({ err: error }, "applying a change of `shared` failed");
    }
  }

  /** null: nothing is shared. */
  status(): SharedStatus | null {
    return this.#session?.status() ?? null;
  }

  /** The other machines, and how much of their records is here. */
  siblings(): readonly Sibling[] {
    return this.#session?.siblings() ?? [];
  }

  /** The names of the other machines that use the key with this fingerprint. */
  findUsers(key: string): string[] {
    const users = this.siblings().filter(({ keys }) => keys.includes(key));
    return [...new Set(users.map(({ name }) => name))];
  }

  /** Notifies the other machines that a key which they use was rotated here, and is deleted. */
  async noteRotated(rotated: RotatedKey): Promise<void> {
    await this.#file.noteRotated(rotated, this.#deps.clock.now());
    await this.refresh();
  }

  /** The keys that other machines rotated and deleted, by their signed message. */
  rotatedElsewhere(): readonly RotatedElsewhere[] {
    return this.#session?.rotatedElsewhere() ?? [];
  }

  /** Brings what is known of the other machines up to date, if the store answers. */
  async refresh(): Promise<void> {
    await this.#session?.limits.refresh();
  }

  /** What each machine used of a tool's limit and was granted, this one first. Empty: the limit is not shared. */
  listParts(tool: string, level: Level): readonly MachinePart[] {
    return this.#session?.limits.listParts(tool, level) ?? [];
  }

  /** The owner says that another machine is lost: what it holds of a tool's limits can be granted again. */
  async release(tool: Tool, machine: string): Promise<ReleaseResult> {
    if (this.#session === null || !tool.shared) return "not shared";
    return await this.#session.release(tool, machine);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#endTicks();
    await this.#lastChange;
    await this.#session?.stop(true);
  }
}

interface RotatedElsewhere extends RotatedKey {
  /** The name of the machine that says so. */
  readonly machine: string;
}

export type ReleaseResult = "released" | "unknown" | "present" | "unreachable" | "not shared";

/** What a session is made from. If it changes, there is a new session. */
interface SessionSettings {
  readonly config: SharedConfig;
  /** null: config.yaml has none, and this machine's has no name. */
  readonly timezone: string | null;
  readonly password: Secret | null;
  readonly secret: Secret | null;
  /** Why this machine cannot take part, and what to do; null: it can. */
  readonly unusable: Problem | null;
}

function readSettings(snapshot: Snapshot): SessionSettings | null {
  const { shared } = snapshot.config;
  if (shared === null) return null;
  const state = snapshot.sharedPassword();
  const password = state?.state === "ready" ? state.key : null;
  const timezone = shared.timezone ?? systemTimezone();
  const secretState = snapshot.sharedSecret();
  const secret = secretState?.state === "ready" ? secretState.key : null;
  const unusable =
    unusableSecret("password", "shared.store.password", state) ??
    unusableSecret("secret", "shared.secret", secretState) ??
    (secret !== null && Signer.of(secret, shared.store.prefix) === null ? SHORT_SECRET : null) ??
    (timezone === null ? UNKNOWN_TIMEZONE : null);
  return { config: shared, timezone, password, secret, unusable };
}

/** null: the system's time zone has no name that others know. */
function systemTimezone(): string | null {
  // Some versions of Node have none for a zone that they do not know.
  return findZone(String(Intl.DateTimeFormat().resolvedOptions().timeZone));
}

function isSame(a: SessionSettings | null, b: SessionSettings | null): boolean {
  if (a === null || b === null) return a === b;
  return (
    isSameSecret(a.password, b.password) &&
    isSameSecret(a.secret, b.secret) &&
    a.timezone === b.timezone &&
    isDeepStrictEqual(a.unusable, b.unusable) &&
    isDeepStrictEqual(a.config, b.config)
  );
}

function isSameSecret(a: Secret | null, b: Secret | null): boolean {
  return a === null || b === null ? a === b : a.equals(b);
}

/** The connection to one store, and everything that goes through it. */
class Session {
  readonly limits: SharedLimiter;
  readonly #settings: SessionSettings;
  readonly #deps: SharedDeps;
  readonly #file: StateFile;
  readonly #store: Store;
  readonly #signer: Signer | null;
  /** Both are null until the journal was read. */
  #publisher: RecordPublisher | null = null;
  #subscriber: RecordSubscriber | null = null;
  /** The identity is on disk. Only the journal must be read before the first connection. */
  #waitsForJournal = false;
  /** The disk refused the identity of this machine. */
  #mustStartAgain = false;
  /** null: no exchange of records is in flight. */
  #exchange: Promise<void> | null = null;
  /** This machine leaves, and has published everything. */
  #hasFinished = false;

  constructor(settings: SessionSettings, deps: SharedDeps, file: StateFile, before: SharedLimiter | null) {
    const { config, password, secret } = settings;
    const { clock, log, limiter, snapshot, cut } = deps;
    const timezone = settings.timezone ?? "UTC";
    const machine = machineName(config.machine);
    this.#settings = settings;
    this.#deps = deps;
    this.#file = file;
    this.#signer = secret === null ? null : Signer.of(secret, config.store.prefix);
    this.#store = new Store({
      store: config.store,
      password,
      signer: this.#signer,
      timezone,
      file,
      machine,
      clock,
      log,
      onConnect: () => {
        this.#publisher?.reset();
        this.limits.connected();
      },
      onFailure: () => this.limits.disconnected(),
      onForfeited: () => this.limits.forfeit(),
    });
    const limits = {
      store: this.#store,
      limiter,
      tools: () => snapshot().config.tools,
      calendar: zoneCalendar(timezone),
      clock,
      log,
      address: config.store.url,
      machine: { id: () => file.id, name: machine },
      whenUnreachable: config.whenUnreachable,
      presence: () => ({
        published: this.#published(),
        keys: listKeys(snapshot()),
        rotated: file.rotated(clock.now()),
      }),
      onAnswer: () => {
        this.#file.noteAnswer();
        // At once: if the store loses its data, this machine must name the others.
        background(this.#file.learn(this.siblings()), log, "writing down the other machines");
      },
      cut,
    };
    this.limits = new SharedLimiter(limits, before);
  }

  async start(): Promise<void> {
    const { unusable } = this.#settings;
    if (unusable !== null) {
      this.#store.markUnusable(unusable.problem);
      return;
    }
    try {
      // Written first: a machine that forgets who it is leaves what it was granted behind.
      await this.#file.create(this.#store.signerId);
      this.#waitsForJournal = true;
      this.#connect();
    } catch (error) {
      this.#mustStartAgain = true;
      this.#store.markUnusable(`${this.#deps.file} cannot be written: ${errorMessage(error)}`);
    }
  }

  /** Once the limits have read the journal. Until then this machine does not know what it used. */
  #connect(): void {
    if (!this.#waitsForJournal) return;
    const usage = this.#deps.usage();
    const { journal } = usage;
    if (!journal.isRestored) {
      this.#store.markUnusable("the usage log of this machine cannot be read");
      return;
    }
    const { journalFolder, clock, log } = this.#deps;
    const common = { journal, store: this.#store, clock, log };
    this.#waitsForJournal = false;
    this.#publisher = new RecordPublisher({ ...common, journalFolder });
    this.#subscriber = new RecordSubscriber({ ...common, usage, positions: this.#file.positions });
    this.#store.start();
  }

  tick(): void {
    if (this.#mustStartAgain) {
      this.#mustStartAgain = false;
      background(this.start(), this.#deps.log, "taking part in shared limits");
    }
    this.#connect();
    this.limits.tick();
    if (this.#store.generation === null || this.#exchange !== null) return;
    this.#exchange = this.#exchangeRecords().finally(() => {
      this.#exchange = null;
    });
    background(this.#exchange, this.#deps.log, "exchanging records with other machines");
  }

  async #exchangeRecords(): Promise<void> {
    await this.#publisher?.tick();
    await this.#subscriber?.tick(this.#others().map((machine) => this.#publishing(machine)));
  }

  #others(): Machine[] {
    return this.#store.machines.filter(({ id }) => id !== this.#file.id);
  }

  #publishing({ id, name, published, lastEntry, signature }: Machine): PublishingMachine {
    const publishedUntil = published === null ? null : published - this.#store.clock.offset();
    return { id, name, publishedUntil, lastEntry, isVerified: signature === "valid" };
  }

  /** By the store's clock. */
  #published(): number | null {
    if (this.#hasFinished) return STOPPED;
    const until = this.#publisher?.publishedUntil() ?? null;
    return until === null ? null : until + this.#store.clock.offset();
  }

  /** Before the store's first answer: the machines as this one last knew them. */
  siblings(): readonly KnownSibling[] {
    // After an answer, this machine is always in the list.
    if (this.#store.machines.length === 0) return this.#file.known;
    return this.#others()
      .filter(({ isLost }) => !isLost)
      .map((machine) => this.#makeSibling(machine));
  }

  rotatedElsewhere(): readonly RotatedElsewhere[] {
    return this.#others().flatMap(({ name, rotated }) => rotated.map((one) => ({ ...one, machine: name })));
  }

  #makeSibling({ id, name, keys, isStopped, isUnreported, signature }: Machine): KnownSibling {
    const isVerified = signature === "valid";
    const before = this.#file.known.find((one) => one.id === id && one.isVerified === isVerified);
    return {
      id,
      name,
      keys,
      // Before this run has read the machine's stream: the value that an earlier run stored.
      seenUntil: this.#subscriber?.seenUntil(id, isVerified) ?? before?.seenUntil ?? 0,
      // A store that lost its data does not know it until the machine reports.
      isStopped: isStopped || (isUnreported && before?.isStopped === true),
      isVerified,
    };
  }

  status(): SharedStatus {
    const { state, problem, facts, clock, machines, isSettled } = this.#store;
    const tools = Object.values(this.#deps.snapshot().config.tools).filter(({ shared }) => shared);
    return {
      state,
      problem,
      next: this.#settings.unusable?.next ?? null,
      address: this.#settings.config.store.url,
      server: facts?.server ?? null,
      version: facts?.version ?? null,
      append_only: facts?.appendOnly ?? null,
      eviction_policy: facts?.evictionPolicy ?? null,
      clock_offset_ms: Math.round(clock.exactOffset()),
      signs: this.#signer !== null,
      settled: isSettled,
      recovering: machines.filter(({ isUnreported }) => isUnreported).map(({ name }) => name),
      tools: tools.map(({ name }) => name),
      machines: machines.map((machine) => this.#machineStatus(machine)).filter(isListed),
    };
  }

  #machineStatus({ id, name, keys, lastContact, signature, isStopped, isLost }: Machine): SharedMachine {
    const { clock, generation } = this.#store;
    const silentFor = (clock.now() ?? lastContact) - lastContact;
    return {
      name,
      last_contact: Math.round(lastContact - clock.exactOffset()),
      self: id === this.#file.id,
      signature,
      stopped: isStopped,
      // Without a connection, this machine knows nothing of the others.
      silent: generation !== null && !isStopped && silentFor > HEARTBEAT_TIMEOUT_MS,
      lost: isLost,
      keys,
      holds: this.limits.listHolds(id),
    };
  }

  async release(tool: Tool, machine: string): Promise<ReleaseResult> {
    const found = this.#store.machines.filter(({ name }) => name === machine);
    if (found.length === 0) return this.#store.generation === null ? "unreachable" : "unknown";
    const keys = this.limits.keysOf(tool);
    let released: ReleaseResult = "unknown";
    try {
      // A machine that was set up again has the name of the one that is lost.
      for (const { id } of found) {
        const answer = await this.#store.release(id, keys);
        if (answer === "released" || released === "unknown") released = answer;
      }
    } catch (error) {
      if (error instanceof StoreError) return "unreachable";
      throw error;
    }
    await this.limits.refresh();
    return released;
  }

  /** @param isFinal the daemon stops. The others then know that this machine has nothing more to publish. */
  async stop(isFinal: boolean): Promise<void> {
    // First, because the rest may take longer than the daemon waits.
    await this.limits.stop();
    this.#subscriber?.stop();
    if (!isFinal) this.#publisher?.stop();
    // A failure was logged.
    await this.#exchange?.catch(() => {});
    if (isFinal && this.#store.generation !== null) {
      this.#hasFinished = (await this.#publisher?.finish()) ?? false;
      await this.limits.refresh();
    }
    await this.#store.stop();
    await this.#file.flush();
  }
}

/** A machine of which the owner said that it is lost is listed while it holds something. */
function isListed({ lost, holds }: SharedMachine): boolean {
  return !lost || holds.length > 0;
}

/** The fingerprints of the keys that this machine uses. */
function listKeys(snapshot: Snapshot): string[] {
  const states = Object.values(snapshot.config.tools).map((tool) => snapshot.keyOf(tool));
  return [...new Set(states.flatMap((state) => (state.state === "ready" ? [state.key.fingerprint] : [])))];
}
