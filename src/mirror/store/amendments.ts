import { pick } from "../../core/pick.ts";
import { type Counted, difference } from "../../limits/windows.ts";
import { NO_TOKENS, type Tokens } from "../../metering/usage.ts";
import { countedBy } from "../../usage/counted.ts";
import {
  AMENDED,
  type AmendedFields,
  type AmendLine,
  type SiblingAmendLine,
} from "../../usage/journal/lines.ts";
import { NOT_CLOSED, type UsageRecord } from "../../usage/record.ts";
import type { Theirs } from "../verdict.ts";

/* Gives records the console's numbers, and takes them back. */

/** The numbers that a record can take from the console besides its bill. Its own are kept in `ours`. */
export const TAKEN = AMENDED.filter((name) => name !== "billed_microdollars");

type OwnNumbers = Omit<AmendedFields, "billed_microdollars">;

/** For a record whose own numbers were lost with mirror.db. */
const UNKNOWN = pick({ ...NOT_CLOSED, billed_microdollars: null }, TAKEN);

export type FindPrice = (
  record: UsageRecord,
  tokens: Tokens,
) => { readonly list: number; readonly cost: number } | null;

/** The record as it was before it took anything from the console. */
export function withoutTheirs(record: UsageRecord, ours: OwnNumbers | null): UsageRecord {
  const own = ours ?? (record.tokens_from === "console" ? UNKNOWN : {});
  return { ...record, ...own, billed_microdollars: null };
}

/** The record with the console's money, and with its tokens if its own are not complete. */
export function withTheirs(own: UsageRecord, theirs: Theirs, findPrice: FindPrice): UsageRecord {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = theirs;
  const billed = { ...own, billed_microdollars: theirs.billed_microdollars };
  if (isComplete(own) || input_tokens === null || output_tokens === null) return billed;
  const tokens: Tokens = {
    ...NO_TOKENS,
    input: input_tokens,
    cacheRead: cache_read_tokens ?? 0,
    cacheWrite: cache_write_tokens ?? 0,
    output: output_tokens,
  };
  const price = findPrice(own, tokens);
  return {
    ...billed,
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    output_tokens,
    reasoning_tokens: null,
    tokens_from: "console",
    list_microdollars: price?.list ?? null,
    cost_microdollars: price?.cost ?? null,
    counted_tokens: tokens.input + tokens.cacheRead + tokens.cacheWrite + tokens.output,
    counted_microdollars: price?.cost ?? own.counted_microdollars,
  };
}

/** The tokens of an answer that broke off are not complete: the gateway may have continued. */
function isComplete({ tokens_from, input_tokens, output_tokens, end }: UsageRecord): boolean {
  return tokens_from === "reported" && end === "complete" && input_tokens !== null && output_tokens !== null;
}

/** Another machine's record takes nothing from the limits here. */
export type Amendment = AmendLine | SiblingAmendLine;

/** null: nothing changes. */
export function buildAmendment(before: UsageRecord, after: UsageRecord): Amendment | null {
  if (AMENDED.every((name) => before[name] === after[name])) return null;
  const { id, tool, counts, machine, machine_id } = after;
  if (machine !== null && machine_id !== null)
    return { kind: "sibling-amend", machine, machine_id, verified: true, id, ...pick(after, AMENDED) };
  const limits =
    tool === null || counts === false
      ? null
      : {
          tool,
          admitted_at: after.admitted_at ?? after.started_at,
          session: after.counted_session,
          before: countedBy(before),
          after: countedBy(after),
        };
  return { kind: "amend", id, ...pick(after, AMENDED), limits };
}

/** How much more a record takes from its tool's limits than before. Negative: less. */
export interface Correction extends Counted {
  readonly tool: string;
  /** When the limits admitted it. */
  readonly at: number;
  readonly session: string | null;
}

/** null: nothing changes for the limits. */
export function computeCorrection(line: Amendment): Correction | null {
  if (line.kind === "sibling-amend" || line.limits === null) return null;
  const { tool, admitted_at, session, before, after } = line.limits;
  const change = difference(before, after);
  if (Object.values(change).every((one) => one === 0)) return null;
  return { tool, at: admitted_at, session, ...change };
}
