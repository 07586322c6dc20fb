import type { SessionLimitStatus, SessionStatus } from "../../control/session-status.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import { costInWords, DAY_MS, exact } from "../../core/units.ts";
import { statusFigures } from "../../limits/format.ts";
import { count, percent, short } from "../../usage/reports/format.ts";
import { isShared, readSessions, type SessionName, type SessionRow } from "../../usage/reports/sessions.ts";
import { cacheShare, sumTokens } from "../../usage/reports/sums.ts";
import { exitOnClosedOutput, fail, printJson, printLayout, printText } from "../ui/messages.ts";
import { shortIds } from "../ui/short-ids.ts";
import { commandPaths } from "../ui/stdio.ts";
import { columnsFor, renderTable } from "../ui/table.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { wrap } from "../ui/text.ts";
import { ago, timeOfDay } from "../ui/units.ts";
import { filterOf, resolveFilter } from "../usage/filter.ts";
import { hasUsageLog, noUsageLog, withIndex } from "../usage/index-file.ts";
import { askSessions } from "./find.ts";

export interface ListOptions {
  readonly all?: boolean;
  readonly tool?: readonly string[];
  readonly project?: readonly string[];
  readonly json?: boolean;
}

/** A session, as --json prints it. */
export interface ListedSession extends SessionRow {
  /** Of all kinds. */
  readonly tokens: number;
  /** How much of the input came from a cache; null: there was no input. */
  readonly cache_share: number | null;
  /** Requests in flight. */
  readonly running: number;
  /** The owner stopped it. */
  readonly stopped: boolean;
  /** How full its limits are; empty: it has none, or no daemon runs. */
  readonly limits: readonly SessionLimitStatus[];
}

/** `keybearer sessions` */
export async function list(options: ListOptions): Promise<void> {
  exitOnClosedOutput();
  const now = Date.now();
  const paths = commandPaths();
  const since = options.all ? null : now - DAY_MS;
  const filter = filterOf(options, { since, until: null });
  if (!hasUsageLog(paths)) {
    const resolved = await resolveFilter(filter, null, paths, null);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    if (options.json) printJson([]);
    else printText(noUsageLog(paths));
    return;
  }
  await withIndex(paths, async (db) => {
    const resolved = await resolveFilter(filter, db, paths, null);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    const { tools, projects } = resolved.filter;
    const rows = readSessions(db, { since, tools, projects });
    const known = await askSessions(paths);
    const statuses = byName(known);
    const sessions = rows.map((row) => listed(row, statuses));
    if (options.json) printJson(sessions);
    else {
      const { width } = stdoutScreen();
      const notes = sharedNotes(known, sessions).map((note) => `${wrap(note, width)}\n`);
      printLayout(formatSessions(sessions, since, now, width) + notes.join(""));
    }
  });
}

/** What the daemon knows, by nameKey(). */
export function byName(known: readonly SessionStatus[]): ReadonlyMap<string, SessionStatus> {
  return new Map(known.map((one) => [nameKey(one), one]));
}

function nameKey({ tool, session }: SessionName): string {
  return JSON.stringify([tool, session]);
}

export function listed(row: SessionRow, known: ReadonlyMap<string, SessionStatus>): ListedSession {
  const status = known.get(nameKey(row));
  const { running = 0, stopped = false, limits = [] } = status ?? {};
  return { ...row, tokens: sumTokens(row), cache_share: cacheShare(row), running, stopped, limits };
}

/**
 * About sessions that count requests without an id. Where their processes are known, the table has a row for each process
 * instead.
 */
function sharedNotes(known: readonly SessionStatus[], rows: readonly ListedSession[]): string[] {
  const isListed = ({ tool, session }: SessionStatus) =>
    rows.some((row) => row.tool === tool && row.session === session);
  return known
    .filter((one) => isShared(one.session) && !isListed(one))
    .map((one) => {
      const { tool, session, running, stopped } = one;
      const states = [formatState(one), ...(running > 0 ? [`${exact(running)} running`] : [])];
      const next = stopped ? ` → ${advice.allowSession(session, tool)}` : "";
      return `${session} of ${tool}, requests that name no session: ${states.filter(Boolean).join(", ")}${next}`;
    });
}

/** stopped, or how full the fullest limit is: $3.10 of $5.00 */
export function formatState({ stopped, limits }: Pick<SessionStatus, "stopped" | "limits">): string {
  if (stopped) return "stopped";
  const [fullest] = limits.toSorted((a, b) => shareOf(b) - shareOf(a));
  if (fullest === undefined) return "";
  const { used, max } = statusFigures(fullest);
  const unit = fullest.limit === "spend" ? "" : ` ${fullest.limit}`;
  return `${used} of ${max}${unit}`;
}

function shareOf({ used, held, most }: SessionLimitStatus): number {
  return most === 0 ? 1 : (used + held) / most;
}

function formatSessions(
  sessions: readonly ListedSession[],
  since: number | null,
  now: number,
  width: number,
): string {
  if (sessions.length === 0) {
    const none =
      since === null
        ? "no session was recorded yet"
        : "no session had a request in the last 24 hours; --all lists older ones";
    return `${wrap(none, width)}\n`;
  }
  const title = since === null ? "all sessions" : "sessions with a request in the last 24 hours";
  return `${[wrap(title, width), sessionTable(sessions, now, width), wrap(formatTotal(sessions), width)].join("\n\n")}\n`;
}

function sessionTable(sessions: readonly ListedSession[], now: number, width: number): string {
  const ids = shortIds(sessions.map(({ session }) => session));
  const { text, number } = columnsFor(sessions);
  const has = (isThere: (session: ListedSession) => boolean) => sessions.some(isThere);
  const columns = [
    { head: "session", cells: ids, dropOrder: 0 },
    text("tool", 0, ({ tool }) => tool),
    ...(has(({ project }) => project !== null) ? [text("project", 0, ({ project }) => project ?? "-")] : []),
    ...(has(({ branch }) => branch !== null) ? [text("branch", 6, ({ branch }) => branch ?? "-")] : []),
    text("started", 7, ({ started_at }) => timeOfDay(started_at, now)),
    number("last", 4, ({ last_at }) => `${ago(now - last_at)} ago`),
    number("requests", 3, ({ requests }) => exact(requests)),
    ...(has(({ refused }) => refused > 0) ? [number("refused", 8, ({ refused }) => exact(refused))] : []),
    number("tokens", 5, ({ tokens }) => short(tokens)),
    number("cache", 9, ({ cache_share: share }) => (share === null ? "-" : percent(share))),
    number("cost", 1, ({ cost_microdollars, unknown_cost }) => costInWords(cost_microdollars, unknown_cost)),
    ...(has((session) => formatState(session) !== "") ? [text("limit", 2, formatState)] : []),
    ...(has(({ running }) => running > 0) ? [number("running", 2, ({ running }) => exact(running))] : []),
  ];
  return renderTable(columns, width);
}

/** 3 sessions, 120 requests, $4.20 */
function formatTotal(sessions: readonly ListedSession[]): string {
  let requests = 0;
  let cost = 0;
  let unknown = 0;
  for (const session of sessions) {
    requests += session.requests;
    cost += session.cost_microdollars;
    unknown += session.unknown_cost;
  }
  return `${count(sessions.length, "session")}, ${count(requests, "request")}, ${costInWords(cost, unknown)}`;
}
