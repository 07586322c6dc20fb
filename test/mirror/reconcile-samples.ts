import type { Context, OurRequest, TheirRow } from "../../src/mirror/reconcile/context.ts";
import { reconcile } from "../../src/mirror/reconcile/reconcile.ts";
import type { JudgedRecord, JudgedRow } from "../../src/mirror/verdict.ts";
import { consoleRow } from "../doubles/console-row.ts";

export const NOW = Date.UTC(2026, 10, 14, 12);
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
/** Some time ago: what happened then is no longer young. */
export const THEN = NOW - 3 * HOUR;
/** Those of a console row unless it is given others. */
export const TOKENS = { input: 1200, cache_read: 800, cache_write: 0, output: 342 };

/** A request that ended THEN, took two seconds, and has no id. */
export function request(id: string, given: Partial<OurRequest> = {}): OurRequest {
  const ended = given.ended_at === undefined ? THEN : given.ended_at;
  const started = given.started_at ?? (ended ?? THEN) - 2000;
  const { status = 200, ids = [] } = given;
  return {
    id,
    started_at: started,
    sent_at: started,
    ended_at: ended,
    clock_error: 0,
    running: false,
    key: "…a1b2",
    model: "gpt-5.1",
    model_answered: "gpt-5.1-2026-08",
    stream: true,
    status,
    user_agent: null,
    ids,
    own_id: ids.length > 0,
    brought_id: null,
    refusable: false,
    tokens: TOKENS,
    exact: true,
    expected: true,
    billable: true,
    failed: status !== null && status >= 400,
    upgraded: false,
    ...given,
  };
}

/** Left before the answer began. */
export function left(id: string, given: Partial<OurRequest> = {}): OurRequest {
  const nothing = { model_answered: null, stream: null, status: null, tokens: null, exact: false };
  return request(id, { ...nothing, expected: false, ...given });
}

/** Its row, listed half a second later. */
export function row(identity: string, given: Partial<TheirRow> = {}): TheirRow {
  const at = given.at ?? THEN + 500;
  const money = { list_microdollars: 5420, billed_microdollars: 8130 };
  return { ...consoleRow({ identity, created_at: at, ...money }), at, began: null, key: "…a1b2", ...given };
}

/** What a gateway like new-api shows. */
export const START = { later: 0, within: 500, close: 50, latest: 2000 };

/** Of all requests that `left` makes, with a model that is known and one that is not. */
const KINDS = ["gpt-5.1", "claude", "undefined"].flatMap((model) =>
  [true, false, null].map((stream) => `${model}|${stream}`),
);

export function matchContext(given: Partial<Context> = {}): Context {
  return {
    now: NOW,
    held: () => ({ since: NOW - 48 * HOUR, until: null, replaced: false }),
    kept_from: NOW - 48 * HOUR,
    log_gaps: [],
    siblings: [],
    unsigned: [],
    hands_out_ids: true,
    bills_failures: false,
    socket_rows_have_ids: false,
    start: START,
    lists_unanswered: new Map(KINDS.map((kind) => [kind, true])),
    own_addresses: null,
    ...given,
  };
}

/** The verdicts by identity and by record, each in short: `matched id →a`. */
export function verdicts(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  given: Partial<Context> = {},
): Record<string, string> {
  const { rows, records } = reconcile(ours, theirs, matchContext(given));
  return Object.fromEntries([
    ...rows.map((judged) => [judged.identity, inShort(judged, judged.record)]),
    ...records.map((judged) => [judged.record, inShort(judged, judged.row)]),
  ]);
}

function inShort(judged: JudgedRow | JudgedRecord, other: string | null): string {
  const certain = "certain" in judged && judged.certain ? "certain" : null;
  const link = other === null ? null : `→${other}`;
  return [judged.verdict, certain, judged.how, link].filter((word) => word !== null).join(" ");
}
