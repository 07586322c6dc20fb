import type { ToolStatus } from "../../control/tool-status.ts";
import { type Column, layoutTable, type Table } from "../ui/table.ts";
import { printable, truncate } from "../ui/text.ts";
import { ago } from "../ui/units.ts";

/** One line per tool. */
export function toolTable(tools: readonly ToolStatus[], now: number, width: number): Table {
  const column = (head: string, dropOrder: number, cell: (tool: ToolStatus) => string): Column => ({
    head,
    cells: tools.map(cell),
    dropOrder,
  });
  const short = (text: string) => truncate(printable(text), Math.max(16, Math.floor(width / 4)));
  // Mostly nobody calls: then it is not worth a column.
  const calls = tools.some(({ running, waiting }) => running + waiting > 0);
  const columns = [
    // Cut here: one long name must not push out what is known of all tools.
    column("tool", 0, ({ name }) => short(name)),
    column("state", 0, ({ state }) => state),
    column("gateway", 1, ({ gateway, group }) => short(group === null ? gateway : `${gateway}/${group}`)),
    column("key", 3, ({ key }) => key ?? "-"),
    column("tokens", 4, ({ tokens }) => String(tokens)),
    ...(calls ? [column("running", 2, callsInWords)] : []),
    column("last use", 3, ({ last_use }) => (last_use === null ? "-" : `${ago(now - last_use)} ago`)),
  ];
  return layoutTable(columns, width);
}

function callsInWords({ running, waiting }: ToolStatus): string {
  return waiting === 0 ? String(running) : `${running}, ${waiting} ${waiting === 1 ? "waits" : "wait"}`;
}
