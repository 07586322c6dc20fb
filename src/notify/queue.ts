import { closeSync, constants, fdatasync, writeSync } from "node:fs";
import { EVENT_KINDS } from "../config/schema.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import { asFields, asList, type JsonObject, parseObject } from "../core/json.ts";
import { openOwnFile, readOwnFile } from "../core/own-file.ts";
import { stageFile } from "../core/private-file.ts";
import type { Event } from "../events/event.ts";

/** An event that some channels have not delivered yet. */
export interface Waiting {
  readonly event: Event;
  /** When it was queued, milliseconds UTC. */
  readonly at: number;
  /** The channels that it still has to go to. */
  readonly channels: ReadonlySet<string>;
}

interface Entry extends Waiting {
  readonly channels: Set<string>;
}

/** Several times the size of all events that can wait. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Lines that say nothing any more, before the file is written again without them. */
const MAX_STALE = 1000;

const { O_APPEND, O_CREAT, O_TRUNC, O_WRONLY } = constants;

/**
 * state/notify-queue.jsonl: what waits, so that it survives a restart. Each line is an event and its channels, or says that
 * one of them has it. A line is written before anything is sent, so an event is delivered at least once. When the file cannot
 * be written, what waits is kept in memory, and delivered all the same.
 */
export class Queue {
  readonly #path: string;
  /** By the event's id, the oldest first. */
  readonly #entries = new Map<string, Entry>();
  /** Lines in the file. */
  #lines = 0;
  /** The last line is incomplete. */
  #isTorn = false;
  /** Something is not in the file. */
  #isBehind = false;
  #problem: string | null = null;
  /** Counts appends, so that a rewrite sees that it is out of date. */
  #appends = 0;
  #isRewriting = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads what earlier runs left. Returns what is wrong with the file, for people; null: nothing. */
  load(): string | null {
    let text: string;
    try {
      text = readOwnFile(this.#path, MAX_BYTES) ?? "";
    } catch (error) {
      this.#isBehind = true;
      this.#problem = errorMessage(error);
      return `alerts that waited to be sent cannot be read: ${this.#problem}`;
    }
    this.#isTorn = text !== "" && !text.endsWith("\n");
    const lines = text.split("\n").filter((line) => line !== "");
    this.#lines = lines.length;
    const damaged = lines.filter((line) => !this.#take(parseObject(line))).length;
    return damaged === 0 ? null : `damaged lines of ${this.#path} that were skipped: ${damaged}`;
  }

  /** Why what waits is in memory only; null: it is in the file. */
  get problem(): string | null {
    return this.#problem;
  }

  /** The oldest first. */
  all(): Iterable<Waiting> {
    return this.#entries.values();
  }

  /** False: an event of this id waits already. */
  add(event: Event, at: number, channels: readonly string[]): boolean {
    if (this.#entries.has(event.id)) return false;
    this.#entries.set(event.id, { event, at, channels: new Set(channels) });
    this.#append({ event, at, channels }, "sync");
    return true;
  }

  /** One channel has delivered it, or has given it up. */
  done(id: string, channel: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined || !entry.channels.delete(channel)) return;
    if (entry.channels.size === 0) this.#entries.delete(id);
    if (this.#entries.size === 0) this.#empty();
    else this.#append({ done: id, channel });
  }

  /** Tries again to write what is not in the file, and shortens it. Called from time to time. */
  async tidy(): Promise<void> {
    const stale = this.#lines - this.#entries.size;
    if (this.#isRewriting || (!this.#isBehind && stale <= MAX_STALE)) return;
    this.#isRewriting = true;
    try {
      const appends = this.#appends;
      const lines = [...this.#entries.values()].map(lineFor);
      const staged = await stageFile(this.#path, lines.join(""));
      if (appends === this.#appends) {
        staged.commit();
        this.#lines = lines.length;
        this.#isTorn = false;
        this.#isBehind = false;
        this.#problem = null;
      } else await staged.discard();
    } catch (error) {
      this.#isBehind = true;
      this.#problem = errorMessage(error);
    } finally {
      this.#isRewriting = false;
    }
  }

  /** False: the line says nothing that is understood. */
  #take(line: JsonObject | null): boolean {
    if (line === null) return false;
    const { done, channel, at } = line;
    if (typeof done === "string" && typeof channel === "string") {
      const entry = this.#entries.get(done);
      entry?.channels.delete(channel);
      if (entry?.channels.size === 0) this.#entries.delete(done);
      return true;
    }
    const event = parseEvent(line.event);
    const channels = asList(line.channels).filter((name) => typeof name === "string");
    if (event === null || typeof at !== "number" || channels.length === 0) return false;
    this.#entries.set(event.id, { event, at, channels: new Set(channels) });
    return true;
  }

  /** @param sync for a power cut. The system has the line already, so the end of this process loses nothing. */
  #append(line: object, sync?: "sync"): void {
    this.#appends += 1;
    try {
      const descriptor = openOwnFile(this.#path, O_WRONLY | O_APPEND | O_CREAT);
      try {
        const bytes = Buffer.from(`${this.#isTorn ? "\n" : ""}${JSON.stringify(line)}\n`);
        const written = writeSync(descriptor, bytes);
        this.#isTorn = written < bytes.length;
        if (this.#isTorn) throw new Error("the disk is full");
        this.#lines += 1;
      } finally {
        if (sync === undefined) closeSync(descriptor);
        else fdatasync(descriptor, () => closeSync(descriptor));
      }
    } catch (error) {
      this.#isBehind = true;
      this.#problem = errorMessage(error);
    }
  }

  #empty(): void {
    this.#appends += 1;
    try {
      closeSync(openOwnFile(this.#path, O_WRONLY | O_TRUNC));
    } catch (error) {
      // Without a file nothing waits, either.
      if (!hasCode(error, "ENOENT")) {
        this.#isBehind = true;
        this.#problem = errorMessage(error);
        return;
      }
    }
    this.#lines = 0;
    this.#isTorn = false;
    this.#isBehind = false;
    this.#problem = null;
  }
}

function lineFor({ event, at, channels }: Waiting): string {
  return `${JSON.stringify({ event, at, channels: [...channels] })}\n`;
}

const MAX_TEXT = 4000;

/** Strict: every program of this user can write the file. */
function parseEvent(value: unknown): Event | null {
  const { id, at, kind, severity, subject, message, next, state } = asFields(value);
  const kinds: readonly unknown[] = EVENT_KINDS;
  const isText = (text: unknown): text is string => typeof text === "string" && text.length <= MAX_TEXT;
  if (typeof id !== "string" || !/^[0-9A-HJKMNP-TV-Z]{26}$/.test(id) || typeof at !== "number") return null;
  if (!kinds.includes(kind) || !isText(subject) || !isText(message)) return null;
  if (severity !== "critical" && severity !== "warning" && severity !== "info") return null;
  if (state !== "begun" && state !== "ended" && state !== "summary") return null;
  if (next !== null && !isText(next)) return null;
  return { id, at, kind: kind as Event["kind"], severity, subject, message, next, state };
}
