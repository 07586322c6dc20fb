import t from "tap";
import { MINUTE, type MirrorJourney, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { recordWhere } from "../doubles/usage-journey.ts";

/** A micro-dollar for a token, so that money and tokens are the same number. */
const PRICES = ["prices:", "  m: { input: 1, output: 1, cache_read: 1, cache_write: 1 }"];
const LIMITED = "limits: { spend: $5/month, tokens: 1M/month }, quota: $10";
const BODY = JSON.stringify({ model: "m", stream: true, messages: [] });
const INPUT = Math.ceil(BODY.length / 4);
const PIECES = 200;

/** Used of each limit, and how much of it is estimated. */
async function levels(journey: MirrorJourney): Promise<Record<string, unknown>> {
  const [tool] = (await journey.status()).tools;
  return Object.fromEntries((tool?.limits ?? []).map((one) => [one.limit, [one.used, one.estimated]]));
}

/** What a stream counts whose client leaves after PIECES, and of which the console lists this output. */
async function counted(journey: MirrorJourney, billed: number): Promise<number | null> {
  const known = new Set(recordsIn(journey.paths.usage).map(({ id }) => id));
  const bills = journey.console.bills();
  const leaving = new AbortController();
  const answer = await fetch(`${journey.url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${journey.codex.token}`,
      "content-type": "application/json",
      "x-test-hang-in-body": "1",
      "x-test-pieces": String(PIECES - 1),
      "x-test-output": String(billed),
    },
    body: BODY,
    signal: leaving.signal,
  });
  // The client has all of them, so keybearer has.
  let text = "";
  for await (const part of answer.body ?? []) {
    text += Buffer.from(part).toString();
    if (text.split("\n\n").length > PIECES) break;
  }
  leaving.abort();
  await until("the gateway has billed it", () => journey.console.bills() > bills);
  const record = await recordWhere(journey, "it left", ({ id, end }) => end !== null && !known.has(id));
  journey.clock.pass(5000);
  return record.counted_tokens;
}

async function read(journey: MirrorJourney): Promise<void> {
  journey.clock.pass(MINUTE);
  await journey.sync();
}

t.test(
  "the console corrects what a stream counts whose client left, and shows whether such streams are billed in whole",
  async (t) => {
    const journey = await startJourney(t, "sub2api", { tools: { codex: LIMITED }, more: PRICES });
    await journey.idle();
    const usual = INPUT + 4000;
    for (let n = 0; n < 5; n += 1) t.equal(await counted(journey, 210), usual, "nothing is known yet");
    const estimated = 5 * usual;
    t.match(await levels(journey), {
      tokens: [estimated, estimated],
      spend: [estimated, estimated],
      quota: [estimated, estimated],
    });
    await read(journey);
    const billed = 5 * (12 + 210);
    const spend = recordsIn(journey.paths.usage).reduce(
      (sum, one) => sum + (one.billed_microdollars ?? 0),
      0,
    );
    t.match(await levels(journey), { tokens: [billed, 0], spend: [spend, 0], quota: [spend, 0] });

    t.equal(await counted(journey, 210), INPUT + PIECES, "five were billed by what was sent");
    await journey.daemon.stop(0);
    const again = await journey.startAgain();
    await again.idle();
    t.equal(await counted(again, 4000), INPUT + PIECES, "also after a restart");
    await read(again);
    t.match(await levels(again), { tokens: [billed + 222 + 4012, 0] });
    t.equal(await counted(again, 210), usual, "one was billed in whole");
  },
);
