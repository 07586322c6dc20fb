import fc from "fast-check";
import t from "tap";
import { countedSession, type SessionOrigin } from "../../../src/core/session-id.ts";
import { type Lease, Limiter, type ToolCarry } from "../../../src/limits/limiter.ts";
import { type Counted, difference } from "../../../src/limits/windows.ts";
import { usedBy } from "../../../src/usage/counted.ts";
import { LimitsReplay } from "../../../src/usage/journal/limits-replay.ts";
import { type Line, parseLine } from "../../../src/usage/journal/lines.ts";
import { repeats } from "../../doubles/effort.ts";
import { configOf } from "../../doubles/parsed-config.ts";
import { at, DAY, HOUR, MINUTE, SECOND, utc } from "../../limits/limits-under-test.ts";

const START = at("2026-11-15T12:00:05Z");
const configWith = (session: string) =>
  configOf(
    `gateway: https://gateway.example.com/v1
tools:
  codex:
    limits: { requests: [4/minute, 9/hour], tokens: 2k/day, spend: $0.005/month${session} }
    quota: $0.02
  other: {}
`,
  );
const config = configWith(", session: { requests: 5, tokens: 1k }");
const withoutSession = configWith("");
const { tools } = config;
const TOOLS = ["codex", "other"] as const;

function settableClock() {
  const clock = { wall: START, now: () => clock.wall, elapsed: () => 0 };
  return clock;
}

function reported(tokens: number, spend: number): Counted {
  return { tokens, spend, estimated_tokens: 0, estimated_spend: 0 };
}

/** A request with its record, or before it has one. */
interface Call {
  readonly id: string;
  readonly lease: Lease;
  readonly origin: SessionOrigin;
  counted: Counted;
}

/** A limiter, and the journal that is written as the daemon writes it. */
class JournaledLimiter {
  readonly clock = settableClock();
  readonly limiter = new Limiter(this.clock, utc);
  readonly lines: string[] = [];
  config = config;
  readonly pending: Call[] = [];
  readonly open: Call[] = [];
  readonly closed: Call[] = [];
  #requests = 0;
  #gifts = 0;

  reserve(
    name: (typeof TOOLS)[number],
    tokens: number,
    spend: number | null,
    session: string | null = null,
  ): Call | null {
    const tool = this.config.tools[name];
    if (tool === undefined) return null;
    const origin = { session, token: "laptop" };
    const lease = this.limiter.takeNow(tool, { tokens, spend, origin });
    this.#requests += 1;
    const id = `r${this.#requests}`;
    if (lease === null) {
      const counted = countedSession(origin, this.clock.wall);
      const found = this.limiter.sessionLevels(tool).find((level) => level.session.id === counted);
      const refusal = found?.session.isFull ? "session-limited" : "rate-limited";
      const started_at = this.clock.wall;
      this.#write({
        kind: "close",
        id,
        started_at,
        tool: name,
        ...origin,
        end: "refused",
        refusal,
        counts: false,
      });
      return null;
    }
    const call = { id, lease, origin, counted: reported(0, 0) };
    this.pending.push(call);
    return call;
  }

  record(call: Call): void {
    const { tool, reservation } = call.lease;
    move(call, this.pending, this.open);
    this.#write({
      kind: "open",
      id: call.id,
      started_at: reservation.at - 3,
      tool,
      held_tokens: reservation.tokens,
      held_microdollars: reservation.spend,
      admitted_at: reservation.at,
      counted_session: reservation.session?.id ?? null,
      ...call.origin,
    });
    this.limiter.recorded(call.lease, call.id);
  }

  /** Refused after it was admitted, such as by a journal that cannot be written. */
  drop(call: Call): void {
    move(call, this.pending, []);
    this.limiter.cancel(call.lease);
    this.#close(call, { end: "refused", counts: false });
  }

  cancel(call: Call): void {
    move(call, this.open, []);
    this.limiter.cancel(call.lease);
    this.#close(call, { end: "client-left", counts: false });
  }

  settle(call: Call, tokens: number | null, spend: number | null): void {
    const { reservation } = call.lease;
    move(call, this.open, this.closed);
    // An even number of tokens was estimated.
    const isEstimated = tokens !== null && tokens % 2 === 0;
    const fields = {
      tokens_from: isEstimated ? ("estimated" as const) : ("reported" as const),
      output_tokens: tokens,
      cost_microdollars: spend,
      billed_microdollars: null,
      counted_tokens: tokens,
      counted_microdollars: spend,
    };
    const counted = { tokens: tokens ?? reservation.tokens, spend: spend ?? reservation.spend ?? 0 };
    call.counted = {
      ...counted,
      estimated_tokens: tokens === null || isEstimated ? counted.tokens : 0,
      estimated_spend: spend === null || isEstimated ? counted.spend : 0,
    };
    this.limiter.settle(call.lease, usedBy(fields));
    this.#close(call, { end: "complete", counts: true, ...fields });
  }

  amend(call: Call, after: Call["counted"]): void {
    const { tool, reservation } = call.lease;
    const before = call.counted;
    call.counted = after;
    const session = reservation.session?.id ?? null;
    this.limiter.correct(tool, { at: reservation.at, session, ...difference(before, after) });
    const limits = { tool, admitted_at: reservation.at, session, before, after };
    this.#write({ kind: "amend", id: call.id, limits });
  }

  stop(tool: (typeof TOOLS)[number], session: string, stopped: boolean): void {
    const at = this.clock.wall;
    this.limiter.stopSession(tool, session, { stopped, at });
    this.#write({ kind: "session-stop", tool, session, stopped, at, given_by: "me" });
  }

  liftSession(tool: (typeof TOOLS)[number], session: string, amount: number): void {
    const lift = { limit: "requests", amount, given_at: this.#giftTime() } as const;
    this.limiter.liftSession(tool, session, lift);
    this.#write({ kind: "session-lift", tool, session, ...lift, given_by: "me" });
  }

  allow(tool: (typeof TOOLS)[number], amount: number, until: number | null): void {
    const allowance = { limit: "requests", amount, given_at: this.#giftTime(), until } as const;
    this.limiter.allow(tool, allowance);
    this.#write({ kind: "lift", tool, ...allowance, given_by: "me" });
  }

  /** A person gives no two in one millisecond. */
  #giftTime(): number {
    this.#gifts += 37;
    return this.clock.wall + this.#gifts;
  }

  #close({ id, lease, origin }: Call, fields: object): void {
    const { tool, reservation } = lease;
    this.#write({
      kind: "close",
      id,
      started_at: reservation.at - 3,
      tool,
      admitted_at: reservation.at,
      ...origin,
      ...fields,
    });
  }

  #write(line: object): void {
    this.lines.push(JSON.stringify(line));
  }
}

function move(call: Call, from: Call[], to: Call[]): void {
  from.splice(from.indexOf(call), 1);
  to.push(call);
}

/** As a new journal file begins. */
function carryLines(carries: readonly ToolCarry[]): string[] {
  const lines = carries.map((carry) => JSON.stringify({ kind: "carry", ...carry }));
  return [JSON.stringify({ kind: "carry", tools: carries.length }), ...lines];
}

function parsed(text: string): Line {
  const line = parseLine(text);
  if (line === null) throw new Error(`not a line: ${text}`);
  return line;
}

interface Restored {
  readonly limiter: Limiter;
  readonly replay: LimitsReplay;
}

function restored(lines: readonly string[]): Restored {
  const limiter = new Limiter(settableClock(), utc);
  const replay = new LimitsReplay(limiter);
  replay.start();
  for (const line of lines) replay.read(parsed(line));
  limiter.change(config);
  return { limiter, replay };
}

/** In the order of the tools' names, as text. */
function carried(limiter: Limiter, hasSessions: boolean): string {
  const carries = limiter.carry().sort((a, b) => a.tool.localeCompare(b.tool));
  const shown = hasSessions ? carries : carries.map(withoutSessions).filter(isUsed);
  return JSON.stringify(shown.map(sorted), null, 1);
}

function withoutSessions(carry: ToolCarry): ToolCarry {
  return { ...carry, sessions: [], open: carry.open.map((one) => ({ ...one, session: null })) };
}

function isUsed({ total, windows, allowances, open }: ToolCarry): boolean {
  return total + windows.length + allowances.length + open.length > 0;
}

/** Requests in flight and sessions are sets. */
function sorted(carry: ToolCarry): ToolCarry {
  const byId = (a: { readonly id: string }, b: { readonly id: string }) => a.id.localeCompare(b.id);
  // A request that has no record yet begins a session, too, so the time of the last one may differ.
  const sessions = carry.sessions.map((session) => ({ ...session, begun: 0, last: 0 }));
  return { ...carry, sessions: sessions.sort(byId), open: carry.open.toSorted(byId) };
}

const jump = fc.oneof(
  fc.constantFrom(1, 400, SECOND, 7 * SECOND, MINUTE, HOUR, DAY, 31 * DAY),
  fc.constantFrom(-1, -SECOND, -MINUTE, -HOUR, -DAY, -31 * DAY, -365 * DAY, 365 * DAY),
);
const amount = fc.option(fc.nat(900));
const operation = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("reserve" as const),
      tool: fc.constantFrom(...TOOLS),
      tokens: fc.nat(900),
      spend: amount,
      session: fc.constantFrom("a", "b", null),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("stop" as const),
      session: fc.constantFrom("a", "b"),
      stopped: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("limit" as const), isSet: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("lift session" as const),
      session: fc.constantFrom("a", "b"),
      amount: fc.nat(3),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("record" as const), which: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("drop" as const), which: fc.nat(9) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      which: fc.nat(9),
      tokens: amount,
      spend: amount,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const), which: fc.nat(9) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("amend" as const),
      which: fc.nat(9),
      tokens: fc.nat(900),
      spend: fc.nat(900),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("allow" as const),
      tool: fc.constantFrom(...TOOLS),
      amount: fc.nat(3),
      until: fc.option(fc.constantFrom(MINUTE, DAY)),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("jump" as const), ms: jump }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("levels" as const) }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

function perform(journaled: JournaledLimiter, step: Operation): void {
  const pick = (calls: readonly Call[], which: number) => calls[which % Math.max(1, calls.length)];
  switch (step.do) {
    case "reserve":
      journaled.reserve(step.tool, step.tokens, step.spend, step.session);
      return;
    case "stop":
      journaled.stop("codex", step.session, step.stopped);
      return;
    case "limit":
      journaled.config = step.isSet ? config : withoutSession;
      journaled.limiter.change(journaled.config);
      return;
    case "lift session":
      journaled.liftSession("codex", step.session, step.amount);
      return;
    case "record":
    case "drop": {
      const call = pick(journaled.pending, step.which);
      if (call !== undefined) journaled[step.do](call);
      return;
    }
    case "settle": {
      const call = pick(journaled.open, step.which);
      if (call !== undefined) journaled.settle(call, step.tokens, step.spend);
      return;
    }
    case "cancel": {
      const call = pick(journaled.open, step.which);
      if (call !== undefined) journaled.cancel(call);
      return;
    }
    case "amend": {
      const call = pick(journaled.closed, step.which);
      if (call !== undefined) journaled.amend(call, reported(step.tokens, step.spend));
      return;
    }
    case "allow":
      journaled.allow(step.tool, step.amount, step.until === null ? null : journaled.clock.wall + step.until);
      return;
    case "jump":
      journaled.clock.wall += step.ms;
      return;
    case "levels":
      for (const tool of Object.values(tools)) journaled.limiter.levels(tool);
      return;
  }
}

t.test("from any point on, the carry and the lines after it lead to the same state", async () => {
  fc.assert(
    fc.property(fc.array(operation, { minLength: 1, maxLength: 80, size: "max" }), (operations) => {
      const journaled = new JournaledLimiter();
      const points: { carry: string[]; line: number }[] = [];
      for (const step of operations) {
        perform(journaled, step);
        points.push({ carry: carryLines(journaled.limiter.carry()), line: journaled.lines.length });
      }
      // A session that was idle for a day is forgotten at some time, by a new journal file or by a start.
      const hasSessions = operations.every((step) => step.do !== "jump" || Math.abs(step.ms) < HOUR);
      const expected = carried(journaled.limiter, hasSessions);
      const compare = (lines: readonly string[], what: string) => {
        const found = carried(restored(lines).limiter, hasSessions);
        if (found !== expected) throw new Error(`${what}: ${found} is not ${expected}`);
      };
      compare(journaled.lines, "from the beginning");
      for (const { carry, line } of points) {
        const after = journaled.lines.slice(line);
        compare([...carry, ...after], `from line ${line}`);
      }
      const twice = journaled.lines.flatMap((line) => [line, line]);
      compare(twice, "every line twice");
      compare([...journaled.lines, ...journaled.lines], "the whole file twice");
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 40, 600), seed: 20261115 },
  );
});

/** Used and held of each limit. */
function levels(limiter: Limiter): number[][] {
  const { codex } = tools;
  if (codex === undefined) throw new Error("there is no tool codex");
  return limiter.levels(codex).levels.map(({ used, held }) => [used, held]);
}

t.test("a restart finds what was used, and what is in flight holds what it held", async (t) => {
  const journaled = new JournaledLimiter();
  const calls = [1, 2, 3].map(() => journaled.reserve("codex", 100, 50));
  const [first, second, third] = calls;
  if (!first || !second || !third) return void t.fail("a request was refused");
  journaled.record(first);
  journaled.record(second);
  journaled.settle(first, 30, 20);
  const { limiter: again } = restored(journaled.lines);
  t.strictSame(levels(again), [
    [2, 0],
    [2, 0],
    [30, 100],
    [20, 50],
    [20, 50],
  ]);
  t.match(again.carry(), [{ tool: "codex", open: [{ id: second.id, tokens: 100, spend: 50 }] }]);
  t.equal(levels(journaled.limiter)[0]?.[0], 3, "the third is in flight, but has no record");
});

t.test("a request that a crash interrupted counts what was held for it", async (t) => {
  const journaled = new JournaledLimiter();
  const call = journaled.reserve("codex", 100, 50);
  if (call === null) return void t.fail("the request was refused");
  journaled.record(call);
  const { limiter: again, replay } = restored(journaled.lines);
  const { at: admitted_at } = call.lease.reservation;
  const fields = { id: call.id, tool: "codex", started_at: admitted_at, admitted_at };
  replay.read(parsed(JSON.stringify({ kind: "close", ...fields, end: "interrupted" })));
  replay.end();
  t.strictSame(levels(again), [
    [1, 0],
    [1, 0],
    [100, 0],
    [50, 0],
    [50, 0],
  ]);
});

t.test("a request whose lines are lost does not stay in flight", async (t) => {
  const journaled = new JournaledLimiter();
  const call = journaled.reserve("codex", 100, 50);
  if (call === null) return void t.fail("the request was refused");
  journaled.record(call);
  // The carry names it as in flight, and its open line was cut off.
  const { limiter: again, replay } = restored(carryLines(journaled.limiter.carry()));
  t.equal(again.carry()[0]?.open.length, 1);
  replay.end();
  t.equal(again.carry()[0]?.open.length, 0);
  t.equal(again.carry()[0]?.total, 50, "what was held for it counts");
});

t.test("a replay that begins again counts nothing twice, and forgets nothing", async (t) => {
  const journaled = new JournaledLimiter();
  const lines = [...carryLines(journaled.limiter.carry())];
  const call = journaled.reserve("codex", 100, 50);
  if (call === null) return void t.fail("the request was refused");
  journaled.record(call);
  const { limiter: again, replay } = restored([...lines, ...journaled.lines]);
  const once = again.carry();
  replay.start();
  for (const line of [...lines, ...journaled.lines]) replay.read(parsed(line));
  t.strictSame(again.carry(), once);
});

t.test(
  "a request of a tool that got two new names frees its capacity, also after a midnight and a restart",
  async (t) => {
    const named = (name: string) =>
      configOf(
        `gateway: https://gateway.example.com/v1\ntools: { ${name}: { limits: { concurrent: 1 } } }\n`,
      );
    const limiter = new Limiter(settableClock(), utc);
    const { a } = named("a").tools;
    const lease = a === undefined ? null : limiter.takeNow(a, { tokens: 0, spend: null });
    if (lease === null) return void t.fail("the request was refused");
    limiter.recorded(lease, "r1");
    for (const [from, to] of [
      ["a", "b"],
      ["b", "c"],
    ] as const) {
      limiter.change(named(from));
      limiter.expectRename({ from, to });
      t.same(limiter.change(named(to)), { from, to });
    }
    const open = { id: "r1", tool: "a", started_at: START, admitted_at: START };
    const midnight = [
      ...carryLines(limiter.carry()),
      ...limiter.renames().map((rename) => JSON.stringify({ kind: "rename", ...rename, at: START })),
      JSON.stringify({ kind: "open", ...open }),
    ];
    const { limiter: again, replay } = restored(midnight);
    t.match(again.carry(), [{ tool: "c", open: [{ id: "r1" }] }], "it is in flight under the newest name");
    replay.read(parsed(JSON.stringify({ kind: "close", ...open, end: "complete", counts: true })));
    t.match(again.carry(), [{ tool: "c", open: [] }]);
    limiter.settle(lease, { tokens: 0, spend: 0 });
    const { c } = named("c").tools;
    t.not(c === undefined ? null : limiter.takeNow(c, { tokens: 0, spend: null }), null, "its place is free");
  },
);

/** Lines of a request of the tool `a` that held 50, and used 20. */
function linesOf(id: string, started_at: number): { open: string; close: string } {
  const open = { id, tool: "a", started_at, admitted_at: started_at, held_microdollars: 50 };
  const close = { ...open, end: "complete", counts: true, counted_microdollars: 20 };
  return {
    open: JSON.stringify({ kind: "open", ...open }),
    close: JSON.stringify({ kind: "close", ...close }),
  };
}

const RENAMED_A = JSON.stringify({ kind: "rename", from: "a", to: "b", at: START + 5 });

t.test(
  "a request that began before its tool was renamed counts for the tool, also if it is opened later",
  async (t) => {
    const early = linesOf("r1", START);
    const late = linesOf("r2", START + 5);
    const { limiter, replay } = restored([early.open, RENAMED_A, late.open, early.close, late.close]);
    replay.end();
    t.match(limiter.carry(), [{ tool: "b", total: 40, open: [] }]);
    t.equal(limiter.carry().length, 1);
  },
);

t.test(
  "a new tool of an old name counts for itself, and the older requests for the renamed one",
  async (t) => {
    const older = linesOf("r1", START);
    const newer = linesOf("r2", START + 6);
    const { limiter, replay } = restored([older.open, RENAMED_A, newer.open]);
    const midnight = carryLines(limiter.carry());
    for (const line of [older.close, newer.close]) replay.read(parsed(line));
    const found = limiter.carry().map(({ tool, total, open }) => [tool, total, open.length]);
    t.same(found, [
      ["b", 20, 0],
      ["a", 20, 0],
    ]);
    const lines = [...midnight, older.open, newer.open, older.close, newer.close];
    const again = restored(lines).limiter.carry();
    t.same(
      again.map(({ tool, total, open }) => [tool, total, open.length]),
      found,
      "also after a midnight and a restart",
    );
  },
);

t.test(
  "a request frees its capacity also if its tool was renamed and another one has the name now",
  async (t) => {
    const named = (...names: string[]) =>
      configOf(
        `gateway: https://gateway.example.com/v1\ntools: { ${names.map((name) => `${name}: { limits: { concurrent: 1 } }`).join(", ")} }\n`,
      );
    const limiter = new Limiter(settableClock(), utc);
    const { a } = named("a").tools;
    const lease = a === undefined ? null : limiter.takeNow(a, { tokens: 0, spend: null });
    if (lease === null) return void t.fail("the request was refused");
    limiter.change(named("a"));
    limiter.expectRename({ from: "a", to: "b" });
    limiter.change(named("b"));
    const both = named("a", "b");
    limiter.change(both);
    limiter.recorded(lease, "r1");
    t.match(limiter.carry(), [{ tool: "b", open: [{ id: "r1" }] }]);
    limiter.settle(lease, { tokens: 0, spend: 0 });
    const { b } = both.tools;
    t.not(b === undefined ? null : limiter.takeNow(b, { tokens: 0, spend: null }), null, "its place is free");
  },
);

t.test("what the console billed counts as spend", async (t) => {
  const open = { id: "r1", tool: "codex", started_at: START, admitted_at: START, held_microdollars: 50 };
  const close = { ...open, end: "complete", counted_microdollars: 20, billed_microdollars: 35 };
  const lines = [JSON.stringify({ kind: "open", ...open }), JSON.stringify({ kind: "close", ...close })];
  t.match(restored(lines).limiter.carry(), [{ total: 35 }]);
});

t.test("records of unknown callers, refusals and other lines count nothing", async (t) => {
  const lines = [
    { kind: "open", id: "r1", tool: null, started_at: START, admitted_at: START },
    { kind: "open", id: "r2", tool: "codex", started_at: START, admitted_at: null },
    { kind: "close", id: "r3", tool: "codex", started_at: START, end: "refused" },
    { kind: "head", id: "r1", status: 200 },
    { kind: "ack", gateway: "main", row: "7", certain: true, at: START },
    { kind: "key-held", gateway: "main", key: "…6789", tool: "codex", since: START },
    { kind: "carry", tools: 0 },
  ];
  t.strictSame(restored(lines.map((line) => JSON.stringify(line))).limiter.carry(), []);
});

t.test("a carry replaces everything that was known of its tool", async (t) => {
  const journaled = new JournaledLimiter();
  const call = journaled.reserve("codex", 100, 50);
  if (call === null) return void t.fail("the request was refused");
  journaled.record(call);
  journaled.allow("codex", 2, null);
  const empty = {
    tool: "codex",
    total: 7,
    estimated_total: 3,
    windows: [],
    allowances: [],
    sessions: [],
    open: [],
  };
  const { limiter: again } = restored([...journaled.lines, ...carryLines([empty])]);
  t.strictSame(again.carry(), [empty]);
});

t.test("an allowance is carried until its month is before all that are kept", async (t) => {
  const journaled = new JournaledLimiter();
  journaled.allow("codex", 2, null);
  const kept: number[] = [];
  for (let month = 0; month < 4; month += 1) {
    const call = journaled.reserve("other", 1, 1);
    const own = journaled.reserve("codex", 1, 1);
    if (call === null || own === null) return void t.fail("a request was refused");
    journaled.settle(recordedIn(journaled, own), 1, 1);
    const carry = journaled.limiter.carry().find(({ tool }) => tool === "codex");
    kept.push(carry?.allowances.length ?? -1);
    journaled.clock.wall += 31 * DAY;
  }
  t.strictSame(kept, [1, 1, 1, 0]);
});

function recordedIn(journaled: JournaledLimiter, call: Call): Call {
  journaled.record(call);
  return call;
}
