import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { KeyReport, KeysAnswer } from "../mirror/report/shape.ts";
import { findPlaces } from "../places.ts";
import { EXIT } from "../start-failure.ts";
import { dayName } from "../usage/reports/calendar.ts";
import { type Column, cut, fitted, type Screen, screenOf } from "./columns.ts";
import { fail } from "./fail.ts";
import { factor, listed, money } from "./mirror/amounts.ts";
import { NO_CONSOLE } from "./mirror/consoles.ts";
import { noteInWords } from "./note.ts";
import { ago, visible } from "./table.ts";

export function keysCommand(): Command {
  return new Command("keys")
    .description("the console's keys, and the tools that hold them")
    .option("--json", "for programs")
    .action(keys);
}

async function keys(options: { json?: boolean }): Promise<void> {
  const asked = await askDaemon<KeysAnswer>(findPlaces().socket, "GET", "/keys");
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  const screen = screenOf(process.env, process.stdout.columns);
  process.stdout.write(
    options.json ? `${JSON.stringify(asked.value, null, 2)}\n` : keysInWords(asked.value, Date.now(), screen),
  );
  if (asked.value.keys.length === 0 && asked.value.problems.length > 0) process.exitCode = EXIT.failed;
}

export function keysInWords({ keys, problems }: KeysAnswer, now: number, { width }: Screen): string {
  if (keys.length === 0 && problems.length === 0) return `${NO_CONSOLE}\n`;
  const lines = keys.length === 0 ? [] : [keyTable(keys, now, width)];
  for (const { gateway, why, next } of problems)
    lines.push(noteInWords({ what: `${gateway}: its keys cannot be listed: ${why}`, next }, width));
  return `${lines.join("\n")}\n`;
}

function keyTable(keys: readonly KeyReport[], now: number, width: number): string {
  const column = (head: string, goes: number, cell: (key: KeyReport) => string, right = false): Column => ({
    head,
    cells: keys.map(cell),
    goes,
    right,
  });
  const short = (text: string) => cut(visible(text), Math.max(16, Math.floor(width / 4)));
  const optional = (made: Column): Column[] => (made.cells.every((cell) => cell === "-") ? [] : [made]);
  const several = keys.some(({ gateway }) => gateway !== keys[0]?.gateway);
  const columns = [
    ...(several ? [column("gateway", 2, ({ gateway }) => short(gateway))] : []),
    column("name", 0, ({ name }) => short(name)),
    column("key", 1, ({ key }) => key ?? "-"),
    ...optional(column("group", 3, ({ group, multiplier }) => short(groupOf(group, multiplier)))),
    column("state", 1, ({ state }) => state),
    column("quota", 4, quotaOf, true),
    ...optional(column("windows", 6, ({ windows }) => windows.map(windowOf).join(", ") || "-")),
    ...optional(column("expires", 5, ({ expires_at: at }) => (at === null ? "-" : dayName(at)))),
    column("last use", 4, ({ last_used_at: at }) => (at === null ? "-" : `${ago(now - at)} ago`)),
    column("tool", 0, ({ tools }) => (tools.length === 0 ? "not held here" : short(listed(tools)))),
  ];
  return fitted(columns, width, { sum: false });
}

function groupOf(group: string | null, multiplier: number | null): string {
  if (multiplier === null) return group ?? "-";
  return `${group ?? "-"} ${factor(multiplier)}`;
}

function quotaOf({ quota, quota_used: used }: KeyReport): string {
  const most = quota === null ? "unlimited" : money(quota);
  return used === null ? most : `${money(used)}/${most}`;
}

/** 5h $1.20/$5 */
export function windowOf({ window, used, most }: KeyReport["windows"][number]): string {
  return `${window} ${money(used)}/${money(most)}`;
}
