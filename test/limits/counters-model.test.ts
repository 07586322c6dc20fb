import fc from "fast-check";
import t from "tap";
import { PERIODS, type Period } from "../../src/config/schema.ts";
import type { Counters, Reservation, Terms } from "../../src/limits/counters.ts";
import { repeats } from "../doubles/effort.ts";
import {
  at,
  counters,
  countersWith,
  DAY,
  FREE,
  HOUR,
  MINUTE,
  reserveRecorded,
  SECOND,
} from "./limits-under-test.ts";

/**
 * The counters against a model that remembers every call there ever was and adds them up again for each question. It
 * knows windows by what their moments have in common in writing: the same day is the same first ten letters.
 */

const START = at("2028-02-28T23:58:50Z");
const LETTERS: Readonly<Record<Period, number>> = { second: 19, minute: 16, hour: 13, day: 10, month: 7 };
const windowName = (per: Period, now: number) => new Date(now).toISOString().slice(0, LETTERS[per]);

interface Call {
  readonly at: number;
  readonly reservation: Reservation;
  state: "open" | "settled" | "cancelled";
  tokens: number;
  spend: number;
}

type Step =
  | { readonly do: "reserve"; readonly tokens: number; readonly spend: number }
  | {
      readonly do: "settle";
      readonly which: number;
      readonly tokens: number | null;
      readonly spend: number | null;
    }
  | { readonly do: "cancel"; readonly which: number }
  | { readonly do: "pass"; readonly ms: number }
  | { readonly do: "change"; readonly terms: Terms };

const amount = (most: number) => fc.oneof(fc.constant(0), fc.integer({ min: 1, max: most }));
const rates = (most: number) =>
  fc.array(fc.record({ max: fc.integer({ min: 1, max: most }), per: fc.constantFrom(...PERIODS) }), {
    maxLength: 3,
  });
const someTerms: fc.Arbitrary<Terms> = fc.record({
  limits: fc.record({
    requests: rates(6),
    tokens: rates(300),
    spend: rates(300),
    concurrent: fc.option(fc.integer({ min: 1, max: 5 })),
    wait: fc.constant(0),
    session: fc.constant(null),
  }),
  quota: fc.option(fc.integer({ min: 1, max: 1500 })),
});
const pass = fc.constantFrom(
  0,
  1,
  400,
  SECOND,
  7 * SECOND,
  MINUTE,
  20 * MINUTE,
  HOUR,
  9 * HOUR,
  DAY,
  31 * DAY,
);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("reserve" as const), tokens: amount(150), spend: amount(150) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      which: fc.nat(40),
      tokens: fc.option(fc.nat(200)),
      spend: fc.option(fc.nat(200)),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("cancel" as const), which: fc.nat(40) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("pass" as const), ms: pass }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("change" as const), terms: someTerms }) },
);

class Model {
  readonly calls: Call[] = [];
  terms: Terms;
  now = START;

  constructor(terms: Terms) {
    this.terms = terms;
  }

  /** [most, used, held, need] of every limit. */
  limits(tokens = 0, spend = 0): [most: number, used: number, held: number, need: number][] {
    const { limits, quota } = this.terms;
    const money = [...limits.spend.map(({ max }) => max), ...(quota === null ? [] : [quota])];
    const ask = Math.min(tokens, ...limits.tokens.map(({ max }) => max));
    const cost = Math.min(spend, ...money);
    return [
      ...limits.requests.map(({ max, per }): [number, number, number, number] => [
        max,
        this.#here(per).length,
        0,
        1,
      ]),
      ...limits.tokens.map(({ max, per }): [number, number, number, number] => [
        max,
        ...sum("tokens", this.#here(per)),
        ask,
      ]),
      ...limits.spend.map(({ max, per }): [number, number, number, number] => [
        max,
        ...sum("spend", this.#here(per)),
        cost,
      ]),
      ...(quota === null
        ? []
        : [[quota, ...sum("spend", this.#counted()), cost] as [number, number, number, number]]),
    ];
  }

  lets(tokens: number, spend: number): boolean {
    const { concurrent } = this.terms.limits;
    const running = this.calls.filter(({ state }) => state === "open").length;
    if (concurrent !== null && running >= concurrent) return false;
    return this.limits(tokens, spend).every(
      ([most, used, held, need]) => need === 0 || used + held + need <= most,
    );
  }

  #counted(): Call[] {
    return this.calls.filter(({ state }) => state !== "cancelled");
  }

  #here(per: Period): Call[] {
    return this.#counted().filter((call) => windowName(per, call.at) === windowName(per, this.now));
  }
}

function sum(kind: "tokens" | "spend", calls: readonly Call[]): [used: number, held: number] {
  const add = (state: Call["state"]) =>
    calls.filter((call) => call.state === state).reduce((total, call) => total + call[kind], 0);
  return [add("settled"), add("open")];
}

function expect(fact: boolean, words: string): void {
  if (!fact) throw new Error(words);
}

/** Does the same to both and compares. */
function play(model: Model, real: Counters, step: Step): void {
  switch (step.do) {
    case "pass":
      model.now += step.ms;
      return;
    case "change":
      model.terms = step.terms;
      real.change(step.terms);
      return;
    case "reserve": {
      const { tokens, spend } = step;
      const lets = model.lets(tokens, spend);
      const reserved = reserveRecorded(real, { tokens, spend }, model.now);
      expect(
        reserved.ok === lets,
        `${lets ? "there was capacity" : "there was none"}: ${JSON.stringify(reserved)}`,
      );
      if (!reserved.ok) {
        const { capacityAt, limit, used, held, max, need } = reserved.shortage;
        expect(limit.kind === "concurrent" || used + held + need > max, "a shortage says what is short");
        if (capacityAt !== null && "per" in limit) {
          expect(
            windowName(limit.per, capacityAt) !== windowName(limit.per, model.now),
            "capacity is in another window",
          );
          expect(
            windowName(limit.per, capacityAt - 1) === windowName(limit.per, model.now),
            "and in the very next",
          );
        }
        return;
      }
      const { reservation } = reserved;
      model.calls.push({
        at: model.now,
        reservation,
        state: "open",
        tokens: reservation.tokens,
        spend: reservation.spend ?? 0,
      });
      for (const [most, used, held, need] of model.limits(tokens, spend))
        expect(need === 0 || used + held <= most, "what was let in is not above the limit");
      return;
    }
    case "settle":
    case "cancel": {
      const call = model.calls[step.which % Math.max(1, model.calls.length)];
      if (call === undefined) return;
      const was = call.state;
      const done = step.do === "cancel" ? real.cancel(call.reservation) : real.settle(call.reservation, step);
      expect(done === (was === "open"), "only an open call can be ended");
      if (was !== "open") return;
      call.state = step.do === "cancel" ? "cancelled" : "settled";
      if (step.do === "settle") {
        call.tokens = step.tokens ?? call.tokens;
        call.spend = step.spend ?? call.spend;
      }
    }
  }
}

function compare(model: Model, real: Counters): void {
  // How many run at once is compared below.
  const counted = real.levels(model.now).filter(({ limit }) => limit.kind !== "concurrent");
  const levels = counted.map(({ max, used, held }) => [max, used, held]);
  const expected = model.limits().map(([most, used, held]) => [most, used, held]);
  expect(
    JSON.stringify(levels) === JSON.stringify(expected),
    `${JSON.stringify(levels)} is not ${JSON.stringify(expected)}`,
  );
  expect(
    real.inFlight === model.calls.filter(({ state }) => state === "open").length,
    "as many run as are open",
  );
}

t.test(
  "any schedule counts as if every call were added up again, and nothing leaks once all have ended",
  async () => {
    fc.assert(
      fc.property(someTerms, fc.array(step, { minLength: 1, maxLength: 60, size: "max" }), (terms, steps) => {
        const model = new Model(terms);
        const real = countersWith(terms);
        for (const step of steps) {
          play(model, real, step);
          compare(model, real);
        }
        for (const [which] of model.calls.entries())
          play(model, real, { do: "settle", which, tokens: 1, spend: null });
        compare(model, real);
        expect(real.inFlight === 0, "nothing is left in flight");
        expect(
          real.levels(model.now).every(({ held }) => held === 0),
          "nothing is held",
        );
      }),
      { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 40, 1000), seed: 20261115 },
    );
  },
);

t.test("however the clock is set, no window's allowance is given twice", async () => {
  const jump = fc.oneof(fc.integer({ min: -3000, max: 3000 }), fc.integer({ min: -50 * DAY, max: 50 * DAY }));
  fc.assert(
    fc.property(
      fc.constantFrom(...PERIODS),
      fc.integer({ min: 1, max: 4 }),
      fc.array(jump, { maxLength: 80, size: "max" }),
      (per, most, jumps) => {
        const real = counters(`requests: ${most}/${per}`);
        let [now, letIn, begun] = [START, 0, 1];
        for (const ms of jumps) {
          const before = windowName(per, now);
          now += ms;
          if (windowName(per, now) > before) begun += 1;
          for (let n = 0; n < most + 1; n += 1) if (reserveRecorded(real, FREE, now).ok) letIn += 1;
          expect(letIn <= most * begun, `${letIn} of ${most} in ${begun} windows`);
          const shut = real.check(FREE, now);
          const length = (shut?.capacityAt ?? Number.POSITIVE_INFINITY) - now;
          expect(
            length <= 2 * 31 * DAY && (per === "month" || length <= 2 * DAY),
            "capacity returns within two windows",
          );
        }
      },
    ),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 30, 500), seed: 20261115 },
  );
});

t.test("of a hundred calls in one window exactly as many as the limit get in, in any order", async (t) => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = mulberry(seed);
    const real = counters("requests: 10/minute, tokens: 1M/minute, concurrent: 50");
    const open: Reservation[] = [];
    let [letIn, asked] = [0, 0];
    while (asked < 100) {
      if (random() < 0.6) {
        asked += 1;
        const reserved = real.reserve(
          { tokens: Math.floor(random() * 1000), spend: 0 },
          START + Math.floor(random() * 9999),
        );
        if (reserved.ok) letIn = open.push(reserved.reservation) && letIn + 1;
      } else {
        const call = open.splice(Math.floor(random() * open.length), 1)[0];
        if (call !== undefined) real.settle(call, { tokens: random() < 0.5 ? null : 5, spend: null });
      }
    }
    if (letIn !== 10) t.fail(`seed ${seed}: ${letIn} were let in`);
  }
});

t.test("ten thousand requests that end in every possible way leave no reservation", async (t) => {
  const random = mulberry(7);
  const every = PERIODS.map((per) => `9M/${per}`).join(", ");
  const real = counters(`tokens: [${every}], spend: [$900/day, $900/month], concurrent: 40`, "$900000");
  const open: Reservation[] = [];
  let [now, ended, tokens, spend] = [START, 0, 0, 0];
  const end = (call: Reservation) => {
    const way = Math.floor(random() * 5);
    ended += 1;
    if (way === 0) return void real.cancel(call);
    const used = way === 1 ? { tokens: null, spend: null } : { tokens: way * 9, spend: way * 7 };
    real.settle(call, used);
    if (way === 2) real.settle(call, used);
    if (way === 3) real.cancel(call);
    tokens += used.tokens ?? call.tokens;
    spend += used.spend ?? call.spend ?? 0;
  };
  while (ended < 10_000) {
    now += Math.floor(random() * 3) === 0 ? Math.floor(random() * 2 * SECOND) : 0;
    const reserved = real.reserve(
      { tokens: Math.floor(random() * 50), spend: Math.floor(random() * 50) },
      now,
    );
    if (reserved.ok) open.push(reserved.reservation);
    else t.equal(reserved.shortage.limit.kind, "concurrent");
    while (open.length > 0 && (open.length >= 40 || random() < 0.4))
      end(...(open.splice(Math.floor(random() * open.length), 1) as [Reservation]));
  }
  for (const call of open) end(call);
  t.equal(real.inFlight, 0);
  t.same(
    real.levels(now).filter(({ held }) => held !== 0),
    [],
  );
  t.equal(real.levels(now).find(({ limit }) => limit.kind === "quota")?.used, spend);
  const month = real.levels(now).find(({ limit }) => limit.kind === "tokens" && limit.per === "month");
  t.equal(month?.used, tokens, "all of them were in one month");
});

/** A small seeded generator of numbers from 0 to 1. */
function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
