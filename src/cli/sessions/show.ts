import { EXIT } from "../../core/errors.ts";
import { costInWords, exact, QUARTER_MS } from "../../core/units.ts";
import { count, percent, refusalInWords, short } from "../../usage/reports/format.ts";
import { readDetails, type SessionDetails } from "../../usage/reports/sessions.ts";
import { sumTokens, unknownCost } from "../../usage/reports/sums.ts";
import { emptySums, type Sums } from "../../usage/rollups.ts";
import { exitOnClosedOutput, fail, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";
import { type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { ago, exactTime } from "../ui/units.ts";
import { hasUsageLog, noUsageLog, withIndex } from "../usage/index-file.ts";
import { reportTable } from "../usage/report-table.ts";
import { formatField } from "../usage/show.ts";
import { askSessions, findIn } from "./find.ts";
import { byName, formatState, type ListedSession, listed } from "./list.ts";

export interface ShowOptions {
  readonly tool?: string;
  readonly json?: boolean;
}

/** `keybearer sessions show <id>` */
export async function show(text: string, options: ShowOptions): Promise<void> {
  exitOnClosedOutput();
  const now = Date.now();
  const paths = commandPaths();
  if (!hasUsageLog(paths)) return fail(noUsageLog(paths), EXIT.failed);
  await withIndex(paths, async (db) => {
    const known = await askSessions(paths);
    const found = findIn(db, text, options.tool ?? null, known);
    if (!found.ok) return fail(found, EXIT.failed);
    const details = readDetails(db, found.name, now);
    if (details === null)
      return fail(
        { problem: `the usage log has no request of ${found.name.session} yet`, next: null },
        EXIT.failed,
      );
    const session = listed(details.row, byName(known));
    if (options.json) printJson(detailsJson(session, details));
    else printLayout(formatDetails(session, details, now, stdoutScreen()));
  });
}

function detailsJson(session: ListedSession, { report, refusals }: SessionDetails): object {
  return {
    ...session,
    models: report.rows.map(({ names, sums }) => ({ model: names[0] ?? null, ...amounts(sums) })),
    refusals,
    over_time: report.trend.map(({ from, to }, interval) => ({
      since: from * QUARTER_MS,
      until: to * QUARTER_MS,
      ...amounts(report.total.parts.get(interval) ?? emptySums()),
    })),
  };
}

function amounts(sums: Readonly<Sums>): object {
  return {
    requests: sums.requests,
    tokens: sumTokens(sums),
    cost_microdollars: sums.cost_microdollars,
    unknown_cost: unknownCost(sums),
  };
}

function formatDetails(
  session: ListedSession,
  { report, refusals }: SessionDetails,
  now: number,
  screen: Screen,
): string {
  const { width } = screen;
  const { branch, project, cache_share: share } = session;
  const requests = [
    exact(session.requests),
    ...(session.running > 0 ? [`${exact(session.running)} more running now`] : []),
    ...(session.refused > 0 ? [`${exact(session.refused)} of them refused`] : []),
  ];
  const fields: [name: string, value: string | null][] = [
    ["session", session.session],
    ["tool", session.tool],
    ["project", project],
    ["branch", branch],
    ["started", exactTime(session.started_at)],
    ["last", `${exactTime(session.last_at)}, ${ago(now - session.last_at)} ago`],
    ["requests", requests.join(", ")],
    [
      "tokens",
      `${short(session.tokens)}${share === null ? "" : `, ${percent(share)} of the input from cache`}`,
    ],
    ["cost", costInWords(session.cost_microdollars, session.unknown_cost)],
    ["limit", formatState(session) || null],
  ];
  const parts = [
    fields.flatMap(([name, value]) => (value === null ? [] : [formatField(name, value, width)])).join("\n"),
    ...(report.rows.length === 0 ? [] : [reportTable(report, screen, now)]),
    ...(refusals.length === 0
      ? []
      : [refusals.map((refusal) => wrap(printable(formatRefusal(refusal)), width)).join("\n")]),
  ];
  return `${parts.join("\n\n")}\n`;
}

/** session-limited: 12 requests, the session reached its limit */
function formatRefusal({ code, requests }: SessionDetails["refusals"][number]): string {
  return `${code}: ${count(requests, "request")}, ${refusalInWords(code)}`;
}
