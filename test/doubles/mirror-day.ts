import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import type { OurRequest, Scene, TheirRow } from "../../src/mirror/match/scene.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { random } from "./random.ts";
import { record } from "./records.ts";

/*
 * A day as two logs tell it: ours, and the console's, with everything that goes wrong between them; and the truth about
 * both. Only what nobody could tell apart does not happen: where a request that never got an id (or whose tokens are not
 * known, where no ids are handed out) may take any row of its key and model, there is no other one that fits as well.
 */

export interface DayWish {
  readonly seed?: number;
  readonly requests?: number;
  readonly foreign?: number;
  /** The first moment of the day by our clock. */
  readonly from?: number;
  /** How far the console's clock is ahead. */
  readonly skew?: number;
  /** false: a console whose rows have no id that was ever handed out. It lists no errors either. */
  readonly ids?: boolean;
  /** The console tells whole seconds only. */
  readonly seconds?: boolean;
  readonly gateway?: string;
}

export interface Day {
  /** As the usage log has them, in the order of their starts. */
  readonly records: readonly UsageRecord[];
  readonly ours: readonly OurRequest[];
  /** As the console tells them: by its clock, in the order of its clock. */
  readonly rows: readonly ConsoleRow[];
  /** The rows of a request, by identity. */
  readonly truth: ReadonlyMap<string, string>;
  /** The identities of what did not pass here. */
  readonly foreign: ReadonlySet<string>;
  /** The ids of the records that should be listed and are not. */
  readonly dropped: ReadonlySet<string>;
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

export function makeDay(wish: DayWish = {}): Day {
  const day = createDay(wish);
  const { below, requests } = day;
  while (day.records.length < requests) {
    const asked = day.ask(Math.floor((day.records.length / requests) * (DAY - 30 * MINUTE)));
    const chance = below(1000);
    if (chance < 15) day.leftBeforeAnswer(asked);
    else if (chance < 30) day.leftDuringAnswer(asked);
    else if (chance < 40) day.retried(asked);
    else if (chance < 50) day.withoutTokens(asked);
    else if (chance < 60) day.dropped(asked);
    else if (chance < 65) day.afterErrors(asked);
    else if (chance < 68) day.burst(asked);
    else day.plain(asked);
  }
  day.foreign(wish.foreign ?? 37);
  return day.finished();
}

function createDay(wish: DayWish) {
  const { seed = 1, requests = 20_000, from = Date.UTC(2026, 10, 14), skew = 0, ids = true } = wish;
  const { seconds = false, gateway = "main" } = wish;
  const below = random(seed);
  const records: UsageRecord[] = [];
  const rows: ConsoleRow[] = [];
  const truth = new Map<string, string>();
  const foreign = new Set<string>();
  const missing = new Set<string>();
  /** By key and model, the times in which any row would be taken. */
  const taken = new Map<string, [number, number][]>();

  const laneOf = ({ who, model }: Asked) => `${who}|${model}`;
  const isTaken = (asked: Asked, begin: number, end: number) =>
    (taken.get(laneOf(asked)) ?? []).some(([first, last]) => first <= end && begin <= last);
  /** Whether this one may be one that takes any row: there is no other near it, and from now on none will be. */
  const take = (asked: Asked) => {
    const [begin, end] = [asked.start - 10_000, asked.end + 11 * MINUTE];
    if (isTaken(asked, begin, end)) return false;
    const lane = taken.get(laneOf(asked)) ?? [];
    lane.push([begin, end]);
    taken.set(laneOf(asked), lane);
    return true;
  };

  const write = (asked: Asked, given: Partial<UsageRecord> = {}) => {
    const { start, end, who, model, tokens } = asked;
    const number = records.length + 1;
    const made = record(number, {
      started_at: start,
      first_byte_at: Math.min(start + 300, end),
      ended_at: end,
      tool: TOOLS[who] ?? "codex",
      gateway,
      key: KEYS[who] ?? null,
      model,
      model_answered: `${model}-2026-08`,
      input_tokens: tokens.input,
      cache_read_tokens: tokens.cacheRead,
      cache_write_tokens: tokens.cacheWrite,
      output_tokens: tokens.output,
      gateway_ids: ids ? { "x-client-request-id": `request-${seed}-${number}` } : {},
      ...given,
    });
    records.push(made);
    return made;
  };

  const list = (asked: Asked, owner: UsageRecord | null, given: Partial<ConsoleRow> = {}, late?: number) => {
    const number = rows.length + 1;
    const identity = `row-${seed}-${number}`;
    const at = asked.end + (late ?? 50 + below(1450)) + skew;
    const cost = asked.tokens.input * 2 + asked.tokens.output * 10;
    const handed = owner?.gateway_ids["x-client-request-id"] ?? `unseen-${seed}-${number}`;
    rows.push({
      identity,
      kind: "use",
      created_at: seconds ? Math.floor(at / 1000) * 1000 : at,
      key_ref: `id:${asked.who + 1}`,
      request_id: ids ? handed : null,
      upstream_id: null,
      model: asked.model,
      group: "coding",
      multiplier: 1.5,
      stream: true,
      endpoint: "/v1/responses",
      input_tokens: asked.tokens.input,
      cache_read_tokens: asked.tokens.cacheRead,
      cache_write_tokens: asked.tokens.cacheWrite,
      output_tokens: asked.tokens.output,
      list_microdollars: cost,
      billed_microdollars: Math.round(cost * 1.5),
      duration_ms: asked.end - asked.start,
      ip: null,
      ...given,
    });
    if (owner === null) foreign.add(identity);
    else truth.set(identity, owner.id);
  };

  const listErrors = (asked: Asked, owner: UsageRecord, count: number) => {
    const nothing = { input_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0, output_tokens: 0 };
    const free = { ...nothing, list_microdollars: null, billed_microdollars: 0 };
    for (let left = count; left > 0 && ids; left -= 1) list(asked, owner, { kind: "error", ...free });
  };

  const ask = (offset: number): Asked => {
    const start = from + offset + below(8000);
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
  };

  const plain = (asked: Asked) => list(asked, write(asked));

  return {
    records,
    requests,
    below,
    ask,
    plain,
    /** Esc before headers: some are billed all the same. */
    leftBeforeAnswer(asked: Asked) {
      if (!take(asked)) return plain(asked);
      const made = write(asked, {
        ...UNKNOWN,
        end: "client-left",
        first_byte_at: null,
        model_answered: null,
        stream: null,
        status: null,
        gateway_ids: {},
      });
      if (below(10) < 6) list(asked, made, {}, below(2 * MINUTE));
    },
    /** The gateway went on, and counts more than was seen here. */
    leftDuringAnswer(asked: Asked) {
      if (!ids && !take(asked)) return plain(asked);
      list(asked, write(asked, { ...UNKNOWN, end: "client-left" }), {}, below(MINUTE));
    },
    /** It failed, and the tool asks the same again. */
    retried(asked: Asked) {
      if (!ids && !take(asked)) return plain(asked);
      const failed = write(asked, { ...UNKNOWN, stream: false, status: 502, model_answered: null });
      listErrors(asked, failed, 1 + below(3));
      const again = asked.end - asked.start + 500 + below(2000);
      plain({ ...asked, start: asked.start + again, end: asked.end + again });
    },
    withoutTokens(asked: Asked) {
      if (!ids && !take(asked)) return plain(asked);
      list(asked, write(asked, UNKNOWN));
    },
    dropped(asked: Asked) {
      missing.add(write(asked).id);
    },
    /** Other channels were tried first, under the same id. */
    afterErrors(asked: Asked) {
      const made = write(asked);
      listErrors(asked, made, 1 + below(3));
      list(asked, made);
    },
    /** The same again and again within a second. */
    burst(asked: Asked) {
      for (let left = Math.min(5 + below(36), requests - records.length); left > 0; left -= 1) {
        const shift = below(1000);
        plain({ ...asked, start: asked.start + shift, end: asked.end + shift });
      }
    },
    foreign(count: number) {
      const near = records.filter(({ end }) => end === "complete");
      while (foreign.size < count) {
        const beside = near[below(near.length)];
        if (beside === undefined) throw new Error("no request to be foreign beside");
        const asked = besides(beside, ids && below(2) === 0, ask(0));
        if (!isTaken(asked, asked.start, asked.end + MINUTE)) list(asked, null);
      }
    },
    finished(): Day {
      const inOrder = records.sort((a, b) => a.started_at - b.started_at || (a.id < b.id ? -1 : 1));
      return {
        records: inOrder,
        ours: inOrder.map(oursOf),
        rows: rows.sort((a, b) => a.created_at - b.created_at || (a.identity < b.identity ? -1 : 1)),
        truth,
        foreign,
        dropped: missing,
        keys: new Map(KEYS.map((key, index) => [`id:${index + 1}`, key])),
        from,
        to: from + DAY,
        skew,
      };
    },
  };
}

const UNKNOWN = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
} as const satisfies Partial<UsageRecord>;

/** Somebody else's request with the same key, at the same moment, and be it with the very same tokens. */
function besides(beside: UsageRecord, alike: boolean, own: Asked): Asked {
  const tokens = alike
    ? {
        input: beside.input_tokens ?? own.tokens.input,
        cacheRead: beside.cache_read_tokens ?? 0,
        cacheWrite: beside.cache_write_tokens ?? 0,
        output: beside.output_tokens ?? own.tokens.output,
      }
    : own.tokens;
  return {
    start: beside.started_at + 100,
    end: (beside.ended_at ?? beside.started_at) + 100,
    who: Math.max(0, (KEYS as readonly (string | null)[]).indexOf(beside.key)),
    model: beside.model ?? own.model,
    tokens,
  };
}

/** A record that reached its gateway, as comparing sees it. */
export function oursOf(made: UsageRecord): OurRequest {
  const { input_tokens: input, output_tokens: output } = made;
  const known = input !== null && output !== null;
  return {
    id: made.id,
    started_at: made.started_at,
    ended_at: made.ended_at,
    running: made.end === null,
    key: made.key,
    model: made.model,
    model_answered: made.model_answered,
    stream: made.stream,
    status: made.status,
    ids: Object.values(made.gateway_ids),
    tokens: known
      ? { input, cache_read: made.cache_read_tokens ?? 0, cache_write: made.cache_write_tokens ?? 0, output }
      : null,
    exact: made.tokens_from === "reported",
    expected: made.end === "complete" && made.status !== null && made.status < 400,
    billable: true,
    upgraded: made.status === 101,
  };
}

/** The day's rows by our clock, as far as the skew was measured: to about a second. */
export function theirsOf(day: Day, measured = day.skew): TheirRow[] {
  return day.rows.map((row) => ({
    ...row,
    at: row.created_at - measured,
    key: (row.key_ref === null ? null : day.keys.get(row.key_ref)) ?? null,
  }));
}

/** An hour after the day, whose keys were all held here all the time. */
export function sceneOf(day: Day, given: Partial<Scene> = {}): Scene {
  return {
    now: day.to + 60 * MINUTE,
    held: () => ({ since: day.from - DAY, until: null, replaced: false }),
    kept_from: day.from - DAY,
    unwatched: [],
    hands_out_ids: day.ours.some(({ ids }) => ids.length > 0),
    ids_are_own: true,
    ...given,
  };
}
