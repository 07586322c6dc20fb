import type { EventKind } from "../config/schema.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { withNext } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import { readIdTime, requestId } from "../core/ids.ts";
import type { Logger } from "../core/log.ts";
import { HOUR_MS, MINUTE_MS } from "../core/units.ts";
import { type Event, LASTING_KINDS, type ListedEvent, type Occurrence, type Said } from "./event.ts";
import {
  appendText,
  type Entry,
  formatEntry,
  isMute,
  type Mute,
  muteEnd,
  readEntries,
  rewriteFile,
  type StoredEvent,
} from "./event-file.ts";
import { plainOccurrence, plainSaid, plainSentence, plainSubject } from "./sentence.ts";

interface EventsDeps {
  /** state/events.jsonl */
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export type EventListener = (event: Event) => void;

/** The same is reported at most once in this time. */
const QUIET_MS = HOUR_MS;
/** So many events are kept, and more only if they are still active or must not be reported again. */
const MAX_EVENTS = 2000;
const MAX_OLDER = 500;
/** The file is rewritten when it has this many more lines, or is this large. */
const SPARE_LINES = 500;
const MAX_BYTES = 2 * 1024 * 1024;
/** Between two attempts to write on a disk that does not take it. */
const FIRST_RETRY_MS = 2000;
const LAST_RETRY_MS = MINUTE_MS;

/** What is known of one thing that was reported. */
interface Reported {
  /** As it was last reported, or would have been. */
  occurrence: Occurrence;
  /** When it was last reported. */
  at: number;
  /** How often it was reported since then. */
  more: number;
  /** It has begun and not ended. */
  lasts: boolean;
  /** The event that says that it lasts; null: it does not last, or no event says so yet. */
  active: StoredEvent | null;
}

/**
 * What the owner should know: stored, logged, and handed to the channels. The same kind of event of the same subject becomes
 * one event an hour, and then a summary if there was more.
 *
 * A listener gets an event before it is in the file, so that a crash in between may repeat it, but never loses it. With a full
 * disk it is only in memory, and written later.
 */
export class Events {
  readonly #deps: EventsDeps;
  readonly #listeners = new Set<EventListener>();
  readonly #followers = new Set<(event: ListedEvent) => void>();
  /** The oldest first. */
  #events: StoredEvent[] = [];
  readonly #reported = new Map<string, Reported>();
  /** Until when each subject is muted. */
  readonly #mutes = new Map<string, number>();
  /** Of the last event, so that ids rise although the clock may be set back. */
  #lastIdTime = 0;

  #lines = 0;
  #bytes = 0;
  /** The file lacks something, or is too long. */
  #mustRewrite = false;
  #rewriting: Promise<void> | null = null;
  /** What was added during a rewrite. */
  #news = "";
  /** It was logged that the disk does not take what is written. */
  #isFailing = false;
  /** The last line of the file may be cut off. */
  #isTorn = false;
  /** The next attempt to rewrite it is made after so long, and not before this, by clock.elapsed(). */
  #retryMs = FIRST_RETRY_MS;
  #notBefore = 0;

  constructor(deps: EventsDeps) {
    this.#deps = deps;
    try {
      const { entries, bytes, isWhole } = readEntries(deps.file, deps.clock.now());
      for (const entry of entries) this.#restore(entry);
      this.#lines = entries.length;
      this.#bytes = bytes;
      this.#mustRewrite = !isWhole;
      this.#isTorn = !isWhole;
    } catch (error) {
      deps.log.error(`the events of earlier cannot be read: ${errorMessage(error)}`);
      this.#mustRewrite = true;
    }
    this.#forgetOld();
  }

  /** Returns the event that it became; null: it was held back, because the same was reported already. */
  report(given: Occurrence): Event | null {
    const occurrence = plainOccurrence(given);
    const key = keyOf(occurrence);
    const now = this.#deps.clock.now();
    const lasts = LASTING_KINDS.includes(occurrence.kind);
    const known = this.#reported.get(key);
    if (known !== undefined && this.#isQuiet(known, now)) {
      // What happens once is not counted again either.
      if (occurrence.once === undefined) known.more += 1;
      known.occurrence = occurrence;
      known.lasts = lasts;
      return null;
    }
    const event = this.#publish(occurrence, {
      at: now,
      state: "begun",
      muted: this.#isMuted(occurrence.subject, now),
    });
    this.#reported.set(key, { occurrence, at: now, more: 0, lasts, active: lasts ? event : null });
    return event;
  }

  /** What was reported of this kind and subject is over. Nothing happens if no event said that it had begun. */
  end(kind: EventKind, about: string, message: string, said?: Said): void {
    const known = this.#reported.get(keyOf({ kind, subject: about }));
    if (known === undefined || !known.lasts) return;
    known.lasts = false;
    if (known.active === null) return;
    const now = this.#deps.clock.now();
    const { subject } = known.active;
    // The end of something that was not sent is not sent either.
    const muted = known.active.muted === true || this.#isMuted(subject, now);
    known.active = null;
    const over = { kind, severity: "info", subject, message: plainSentence(message), next: null } as const;
    const plain = said === undefined ? over : { ...over, said: plainSaid(said) };
    this.#publish(plain, { at: now, state: "ended", muted });
  }

  /** Whether this was reported, and must not be again. */
  wasReported(occurrence: Pick<Occurrence, "kind" | "subject" | "once">): boolean {
    const known = this.#reported.get(keyOf(occurrence));
    return known !== undefined && this.#isQuiet(known, this.#deps.clock.now());
  }

  /** What was reported and did not end, also what was held back because it had been reported shortly before. */
  lasting(): readonly Pick<Occurrence, "kind" | "subject">[] {
    return [...this.#reported.values()].filter(({ lasts }) => lasts).map(({ occurrence }) => occurrence);
  }

  /** The events that say that something lasts, the newest first. */
  active(): ListedEvent[] {
    const active = [...this.#reported.values()].flatMap((one) => one.active ?? []);
    return active.sort((a, b) => (a.id < b.id ? 1 : -1)).map((event) => this.#listed(event));
  }

  /** The newest events, the oldest of them first. */
  newest(count: number): ListedEvent[] {
    return this.#events.slice(-count).map((event) => this.#listed(event));
  }

  /** Calls back with each event that is to be sent. Returns how to end that. A listener must return soon. */
  onEvent(listener: EventListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** The same for all events, those that are muted too. */
  follow(follower: (event: ListedEvent) => void): () => void {
    this.#followers.add(follower);
    return () => void this.#followers.delete(follower);
  }

  /**
   * Until then, and for at most 31 days, events of this subject are stored, but not sent. Returns the subject as events have it,
   * and the end. @param until null: they are sent again
   */
  mute(about: string, until: number | null): { readonly subject: string; readonly until: number | null } {
    const subject = plainSubject(about);
    const now = this.#deps.clock.now();
    const end = until === null ? null : muteEnd(until, now);
    const wasMuted = this.#isMuted(subject, now);
    if (end === null) this.#mutes.delete(subject);
    else this.#mutes.set(subject, end);
    this.#write({ mute: subject, until: end });
    if (end === null && wasMuted) this.#reportMuted(subject, now);
    return { subject, until: end };
  }

  /** The subjects that are muted now, each with its end. */
  mutes(): { readonly subject: string; readonly until: number }[] {
    const now = this.#deps.clock.now();
    return [...this.#mutes]
      .filter(([, until]) => until > now)
      .map(([subject, until]) => ({ subject, until }));
  }

  /** To be called from time to time: sends what is due, and writes what the disk did not take. */
  tick(): void {
    const now = this.#deps.clock.now();
    for (const [key, known] of this.#reported) {
      if (this.#isQuiet(known, now)) continue;
      if (known.more > 0) this.#summarize(known, now);
      else if (!known.lasts) this.#reported.delete(key);
    }
    for (const [subject, until] of this.#mutes) {
      if (until > now) continue;
      this.#mutes.delete(subject);
      this.#reportMuted(subject, now);
    }
    this.#forgetOld();
    if (this.#mustRewrite && this.#deps.clock.elapsed() >= this.#notBefore) this.#rewrite();
  }

  /** Writes what is not written yet, if the disk takes it. */
  async stop(): Promise<void> {
    await this.#rewriting;
    if (this.#mustRewrite) this.#rewrite();
    await this.#rewriting;
  }

  /** A mute has ended: what began during it and still lasts is sent now. */
  #reportMuted(subject: string, now: number): void {
    for (const known of this.#reported.values()) {
      if (known.active?.muted !== true || known.active.subject !== subject) continue;
      known.active = this.#publish(known.occurrence, { at: now, state: "begun", muted: false });
      known.at = now;
      known.more = 0;
    }
  }

  #summarize(known: Reported, now: number): void {
    const { occurrence, more, lasts } = known;
    const isOver = !lasts && LASTING_KINDS.includes(occurrence.kind);
    const times = `${more} more time${more === 1 ? "" : "s"} within the hour`;
    const message = `${occurrence.message} (${times}${isOver ? ", and over since" : ""})`;
    known.at = now;
    known.more = 0;
    const { said } = occurrence;
    const summary = {
      ...occurrence,
      message,
      next: isOver ? null : occurrence.next,
      ...(said !== undefined && { said: { ...said, values: { ...said.values, more } } }),
    };
    const muted = this.#isMuted(occurrence.subject, now);
    const event = this.#publish(summary, { at: now, state: "summary", muted, ...(isOver && { over: true }) });
    known.active = lasts ? event : null;
  }

  #publish(
    { kind, severity, subject, message, next, once, said }: Occurrence,
    { at, state, muted, over }: Pick<Event, "at" | "state"> & { muted: boolean; over?: true },
  ): StoredEvent {
    // The time in the id, unlike that of the event, never goes back.
    this.#lastIdTime = Math.max(at, this.#lastIdTime + 1);
    const event: Event = {
      id: requestId(this.#lastIdTime),
      at,
      kind,
      severity,
      subject,
      message,
      next,
      state,
    };
    const stored: StoredEvent = {
      ...event,
      ...(muted && { muted: true }),
      ...(over && { over }),
      ...(once !== undefined && { once }),
      ...(said !== undefined && { said }),
    };
    this.#events.push(stored);
    // Before it is stored: a crash in between makes a channel report it twice, and never loses it.
    if (!muted) for (const listener of this.#listeners) this.#call(() => listener(event));
    this.#write(stored);
    const level = severity === "info" || state === "ended" ? "info" : "warn";
    this.#deps.log[level](
      { event: event.id, kind, subject, state, muted },
      withNext({ problem: message, next }),
    );
    const active = LASTING_KINDS.includes(kind) && state !== "ended" && !over;
    for (const follower of this.#followers) this.#call(() => follower(listed(stored, active)));
    return stored;
  }

  #call(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#deps.log.error({ err: error }, "handing on an event failed");
    }
  }

  /** A clock that is set back far must not silence anything for long. */
  #isQuiet({ at, occurrence: { once } }: Reported, now: number): boolean {
    return once === undefined ? Math.abs(now - at) < QUIET_MS : now < once.until;
  }

  #isMuted(subject: string, now: number): boolean {
    return (this.#mutes.get(subject) ?? 0) > now;
  }

  #listed(event: StoredEvent): ListedEvent {
    const active = this.#reported.get(keyOf(event))?.active === event;
    return listed(event, active);
  }

  // The file

  #restore(entry: Entry): void {
    if (isMute(entry)) {
      if (entry.until === null) this.#mutes.delete(entry.mute);
      else this.#mutes.set(entry.mute, entry.until);
      return;
    }
    this.#events.push(entry);
    this.#lastIdTime = Math.max(this.#lastIdTime, readIdTime(entry.id) ?? 0);
    const key = keyOf(entry);
    const known = this.#reported.get(key);
    if (entry.state === "ended") {
      if (known === undefined) return;
      known.lasts = false;
      known.active = null;
      return;
    }
    const lasts = LASTING_KINDS.includes(entry.kind) && entry.over !== true;
    const { id: _, at, state: __, ...occurrence } = entry;
    this.#reported.set(key, { occurrence, at, more: 0, lasts, active: lasts ? entry : null });
  }

  #forgetOld(): void {
    if (this.#events.length <= MAX_EVENTS) return;
    const now = this.#deps.clock.now();
    const isNeeded = (event: StoredEvent) => this.#listed(event).active || (event.once?.until ?? 0) > now;
    const older = this.#events.slice(0, -MAX_EVENTS);
    const kept = older.filter(isNeeded).slice(-MAX_OLDER);
    if (kept.length < older.length) this.#events = [...kept, ...this.#events.slice(-MAX_EVENTS)];
  }

  #write(entry: StoredEvent | Mute): void {
    const line = formatEntry(entry);
    this.#lines += 1;
    this.#bytes += Buffer.byteLength(line);
    if (this.#lines > MAX_EVENTS + MAX_OLDER + SPARE_LINES || this.#bytes > MAX_BYTES)
      this.#mustRewrite = true;
    if (this.#rewriting !== null) this.#news += line;
    try {
      // Beside a rewrite, too: it may fail, or the process may end before it is done.
      appendText(this.#deps.file, this.#isTorn ? `\n${line}` : line);
      this.#isTorn = false;
    } catch (error) {
      this.#noteProblem(error);
      this.#mustRewrite = true;
      this.#isTorn = true;
    }
  }

  /** What the file lacks, the next attempt writes. */
  #rewrite(): void {
    if (this.#rewriting !== null) return;
    this.#forgetOld();
    const { file, log, clock } = this.#deps;
    this.#notBefore = clock.elapsed() + this.#retryMs;
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
    const lines = this.#linesToKeep();
    const text = lines.join("");
    this.#news = "";
    this.#mustRewrite = false;
    const takeNews = () => this.#news;
    const rewriting = rewriteFile(file, text, takeNews).then(
      () => {
        this.#lines = lines.length;
        this.#bytes = Buffer.byteLength(text) + Buffer.byteLength(this.#news);
        this.#isTorn = false;
        this.#notBefore = 0;
        this.#retryMs = FIRST_RETRY_MS;
        if (this.#isFailing) log.info("events are written again");
        this.#isFailing = false;
      },
      (error: unknown) => {
        this.#noteProblem(error);
        this.#mustRewrite = true;
      },
    );
    this.#rewriting = rewriting.finally(() => {
      this.#rewriting = null;
    });
    background(this.#rewriting, log, "writing events");
  }

  /** The newest that fit, after the mutes and what is active. */
  #linesToKeep(): string[] {
    const lines = this.#events.map(formatEntry);
    let bytes = 0;
    let first = lines.length;
    while (first > 0 && bytes <= MAX_BYTES / 2) {
      first -= 1;
      bytes += Buffer.byteLength(lines[first] ?? "");
    }
    const older = this.#events.slice(0, first).filter((event) => this.#listed(event).active);
    const mutes = this.mutes().map(({ subject, until }) => formatEntry({ mute: subject, until }));
    return [...mutes, ...older.map(formatEntry), ...lines.slice(first)];
  }

  /** Once, until it works again: an attempt may fail in another way than the one before. */
  #noteProblem(error: unknown): void {
    if (!this.#isFailing)
      this.#deps.log.error(`events cannot be written, and are kept in memory: ${errorMessage(error)}`);
    this.#isFailing = true;
  }
}

function keyOf({ kind, subject, once }: Pick<Occurrence, "kind" | "subject" | "once">): string {
  return JSON.stringify([kind, plainSubject(subject), once === undefined ? null : plainSubject(once.name)]);
}

function listed({ muted, over: _, once: __, ...event }: StoredEvent, active: boolean): ListedEvent {
  return { ...event, muted: muted === true, active };
}
