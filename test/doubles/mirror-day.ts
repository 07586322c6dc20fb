// Makes a day of requests and of the rows that a console lists for them, with every kind of difference, from a seed.
import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import type { Context, OurRequest, TheirRow } from "../../src/mirror/reconcile/context.ts";
import { learnStartFit, UNKNOWN_START } from "../../src/mirror/reconcile/fit.ts";
import { SIBLING_CLOCK_MS } from "../../src/mirror/reconcile/siblings.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { consoleRow } from "./console-row.ts";
import { random } from "./random.ts";
import { record } from "./records.ts";

/*
 * A day in two logs, ours and the console's, with everything that goes wrong between them, and the truth about both. Only
 * what cannot be told apart does not happen: a request that may take any row of its key and model, because it has no id
 * (or no known tokens, where the console hands out no ids), has no other request of that key and model near it.
 */

export interface DayOptions {
  readonly seed?: number;
  readonly requests?: number;
  /** Rows that did not pass here. */
  readonly foreign?: number;
  /** The first moment of the day by our clock. */
  readonly from?: number;
  /** How far the console's clock is ahead. */
  readonly skew?: number;
  /** false: the console hands out no ids, and lists no errors either. */
  readonly ids?: boolean;
  /** The console's times are whole seconds. */
  readonly seconds?: boolean;
}

const DEFAULTS: Required<DayOptions> = {
  seed: 1,
  requests: 20_000,
  foreign: 37,
  from: Date.UTC(2026, 10, 14),
  skew: 0,
  ids: true,
  seconds: false,
};

export interface Day {
  /** As the usage log has them, in the order of their starts. */
  readonly records: readonly UsageRecord[];
  readonly ours: readonly OurRequest[];
  /** By the console's clock, in its order. */
  readonly rows: readonly ConsoleRow[];
  /** The record of a row, by the row's identity. */
  readonly truth: ReadonlyMap<string, string>;
  /** Identities of the rows that did not pass here. */
  readonly foreign: ReadonlySet<string>;
  /** Ids of the records that should be listed and are not. */
  readonly dropped: ReadonlySet<string>;
  /** How much later than its request a row began, of those with an id, by the console's clock. */
  readonly offsets: readonly number[];
  /** The fingerprint by key_ref. */
  readonly keys: ReadonlyMap<string, string>;
  readonly from: number;
  readonly to: number;
  readonly skew: number;
}

const DAY = 86_400_000;
const MINUTE = 60_000;
const TOOLS = ["claude-code", "codex", "opencode", "scripts"] as const;
const MODELS = ["claude-sonnet-4-5", "gpt-5.1", "gemini-3-pro"] as const;
const KEYS = ["…a1b2", "…c3d4", "…e5f6", "…0789"] as const;

interface Asked {
  readonly start: number;
  readonly end: number;
  /** Which tool, and so which key. */
  readonly who: number;
  readonly model: string;
  readonly tokens: { input: number; cacheRead: number; cacheWrite: number; output: number };
}

export function makeDay(options: DayOptions = {}): Day {
  const all = { ...DEFAULTS, ...options };
  const { requests, foreign, ids } = all;
  const day = new DayMaker(all);
  while (day.records.length < requests) {
    const asked = day.ask(Math.floor((day.records.length / requests) * (DAY - 30 * MINUTE)));
    const chance = day.below(1000);
    const takesAnyRow = chance < 15 || (chance < 50 && !ids);
    if (takesAnyRow && !day.reserve(asked)) day.answer(asked);
    else if (chance < 15) day.leaveBeforeAnswer(asked);
    else if (chance < 30) day.leaveDuringAnswer(asked);
    else if (chance < 40) day.failAndRetry(asked);
    else if (chance < 50) day.answerWithoutTokens(asked);
    else if (chance < 60) day.dropRow(asked);
    else if (chance < 65) day.answerAfterErrors(asked);
    else if (chance < 68) day.burst(asked, requests - day.records.length);
    else day.answer(asked);
  }
  while (day.foreign.size < foreign) day.useElsewhere();
  return day.finish();
}

class DayMaker {
  readonly records: UsageRecord[] = [];
  readonly foreign = new Set<string>();
  readonly offsets: number[] = [];
  /** A random whole number below a limit. */
  readonly below: (limit: number) => number;
  private readonly rows: ConsoleRow[] = [];
  private readonly truth = new Map<string, string>();
  private readonly dropped = new Set<string>();
  /** By key and model, the times in which a request takes any row. */
  private readonly reserved = new Map<string, { from: number; to: number }[]>();
  private readonly options: Required<DayOptions>;

  constructor(options: Required<DayOptions>) {
    this.options = options;
    this.below = random(options.seed);
  }

  ask(offset: number): Asked {
    const { below } = this;
    const start = this.options.from + offset + below(8000);
    return {
      start,
      end: start + 400 + below(below(10) === 0 ? 90_000 : 12_000),
      who: below(KEYS.length),
      model: MODELS[below(MODELS.length)] ?? "gpt-5.1",
      tokens: {
        input: 1 + below(100_000),
        cacheRead: below(2) * below(50_000),
        cacheWrite: below(4) === 0 ? below(9000) : 0,
        output: 1 + below(8000),
      },
    };
  }

  /** Keeps the time around a request free of others that take any row. false: it is not free. */
  reserve(asked: Asked): boolean {
    const from = asked.start - 10_000;
    const to = asked.end + 11 * MINUTE;
    if (this.isReserved(asked, from, to)) return false;
    const lane = `${asked.who}|${asked.model}`;
    this.reserved.set(lane, [...(this.reserved.get(lane) ?? []), { from, to }]);
    return true;
  }

  private isReserved({ who, model }: Asked, from: number, to: number): boolean {
    const times = this.reserved.get(`${who}|${model}`) ?? [];
    return times.some((one) => one.from <= to && from <= one.to);
  }

  answer(asked: Asked): void {
    this.list(asked, this.write(asked));
  }

  /** Some of these are billed all the same. */
  leaveBeforeAnswer(asked: Asked): void {
    const made = this.write(asked, {
      ...UNKNOWN_TOKENS,
      end: "client-left",
      first_byte_at: null,
      model_answered: null,
      stream: null,
      status: null,
      gateway_ids: {},
    });
    if (this.below(10) < 6) this.list(asked, made, { late: this.below(2 * MINUTE) });
  }

  /** The gateway goes on, and counts more than passed here. */
  leaveDuringAnswer(asked: Asked): void {
    this.list(asked, this.write(asked, { ...UNKNOWN_TOKENS, end: "client-left" }), {
      late: this.below(MINUTE),
    });
  }

  failAndRetry(asked: Asked): void {
    const failed = this.write(asked, { ...UNKNOWN_TOKENS, stream: false, status: 502, model_answered: null });
    this.listErrors(asked, failed);
    const delay = asked.end - asked.start + 500 + this.below(2000);
    this.answer({ ...asked, start: asked.start + delay, end: asked.end + delay });
  }

  answerWithoutTokens(asked: Asked): void {
    this.list(asked, this.write(asked, UNKNOWN_TOKENS));
  }

  dropRow(asked: Asked): void {
    this.dropped.add(this.write(asked).id);
  }

  /** The gateway tried other channels first, under the same id. */
  answerAfterErrors(asked: Asked): void {
    const made = this.write(asked);
    this.listErrors(asked, made);
    this.list(asked, made);
  }

  /** The same request many times within a second. */
  burst(asked: Asked, max: number): void {
    for (let left = Math.min(5 + this.below(36), max); left > 0; left -= 1) {
      const shift = this.below(1000);
      this.answer({ ...asked, start: asked.start + shift, end: asked.end + shift });
    }
  }

  /** A request past keybearer with the key of one of ours, at the same moment, sometimes with the same tokens. */
  useElsewhere(): void {
    const ours = this.records.filter(({ end }) => end === "complete");
    const beside = ours[this.below(ours.length)];
    if (beside === undefined) throw new Error("there is no request to be foreign beside");
    const isAlike = this.options.ids && this.below(2) === 0;
    const own = this.ask(0);
    const asked: Asked = {
      start: beside.started_at + 100,
      end: (beside.ended_at ?? beside.started_at) + 100,
      who: KEYS.indexOf(beside.key as (typeof KEYS)[number]),
      model: beside.model ?? own.model,
      tokens: isAlike ? tokensOf(beside, own) : own.tokens,
    };
    if (!this.isReserved(asked, asked.start, asked.end + MINUTE)) this.list(asked, null);
  }

  finish(): Day {
    this.records.sort((a, b) => a.started_at - b.started_at || (a.id < b.id ? -1 : 1));
    this.rows.sort((a, b) => a.created_at - b.created_at || (a.identity < b.identity ? -1 : 1));
    return {
      records: this.records,
      ours: this.records.map(oursOf),
      rows: this.rows,
      truth: this.truth,
      foreign: this.foreign,
      dropped: this.dropped,
      offsets: this.offsets,
      keys: new Map(KEYS.map((key, index) => [`id:${index + 1}`, key])),
      from: this.options.from,
      to: this.options.from + DAY,
      skew: this.options.skew,
    };
  }

  /** Writes our record of a request. */
  private write({ start, end, who, model, tokens }: Asked, given: Partial<UsageRecord> = {}): UsageRecord {
    const number = this.records.length + 1;
    const made = record(number, {
      started_at: start,
      first_byte_at: Math.min(start + 300, end),
      ended_at: end,
      tool: TOOLS[who] ?? "codex",
      gateway: "main",
      key: KEYS[who] ?? null,
      model,
      model_answered: `${model}-2026-08`,
      input_tokens: tokens.input,
      cache_read_tokens: tokens.cacheRead,
      cache_write_tokens: tokens.cacheWrite,
      output_tokens: tokens.output,
      gateway_ids: this.options.ids
        ? { "x-client-request-id": `request-${this.options.seed}-${number}` }
        : {},
      ...given,
    });
    this.records.push(made);
    return made;
  }

  /** Writes the console's row of a request. No owner: it is foreign. */
  private list(
    asked: Asked,
    owner: UsageRecord | null,
    { late, given = {} }: { late?: number; given?: Partial<ConsoleRow> } = {},
  ): void {
    const { tokens } = asked;
    const number = this.rows.length + 1;
    const identity = `row-${this.options.seed}-${number}`;
    const at = asked.end + (late ?? 50 + this.below(1450)) + this.options.skew;
    const start = asked.start + 5 + this.below(20) + this.options.skew;
    const began = this.options.seconds ? Math.floor(start / 1000) * 1000 : start;
    if (owner !== null && this.options.ids && owner.status === 200)
      this.offsets.push(began - owner.started_at);
    const cost = tokens.input * 2 + tokens.output * 10;
    const handedOut = owner?.gateway_ids["x-client-request-id"] ?? `unseen-${this.options.seed}-${number}`;
    const row = consoleRow({
      identity,
      created_at: this.options.seconds ? Math.floor(at / 1000) * 1000 : at,
      began_at: began,
      key_ref: `id:${asked.who + 1}`,
      request_id: this.options.ids ? handedOut : null,
      model: asked.model,
      input_tokens: tokens.input,
      cache_read_tokens: tokens.cacheRead,
      cache_write_tokens: tokens.cacheWrite,
      output_tokens: tokens.output,
      list_microdollars: cost,
      billed_microdollars: Math.round(cost * 1.5),
      duration_ms: asked.end - asked.start,
      ...given,
    });
    this.rows.push(row);
    if (owner === null) this.foreign.add(identity);
    else this.truth.set(identity, owner.id);
  }

  private listErrors(asked: Asked, owner: UsageRecord): void {
    const tokens = { input: 0, cacheRead: 0, cacheWrite: 0, output: 0 };
    const given = { kind: "error", list_microdollars: null, billed_microdollars: 0 } as const;
    const count = 1 + this.below(3);
    for (let n = 0; n < count && this.options.ids; n += 1) this.list({ ...asked, tokens }, owner, { given });
  }
}

/** Of a record whose answer reported no tokens. */
export const UNKNOWN_TOKENS = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
} as const satisfies Partial<UsageRecord>;

function tokensOf(made: UsageRecord, otherwise: Asked): Asked["tokens"] {
  return {
    input: made.input_tokens ?? otherwise.tokens.input,
    cacheRead: made.cache_read_tokens ?? 0,
    cacheWrite: made.cache_write_tokens ?? 0,
    output: made.output_tokens ?? otherwise.tokens.output,
  };
}

/** A record that reached its gateway, as the comparison sees it. */
function oursOf(made: UsageRecord): OurRequest {
  const { input_tokens: input, output_tokens: output } = made;
  const known = input !== null && output !== null;
  return {
    id: made.id,
    started_at: made.started_at,
    sent_at: made.started_at,
    ended_at: made.ended_at,
    clock_error: made.machine === null ? 0 : SIBLING_CLOCK_MS,
    running: made.end === null,
    key: made.key,
    model: made.model,
    model_answered: made.model_answered,
    stream: made.stream,
    status: made.status,
    user_agent: made.user_agent,
    ids: Object.values(made.gateway_ids),
    own_id: Object.keys(made.gateway_ids).length > 0,
    brought_id: null,
    refusable: false,
    tokens: known
      ? { input, cache_read: made.cache_read_tokens ?? 0, cache_write: made.cache_write_tokens ?? 0, output }
      : null,
    exact: made.tokens_from === "reported",
    expected: made.end === "complete" && made.status !== null && made.status < 400,
    billable: true,
    failed: made.status !== null && made.status >= 400,
    upgraded: made.status === 101,
  };
}

/** The day's rows by our clock, with the skew as it was measured. */
export function theirsOf(day: Day, measured = day.skew): TheirRow[] {
  return day.rows.map((row) => ({
    ...row,
    at: row.created_at - measured,
    began: row.began_at === null ? null : row.began_at - measured,
    key: (row.key_ref === null ? null : day.keys.get(row.key_ref)) ?? null,
  }));
}

/** An hour after the day. All its keys were held here all the time. */
export function contextOf(day: Day, measured = day.skew): Context {
  return {
    now: day.to + 60 * MINUTE,
    held: () => ({ since: day.from - DAY, until: null, replaced: false }),
    kept_from: day.from - DAY,
    log_gaps: [],
    siblings: [],
    unsigned: [],
    hands_out_ids: day.ours.some(({ ids }) => ids.length > 0),
    bills_failures: false,
    socket_rows_have_ids: false,
    lists_unanswered: new Map(MODELS.map((model) => [`${model}|null`, true])),
    own_addresses: null,
    start: learnStartFit(day.offsets.map((offset) => offset - measured)) ?? UNKNOWN_START,
  };
}
