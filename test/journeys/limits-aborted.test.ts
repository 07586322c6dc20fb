import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { command } from "../doubles/command.ts";
import { type Journey, startAfterCrash, startLimited } from "../doubles/limited-journey.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { post } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

/** Requests whose client leaves, such as Claude Code at Esc: what they take from the limits. */

const SETTINGS = "limits: { requests: 100/month, tokens: 1M/month, spend: $5/day }, quota: $50";
const SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const event = (data: { readonly type: string } & Readonly<Record<string, unknown>>) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;

/** $3 and $15 for a million tokens of input and output, $0.30 for what is read from the cache. */
const MODEL = "claude-sonnet-4-5";
const INPUT = 400 + 800;
const INPUT_MICRODOLLARS = 400 * 3 + 800 * 0.3;
const OUTPUT_MICRODOLLARS = 15;

const START = event({
  type: "message_start",
  message: {
    id: "msg_1",
    type: "message",
    model: MODEL,
    usage: { input_tokens: 400, cache_read_input_tokens: 800, output_tokens: 1 },
  },
});
const text = (words: string) =>
  event({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: words } });
const WORD = text("word ");
const END = (output: number) =>
  event({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: output } }) +
  event({ type: "message_stop" });

/** What Claude Code names, and a long conversation. */
function body(maximum: number, size = 4000): string {
  const content = "x".repeat(size);
  return JSON.stringify({
    model: MODEL,
    stream: true,
    max_tokens: maximum,
    messages: [{ role: "user", content }],
  });
}

interface Aborting extends Journey {
  /** Sends a request, whose client leaves when the answer reached `mark`. */
  abort(stream: string, mark: string, request?: string): Promise<UsageRecord>;
  /** The same without leaving. */
  begin(stream: string, mark: string, request?: string): Promise<() => void>;
  readonly calls: readonly GatewayCall[];
  restart(): Promise<Aborting>;
}

async function start(t: Test, settings = SETTINGS): Promise<Aborting> {
  let answer = "";
  const calls: GatewayCall[] = [];
  const { origin, baseUrl } = await startRawGateway(t, async (call) => {
    await call.whole;
    calls.push(call);
    if (answer !== "") call.send(SSE + chunk(answer) + (answer.includes("message_stop") ? "0\r\n\r\n" : ""));
  });
  const raw = { origin, baseUrl, arrivals: [], running: () => 0, most: () => 0, release: () => {} };
  const over = (journey: Journey): Aborting => {
    const begin: Aborting["begin"] = async (stream, mark, request = body(32_000)) => {
      answer = stream;
      const before = calls.length;
      const client = await openRaw(t, journey.daemon.port);
      const auth = { Host: `127.0.0.1:${journey.daemon.port}`, Authorization: `Bearer ${journey.token}` };
      client.send(post("POST /v1/messages", { ...auth, "Content-Type": "application/json" }, request));
      if (mark === "") await until("the gateway has it", () => calls.length > before);
      else await client.until(mark);
      return () => void client.socket.destroy();
    };
    return {
      ...journey,
      calls,
      begin,
      async abort(...asked) {
        const known = new Set(recordsIn(journey.paths.usage).map(({ id }) => id));
        const leave = await begin(...asked);
        leave();
        await journey.quiet();
        const [record] = recordsIn(journey.paths.usage).filter(({ id }) => !known.has(id));
        if (record === undefined) throw new Error("it has no record");
        return record;
      },
      async restart() {
        await journey.daemon.stop();
        const { home } = journey;
        return over(await startLimited(t, settings, { gateway: raw, home, credentials: journey }));
      },
    };
  };
  return over(await startLimited(t, settings, { gateway: raw }));
}

/** Used, and how much of it is estimated. */
async function used({ codex }: Journey) {
  const { limits } = await codex();
  return Object.fromEntries(limits.map((one) => [one.limit, [one.used, one.estimated]]));
}

function taken(requests: number, tokens: number, spend: number) {
  return {
    requests: [requests, 0],
    tokens: [tokens, tokens],
    spend: [spend, spend],
    quota: [spend, spend],
  };
}

t.test(
  "three streams that the client ends count their input and a usual output, also after a restart and kill -9",
  async (t) => {
    const journey = await start(t);
    // No request of the tool has ended yet.
    const each = INPUT_MICRODOLLARS + 4000 * OUTPUT_MICRODOLLARS;
    for (const n of [1, 2, 3]) {
      const record = await journey.abort(START + WORD, "word ");
      t.match(record, {
        end: "client-left",
        input_tokens: 400,
        cache_read_tokens: 800,
        output_tokens: null,
        tokens_from: "reported",
        cost_microdollars: null,
        seen_tokens: 2,
      });
      t.ok((record.held_microdollars ?? 0) > 480_000, "the reservation is for the maximum");
      t.strictSame(await used(journey), taken(n, n * (INPUT + 4000), n * each));
    }
    const shown = await command(t, journey.home, ["tools"]);
    t.match(shown.stdout, / spend\/day .*\n +incl\. \$0\.18\d* estimated\n/);

    const leave = await journey.begin(START + WORD, "word ");
    const crashed = await startAfterCrash(t, SETTINGS, journey);
    const inFlight = recordsIn(crashed.paths.usage).find(({ end }) => end === "interrupted");
    const { held_tokens: tokens = 0, held_microdollars: money = 0 } = inFlight ?? {};
    t.strictSame(
      await used(crashed),
      taken(4, 3 * (INPUT + 4000) + (tokens ?? 0), 3 * each + (money ?? 0)),
      "kill -9 keeps the reservation of what was in flight",
    );
    leave();
    await journey.quiet();

    const before = await used(journey);
    t.strictSame(before, taken(4, 4 * (INPUT + 4000), 4 * each));
    await journey.daemon.stop();
    const { home, gateway } = journey;
    const again = await startLimited(t, "limits: { spend: $0.3/day }, quota: $50", {
      home,
      gateway,
      credentials: journey,
    });
    t.match(await used(again), { spend: before.spend, quota: before.quota });
    const refused = await again.call({ path: "/v1/messages", body: body(32_000) });
    t.match(
      refused.text,
      /\$0\.2[45]\d* of \$0\.30 used, incl\. \$0\.2[45]\d* estimated, this request may use/,
    );
  },
);

t.test(
  "the output that counts is the usual one or what was seen, and never more than reserved",
  async (t) => {
    const journey = await start(t);
    const spent = async () => (await used(journey)).spend?.[0] ?? 0;
    const ended = await journey.abort(START + END(1500), "message_stop");
    t.match(ended, { end: "complete", output_tokens: 1500 });
    let before = await spent();
    const next = async (what: string, microdollars: number, asked: Parameters<Aborting["abort"]>) => {
      const record = await journey.abort(...asked);
      t.equal(record.end, "client-left", what);
      t.equal(record.counted_microdollars, microdollars, what);
      t.equal((await spent()) - before, microdollars, what);
      before = await spent();
      return record;
    };
    const withOutput = (tokens: number) => INPUT_MICRODOLLARS + tokens * OUTPUT_MICRODOLLARS;
    await next("the tool's median", withOutput(1500), [START + WORD, "word "]);
    // Four bytes of text are a token, however few events have it.
    await next("more was seen", withOutput(3000), [START + text(`${"word ".repeat(2399)}last!`), "last!"]);
    const small = body(10, 0);
    const held = await next("the request's own maximum", withOutput(10), [START + WORD, "word ", body(10)]);
    t.ok((held.held_microdollars ?? 0) > withOutput(10));
    const least = await journey.abort(START + WORD, "word ", small);
    t.equal(
      least.counted_microdollars,
      least.held_microdollars,
      "the body is smaller than what was reported",
    );
    t.equal(least.counted_tokens, least.held_tokens);
    const lying = await journey.abort(START.replace("400", "4e8") + WORD, "word ");
    t.equal(lying.counted_microdollars, lying.held_microdollars, "a gateway may report anything");
    before = await spent();
    // Nothing of an answer came: the input may have been written to the cache, at $3.75.
    const request = body(32_000);
    const input = Math.ceil(request.length / 4);
    const whole = Math.round(input * 3.75) + 1500 * OUTPUT_MICRODOLLARS;
    await next("no answer", whole, ["", "", request]);
    const zeroes = START.replace("400", "0").replace("800", "0");
    await next("an input of zero is none", whole, [zeroes + WORD, "word ", request]);
    t.match((await used(journey)).requests, [8, 0]);
    const again = await journey.restart();
    const after = await again.abort(START + WORD, "word ");
    t.equal(after.counted_microdollars, withOutput(1500), "a restart keeps the median");
  },
);

t.test("a client that leaves while the gateway refuses its request counts nothing", async (t) => {
  const journey = await start(t);
  const refusal = "HTTP/1.1 429 Slow Down\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{";
  const leave = await journey.begin("", "");
  journey.calls.at(-1)?.send(refusal);
  await until("its head was read", () => recordsIn(journey.paths.usage).some(({ status }) => status === 429));
  leave();
  await journey.quiet();
  t.match(await used(journey), { tokens: [0, 0], spend: [0, 0], quota: [0, 0] });
});

t.test("with `estimate` the record has the output that was seen, and the usual one counts", async (t) => {
  const journey = await start(t, `estimate: true, ${SETTINGS}`);
  const record = await journey.abort(START + WORD, "word ");
  t.match(record, { input_tokens: 400, output_tokens: 2, tokens_from: "estimated" });
  t.strictSame(await used(journey), taken(1, INPUT + 4000, INPUT_MICRODOLLARS + 4000 * OUTPUT_MICRODOLLARS));
});
