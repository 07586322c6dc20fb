import t from "tap";
import type { Config, Tool } from "../../src/config/schema.ts";
import type { Clock } from "../../src/core/clock.ts";
import type { Used } from "../../src/limits/counters.ts";
import { type Granter, type Lease, Limiter, type Taken } from "../../src/limits/limiter.ts";
import { zoneCalendar } from "../../src/shared/calendar.ts";
import { repeats } from "../doubles/effort.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { random } from "../doubles/random.ts";
import { until } from "../doubles/until.ts";
import { at, FREE, HOUR, MINUTE, SECOND, utc } from "./limits-under-test.ts";

const START = at("2026-11-15T12:00:05Z");

function held(start = START): Clock & { pass(ms: number): void } {
  let passed = 0;
  return {
    now: () => start + passed,
    elapsed: () => passed,
    pass(ms) {
      passed += ms;
    },
  };
}

function configWith(settings: string): Config {
  return configOf(`gateway: https://gateway.example.com/v1\ntools: { codex: { ${settings} }, other: {} }\n`);
}

function toolIn(config: Config): Tool {
  const { codex } = config.tools;
  if (codex === undefined) throw new Error("there is no tool codex");
  return codex;
}

function start(settings: string) {
  const clock = held();
  const tool = toolIn(configWith(settings));
  const limiter = new Limiter(clock, utc);
  return { tool, limiter, clock };
}

/** As every request does: what is there now, else with a wait, or a refusal. */
async function take(
  limiter: Limiter,
  tool: Tool,
  ask = FREE,
  whenLeft: (leave: () => void) => void = () => {},
): Promise<Taken> {
  const lease = limiter.takeNow(tool, ask);
  return lease === null
    ? await limiter.take(tool, { ask, model: null, lacksModel: false, mayWait: true }, whenLeft)
    : { ok: true, lease };
}

function leaseOf(taken: Taken): Lease {
  if (!taken.ok) throw new Error(`it was refused: ${taken.refusal?.message}`);
  return taken.lease;
}

const codeOf = (taken: Taken) => (taken.ok ? "go" : (taken.refusal?.code ?? "left"));

const SEEDS = repeats("KEYBEARER_LIMITER_SEEDS", 40, 1000);
const REQUESTS = repeats("KEYBEARER_LIMITER_REQUESTS", 2000, 40_000);

const turn = () => new Promise((resolve) => setImmediate(resolve));

t.test("of 100 requests under 10/minute exactly 10 are let in, in any order of events", async (t) => {
  const wrong: string[] = [];
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const pick = random(seed);
    const { tool, limiter, clock } = start("limits: { requests: 10/minute }");
    const waiting: Promise<Taken>[] = [];
    const running: Lease[] = [];
    const went: Lease[] = [];
    const codes: string[] = [];
    for (let begun = 0; begun < 100; ) {
      const what = pick(10);
      if (what < 6) {
        begun += 1;
        waiting.push(take(limiter, tool));
      } else if (what < 8) {
        for (const taken of await Promise.all(waiting.splice(0, 1 + pick(5)))) {
          codes.push(codeOf(taken));
          if (taken.ok) {
            running.push(taken.lease);
            went.push(taken.lease);
          }
        }
      } else if (what < 9) clock.pass(pick(400));
      else {
        const [lease] = running.splice(pick(running.length + 1), 1);
        if (lease !== undefined) limiter.settle(lease, { tokens: pick(1000), spend: null });
      }
    }
    for (const taken of await Promise.all(waiting)) {
      codes.push(codeOf(taken));
      if (taken.ok) went.push(taken.lease);
    }
    const [level] = limiter.levels(tool).levels;
    const refused = codes.filter((code) => code === "rate-limited").length;
    if (clock.now() >= START + 55 * SECOND) wrong.push(`seed ${seed}: the minute ended`);
    if (went.length !== 10 || refused !== 90 || level?.used !== 10)
      wrong.push(`seed ${seed}: ${went.length} went, ${refused} were refused, ${level?.used} counted`);
  }
  t.strictSame(wrong, []);
});

t.test("several limits are taken from together or not at all, in any order of events", async (t) => {
  const wrong: string[] = [];
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const pick = random(seed);
    const { tool, limiter, clock } = start(
      "limits: { requests: [20/minute, 30/hour], tokens: 3k/minute, spend: $0.004/day, concurrent: 3 }, quota: $0.006",
    );
    const running: Lease[] = [];
    const model = { requests: 0, spend: 0, held: 0 };
    for (let step = 0; step < 120; step += 1) {
      if (pick(3) > 0) {
        const ask = { tokens: pick(400), spend: pick(400) };
        const before = JSON.stringify(limiter.levels(tool));
        const taken = await take(limiter, tool, ask);
        if (taken.ok) {
          running.push(taken.lease);
          model.requests += 1;
          model.held += taken.lease.reservation.spend ?? 0;
        } else if (JSON.stringify(limiter.levels(tool)) !== before)
          wrong.push(`seed ${seed}: ${taken.refusal?.code} took something`);
      } else if (pick(8) === 0) clock.pass(pick(3) * MINUTE);
      else {
        const [lease] = running.splice(pick(running.length + 1), 1);
        if (lease === undefined) continue;
        model.held -= lease.reservation.spend ?? 0;
        if (pick(3) === 0) {
          limiter.cancel(lease);
          model.requests -= 1;
        } else {
          const spend = pick(2) === 0 ? null : pick(500);
          model.spend += spend ?? lease.reservation.spend ?? 0;
          limiter.settle(lease, { tokens: null, spend });
        }
      }
      const { levels, inFlight: now } = limiter.levels(tool);
      const quota = levels.at(-1);
      if (now !== running.length || now > 3) wrong.push(`seed ${seed}: ${now} run, ${running.length} should`);
      if (quota?.used !== model.spend || quota.held !== model.held)
        wrong.push(`seed ${seed}: quota ${quota?.used}+${quota?.held}, not ${model.spend}+${model.held}`);
      for (const { limit, used, max } of levels)
        if (limit.kind === "requests" && used > max) wrong.push(`seed ${seed}: ${used} of ${max} requests`);
    }
    if (wrong.length > 5) break;
  }
  t.strictSame(wrong, []);
});

t.test("requests that end in every way leak no reservation and no place in the queue", async (t) => {
  const pick = random(77);
  const settings =
    "limits: { requests: 100000/month, tokens: 100M/month, concurrent: 5, wait: 20s }, quota: $1000";
  const { tool, limiter, clock } = start(settings);
  const on = configWith(settings);
  const off = configWith(`${settings}, enabled: false`);
  const gone = configOf("gateway: https://gateway.example.com/v1\ntools: { other: {} }\n");
  const running: Lease[] = [];
  const counts = { begun: 0, sent: 0, spent: 0, left: 0, refused: 0, maxInFlight: 0 };
  const leaving: (() => void)[] = [];
  const pending = new Set<Promise<void>>();
  const begin = () => {
    counts.begun += 1;
    const early = pick(20) === 0;
    const ask = { tokens: 1 + pick(50), spend: 1 + pick(50) };
    const done = take(limiter, tool, ask, (leave) => {
      if (early) leave();
      else leaving.push(leave);
    }).then((taken) => {
      pending.delete(done);
      if (taken.ok) running.push(taken.lease);
      else if (taken.refusal === null) counts.left += 1;
      else counts.refused += 1;
    });
    pending.add(done);
  };
  const end = async () => {
    const [lease] = running.splice(pick(running.length + 1), 1);
    if (lease === undefined) return;
    const used: Used = pick(3) === 0 ? { tokens: null, spend: null } : { tokens: pick(90), spend: pick(90) };
    if (pick(4) === 0) limiter.cancel(lease);
    else {
      limiter.settle(lease, used);
      counts.sent += 1;
      counts.spent += used.spend ?? lease.reservation.spend ?? 0;
    }
    // A bug that ends a request twice must not free the capacity of another one.
    if (pick(10) === 0) limiter.cancel(lease);
    if (pick(10) === 0) limiter.settle(lease, used);
  };
  while (counts.begun < REQUESTS) {
    const what = pick(100);
    if (what < 50) begin();
    else if (what < 88) await end();
    else if (what < 96) leaving.splice(pick(leaving.length + 1), 1)[0]?.();
    else if (what < 97) clock.pass(pick(4000));
    else if (what < 98) limiter.change(pick(2) === 0 ? off : gone);
    else await turn();
    if (what === 97) limiter.change(on);
    counts.maxInFlight = Math.max(counts.maxInFlight, limiter.levels(tool).inFlight);
  }
  while (pending.size > 0 || running.length > 0) {
    await end();
    await turn();
  }
  const after = limiter.levels(tool);
  t.equal(after.inFlight, 0, "none is in flight");
  t.equal(after.waiting, 0, "none waits");
  t.strictSame(
    after.levels.map((level) => level.held),
    after.levels.map(() => 0),
    "nothing is held",
  );
  t.strictSame(
    [after.levels[0]?.used, after.levels.at(-1)?.used],
    [counts.sent, counts.spent],
    "and what was used is what was used",
  );
  t.equal(counts.maxInFlight, 5, "never more than five at once");
  t.ok(Math.min(counts.left, counts.refused, counts.sent) > REQUESTS / 40, JSON.stringify(counts));
  const five = await Promise.all(Array.from({ length: 5 }, () => take(limiter, tool)));
  t.strictSame(five.map(codeOf), ["go", "go", "go", "go", "go"], "five still go");
  let sixth = "waits";
  void take(limiter, tool, FREE, (leave) => leaving.push(leave)).then((taken) => {
    sixth = codeOf(taken);
  });
  await turn();
  t.equal(sixth, "waits", "and the sixth waits");
  leaving.at(-1)?.();
  await until("it left", () => sixth === "left");
});

t.test("requests that wait are let in in the order they came, one for each that ends", async (t) => {
  const { tool, limiter } = start("limits: { concurrent: 2, wait: 5s }");
  const running = [leaseOf(await take(limiter, tool)), leaseOf(await take(limiter, tool))];
  const order: number[] = [];
  const all = Array.from({ length: 6 }, async (_, nth) => {
    const lease = leaseOf(await take(limiter, tool));
    order.push(nth);
    running.push(lease);
  });
  await turn();
  t.strictSame(order, []);
  for (let ended = 0; ended < 6; ended += 1) {
    const lease = running.shift();
    if (lease !== undefined) limiter.settle(lease, { tokens: null, spend: null });
    await turn();
    t.equal(order.length, ended + 1, "one goes for one that ended");
  }
  await Promise.all(all);
  t.strictSame(order, [0, 1, 2, 3, 4, 5]);
});

t.test("takeNow passes neither a limit nor a request that waits", async (t) => {
  const { tool, limiter } = start("limits: { tokens: 10/minute, wait: 60s }");
  const first = limiter.takeNow(tool, { tokens: 6, spend: 0 });
  t.match(first, { tool: "codex", reservation: { tokens: 6 } });
  t.equal(limiter.takeNow(tool, { tokens: 5, spend: 0 }), null);
  t.match(limiter.levels(tool), { levels: [{ used: 0, held: 6 }], inFlight: 1 }, "nothing more is held");
  const waiting = take(limiter, tool, { tokens: 5, spend: 0 });
  await turn();
  t.equal(
    limiter.takeNow(tool, { tokens: 1, spend: 0 }),
    null,
    "there is capacity for it, but it came later",
  );
  if (first !== null) limiter.cancel(first);
  t.equal(codeOf(await waiting), "go");
});

t.test("128 wait and the next is refused at once; a stop refuses them all", async (t) => {
  const { tool, limiter } = start("limits: { concurrent: 1, wait: 60s }");
  const first = leaseOf(await take(limiter, tool));
  const waiting = Array.from({ length: 128 }, () => take(limiter, tool));
  await turn();
  t.equal(limiter.levels(tool).waiting, 128);
  t.equal(codeOf(await take(limiter, tool)), "too-many-at-once");
  limiter.stop();
  const codes = (await Promise.all(waiting)).map(codeOf);
  t.strictSame(new Set(codes), new Set(["shutting-down"]));
  t.equal(codes.length, 128);
  limiter.settle(first, { tokens: null, spend: null });
  t.equal(limiter.levels(tool).inFlight, 0);
});

t.test(
  "a limit that was saved while the tool's first request was on its way holds for the next",
  async (t) => {
    const clock = held();
    const limiter = new Limiter(clock, utc);
    const before = toolIn(configWith(""));
    const after = configWith("limits: { requests: 2/minute }");
    limiter.change(after);
    // It began under the configuration before, and finishes on that one; the limits are the tool's, not its own.
    t.equal(codeOf(await take(limiter, before)), "go");
    t.equal(codeOf(await take(limiter, toolIn(after))), "go");
    t.equal(codeOf(await take(limiter, toolIn(after))), "rate-limited");
  },
);

t.test("an allowance counts, even if the tool was not known before", (t) => {
  const { tool, limiter } = start("limits: { requests: 2/day }");
  limiter.allow("codex", { limit: "requests", amount: 3, given_at: START, until: null });
  t.match(limiter.levels(tool).levels, [{ max: 5, extra: 3 }]);
  t.end();
});

t.test("a limit that a reload brings counts what was used before", async (t) => {
  const { tool, limiter } = start("limits: { concurrent: 1, wait: 9s }");
  for (let n = 0; n < 2; n += 1) limiter.settle(leaseOf(await take(limiter, tool)), { tokens: 0, spend: 0 });
  leaseOf(await take(limiter, tool));
  const waits = take(limiter, tool);
  limiter.change(configWith("limits: { concurrent: 9, requests: 3/day, wait: 9s }"));
  t.equal(codeOf(await waits), "rate-limited");
});

t.test("a disabled tool has the limits that are in the file", (t) => {
  const { limiter } = start("limits: { requests: 2/day }");
  limiter.levels(toolIn(configWith("limits: { requests: 2/day }")));
  const off = configWith("enabled: false, limits: { requests: 7/day }");
  limiter.change(off);
  t.match(limiter.levels(toolIn(off)).levels, [{ max: 7 }]);
  t.end();
});

t.test(
  "when machines begin to share a limit, its day is theirs, with what was used in it before",
  async (t) => {
    const { tool, limiter, clock } = start("limits: { requests: 5/day }");
    for (let sent = 0; sent < 3; sent += 1)
      limiter.settle(leaseOf(await take(limiter, tool)), { tokens: 0, spend: 0 });
    const granter: Granter = {
      now: clock.now,
      calendar: zoneCalendar("Asia/Tokyo"),
      grantFor: () => ({ granted: 5, usedElsewhere: 0, heldElsewhere: 0 }),
      refusal: () => null,
      notGranted: () => null,
      ask: (then) => then(),
      taken: () => {},
    };
    limiter.followGrants(() => granter);
    const used = () => limiter.levels(tool).levels[0]?.used;
    t.equal(used(), 3);
    clock.pass(2 * HOUR);
    t.equal(used(), 3, "23:00 in Tokyo");
    clock.pass(HOUR);
    t.equal(used(), 0, "midnight in Tokyo");
    limiter.followGrants(() => null);
    clock.pass(12 * HOUR);
    const tokyo = { start: START - 21 * HOUR, end: START + 3 * HOUR };
    t.equal(
      limiter.countUse("codex", { kind: "requests", per: "day" }, tokyo),
      3,
      "its use of that day stays",
    );
  },
);
