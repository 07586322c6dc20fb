import { closeSync, constants, writeSync } from "node:fs";
import { EVENT_KINDS } from "../config/schema.ts";
import { flagAt, numberAt, objectAt, parseObject, textAt } from "../core/json.ts";
import { openOwnFile, readOwnFile } from "../core/own-file.ts";
import { stageFile } from "../core/private-file.ts";
import { DAY_MS } from "../core/units.ts";
import { type Event, type Once, type Said, SENTENCE_CODES, type Severity } from "./event.ts";

/* state/events.jsonl: one line for each event, and one for each time that a subject was muted. */

/** An event with what a start must know of it. */
export interface StoredEvent extends Event {
  readonly said?: Said;
  readonly muted?: true;
  readonly once?: Once;
  /** Of a summary: what it is about was over by then. */
  readonly over?: true;
}

/** until null: it is not muted any more. */
export interface Mute {
  readonly mute: string;
  readonly until: number | null;
}

/** A mute that is forgotten must not hide anything for longer. */
const MAX_MUTE_MS = 31 * DAY_MS;

/** When a mute ends that is to last until then. */
export function muteEnd(until: number, now: number): number {
  return Math.min(until, now + MAX_MUTE_MS);
}

export type Entry = StoredEvent | Mute;

export function isMute(entry: Entry): entry is Mute {
  return "mute" in entry;
}

interface EventFile {
  readonly entries: readonly Entry[];
  readonly bytes: number;
  /** false: the last line was cut off. */
  readonly isWhole: boolean;
}

/** Far more than it ever has: a file of this size is not ours. */
const MAX_READ_BYTES = 16 * 1024 * 1024;

/** What the file has. Lines that cannot be read are skipped. Throws if something else has its name. */
export function readEntries(file: string, now: number): EventFile {
  const text = readOwnFile(file, MAX_READ_BYTES) ?? "";
  const entries = text.split("\n").flatMap((line) => parseEntry(line, now) ?? []);
  return { entries, bytes: Buffer.byteLength(text), isWhole: text === "" || text.endsWith("\n") };
}

export function formatEntry(entry: Entry): string {
  return `${JSON.stringify(entry)}\n`;
}

const SEVERITIES: readonly Severity[] = ["critical", "warning", "info"];
const STATES: readonly Event["state"][] = ["begun", "ended", "summary"];

/** null: it is damaged, or from a later version. */
function parseEntry(line: string, now: number): Entry | null {
  const fields = line === "" ? null : parseObject(line);
  if (fields === null) return null;
  const muted = textAt(fields, "mute");
  if (muted !== null) {
    const until = numberAt(fields, "until");
    return { mute: muted, until: until === null ? null : muteEnd(until, now) };
  }
  const id = textAt(fields, "id");
  const at = numberAt(fields, "at");
  const kind = EVENT_KINDS.find((one) => one === textAt(fields, "kind"));
  const severity = SEVERITIES.find((one) => one === textAt(fields, "severity"));
  const state = STATES.find((one) => one === textAt(fields, "state"));
  const subject = textAt(fields, "subject");
  const message = textAt(fields, "message");
  if (id === null || at === null || kind === undefined || severity === undefined || state === undefined)
    return null;
  if (subject === null || message === null) return null;
  const once = parseOnce(fields);
  const said = parseSaid(fields);
  return {
    id,
    at,
    kind,
    severity,
    subject,
    message,
    next: textAt(fields, "next"),
    state,
    ...(flagAt(fields, "muted") === true && { muted: true }),
    ...(flagAt(fields, "over") === true && { over: true }),
    ...(once !== null && { once }),
    ...(said !== null && { said }),
  };
}

function parseSaid(fields: object): Said | null {
  const said = objectAt(fields, "said");
  const code = SENTENCE_CODES.find((one) => one === textAt(said, "code"));
  if (code === undefined) return null;
  const values = Object.entries(objectAt(said, "values") ?? {}).flatMap(([name, value]) =>
    typeof value === "string" || typeof value === "number" ? [[name, value] as const] : [],
  );
  return { code, values: Object.fromEntries(values) };
}

function parseOnce(fields: object): Once | null {
  const once = objectAt(fields, "once");
  const name = textAt(once, "name");
  const until = numberAt(once, "until");
  return name === null || until === null ? null : { name, until };
}

const { O_APPEND, O_CREAT, O_WRONLY } = constants;

/** Adds a text. Throws, and then the file may have a part of it. */
export function appendText(file: string, text: string): void {
  const descriptor = openOwnFile(file, O_WRONLY | O_APPEND | O_CREAT);
  try {
    const bytes = Buffer.from(text);
    let written = 0;
    while (written < bytes.length) written += writeSync(descriptor, bytes, written);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Replaces the file by a shorter one. @param takeNews what was added while the new file was written. It must be in the new file
 * too, and is called in the same step in which that takes the name. Throws.
 */
export async function rewriteFile(file: string, text: string, takeNews: () => string): Promise<void> {
  const staged = await stageFile(file, text);
  try {
    const news = takeNews();
    if (news !== "") appendText(staged.path, news);
    staged.commit();
  } catch (error) {
    await staged.discard();
    throw error;
  }
}
