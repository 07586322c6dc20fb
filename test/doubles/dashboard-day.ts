import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { heldClock } from "../keys/held-clock.ts";
import type { ConsoleDouble } from "./consoles/console-double.ts";
import { startConsole } from "./consoles/start-console.ts";
import {
  type Caller,
  configFor,
  DAY,
  fingerprint,
  HOUR,
  type MirrorJourney,
  startBeside,
} from "./mirror-journey.ts";
import { createRandom } from "./random.ts";
import { record, writeRecords } from "./records.ts";
import { until } from "./until.ts";

/*
 * Two weeks of somebody who works with four tools, up to this moment, as both logs tell them: for looking at. What limits,
 * comparing and refusing make of it is the daemon's own doing.
 */

interface Habit {
  readonly group: string | null;
  readonly multiplier: number;
  /** With what a million tokens cost: input, output. */
  readonly models: readonly (readonly [name: string, input: number, output: number])[];
  readonly endpoint: string;
  readonly perDay: number;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

const SONNET = ["claude-sonnet-4-5", 3, 15] as const;
const OPUS = ["claude-opus-4-5", 5, 25] as const;
const GPT = ["gpt-5.1", 1.25, 10] as const;
const MINI = ["gpt-5.1-mini", 0.25, 2] as const;
const GEMINI = ["gemini-3-pro", 2, 12] as const;

const HABITS: Readonly<Record<string, Habit>> = {
  "claude-code": {
    group: "coding",
    multiplier: 1.5,
    models: [SONNET, SONNET, SONNET, OPUS],
    endpoint: "/v1/messages",
    perDay: 160,
    input: 2400,
    cached: 58_000,
    output: 1400,
  },
  codex: {
    group: "coding",
    multiplier: 1.5,
    models: [GPT, GPT, MINI],
    endpoint: "/v1/chat/completions",
    perDay: 110,
    input: 5200,
    cached: 31_000,
    output: 1900,
  },
  opencode: {
    group: "light",
    multiplier: 0.8,
    models: [GEMINI, SONNET],
    endpoint: "/v1/chat/completions",
    perDay: 45,
    input: 9000,
    cached: 12_000,
    output: 900,
  },
  scripts: {
    group: null,
    multiplier: 1,
    models: [MINI],
    endpoint: "/v1/chat/completions",
    perDay: 90,
    input: 1800,
    cached: 0,
    output: 220,
  },
};

const TOOLS: Readonly<Record<string, string>> = {
  "claude-code":
    "group: coding, model: claude-sonnet-4-5, expires: 2027-03-31, limits: { requests: 60/minute, spend: [$25/day, $400/month], concurrent: 4 }",
  codex: "group: coding, model: gpt-5.1, quota: $120, limits: { tokens: 20M/day, spend: $3.30/day }",
  opencode: "group: light, limits: { requests: 500/day }",
  translate: "limits: { spend: $2/day }",
  chat: "group: light, enabled: false",
};

const GROUPS = [
  "groups:",
  '  coding: { multiplier: 1.5, models: ["claude-*", "gpt-5*"] }',
  "  light: { multiplier: 0.8 }",
];

const PRICES = [SONNET, OPUS, GPT, MINI, GEMINI].map(([name, input, output]) => {
  return `  ${name}: { input: ${input}, output: ${output}, cache_read: ${input / 10}, cache_write: ${input * 1.25} }`;
});

export interface DashboardDay extends MirrorJourney {
  /** Starts calls that stay under way, and answers when the daemon has them all. */
  begin(): Promise<void>;
}

/** A daemon with all that behind it, and a console that knows of one request more. */
export async function startDashboardDay(t: Test): Promise<DashboardDay> {
  const clock = heldClock();
  const console = await startConsole(t, "sub2api", { now: clock.now, limits: false, balance: 212.4 });
  const { callers } = configFor(console, { tools: { ...TOOLS, scripts: "" } });
  const records = twoWeeks(clock.now(), callers);
  const means = {
    tools: {
      ...TOOLS,
      scripts: `limits: { requests: [30/minute, ${scriptsToday(records)}/day], concurrent: 1 }`,
    },
    gateway: GROUPS,
    more: ["dashboard: { listen: localhost:0 }", "prices:", ...PRICES],
  };
  for (const { name, key } of Object.values(callers)) addKey(console, name, key);
  console.addKey({ name: "old laptop", key: `sk-${"0".repeat(44)}77f0`, quota: 20 });
  const home = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));

  // Held from then on, or what the console has from before now would be nobody's business.
  clock.pass(-15 * DAY);
  const before = await startBeside(t, console, clock, { ...means, callers, home });
  await before.daemon.stop(0);
  clock.pass(15 * DAY);
  for (const made of records) bill(console, made, callers);
  writeRecords(before.places.usage, records);

  const day = await startBeside(t, console, clock, { ...means, callers, home });
  await refuse(day);
  steal(console, callers["claude-code"]?.key ?? "", clock.now());
  await day.sync();
  return { ...day, begin: () => begin(t, day) };
}

/** As many as the limit lets it, so that the next is refused. */
function scriptsToday(records: readonly UsageRecord[]): number {
  const [last] = records.slice(-1);
  const midnight = new Date(last?.started_at ?? 0).setHours(0, 0, 0, 0);
  return records.filter((one) => one.tool === "scripts" && one.counts === true && one.started_at >= midnight)
    .length;
}

function addKey(console: ConsoleDouble, name: string, key: string): void {
  const { group = null, multiplier = 1 } = HABITS[name] ?? {};
  console.addKey({
    name,
    key,
    multiplier,
    ...(group === null ? {} : { group }),
    ...(name === "codex" ? { quota: 150 } : {}),
    // The gateway refuses it: somebody disabled it in the console.
    ...(name === "translate" ? { disabled: true } : {}),
  });
}

function twoWeeks(now: number, callers: Readonly<Record<string, Caller>>): UsageRecord[] {
  const random = createRandom(7);
  const made: UsageRecord[] = [];
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  for (const [tool, habit] of Object.entries(HABITS)) {
    for (let back = 13; back >= 0; back -= 1) {
      const start = midnight - back * DAY;
      const weekend = [0, 6].includes(new Date(start).getDay()) ? 0.25 : 1;
      for (let left = Math.round(habit.perDay * weekend * (0.6 + random() * 0.7)); left > 0; left -= 1) {
        // Two humps with lunch between them.
        const hour = (random() < 0.45 ? 9 : 14) + (random() + random()) * 2;
        const at = Math.round(start + hour * HOUR);
        if (at < now - HOUR / 30)
          made.push(oneOf(made.length + 1, at, tool, habit, callers[tool]?.key ?? "", random));
      }
    }
  }
  return made.sort((a, b) => a.started_at - b.started_at);
}

function oneOf(
  number: number,
  at: number,
  tool: string,
  habit: Habit,
  key: string,
  random: () => number,
): UsageRecord {
  const [model, inputPrice, outputPrice] = habit.models[Math.floor(random() * habit.models.length)] ?? GPT;
  const chance = random();
  const around = (middle: number) => Math.round(middle * (0.2 + random() * random() * 3));
  const [input, output, cached] = [around(habit.input), around(habit.output), around(habit.cached)];
  const written = habit.endpoint === "/v1/messages" ? around(1500) : 0;
  const list = Math.round(
    input * inputPrice + cached * inputPrice * 0.1 + written * inputPrice * 1.25 + output * outputPrice,
  );
  const cost = Math.round(list * habit.multiplier);
  const first = Math.round(350 + random() * random() * 4200);
  const failed = chance > 0.985;
  const left = chance < 0.02;
  const known = !failed && !left;
  return record(number, {
    started_at: at,
    admitted_at: at,
    first_byte_at: at + first,
    ended_at: at + first + Math.round(output * (9 + random() * 8)),
    tool,
    group: habit.group,
    multiplier: habit.multiplier,
    key: fingerprint(key),
    protocol: habit.endpoint === "/v1/messages" ? "messages" : "openai",
    endpoint: habit.endpoint,
    model,
    model_answered: model,
    status: failed ? 502 : 200,
    end: left ? "client-left" : "complete",
    input_tokens: known ? input : null,
    cache_read_tokens: known ? cached : null,
    cache_write_tokens: known ? written : null,
    output_tokens: known ? output : null,
    reasoning_tokens: known ? Math.round(output / 4) : null,
    tokens_from: known ? "reported" : "none",
    list_microdollars: known ? list : null,
    cost_microdollars: known ? cost : null,
    counts: !failed,
    counted_tokens: known ? input + cached + written + output : 0,
    counted_microdollars: known ? cost : 0,
    bytes_in: input * 4,
    bytes_out: output * 60,
    waited_ms: chance > 0.9 && tool === "scripts" ? Math.round(random() * 4000) : 0,
    gateway_ids: {
      "x-client-request-id": `7d1f${String(number).padStart(4, "0")}-52c8-4a0e-9b1d-${String(at).slice(-12).padStart(12, "0")}`,
    },
  });
}

/** As the console lists it, with what goes wrong there: a row that counts more, and one that never comes. */
function bill(console: ConsoleDouble, made: UsageRecord, callers: Readonly<Record<string, Caller>>): void {
  const number = Number(made.id.slice(-16));
  const key = callers[made.tool ?? ""]?.key;
  if (key === undefined || made.status !== 200 || number % 311 === 0) return;
  const dollars = (made.cost_microdollars ?? 9000) / 1_000_000;
  console.bill({
    key,
    model: made.model ?? "",
    stream: true,
    input: made.input_tokens ?? 1500,
    cacheRead: made.cache_read_tokens ?? 0,
    cacheWrite: made.cache_write_tokens ?? 0,
    output: (made.output_tokens ?? 300) + (number % 173 === 0 ? 640 : 0),
    dollars,
    listDollars: dollars / (made.multiplier ?? 1),
    at: (made.ended_at ?? made.started_at) + 400,
    requestId: made.gateway_ids["x-client-request-id"] ?? "",
    endpoint: made.endpoint,
    duration: (made.ended_at ?? 0) - made.started_at,
  });
}

/** Somebody elsewhere has the key. */
function steal(console: ConsoleDouble, key: string, now: number): void {
  for (const [ago, output] of [
    [5.2, 3120],
    [5.1, 2745],
    [3.4, 4410],
  ] as const)
    console.bill({
      ...{ key, model: "claude-opus-4-5", stream: true, input: 18_400, output, endpoint: "/v1/messages" },
      ...{ dollars: 0.41, at: now - ago * HOUR, ip: "203.0.113.58", duration: 21_000 },
    });
}

/** What was refused in the last minutes, each by the daemon itself. */
async function refuse(day: MirrorJourney): Promise<void> {
  const ask = (tool: string, model: string, ago: number) => {
    day.clock.pass(ago);
    return day.ask({}, { tool, model, stream: true });
  };
  await ask("translate", "gpt-5.1-mini", 0);
  await ask("chat", "gpt-5.1", 7000);
  await ask("codex", "gemini-3-pro", 21_000);
  for (let left = 6; left > 0; left -= 1) await ask("scripts", "gpt-5.1-mini", 4100);
}

async function begin(t: Test, day: MirrorJourney): Promise<void> {
  const calls = [
    ["claude-code", "claude-opus-4-5", "/v1/messages", "hang-in-body", 1240, 31_000],
    ["claude-code", "claude-sonnet-4-5", "/v1/messages", "hang-in-body", 386, 12_000],
    ["opencode", "gemini-3-pro", "/v1/chat/completions", "hang-before-headers", 0, 4000],
  ] as const;
  for (const [tool, model, path, how, pieces, ago] of calls) {
    const reached = day.console.reached();
    // A clock that stands still would say that the first byte took no time.
    const ticking = setInterval(() => day.clock.pass(70), 1);
    const asking = request(`${day.url}${path}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${day.caller(tool).token}`,
        "content-type": "application/json",
        [`x-test-${how}`]: "1",
        "x-test-pieces": String(pieces),
      },
    });
    let begun = how === "hang-before-headers";
    asking.on("error", () => {});
    asking.on("response", (answer) => {
      answer.on("error", () => {});
      answer.on("data", () => {
        begun = true;
      });
    });
    asking.end(JSON.stringify({ model, stream: true, messages: [] }));
    t.teardown(() => asking.destroy());
    await until("the gateway has it", () => begun && day.console.reached() > reached);
    clearInterval(ticking);
    day.clock.pass(ago);
  }
}
