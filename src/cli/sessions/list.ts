import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { costInWords, DAY_MS, exact } from "../../core/units.ts";
import { count, percent, short } from "../../usage/reports/format.ts";
import { finish } from "../../usage/reports/report.ts";
import { readSessions, type SessionName, type SessionRow } from "../../usage/reports/sessions.ts";
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
    const rows = finish(readSessions(db, { since, tools, projects }));
    const running = await readRunning(paths);
    const sessions = rows.map((row) => listed(row, running));
    if (options.json) printJson(sessions);
    else printLayout(formatSessions(sessions, since, now, stdoutScreen().width));
  });
}

/** How many requests of a session are in flight. None are if no daemon runs. */
type Running = (name: SessionName) => number;

export async function readRunning(paths: Paths): Promise<Running> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  // A daemon from before an update does not send them.
  const inFlight = asked.ok ? (asked.value.sessions_in_flight ?? []) : [];
  const calls = new Map(inFlight.map((each) => [keyOf(each), each.calls]));
  return (name) => calls.get(keyOf(name)) ?? 0;
}

function keyOf({ tool, session }: SessionName): string {
  return JSON.stringify([tool, session]);
}

export function listed(row: SessionRow, running: Running): ListedSession {
  return { ...row, tokens: sumTokens(row), cache_share: cacheShare(row), running: running(row) };
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
