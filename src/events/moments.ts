import { advice } from "../core/advice.ts";
import { DAY_MS, HOUR_MS } from "../core/units.ts";
import { type Level, type SessionLevel, takenInAll } from "../limits/counters.ts";
import { durationInWords, endInWords, limitFigures, limitName, momentInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import { FOREVER, type Occurrence, type Said } from "./event.ts";

/* What happens once: a limit that is nearly or quite used up, and what is about to end. Pure. */

/** What a tool has used of its limits. */
export interface ToolUse {
  readonly tool: string;
  readonly levels: readonly Level[];
  readonly sessions: readonly SessionLevel[];
}

/** Something that ends at a known time. */
export interface Ending {
  /** tool codex */
  readonly subject: string;
  /** the key of tool codex */
  readonly what: string;
  readonly at: number;
  readonly next: string | null;
  readonly said: Said;
}

/** Whether this was reported, and must not be again. */
type WasReported = (occurrence: Pick<Occurrence, "kind" | "subject" | "once">) => boolean;

/** In percent, the larger one first. */
const SHARES = [100, 80] as const;
/** A shorter limit has room again before a person has read about it. */
const LONG_PERIODS: readonly string[] = ["hour", "day", "month"];
/** Of thousands of sessions that are at a limit, only those in use are worth a message. */
const RECENT_MS = HOUR_MS;
/** A session is not used for longer. */
const SESSION_MS = 31 * DAY_MS;

/** Limits of which 80 % or all is used, each once in its window and for each maximum that it has there. */
export function findUsedLimits(
  uses: readonly ToolUse[],
  now: number,
  wasReported: WasReported,
): Occurrence[] {
  return uses.flatMap(({ tool, levels, sessions }) => [
    ...levels.flatMap((level) => toolLimit(tool, level, now, wasReported) ?? []),
    ...sessions.flatMap(({ session, limits }) =>
      now - session.last > RECENT_MS
        ? []
        : limits.flatMap((limit) => sessionLimit(tool, session.id, limit, now, wasReported) ?? []),
    ),
  ]);
}

function toolLimit(tool: string, level: Level, now: number, wasReported: WasReported): Occurrence | null {
  const { limit, window, max, estimated, extra } = level;
  if (limit.kind === "concurrent" || ("per" in limit && !LONG_PERIODS.includes(limit.per))) return null;
  const { used, held } = takenInAll(level);
  const about = { kind: "limit", subject: `tool ${tool}` } as const;
  const name = limitName({ limit: limit.kind, per: "per" in limit ? limit.per : null });
  const until = window?.end ?? FOREVER;
  const start = window === null ? "" : `${window.start} `;
  // With another maximum, an allowance included, it is reported once more.
  const onceAt = (share: number) => ({ name: `${name} ${share} ${start}${max}`, until });
  const share = shareToReport(used, max, extra, (at) => wasReported({ ...about, once: onceAt(at) }));
  if (share === null) return null;
  const figures = limitFigures(limit.kind, { used, estimated, held, max, extra });
  const resets = window === null ? "" : `, resets ${momentInWords(window.end, now, systemCalendar)}`;
  const own = limit.kind === "quota" ? "its quota" : `its limit ${name}`;
  const raise = limit.kind === "quota" ? `raise tools.${tool}.quota` : advice.lift(tool, limit.kind);
  const values = { name: tool, percent: percentOf(used, max), used: figures.used ?? "", most: figures.max };
  return {
    ...about,
    severity: "warning",
    message: `tool ${tool} has ${shareInWords(used, max)} ${own}: ${figures.used} of ${figures.max}${resets}`,
    next: share === 100 ? raise : advice.usage(),
    once: onceAt(share),
    said:
      "per" in limit
        ? { code: "limit", values: { ...values, limit: limit.kind, per: limit.per } }
        : { code: "quota", values },
  };
}

function sessionLimit(
  tool: string,
  id: string,
  { kind, used, held, max, extra }: SessionLevel["limits"][number],
  now: number,
  wasReported: WasReported,
): Occurrence | null {
  const about = { kind: "limit", subject: `tool ${tool}` } as const;
  const onceAt = (share: number) => ({
    name: `session ${id} ${kind} ${share} ${max}`,
    until: now + SESSION_MS,
  });
  const share = shareToReport(used, max, extra, (at) => wasReported({ ...about, once: onceAt(at) }));
  if (share === null) return null;
  const figures = limitFigures(kind, { used, held, max, extra });
  return {
    ...about,
    severity: "warning",
    message: `session ${id} of tool ${tool} has ${shareInWords(used, max)} its limit on ${kind}: ${figures.used} of ${figures.max}`,
    next: share === 100 ? advice.liftSession(id, kind, null, tool) : advice.sessions(),
    once: onceAt(share),
    said: {
      code: "session-limit",
      values: {
        name: tool,
        session: id,
        percent: percentOf(used, max),
        used: figures.used ?? "",
        most: figures.max,
        limit: kind,
      },
    },
  };
}

/** null: none is reached, or it was reported, or a larger one was. */
function shareToReport(
  used: number,
  max: number,
  extra: number,
  wasReported: (share: number) => boolean,
): number | null {
  // $0/day is used up from the beginning.
  if (max - extra <= 0) return null;
  const reached = SHARES.find((share) => used * 100 >= max * share);
  if (reached === undefined) return null;
  return SHARES.some((share) => share >= reached && wasReported(share)) ? null : reached;
}

/** By its figures, nothing is used up while something is left. */
function shareInWords(used: number, max: number): string {
  return used >= max ? "used up" : `used ${percentOf(used, max)} % of`;
}

function percentOf(used: number, max: number): number {
  return Math.min(100, Math.floor((used * 100) / max));
}

/** The longer one first. */
const NOTICES = [
  { name: "7 days", ms: 7 * DAY_MS },
  { name: "1 day", ms: DAY_MS },
] as const;

/** What ends within seven days, and again within one. */
export function findEndings(endings: readonly Ending[], now: number): Occurrence[] {
  return endings.flatMap(({ subject, what, at, next, said }) => {
    const left = at - now;
    const due = NOTICES.findLast(({ ms }) => left <= ms);
    if (left <= 0 || due === undefined) return [];
    return [
      {
        kind: "expiry",
        severity: "warning",
        subject,
        message: `${what} expires in ${durationInWords(left)}: ${endInWords(at, systemCalendar)}`,
        next,
        said,
        // A console may round the same end in another way each time.
        once: { name: `${what} ${due.name} ${Math.round(at / HOUR_MS)}`, until: at },
      },
    ];
  });
}
