import { resolve } from "node:path";
import { describeSource, type KeySource } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { describeCommand, escapeControlChars } from "../core/display.ts";
import { errorCode } from "../core/errors.ts";
import { setAside } from "../core/own-file.ts";
import { Secret } from "../core/secret.ts";
import { emptyPins, type Pin, type Pins, pinsIdentity, readPins, type SourcePin, writePins } from "./pins.ts";
import { isInside } from "./sources.ts";

/** One use of a secret: whose, from where, to where. */
export interface Subject {
  /** The tool or gateway. */
  readonly name: string;
  readonly source: KeySource;
  /** Everything that sees the key: origins, a proxy, a certificate authority. */
  readonly origins: readonly string[];
  /** keybearer's own folders: a file: inside them is read before it is confirmed, so that its key can be compared. */
  readonly home: readonly string[];
  /** What to call a secret that is no key, and whose last characters must not be shown. */
  readonly secret?: string | undefined;
  /** It gets events and gives no key. Default false. */
  readonly isReceiver?: boolean | undefined;
  /** It is an address, and leads to its own origin, too. Also a new one waits for confirmation. Default false. */
  readonly isAddress?: boolean | undefined;
}

/** Something that waits for confirmation: old → new. */
export interface UntrustedChange {
  readonly what: string;
  readonly from: string;
  readonly to: string;
}

export interface Settled {
  readonly problem: string | null;
  /** There is no file and none could be written: the next start would trust anything, so no key may be used. */
  readonly blocksKeys: boolean;
}

/**
 * The oldest pins are not replaced by new ones: a program that edits config.yaml could push a key's pin out with invented
 * keys, and then move the key. Beyond this number new keys wait for confirmation.
 */
const MAX_PINS = 10_000;

const SETTLED: Settled = Object.freeze({ problem: null, blocksKeys: false });
export const UNKNOWN = "unknown: the list of trusted addresses is lost";

interface TrustDeps {
  readonly file: string;
  readonly clock: Clock;
  /** Whether keybearer served a config.yaml here before. Called only if there is no file. */
  readonly ranBefore: () => boolean;
}

/**
 * Remembers which key belongs where, so that a program that can edit config.yaml cannot send a known key to a new origin,
 * run a new command, or read a file of its choice. Call settle() before a judged key is used.
 */
export class Trust {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #ranBefore: () => boolean;
  // Until load(), nothing is known, so nothing is trusted.
  #pins: Pins = emptyPins(true);
  #firstStart = false;
  /** The file on disk is damaged and must be copied before it is replaced. */
  #broken = false;
  /** There was no file at the start, and none has been written. */
  #neverWritten = false;
  #lostBecause = "";
  #loaded = false;
  #changes = 0;
  #saved: { readonly changes: number; readonly identity: string | null } = { changes: 0, identity: null };
  #writing: Promise<unknown> = Promise.resolve();

  constructor({ file, clock, ranBefore }: TrustDeps) {
    this.#file = file;
    this.#clock = clock;
    this.#ranBefore = ranBefore;
  }

  /**
   * Without a file and without any other state this is a first start, which trusts config.yaml. If the file is missing or
   * damaged although keybearer ran here before, nothing is trusted until a person confirms it.
   */
  load(): { readonly problem: string | null } {
    const found = readPins(this.#file);
    this.#loaded = true;
    const isMissing = found.state === "missing";
    this.#firstStart = isMissing && !this.#ranBefore();
    this.#neverWritten = isMissing;
    this.#broken = found.state === "broken";
    this.#pins = found.state === "found" ? found.pins : emptyPins(!this.#firstStart);
    // A missing file is written even if nothing was pinned: the next start must know that its pins are lost.
    this.#changes = isMissing ? 1 : 0;
    this.#saved = { changes: 0, identity: isMissing ? null : found.identity };
    const shown = escapeControlChars(this.#file);
    if (found.state === "broken") this.#lostBecause = `${shown} cannot be used: ${found.problem}`;
    else if (isMissing) this.#lostBecause = `${shown} is missing, although keybearer ran here before`;
    else this.#lostBecause = `${shown} was lost or damaged at an earlier start`;
    return { problem: this.problem() };
  }

  /** The pins were lost, and no person has confirmed them again. */
  get isLost(): boolean {
    return this.#pins.lost;
  }

  /** What a person has to confirm before keys are used again; null: nothing is lost. */
  problem(): string | null {
    if (!this.#pins.lost) return null;
    return `the list of trusted addresses is lost (${this.#lostBecause}), so every key is held: check config.yaml → ${advice.trustAll()}`;
  }

  /** A person has confirmed where every key goes. From now on a new key needs no confirmation again. */
  endLoss(): void {
    if (!this.#pins.lost) return;
    this.#pins = { ...this.#pins, lost: false };
    this.#changes += 1;
  }

  /** Called before a source is read or a command runs. A first start pins the source instead, also one that is still empty. */
  judgeSource(subject: Subject): UntrustedChange | null {
    const id = sourceId(subject, this.#pins.salt);
    if (id === null) {
      const place = this.#firstStart ? placeId(subject, this.#pins.salt) : null;
      if (place !== null) this.#pin(this.#pins.uses, place, subject);
      return null;
    }
    if (this.#firstStart) this.#pinSource(id, subject);
    // A variable that was used before variables needed confirmation is among the uses.
    if (this.#pins.sources.has(id) || this.#pins.uses.has(id)) return null;
    const before = [...this.#pins.sources.values()].filter((pin) => pin.name === subject.name).at(-1);
    const from = before?.words ?? (this.#pins.lost ? UNKNOWN : null);
    return newSource(subject, id, from);
  }

  /** Called before a key is used. Its first use pins it to its origins. */
  judgeKey(subject: Subject, key: Secret): UntrustedChange | null {
    const origins = listOrigins(subject);
    if (origins.length === 0) return null;
    const id = key.digest(this.#pins.salt);
    if (this.#firstStart) {
      this.#pinKey(id, subject, key);
      // Where an address leads was not known before its source was read.
      const source = sourceId(subject, this.#pins.salt);
      if (source !== null && this.#pins.sources.has(source)) this.#pinSource(source, subject);
      return null;
    }
    const pinned = this.#pins.keys.get(id) ?? this.#sourcePin(subject);
    const isFull = this.#pins.keys.size >= MAX_PINS;
    if (pinned === undefined && (this.#pins.lost || isFull)) {
      const from = this.#pins.lost
        ? UNKNOWN
        : `nowhere: ${MAX_PINS} keys are known, and each new one needs confirmation`;
      return { what: showKey(subject, key), from, to: showOrigins(origins) };
    }
    const place = placeId(subject, this.#pins.salt);
    // Any key may be stored at a place that no tool used before. A known one is held by its own pin.
    if (place !== null && !this.#pins.uses.has(place) && !this.#pins.keys.has(id))
      return newSource(subject, place, null);
    const pins = this.#pinsFor(id, subject);
    // A new key reveals nothing. A new address receives alerts.
    if (subject.isAddress && pins.length === 0)
      return { what: showKey(subject, key), from: "nowhere", to: showOrigins(origins) };
    for (const pin of pins) {
      const added = origins.filter((origin) => !pin.origins.includes(origin));
      if (added.length === 0) continue;
      return { what: showKey(subject, key), from: showOrigins(pin.origins), to: showOrigins(added) };
    }
    // When full, only a key with a pinned source gets here, and the source's pin protects it.
    if (!isFull || this.#pins.keys.has(id)) this.#pinKey(id, subject, key);
    return null;
  }

  /** How pins name a key. */
  digestOf(key: Secret): string {
    return key.digest(this.#pins.salt);
  }

  /** What is known of the key with this digest; null: it was never used. */
  pinOf(digest: string): Pin | null {
    return this.#pins.keys.get(digest) ?? null;
  }

  /** A person confirmed the source and, if it was read, the key at these origins. A key that is read later belongs there, too. */
  grant(subject: Subject, key: Secret | null): void {
    const id = sourceId(subject, this.#pins.salt);
    if (id !== null) this.#pinSource(id, subject);
    if (key !== null) this.#pinKey(key.digest(this.#pins.salt), subject, key);
    else this.#pinUses(subject);
  }

  /** keybearer stores the tool's key here itself, for these origins and no others. The next settle() writes it down. */
  claim(subject: Subject): void {
    const place = placeId(subject, this.#pins.salt);
    if (place === null || (this.#pins.uses.size >= MAX_PINS && !this.#pins.uses.has(place))) return;
    this.#pins.uses.set(place, this.#pinFor(undefined, subject));
    this.#changes += 1;
  }

  /**
   * The pins that decide where a key may go. A known key has its own, and its place in a file or in the keychain has one for
   * the keys to come. A new one is bound to where its source and its tool were used before: otherwise a moved tool would be
   * released by the next rotation of its key, and a command that makes a new key each time would give a working one to any
   * origin.
   */
  #pinsFor(keyId: string, subject: Subject): readonly Pin[] {
    const known = this.#pins.keys.get(keyId);
    if (known !== undefined) {
      const place = placeId(subject, this.#pins.salt);
      const placePin = place === null ? undefined : this.#pins.uses.get(place);
      return placePin === undefined ? [known] : [known, placePin];
    }
    const uses = useIds(subject, this.#pins.salt).map((id) => this.#pins.uses.get(id));
    return [this.#sourcePin(subject), ...uses].filter((pin) => pin !== undefined);
  }

  #sourcePin(subject: Subject): Pin | undefined {
    const id = sourceId(subject, this.#pins.salt);
    return id === null ? undefined : this.#pins.sources.get(id);
  }

  /** Writes what changed, and the file if it vanished, and ends the first start. A failed write is tried again next time. */
  settle(): Promise<Settled> {
    this.#firstStart = false;
    const written = this.#writing.then(() => this.#write());
    this.#writing = written;
    return written;
  }

  async #write(): Promise<Settled> {
    // Writing before load() would overwrite the pins on disk.
    if (!this.#loaded) return SETTLED;
    const changes = this.#changes;
    const identity = await pinsIdentity(this.#file);
    if (changes === this.#saved.changes && identity === this.#saved.identity) return SETTLED;
    try {
      if (this.#broken) setAside(this.#file, this.#clock.now());
      this.#saved = { changes, identity: await writePins(this.#file, this.#pins) };
      this.#broken = false;
      this.#neverWritten = false;
      return SETTLED;
    } catch (error) {
      const unwritten = `${escapeControlChars(this.#file)} could not be written (${errorCode(error)})`;
      if (this.#neverWritten)
        return { problem: `${unwritten}: keybearer uses no key until it can`, blocksKeys: true };
      const problem = `${unwritten}: keybearer forgets what it trusts now when it stops, unless you correct that first`;
      return { problem, blocksKeys: false };
    }
  }

  #pinSource(id: string, subject: Subject): void {
    const known = this.#pins.sources.get(id);
    const pin: SourcePin = {
      ...this.#pinFor(known, subject),
      words: escapeControlChars(describeSource(subject.source)),
    };
    if (known?.origins.length === pin.origins.length) return;
    this.#pins.sources.set(id, pin);
    this.#changes += 1;
  }

  #pinKey(id: string, subject: Subject, key: Secret): void {
    // Nothing is stored of a password that a person chose.
    this.#pin(this.#pins.keys, id, subject, subject.secret === undefined ? key.fingerprint : undefined);
    this.#pinUses(subject);
  }

  #pinUses(subject: Subject): void {
    for (const use of useIds(subject, this.#pins.salt)) {
      if (this.#pins.uses.size < MAX_PINS || this.#pins.uses.has(use))
        this.#pin(this.#pins.uses, use, subject);
    }
  }

  #pin(pins: Map<string, Pin>, id: string, subject: Subject, fingerprint?: string): void {
    const known = pins.get(id);
    const pin = { ...this.#pinFor(known, subject), fingerprint: fingerprint ?? known?.fingerprint };
    if (known?.origins.length === pin.origins.length && known.fingerprint === pin.fingerprint) return;
    pins.set(id, pin);
    this.#changes += 1;
  }

  #pinFor(known: Pin | undefined, subject: Subject): Pin {
    const origins = [...new Set([...(known?.origins ?? []), ...listOrigins(subject)])];
    return { origins, name: known?.name ?? subject.name, since: known?.since ?? this.#clock.now() };
  }
}

/** Under which digest a source is pinned before it is read; null: it may be read. */
function sourceId({ source, home }: Subject, salt: string): string | null {
  if (source.kind === "command") return digest(salt, "command", ...source.argv);
  if (source.kind === "env") return digest(salt, "env", source.name);
  if (source.kind !== "file" || isInside(source.path, home)) return null;
  return fileId(source.path, salt);
}

/**
 * Under which digest a place is pinned where keybearer stores keys; null: it is none. Without a pin it may hold any key that
 * was stored there, so a new tool may not take it.
 */
function placeId({ source, home }: Subject, salt: string): string | null {
  if (source.kind === "keychain") return digest(salt, "keychain", source.service, source.account);
  if (source.kind === "credential") return digest(salt, "credential", source.name);
  return source.kind === "file" && isInside(source.path, home) ? fileId(source.path, salt) : null;
}

/** The digests of the tool, and of its source. A literal is nowhere but in the tool itself. */
function useIds(subject: Subject, salt: string): string[] {
  const { name, source } = subject;
  const tool = digest(salt, "tool", name);
  if (source.kind === "env") return [tool, digest(salt, "env", source.name)];
  if (source.kind === "file") return [tool, fileId(source.path, salt)];
  return [tool, placeId(subject, salt)].filter((id) => id !== null);
}

function fileId(path: string, salt: string): string {
  return digest(salt, "file", resolve(path));
}

/** Of a JSON list, so that no two argv are the same. A digest, because an argument may hold a secret. */
function digest(salt: string, ...parts: readonly string[]): string {
  return new Secret(JSON.stringify(parts)).digest(salt);
}

/** Scheme, host and port, each once. */
export function listOrigins({ origins }: Pick<Subject, "origins">): readonly string[] {
  return [...new Set(origins.map(parseOrigin))];
}

function parseOrigin(address: string): string {
  // A text that is no address is compared as it is, and is never taken for another.
  if (!URL.canParse(address)) return address;
  const { origin, protocol, host } = new URL(address);
  // Schemes that the web does not know all have the origin "null".
  return origin === "null" ? `${protocol}//${host}` : origin;
}

/** @param before the source that it replaces; null: there was none */
function newSource(subject: Subject, id: string, before: string | null): UntrustedChange {
  const { source, secret, name, isReceiver = false } = subject;
  const kind = SOURCE_WORDS[source.kind];
  const does = isReceiver ? "gets" : "gives";
  const what = isReceiver ? "the events" : (secret ?? `${escapeControlChars(name)} its key`);
  const origins = listOrigins(subject);
  return {
    what: `the ${kind} that ${does} ${what}`,
    from: before ?? `no ${kind}`,
    to: `${showSource(source, id)}${origins.length === 0 ? "" : `, for ${showOrigins(origins)}`}`,
  };
}

const SOURCE_WORDS = {
  env: "variable",
  file: "file",
  keychain: "keychain entry",
  credential: "credential",
  command: "command",
  literal: "key in config.yaml",
} as const satisfies Record<KeySource["kind"], string>;

function showKey(subject: Subject, key: Secret): string {
  return subject.secret ?? `the key ${key.fingerprint} of ${escapeControlChars(subject.name)}`;
}

function showOrigins(origins: readonly string[]): string {
  return origins.map(escapeControlChars).join(", ");
}

/** If a part of a command is hidden, a mark from its digest still distinguishes it from others. */
function showSource(source: KeySource, id: string): string {
  if (source.kind === "file") return escapeControlChars(resolve(source.path));
  if (source.kind !== "command") return escapeControlChars(describeSource(source));
  const { text, isComplete } = describeCommand(source.argv);
  return isComplete ? text : `${text} (hidden parts are in config.yaml; mark ${id.slice(0, 12)})`;
}
