import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { askDaemon, followLines } from "../../control/client.ts";
import type { EventsAnswer, Muted } from "../../control/routes.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import { createLogger } from "../../core/log.ts";
import type { Paths } from "../../core/paths.ts";
import type { ListedEvent } from "../../events/event.ts";
import { Events } from "../../events/events.ts";
import { sendToDesktop, systemDesktop } from "../../notify/desktop.ts";
import { jsonText } from "../../usage/reports/format.ts";
import { exitOnClosedOutput, fail, formatNote, notice, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { timeOfDay } from "../ui/units.ts";

export interface ListOptions {
  readonly follow?: boolean;
  readonly desktop?: boolean;
  readonly all?: boolean;
  readonly json?: boolean;
}

const NEWEST = 20;
/** More than are kept. */
const ALL = 99_999;
const RETRY_MS = 500;

/** `keybearer events` */
export async function list(options: ListOptions): Promise<void> {
  exitOnClosedOutput();
  if (options.desktop && !options.follow)
    return fail({ problem: "--desktop is for new events", next: "add --follow" }, EXIT.usage);
  const paths = commandPaths();
  const count = options.all ? ALL : NEWEST;
  if (options.follow && options.desktop) return follow(paths, ALL, onDesktop(systemClock.now()));
  if (options.follow) return follow(paths, count, (event) => printEvent(event, options.json === true));
  const answer = await readEvents(paths, count);
  if (answer === null) return;
  if (options.json) printJson(answer.events);
  else printLayout(formatEvents(answer, Date.now(), stdoutScreen().width));
}

/** From the daemon, or without one from its file. null: the daemon did not answer, and why was printed. */
async function readEvents(paths: Paths, count: number): Promise<EventsAnswer | null> {
  const asked = await askDaemon<EventsAnswer>(paths, "GET", `/events/${count}`);
  if (asked.ok) return asked.value;
  if (asked.running) {
    fail(asked, EXIT.failed);
    return null;
  }
  const log = createLogger({ level: "error", destination: stdio().stderr, forPeople: true, secrets: [] });
  const events = new Events({ file: paths.events, clock: systemClock, log });
  return { events: events.newest(count), mutes: events.mutes() };
}

type EventLine = { readonly following: true } | { readonly event: ListedEvent } | { readonly lost: number };

function printEvent(event: ListedEvent, json: boolean): void {
  const text = json ? jsonText(event) : formatEvent(event, Date.now(), stdoutScreen().width);
  stdio().stdout.write(`${text}\n`);
}

const DESKTOP_MS = 10_000;

/** The system service has no desktop: a unit of the owner's session runs this. What came before it began is not shown. */
function onDesktop(began: number): Show {
  return (event) => {
    if (event.muted || event.at < began) return;
    const shown = sendToDesktop(systemDesktop(stdio().env), event, DESKTOP_MS, new AbortController().signal);
    void shown.then((outcome) => {
      if (outcome.result !== "delivered") notice(`${event.subject}: ${outcome.problem}`);
    });
  };
}

type Show = (event: ListedEvent) => void;

/** Until Ctrl-C, also over restarts of the daemon. Begins with the newest `count`. */
async function follow(paths: Paths, count: number, show: Show): Promise<void> {
  process.once("SIGINT", () => process.exit(EXIT.ok));
  process.once("SIGTERM", () => process.exit(EXIT.ok));
  const seen = new Set<string>();
  const showOnce = (event: ListedEvent) => {
    if (seen.has(event.id)) return;
    seen.add(event.id);
    show(event);
  };
  const catchUp = async () => {
    // What came before the first events that were shown is not missed.
    const answer = await readEvents(paths, seen.size === 0 ? count : ALL);
    const [oldest = ""] = seen;
    for (const event of answer?.events ?? []) if (event.id > oldest) showOnce(event);
  };
  let waitingFor: string | null = null;
  for (;;) {
    const lines = followLines<EventLine>(paths.socket, "/events/follow");
    for (;;) {
      const next = await lines.next();
      if (next.done) {
        const { problem, final } = next.value;
        if (final) return fail(next.value, EXIT.failed);
        if (seen.size === 0) await catchUp();
        if (problem !== waitingFor) notice(`${problem}; waiting for it (Ctrl-C ends)`);
        waitingFor = problem;
        break;
      }
      const line = next.value;
      if ("event" in line) showOnce(line.event);
      else await catchUp();
      if ("following" in line && waitingFor !== null) {
        notice("following keybearer again");
        waitingFor = null;
      }
      if (stdio().stdout.writableNeedDrain) await once(stdio().stdout, "drain");
    }
    await pause(RETRY_MS);
  }
}

function formatEvents({ events, mutes }: EventsAnswer, now: number, width: number): string {
  const lines =
    events.length === 0
      ? [wrap("nothing was reported yet", width)]
      : events.map((event) => formatEvent(event, now, width));
  if (mutes.length > 0) lines.push("", ...mutes.map((mute) => formatMute(mute, now, width)));
  return `${lines.join("\n")}\n`;
}

const MARK_WIDTH = "critical".length;

/** 14:02  warning   gateway main  gateway main has failed for 2 min: … → keybearer doctor */
function formatEvent(event: ListedEvent, now: number, width: number): string {
  const { at, severity, subject, message, next, state, muted, active } = event;
  const mark = (state === "ended" ? "ended" : severity).padEnd(MARK_WIDTH);
  const notes = [active ? "still so" : null, muted ? "muted" : null].filter((note) => note !== null);
  const after = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  const what = printable(`${timeOfDay(at, now)}  ${mark}  ${subject}  ${message}${after}`);
  return formatNote({ what, next }, width);
}

function formatMute({ subject, until }: Muted, now: number, width: number): string {
  const what = `muted until ${timeOfDay(until, now)}: ${printable(subject)}`;
  return formatNote({ what, next: advice.unmute(subject) }, width);
}
