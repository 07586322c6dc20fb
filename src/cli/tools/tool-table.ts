import type { ToolStatus } from "../../control/tool-status.ts";
import { type Column, fitted } from "../columns.ts";
import { ago } from "../table.ts";

/** The head, and one line a tool. */
export function toolTable(tools: readonly ToolStatus[], now: number, width: number): string[] {
  const column = (head: string, goes: number, cell: (tool: ToolStatus) => string): Column => ({
    head,
    cells: tools.map(cell),
    goes,
  });
  const count = (head: string, amount: (tool: ToolStatus) => number): Column[] =>
    // Mostly nobody calls: then it is not worth a column.
    tools.every((tool) => amount(tool) === 0)
      ? []
      : [{ ...column(head, 2, (tool) => String(amount(tool) || "")), right: true }];
  const columns = [
    column("tool", 0, ({ name }) => name),
    column("state", 0, ({ state }) => state),
    column("gateway", 1, ({ gateway, group }) => (group === null ? gateway : `${gateway}/${group}`)),
    column("key", 3, ({ key }) => key ?? "-"),
    column("tokens", 4, ({ tokens }) => String(tokens)),
    ...count("running", ({ running }) => running),
    ...count("waiting", ({ waiting }) => waiting),
    column("last use", 3, ({ last_use }) => (last_use === null ? "-" : `${ago(now - last_use)} ago`)),
  ];
  return fitted(columns, width, { sum: false }).split("\n");
}
