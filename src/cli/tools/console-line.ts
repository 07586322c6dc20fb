import type { ToolConsoleFacts } from "../../mirror/report/shape.ts";
import { consoleFacts } from "../keys.ts";
import { printable, wrap } from "../ui/text.ts";
import { ago, money } from "../ui/units.ts";

const INDENT = "    ";
/** Older than this, what the console said may no longer hold. */
const STALE_MS = 3_600_000;

/** console: $12.40 of $50 used, 5h $1.20/$5, group coding ×1.5, expires 2027-03-31, balance $8.10 */
export function consoleLines(facts: ToolConsoleFacts | null, now: number, width: number): string[] {
  if (facts === null) return [];
  const parts = [
    ...(facts.state === "active" || facts.state === "unknown" ? [] : [`key ${facts.state}`]),
    ...quotaOf(facts),
    ...consoleFacts(facts, now),
    ...(facts.balance === null ? [] : [`balance ${money(facts.balance)}`]),
  ];
  if (parts.length === 0) return [];
  const age = now - facts.as_of;
  if (age >= STALE_MS) parts.push(`as of ${ago(age)} ago`);
  return wrap(printable(`console: ${parts.join(", ")}`), width - INDENT.length)
    .split("\n")
    .map((line) => `${INDENT}${line}`);
}

function quotaOf({ quota, quota_used: used }: ToolConsoleFacts): string[] {
  if (quota === null) return used === null || used === 0 ? [] : [`${money(used)} used`];
  return used === null ? [`quota ${money(quota)}`] : [`${money(used)} of ${money(quota)} used`];
}
