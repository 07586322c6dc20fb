import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { describeSource, type KeySource } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { errorCode } from "../core/errors.ts";
import { keepDamagedCopy } from "../core/private-file.ts";
import type { Secret } from "../core/secret.ts";
import { originsOf } from "./origins.ts";
import { sourceId, useIds } from "./pin-ids.ts";
import { emptyPins, type Pin, type Pins, pinsIdentity, readPins, type SourcePin, writePins } from "./pins.ts";
import { commandInWords, plain, shellWord } from "./words.ts";

/** One use of a secret: whose, from where, to where. */
export interface Subject {
  /** The tool or gateway, for words. */
  readonly name: string;
  readonly source: KeySource;
  /** Every origin the key may be sent to: base_url's and messages_url's. */
  readonly origins: readonly string[];
  /** keybearer's own folders: a file: inside them needs no pin. */
  readonly home: readonly string[];
  /** How the secret is called where it is no key, and where its last characters must not be shown. */
  readonly secret?: string | undefined;
}

/** Something that waits for a person's yes, in words: old → new. */
export interface Held {
  readonly what: string;
  readonly from: string;
  readonly to: string;
}

export interface Settled {
  readonly problem: string | null;
  /** There is no file yet and none could be written: the next start would trust anything, so no key may be used. */
  readonly hold: boolean;
}

/**
 * Remembers which key belongs where, so that whoever may edit config.yaml cannot send a known key to somewhere new,
 * run a new command, or read a file of their choice. Whoever hands out what was judged settles first.
 */
export interface Trust {
  /** No file is a first start. A file that cannot be relied on is not: then nothing is trusted. */
  load(): Promise<{ readonly problem: string | null }>;
  /** Asked before a command runs, or a file or a variable is read. On the first start it pins instead. */
  judgeSource(subject: Subject): Held | null;
  /** Asked before a key is used. The first use of a key pins it to its origins. */
  judgeKey(subject: Subject, key: Secret): Held | null;
  /** A person said yes: to the source, and to the key at these origins if there is one already. */
  grant(subject: Subject, key: Secret | null): void;
  /** Writes what changed, or what vanished, and ends the first start. A failed write is tried again next time. */
  settle(): Promise<Settled>;
}

/**
 * The oldest pins are not dropped for new ones: whoever can write config.yaml could then flush a key's pin out with
 * made-up keys and move the key. Beyond this number new keys wait for a person instead.
 */
const MOST_KEYS = 10_000;

export interface TrustOptions {
  readonly file: string;
  readonly clock: Clock;
  /** What keybearer leaves behind besides that file: where one of these is, a missing file is no first start. Default none. */
  readonly stateFiles?: readonly string[];
}

export function createTrust({ file, clock, stateFiles = [] }: TrustOptions): Trust {
  return new PinnedTrust(file, clock, stateFiles);
}

class PinnedTrust implements Trust {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #stateFiles: readonly string[];
  // Until load() has looked, nothing is known, so nothing is trusted.
  #pins: Pins = emptyPins(true);
  #firstStart = false;
  /** The file on disk is one that could not be relied on, and must be kept aside before it is replaced. */
  #broken = false;
  /** There was no file at the start, and none was written since. */
  #neverWritten = false;
  #loaded = false;
  #changes = 0;
  #saved: { readonly changes: number; readonly identity: string | null } = { changes: 0, identity: null };
  #writing: Promise<unknown> = Promise.resolve();

  constructor(file: string, clock: Clock, stateFiles: readonly string[]) {
    this.#file = file;
    this.#clock = clock;
    this.#stateFiles = stateFiles;
  }

  async load(): Promise<{ readonly problem: string | null }> {
    const found = await readPins(this.#file);
    this.#loaded = true;
    this.#firstStart = found.state === "missing";
    this.#neverWritten = this.#firstStart;
    this.#broken = found.state === "broken";
    this.#pins = found.state === "found" ? found.pins : emptyPins(this.#broken);
    // The end of a first start is worth a file even when nothing was pinned.
    this.#changes = this.#firstStart ? 1 : 0;
    this.#saved = { changes: 0, identity: found.state === "missing" ? null : found.identity };
    if (this.#firstStart && this.#stateFiles.some((file) => existsSync(file))) {
      const problem = `${plain(this.#file)} is missing, though keybearer ran here before: config.yaml is trusted as it stands. if you did not remove it, look at where config.yaml sends your keys`;
      return { problem };
    }
    if (!this.#pins.lost) return { problem: null };
    const why = found.state === "broken" ? ` (${plain(this.#file)} cannot be relied on: ${found.why})` : "";
    const afresh = `stop keybearer, rm ${plain(shellWord(this.#file))}, and start it`;
    return {
      problem: `what was trusted before is lost${why}, so every key that is not known waits: look at config.yaml, then keybearer trust <tool> for each; or, to trust config.yaml as it stands, ${afresh}`,
    };
  }

  judgeSource(subject: Subject): Held | null {
    const id = sourceId(subject, this.#pins.salt);
    if (id === null) return null;
    if (this.#firstStart) this.#pinSource(id, subject);
    // A variable that gave a key before variables needed a yes is among the uses.
    if (this.#pins.sources.has(id) || this.#pins.uses.has(id)) return null;
    const before = [...this.#pins.sources.values()].filter((pin) => pin.name === subject.name).at(-1);
    const kind = subject.source.kind === "env" ? "variable" : subject.source.kind;
    return {
      what: `the ${kind} that gives ${subject.secret ?? `${plain(subject.name)} its key`}`,
      from: before?.words ?? (this.#pins.lost ? UNKNOWN : `no ${kind}`),
      to: `${this.#words(subject, id)}, for ${inWords(originsOf(subject))}`,
    };
  }

  judgeKey(subject: Subject, key: Secret): Held | null {
    const origins = originsOf(subject);
    if (origins.length === 0) return null;
    const id = key.digest(this.#pins.salt);
    if (this.#firstStart) {
      this.#pinKey(id, subject);
      return null;
    }
    const certain = this.#pins.keys.get(id) ?? this.#sourcePin(subject);
    const full = this.#pins.keys.size >= MOST_KEYS;
    if (certain === undefined && (this.#pins.lost || full)) {
      const from = this.#pins.lost
        ? UNKNOWN
        : `nowhere: ${MOST_KEYS} keys are known, and more need a yes each`;
      return { what: keyInWords(subject, key), from, to: inWords(origins) };
    }
    for (const pin of this.#pinsFor(id, subject)) {
      const strange = origins.filter((origin) => !pin.origins.includes(origin));
      if (strange.length === 0) continue;
      return { what: keyInWords(subject, key), from: inWords(pin.origins), to: inWords(strange) };
    }
    // When full, only a key whose source is pinned comes here, and its source's pin goes on holding it.
    if (!full || this.#pins.keys.has(id)) this.#pinKey(id, subject);
    return null;
  }

  grant(subject: Subject, key: Secret | null): void {
    const id = sourceId(subject, this.#pins.salt);
    if (id !== null) this.#pinSource(id, subject);
    if (key !== null) this.#pinKey(key.digest(this.#pins.salt), subject);
  }

  /**
   * What says where this key may go. A known key has its own pin. A new one is bound by where its source and its tool
   * were used before: a tool that was moved, and is held, would otherwise be let go by the next rotation of its key, and
   * a command that makes a new key each time would hand a working one to any origin.
   */
  #pinsFor(keyId: string, subject: Subject): readonly Pin[] {
    const known = this.#pins.keys.get(keyId);
    if (known !== undefined) return [known];
    const uses = useIds(subject, this.#pins.salt).map((id) => this.#pins.uses.get(id));
    return [this.#sourcePin(subject), ...uses].filter((pin) => pin !== undefined);
  }

  #sourcePin(subject: Subject): Pin | undefined {
    const id = sourceId(subject, this.#pins.salt);
    return id === null ? undefined : this.#pins.sources.get(id);
  }

  settle(): Promise<Settled> {
    this.#firstStart = false;
    const written = this.#writing.then(() => this.#write());
    this.#writing = written;
    return written;
  }

  async #write(): Promise<Settled> {
    // Not looked yet: writing now would take what is on disk for nothing.
    if (!this.#loaded) return SETTLED;
    const changes = this.#changes;
    const identity = await pinsIdentity(this.#file);
    if (changes === this.#saved.changes && identity === this.#saved.identity) return SETTLED;
    try {
      if (this.#broken) await keepDamagedCopy(this.#file, this.#clock.now());
      this.#saved = { changes, identity: await writePins(this.#file, this.#pins) };
      this.#broken = false;
      this.#neverWritten = false;
      return SETTLED;
    } catch (error) {
      const why = `${plain(this.#file)} could not be written (${errorCode(error)})`;
      if (this.#neverWritten) return { problem: `${why}: no key is used until it can be`, hold: true };
      const problem = `${why}: what is trusted now is forgotten when keybearer stops, unless that is mended before`;
      return { problem, hold: false };
    }
  }

  #pinSource(id: string, subject: Subject): void {
    const known = this.#pins.sources.get(id);
    const pin: SourcePin = {
      ...this.#pinFor(known, subject),
      words: plain(describeSource(subject.source)),
    };
    if (known?.origins.length === pin.origins.length) return;
    this.#pins.sources.set(id, pin);
    this.#changes += 1;
  }

  #pinKey(id: string, subject: Subject): void {
    this.#pin(this.#pins.keys, id, subject);
    for (const use of useIds(subject, this.#pins.salt)) {
      if (this.#pins.uses.size < MOST_KEYS || this.#pins.uses.has(use))
        this.#pin(this.#pins.uses, use, subject);
    }
  }

  #pin(pins: Map<string, Pin>, id: string, subject: Subject): void {
    const known = pins.get(id);
    const pin = this.#pinFor(known, subject);
    if (known?.origins.length === pin.origins.length) return;
    pins.set(id, pin);
    this.#changes += 1;
  }

  #pinFor(known: Pin | undefined, subject: Subject): Pin {
    const origins = [...new Set([...(known?.origins ?? []), ...originsOf(subject)])];
    return { origins, name: known?.name ?? subject.name, since: known?.since ?? this.#clock.now() };
  }

  /** Where a part is hidden, a mark from the digest still tells two commands apart. */
  #words({ source }: Subject, id: string): string {
    if (source.kind === "file") return plain(resolve(source.path));
    if (source.kind !== "command") return plain(describeSource(source));
    const { words, whole } = commandInWords(source.argv);
    return whole ? words : `${words} (hidden parts are in config.yaml; mark ${id.slice(0, 12)})`;
  }
}

const SETTLED: Settled = Object.freeze({ problem: null, hold: false });

const UNKNOWN = "not known: what was trusted before is lost";

function keyInWords(subject: Subject, key: Secret): string {
  return subject.secret ?? `the key ${key.fingerprint} of ${plain(subject.name)}`;
}

function inWords(origins: readonly string[]): string {
  return origins.map(plain).join(", ");
}
