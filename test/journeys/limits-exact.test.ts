import { request } from "node:http";
import t from "tap";
import { longTest, repeats } from "../doubles/effort.ts";
import {
  type Answered,
  heldWall,
  type Journey,
  PENNY,
  REPORTED,
  startLimited,
  tally,
} from "../doubles/limited-journey.ts";
import { random } from "../doubles/random.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

const many = <T>(count: number, make: (nth: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, nth) => make(nth)));

const codes = (answers: readonly Answered[]) =>
  tally(answers.map(({ refusal, status }) => refusal ?? status));

/** On a stalled machine the daemon may close a kept connection at the moment it is used again. */
const USED_ONCE = { connection: "close" };

longTest(
  t,
  "of 100 calls at once under 10/minute exactly 10 reach the gateway, minute after minute",
  async (t) => {
    const clock = heldWall();
    const { call, gateway, level, quiet } = await startLimited(
      t,
      "limits: { requests: [10/minute, 1000/day], tokens: 1M/day }, quota: $5",
      { clock },
    );
    for (let round = 1; round <= 2; round += 1) {
      // In another order every time: some answers come while others are asked for.
      const answers = await many(100, (nth) =>
        call({ play: (nth + round) % 3 === 0 ? "slow" : "finish", headers: USED_ONCE }),
      );
      t.strictSame(codes(answers), { 200: 10, "rate-limited": 90 });
      t.equal(gateway.arrivals.length, 10 * round, "no eleventh reached it");
      await quiet();
      t.strictSame(await level("requests", "minute"), [10, 0, 10]);
      t.strictSame(
        await level("requests", "day"),
        [10 * round, 0, 1000],
        "the refused took from no other limit",
      );
      t.strictSame(await level("tokens", "day"), [10 * round * REPORTED, 0, 1_000_000]);
      t.strictSame(await level("quota"), [10 * round * REPORTED, 0, 5_000_000]);
      clock.pass(60_000);
    }
  },
);

t.test("a request that one of several limits refuses takes nothing from the others", async (t) => {
  const { call, gateway, level, quiet } = await startLimited(
    t,
    "limits: { requests: 50/minute, tokens: 100/minute, spend: $1/day, concurrent: 40 }",
    { clock: heldWall() },
  );
  // Each holds 10 tokens of output, and a quarter of its bytes as input.
  const holds = 10 + Math.ceil(PENNY.length / 4);
  const fit = Math.floor(100 / holds);
  let answered = 0;
  const ends = many(30, async () => {
    const answer = await call({ play: "hang" });
    answered += 1;
    return answer;
  });
  await until("the others were refused", () => gateway.arrivals.length === fit && answered === 30 - fit);
  t.strictSame(await level("requests", "minute"), [fit, 0, 50]);
  t.strictSame(await level("tokens", "minute"), [0, fit * holds, 100]);
  t.strictSame(await level("spend", "day"), [0, fit * holds, 1_000_000]);
  gateway.release();
  t.strictSame(codes(await ends), { 200: fit, "tokens-limited": 30 - fit });
  await quiet();
  t.equal(gateway.arrivals.length, fit);
  t.strictSame(await level("requests", "minute"), [fit, 0, 50]);
  t.strictSame(await level("tokens", "minute"), [fit * REPORTED, 0, 100]);
});

/** A client that leaves: before its body is through, while it waits, before the answer, or in the middle of it. */
function leaver(
  { url, token }: Journey,
  play: string,
  part: "body" | "head" | "answer",
  when: Promise<unknown>,
) {
  return new Promise<void>((resolve) => {
    const asking = request(
      `${url}/v1/chat/completions`,
      {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          "content-length": PENNY.length,
          "x-play": play,
        },
        agent: false,
      },
      (answer) => {
        answer.on("error", () => {});
        answer.once("data", () => {
          if (part === "answer") asking.destroy();
        });
        answer.resume();
      },
    );
    asking.on("error", () => {});
    asking.on("close", () => resolve());
    if (part === "body") asking.write(PENNY.slice(0, 20));
    else asking.end(PENNY);
    void when.then(() => {
      if (part !== "answer") asking.destroy();
    });
  });
}

const CALLS = repeats("KEYBEARER_LEAK_CALLS", 160, 1600);
const SETTINGS =
  "limits: { requests: 100000/month, tokens: 100M/month, spend: $900/month, concurrent: 6, wait: 20s }, quota: $1000";

t.test("calls that end in every way over sockets leak no slot and no reservation", async (t) => {
  const journey = await startLimited(t, SETTINGS, {
    gatewayLines: "timeouts: { first_byte: 400ms, idle: 400ms }",
  });
  const { call, gateway, codex, quiet, paths } = journey;
  const pick = random(5);
  const plays = [
    "finish",
    "slow",
    "stream",
    "no-usage",
    "cut",
    "cut-stream",
    "400",
    "429",
    "500",
    "503",
    "early",
  ];
  const seen: (string | number | null)[] = [];
  const one = async (nth: number): Promise<void> => {
    const what = nth % 16;
    if (what < plays.length) {
      await call({ play: plays[what] ?? "" }).then(
        ({ refusal, status }) => seen.push(refusal ?? status),
        () => seen.push("broken"),
      );
    } else if (what === 11) await leaver(journey, "slow", "body", soon(pick(6)));
    else if (what === 12) await leaver(journey, "slow", "head", soon(pick(30)));
    else if (what === 13) await leaver(journey, "stall", "answer", soon(0));
    // Silence before the answer, and in the middle of it: both are ended by the timeouts.
    else if (what === 14 && nth % 5 === 0) {
      await call({ play: "hang" }).then(({ refusal }) => seen.push(refusal));
    } else if (what === 15 && nth % 5 === 0) {
      await call({ play: "stall" }).then(
        () => seen.push("whole"),
        () => seen.push("broken"),
      );
    } else
      await call({ play: "finish", body: '{"model":"nobody-knows"}' }).then(({ refusal }) =>
        seen.push(refusal),
      );
  };
  let next = 0;
  const worker = async () => {
    while (next < CALLS) {
      next += 1;
      await one(next);
    }
  };
  await many(12, worker);
  await quiet();
  const { limits } = await codex();
  t.strictSame(
    limits.map(({ held }) => held),
    limits.map(() => 0),
    "nothing is held",
  );
  const counts = tally(seen);
  for (const code of [
    200,
    400,
    429,
    500,
    503,
    "broken",
    "gateway-timeout",
    "gateway-broken",
    "price-unknown",
  ])
    t.ok((counts[String(code)] ?? 0) >= CALLS / 160, `${code}: ${JSON.stringify(counts)}`);
  const records = recordsIn(paths.usage);
  t.ok(records.length > CALLS * 0.8 && records.length <= CALLS, `${records.length} records`);
  t.strictSame(tally(records.map(({ end }) => (end === null ? "open" : "complete"))), {
    complete: records.length,
  });

  const before = (await codex()).limits.map(({ limit, used }) => [limit, used]);
  await journey.daemon.stop(0);
  const again = await startLimited(t, SETTINGS, { home: journey.home, gateway, credentials: journey });
  const after = (await again.codex()).limits.map(({ limit, used }) => [limit, used]);
  t.strictSame(after, before, "the log and the counters agree");

  // This daemon has no short time-outs, so the six stay however long it takes until the seventh waits.
  const last = many(7, () => again.call({ play: "hang" }));
  await until(
    "six are there",
    () => gateway.arrivals.filter(({ play, ended }) => play === "hang" && !ended).length === 6,
  );
  await until("the seventh waits", async () => (await again.codex()).waiting === 1);
  t.equal((await again.codex()).running, 6);
  gateway.release();
  await until("the seventh is there", () => gateway.running() === 1);
  gateway.release();
  t.strictSame(codes(await last), { 200: 7 });
  await again.quiet();
});

function soon(turns: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, turns));
}
