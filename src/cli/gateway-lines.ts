import type { GatewayStatus } from "../control/status.ts";
import { count } from "../usage/reports/format.ts";
import { type Column, renderTable } from "./ui/table.ts";
import { printable, truncate } from "./ui/text.ts";

/** The head, and one line for each gateway, no wider than `width`. */
export function gatewayTable(gateways: readonly GatewayStatus[], width: number): string[] {
  const column = (head: string, dropOrder: number, cell: (gateway: GatewayStatus) => string): Column => ({
    head,
    cells: gateways.map(cell),
    dropOrder,
  });
  const columns = [
    column("gateway", 0, ({ name }) => truncate(printable(name), Math.max(16, Math.floor(width / 4)))),
    column("state", 0, stateInWords),
    column("tools", 1, ({ tools }) => String(tools)),
    // Last, so that a long address is what is cut.
    column("address", 0, ({ base_url }) => base_url),
  ];
  return renderTable(columns, width).split("\n");
}

function stateInWords({ state }: GatewayStatus): string {
  // A daemon that was started before an update has no state.
  return state === undefined || state === "unknown" ? "no request yet" : state;
}

/** failing since 14:02 (180 requests): nothing listens there (ECONNREFUSED). null: it does not fail. */
export function failingInWords({ state, since, failures, why }: GatewayStatus, now: number): string | null {
  if (state !== "failing") return null;
  return `failing since ${clockInWords(since ?? now, now)} (${count(failures, "request")}): ${why}`;
}

/** 14:02, and on another day 2026-11-03 14:02; local time. */
function clockInWords(time: number, now: number): string {
  const then = new Date(time);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  if (then.toDateString() === new Date(now).toDateString()) return clock;
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${clock}`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
