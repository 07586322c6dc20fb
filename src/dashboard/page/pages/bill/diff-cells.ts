import { costInWords, exact } from "../../../../core/units.ts";
import type { ComparedRecord, ComparedRow } from "../../../../mirror/report/shape.ts";
import { clockInWords, dayOf } from "../../format.ts";

/** What one side says, as it is shown. */
export interface DiffCells {
  readonly time: string;
  readonly who: string;
  readonly model: string;
  readonly input: string;
  readonly cache: string;
  readonly output: string;
  readonly money: string;
}

export function cellsOf(
  { row, record }: ComparedRow,
  now: number,
): { readonly ours: DiffCells | null; readonly theirs: DiffCells | null } {
  return {
    ours:
      record === null
        ? null
        : {
            time: timeOf(record.ended_at ?? record.started_at, now),
            who: record.tool ?? "–",
            model: record.model ?? "–",
            ...tokensOf(record),
            money: costInWords(record.cost_microdollars),
          },
    theirs:
      row === null
        ? null
        : {
            time: timeOf(row.at, now),
            who: row.key ?? row.key_ref ?? "–",
            model: row.model ?? "–",
            ...tokensOf(row),
            money: costInWords(row.billed_microdollars),
          },
  };
}

/** What makes it this line and no other. */
export function keyOf({ gateway, row, record }: ComparedRow): string {
  return JSON.stringify([gateway, row?.identity ?? null, record?.id ?? null]);
}

type Tokens = Pick<
  ComparedRecord,
  "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens"
>;

function tokensOf(tokens: Tokens): Pick<DiffCells, "input" | "cache" | "output"> {
  const { cache_read_tokens: read, cache_write_tokens: written } = tokens;
  const cache = read === null && written === null ? null : (read ?? 0) + (written ?? 0);
  return { input: number(tokens.input_tokens), cache: number(cache), output: number(tokens.output_tokens) };
}

/** Unknown is not zero. */
function number(tokens: number | null): string {
  return tokens === null ? "?" : exact(tokens);
}

function timeOf(at: number, now: number): string {
  return dayOf(at) === dayOf(now) ? clockInWords(at) : `${dayOf(at).slice(5)} ${clockInWords(at)}`;
}
