import { firstIdAt } from "../../src/core/ids.ts";
import type { RecordEnd, UsageRecord } from "../../src/usage/record.ts";
import { createRandom } from "./random.ts";

/** A record that says nothing special, but for what is given. Its id tells its time, and `number` makes it unique. */
export function record(number: number, given: Partial<UsageRecord> = {}): UsageRecord {
  const startedAt = given.started_at ?? 1_763_164_800_123;
  return {
    id: `${firstIdAt(startedAt)}${String(number).padStart(16, "0")}`,
    started_at: startedAt,
    first_byte_at: startedAt + 878,
    ended_at: startedAt + 2333,
    tool: "codex",
    gateway: "main",
    group: "coding",
    multiplier: 1.5,
    key: "…a1b2",
    protocol: "openai",
    method: "POST",
    endpoint: "/v1/responses",
    model: "gpt-5.1",
    model_answered: "gpt-5.1-2026-08",
    stream: true,
    status: 200,
    end: "complete",
    cause: null,
    cause_detail: null,
    refusal: null,
    input_tokens: 1200,
    cache_read_tokens: 800,
    cache_write_tokens: 0,
    output_tokens: 342,
    reasoning_tokens: 128,
    tokens_from: "reported",
    list_microdollars: 5420,
    cost_microdollars: 8130,
    billed_microdollars: null,
    bytes_in: 40_192,
    bytes_out: 18_231,
    session: null,
    project: null,
    branch: null,
    token: null,
    waited_ms: 0,
    held_tokens: null,
    held_microdollars: null,
    counted_session: null,
    admitted_at: null,
    sent_at: isUnsent(given) ? null : startedAt + (given.waited_ms ?? 0),
    counts: null,
    counted_tokens: null,
    counted_microdollars: null,
    seen_tokens: null,
    process: null,
    user_agent: null,
    gateway_ids: { "x-client-request-id": `id-${number}` },
    machine: null,
    requests: 1,
    last_id: null,
    machine_id: given.machine == null ? null : `id-of-${given.machine}`,
    verified: given.machine == null ? null : true,
    ...given,
  };
}

function isUnsent({ end, refusal, bytes_in, first_byte_at }: Partial<UsageRecord>): boolean {
  const hasLeft = end === "client-left" && bytes_in === 0 && first_byte_at === null;
  return hasLeft || end === "refused" || refusal === "gateway-unreachable";
}

const TOOLS = ["claude-code", "codex", "opencode", "scripts", "chat"];
const MODELS = [
  "claude-sonnet-4-5",
  "gpt-5.1",
  "claude-opus-4-5",
  "gpt-5.1-mini",
  "gemini-3-pro",
  "my-model",
];

/** What a busy person leaves behind: sittings with one tool and model each, most by day, all from one seed. */
export function* plausible(count: number, from: number, days: number, seed = 1): Generator<UsageRecord> {
  const random = createRandom(seed);
  const perDay = count / days;
  let number = 0;
  for (let day = 0; day < days; day += 1) {
    const wanted = Math.round(perDay * (day + 1)) - Math.round(perDay * day);
    for (const { time, tool, model } of sittings(wanted, random)) {
      number += 1;
      yield one(number, from + day * 86_400_000 + time, tool, model, random);
    }
  }
}

interface Asked {
  readonly time: number;
  readonly tool: string;
  readonly model: string;
}

function sittings(count: number, random: () => number): Asked[] {
  const skewed = (names: readonly string[]) => names[Math.floor(random() * random() * names.length)] ?? "";
  const asked: Asked[] = [];
  while (asked.length < count) {
    const [tool, model] = [skewed(TOOLS), skewed(MODELS)];
    let time = Math.floor(((random() + random()) / 2) * 84_000_000);
    for (let left = Math.ceil(random() * 60); left > 0 && asked.length < count; left -= 1) {
      asked.push({ time: Math.min(time, 86_399_999), tool, model });
      time += Math.ceil(random() * 60_000);
    }
  }
  return asked.sort((a, b) => a.time - b.time);
}

function one(number: number, at: number, tool: string, model: string, random: () => number): UsageRecord {
  const chance = random();
  const end: RecordEnd =
    chance < 0.9 ? "complete" : chance < 0.94 ? "client-left" : chance < 0.97 ? "gateway-failed" : "refused";
  const known = end === "complete" && chance > 0.02;
  const first = Math.floor(300 + random() * random() * 8000);
  const input = Math.floor(random() * 3000);
  const output = Math.floor(random() * 1500);
  const priced = known && model !== "my-model";
  const list = Math.round(input * 1.25 + output * 10);
  return record(number, {
    started_at: at,
    first_byte_at: end === "refused" ? null : at + first,
    ended_at: at + first + Math.floor(random() * 20_000),
    tool,
    model,
    model_answered: model,
    end,
    status: end === "refused" ? 429 : 200,
    refusal: end === "refused" ? "rate-limited" : null,
    input_tokens: known ? input : null,
    cache_read_tokens: known ? Math.floor(random() * 60_000) : null,
    cache_write_tokens: known ? Math.floor(random() * 900) : null,
    output_tokens: known ? output : null,
    reasoning_tokens: known ? Math.floor(output / 3) : null,
    tokens_from: known ? "reported" : "none",
    list_microdollars: priced ? list : null,
    cost_microdollars: priced ? Math.round(list * 1.5) : null,
  });
}

/** What a record has whose tokens and cost are unknown. */
export const NO_USAGE = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
} as const;
