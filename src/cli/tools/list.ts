import { formatProblems } from "../../config/problems.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { type ToolStatus, toolStatusOffline, usedUpLimit } from "../../control/tool-status.ts";
import { EXIT } from "../../core/errors.ts";
import { DAY_MS, dollars, exactDollars, HOUR_MS } from "../../core/units.ts";
import { endInWords } from "../../limits/format.ts";
import { systemCalendar } from "../../limits/windows.ts";
import type { ToolConsoleFacts } from "../../mirror/report/shape.ts";
import { formatConsoleFacts, formatUsed } from "../keys.ts";
import { printSources } from "../sources.ts";
import { fail, formatNote, type Note, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";
import { columnsFor, layoutTable, type Table } from "../ui/table.ts";
import { type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { ago } from "../ui/units.ts";
import { limitLines, whenInWords } from "./limit-lines.ts";

/** Before this, that a tool will expire is no news. */
const EXPIRES_SOON_MS = 7 * DAY_MS;

export async function list(options: { json?: boolean }): Promise<void> {
  const paths = commandPaths();
  const now = Date.now();
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  let tools: readonly ToolStatus[];
  if (asked.ok) tools = asked.value.tools;
  else {
    // Loaded on demand: `status` uses this file, and would wait for the YAML parser.
    const { loadHere } = await import("../config-here.ts");
    const { config, problems } = await loadHere(paths, { strict: false });
    if (config === null) return fail(formatProblems(paths.config, problems), EXIT.badConfig);
    tools = Object.values(config.tools).map((tool) => toolStatusOffline(tool, config, now));
  }
  if (options.json) printJson(tools);
  else printLayout(listInWords(tools, now, stdoutScreen()));
  if (paths.mode === "system" && options.json !== true) await printSources(paths);
}

/** Each tool on a line, its limits and its console's word below it, and at the end what needs the person. */
export function listInWords(tools: readonly ToolStatus[], now: number, screen: Screen): string {
  const { lines: table, note } = toolTable(tools, now, screen.width);
  const [head = "", ...rows] = table;
  // Made together, so that their columns align.
  const limits = limitLines(
    tools.flatMap((tool) => tool.limits),
    now,
    screen,
  );
  const lines = [head];
  for (const [at, tool] of tools.entries())
    lines.push(
      rows[at] ?? "",
      ...tool.limits.flatMap(() => limits.shift() ?? []),
      // A daemon that was started before an update does not report it.
      ...consoleLines(tool.console ?? null, now, screen.width),
    );
  if (note !== null) lines.push(note);
  const notes = tools.flatMap((tool) => listNotes(tool, now));
  if (notes.length > 0) lines.push("", ...notes.map((note) => formatNote(note, screen.width)));
  return `${lines.join("\n")}\n`;
}

function listNotes(tool: ToolStatus, now: number): Note[] {
  const { name, state, why, next, expires } = tool;
  const notes: Note[] = [];
  if (next !== null) notes.push({ what: `${name}: ${why}`, next });
  if (expires !== null && expires > now && expires - now <= EXPIRES_SOON_MS)
    notes.push({
      what: `${name}: expires ${expiryInWords(expires, now)}`,
      next: `change tools.${name}.expires`,
    });
  // A tool that does not work for another reason may be at a limit, too.
  const full = state === "at-limit" ? null : usedUpLimit(tool, now);
  if (full !== null && full.next !== null) notes.push({ what: `${name}: ${full.problem}`, next: full.next });
  return notes;
}

/** The day after would be taken for the last one, except where it is said to be tomorrow at midnight. */
function expiryInWords(expires: number, now: number): string {
  return expires - now <= DAY_MS ? whenInWords(expires, now) : `at ${endInWords(expires, systemCalendar)}`;
}

/** One line per tool. */
export function toolTable(tools: readonly ToolStatus[], now: number, width: number): Table {
  const { text } = columnsFor(tools);
  // Most of the time there are no calls in flight, so the column is left out.
  const calls = tools.some(({ running, waiting }) => running + waiting > 0);
  const columns = [
    text("tool", 0, ({ name }) => name),
    text("state", 0, ({ state }) => state),
    text("gateway", 1, ({ gateway, group }) => (group === null ? gateway : `${gateway}/${group}`)),
    text("key", 3, ({ key }) => key ?? "-"),
    text("tokens", 4, ({ tokens }) => String(tokens)),
    ...(calls ? [text("running", 2, callsInWords)] : []),
    text("last use", 3, ({ last_use }) => (last_use === null ? "-" : `${ago(now - last_use)} ago`)),
  ];
  return layoutTable(columns, width);
}

function callsInWords({ running, waiting }: ToolStatus): string {
  return waiting === 0 ? String(running) : `${running}, ${waiting} ${waiting === 1 ? "waits" : "wait"}`;
}

const INDENT = "    ";
/** Older than this, what the console said may no longer hold. */
const STALE_MS = HOUR_MS;

/** console: $12.40 of $50.00 used, 5h $1.20/$5.00, group coding ×1.5, expires 2027-03-31, balance $8.10 */
export function consoleLines(facts: ToolConsoleFacts | null, now: number, width: number): string[] {
  if (facts === null) return [];
  const parts = [
    ...(facts.state === "active" || facts.state === "unknown" ? [] : [`key ${facts.state}`]),
    ...formatQuota(facts),
    ...formatConsoleFacts(facts, now),
    ...(facts.balance === null ? [] : [`balance ${dollars(facts.balance)}`]),
  ];
  if (parts.length === 0) return [];
  const age = now - facts.as_of;
  if (age >= STALE_MS) parts.push(`as of ${ago(age)} ago`);
  return wrap(printable(`console: ${parts.join(", ")}`), width - INDENT.length)
    .split("\n")
    .map((line) => `${INDENT}${line}`);
}

function formatQuota({ quota, quota_used: used }: ToolConsoleFacts): string[] {
  if (quota === null) return used === null || used === 0 ? [] : [`${dollars(used)} used`];
  return used === null ? [`quota ${exactDollars(quota)}`] : [`${formatUsed(used, quota)} used`];
}
