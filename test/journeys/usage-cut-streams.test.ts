import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { type Journey, type PlayGateway, startLimited } from "../doubles/limited-journey.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { post } from "../doubles/stimulus.ts";
import { faultsIn, finishedWhere, recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

/** Streams that begin well and do not come to their end: what their records say, and what they take from the limits. */

const SETTINGS = "limits: { requests: 100/month, tokens: 100k/month, spend: $9/month }, quota: $10";
const SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const event = (data: { readonly type: string } & Readonly<Record<string, unknown>>) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;

interface Streaming extends Journey {
  readonly raw: PlayGateway;
}

async function start(t: Test, onCall: (call: GatewayCall) => void | Promise<void>): Promise<Streaming> {
  const { origin, baseUrl } = await startRawGateway(t, async (call) => {
    await call.whole;
    await onCall(call);
  });
  const raw = { origin, baseUrl, arrivals: [], running: () => 0, most: () => 0, release: () => {} };
  return { ...(await startLimited(t, SETTINGS, { gateway: raw })), raw };
}

/** Ten tokens at most, and a mark to find its record by. */
function bodyOf(mark: string): string {
  return JSON.stringify({
    model: "penny",
    stream: true,
    max_tokens: 10,
    max_output_tokens: 10,
    metadata: { mark },
    messages: [],
  });
}

async function levels({ level }: Journey) {
  return {
    requests: await level("requests", "month"),
    tokens: await level("tokens", "month"),
    spend: await level("spend", "month"),
    quota: await level("quota"),
  };
}

/** What the limits show after so many requests that take this from them. */
function taken(requests: number, tokens: number, spend: number) {
  return {
    requests: [requests, 0, 100],
    tokens: [tokens, 0, 100_000],
    spend: [spend, 0, 9_000_000],
    quota: [spend, 0, 10_000_000],
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

/** The only record that was not there before. */
async function nextRecord(journey: Journey, before: number): Promise<UsageRecord> {
  await journey.quiet();
  const known = new Set(
    recordsIn(journey.paths.usage)
      .slice(0, before)
      .map(({ id }) => id),
  );
  return finishedWhere(journey.paths.usage, "the request", ({ id }) => !known.has(id));
}

const PING = 'event: ping\ndata: {"type": "ping"}\n\n';

/** A gateway that has sent pings while the client waited can only refuse like this. */
const REFUSALS: readonly (readonly [
  what: string,
  path: string,
  stream: string,
  cause: string | null,
  detail: string | null,
])[] = [
  [
    "messages",
    "/v1/messages",
    `${PING}${PING}${event({ type: "error", error: { type: "overloaded_error", message: "Overloaded" } })}`,
    "rate-limit",
    "no-capacity",
  ],
  [
    "messages, in an event without a name",
    "/v1/messages",
    `${PING}data: {"type": "error", "error": {"type": "rate_limit_error", "message": "Concurrency limit exceeded"}}\n\n`,
    "rate-limit",
    "no-capacity",
  ],
  [
    "chat",
    "/v1/chat/completions",
    ': PING\n\n: PING\n\ndata: {"error":{"message":"Concurrency limit exceeded","type":"rate_limit_error"}}\n\n',
    "rate-limit",
    "no-capacity",
  ],
  [
    "chat, with the last event after it",
    "/v1/chat/completions",
    ': PING\n\ndata: {"error":{"message":"The server is overloaded","type":"server_error"}}\n\ndata: [DONE]\n\n',
    "rate-limit",
    "no-capacity",
  ],
  [
    "responses",
    "/v1/responses",
    ': PING\n\nevent: error\ndata: {"type":"error","code":"rate_limit_exceeded","message":"no","param":null}\n\n',
    null,
    null,
  ],
  // The queue of the real sub2api, word for word.
  [
    "sub2api 0.1.135, messages",
    "/v1/messages",
    'data: {"type": "ping"}\n\ndata: {"type": "ping"}\n\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"Concurrency limit exceeded for user, please retry later"}}\n\n',
    "rate-limit",
    "no-capacity",
  ],
  [
    "sub2api 0.1.135, chat",
    "/v1/chat/completions",
    ':\n\n:\n\nevent: error\ndata: {"error":{"type":"rate_limit_error","message":"Concurrency limit exceeded for account, please retry later"}}\n\n',
    "rate-limit",
    "no-capacity",
  ],
  [
    "sub2api 0.1.135, responses",
    "/v1/responses",
    ':\n\n:\n\nevent: response.failed\ndata: {"type":"response.failed","response":{"id":"resp_106f6440dd52406fadb9833588b4060a","object":"response","model":"gpt-5.1","status":"failed","output":[],"error":{"code":"rate_limit_exceeded","message":"Concurrency limit exceeded for user, please retry later"}}}\n\n',
    "rate-limit",
    "no-capacity",
  ],
];

t.test("a refusal inside of a stream takes a request, and neither tokens nor money", async (t) => {
  let stream = "";
  const journey = await start(t, (call) => call.send(`${SSE}${chunk(stream)}0\r\n\r\n`));
  for (const [at, [what, path, text, cause, detail]] of REFUSALS.entries()) {
    stream = text;
    const answer = await journey.call({ path, body: bodyOf(what) });
    t.equal(answer.status, 200, what);
    t.equal(answer.text, text, `${what}: it passes as it is`);
    const record = await nextRecord(journey, at);
    t.match(record, { status: 200, stream: true, end: "gateway-failed", refusal: null, ...UNKNOWN }, what);
    t.strictSame([record.cause, record.cause_detail], [cause, detail], what);
    t.strictSame(await levels(journey), taken(at + 1, 0, 0), what);
  }
  t.strictSame(faultsIn(journey.paths.usage), []);

  await journey.daemon.stop();
  const { home, raw, key, token, hash } = journey;
  const again = await startLimited(t, SETTINGS, { home, gateway: raw, credentials: { key, token, hash } });
  t.strictSame(await levels(again), taken(REFUSALS.length, 0, 0), "after a restart it is the same");
});

const START = event({
  type: "message_start",
  message: {
    id: "msg_1",
    type: "message",
    model: "penny",
    usage: { input_tokens: 25, cache_read_input_tokens: 7, output_tokens: 1 },
  },
});
const WORD = event({
  type: "content_block_delta",
  index: 0,
  delta: { type: "text_delta", text: "word " },
});
/** Some gateways count in every event of a chat. */
const COUNTED = `data: ${JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  model: "penny",
  choices: [{ index: 0, delta: { content: "word " } }],
  usage: { prompt_tokens: 25, completion_tokens: 1, total_tokens: 26 },
})}\n\n`;
const BEGUN: Readonly<Record<string, string>> = {
  "/v1/messages": START + WORD + WORD,
  "/v1/chat/completions": COUNTED + COUNTED,
  "/v1/responses":
    event({ type: "response.created", response: { id: "resp_1", status: "in_progress" } }) +
    event({ type: "response.output_text.delta", delta: "word " }),
};

/** What is known of them before they are cut. */
const REPORTED: Readonly<Record<string, Partial<UsageRecord>>> = {
  "/v1/messages": { input_tokens: 25, cache_read_tokens: 7, cache_write_tokens: 0, tokens_from: "reported" },
  "/v1/chat/completions": {
    input_tokens: 25,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    tokens_from: "reported",
  },
};

const CUTS: Readonly<Record<string, (call: GatewayCall) => void>> = {
  "by a reset": (call) => void call.socket.resetAndDestroy(),
  "in a chunk": (call) => void call.socket.end("50\r\ndata: "),
  "between two chunks": (call) => void call.socket.end(),
  "by an end without its last event": (call) => call.send("0\r\n\r\n"),
};

t.test(
  "a stream that the gateway cuts keeps the input that it reported, and the limits keep what was reserved",
  async (t) => {
    const calls: GatewayCall[] = [];
    const journey = await start(t, (call) => {
      calls.push(call);
      call.send(SSE + chunk(BEGUN[call.target] ?? ""));
    });
    let requests = 0;
    let tokens = 0;
    let spend = 0;
    for (const path of Object.keys(BEGUN)) {
      for (const [how, cut] of Object.entries(CUTS)) {
        const what = `${path}, cut ${how}`;
        const client = await openRaw(t, journey.daemon.port);
        const auth = { Host: `127.0.0.1:${journey.daemon.port}`, Authorization: `Bearer ${journey.token}` };
        client.send(post(`POST ${path}`, { ...auth, "Content-Type": "application/json" }, bodyOf(what)));
        // Only then, so that the record cannot miss what was sent before the cut.
        await client.until("word ");
        const call = calls.at(-1);
        if (call !== undefined) cut(call);
        const record = await nextRecord(journey, requests);
        client.socket.destroy();
        const known = { ...UNKNOWN, ...REPORTED[path] };
        t.match(record, { status: 200, stream: true, end: "gateway-failed", refusal: null, ...known }, what);
        t.ok(
          (record.held_tokens ?? 0) > 10 && (record.held_microdollars ?? 0) > 10,
          `${what}: it was reserved`,
        );
        requests += 1;
        tokens += record.held_tokens ?? 0;
        spend += record.held_microdollars ?? 0;
        t.strictSame(await levels(journey), taken(requests, tokens, spend), what);
      }
    }
    t.strictSame(faultsIn(journey.paths.usage), []);

    await journey.daemon.stop();
    const { home, raw, key, token, hash } = journey;
    const again = await startLimited(t, SETTINGS, { home, gateway: raw, credentials: { key, token, hash } });
    t.strictSame(await levels(again), taken(requests, tokens, spend), "after a restart it is the same");
  },
);

t.test(
  "of a stream that the client leaves the input is known, and the limits count no more than was reserved",
  async (t) => {
    const journey = await start(t, (call) => call.send(SSE + chunk(START + WORD)));
    let tokens = 0;
    let spend = 0;
    for (const [at, how] of (["destroy", "resetAndDestroy", "end"] as const).entries()) {
      const client = await openRaw(t, journey.daemon.port);
      const auth = { Host: `127.0.0.1:${journey.daemon.port}`, Authorization: `Bearer ${journey.token}` };
      client.send(post("POST /v1/messages", { ...auth, "Content-Type": "application/json" }, bodyOf(how)));
      await client.until("word ");
      client.socket[how]();
      const record = await nextRecord(journey, at);
      t.match(
        record,
        {
          status: 200,
          stream: true,
          end: "client-left",
          ...UNKNOWN,
          input_tokens: 25,
          cache_read_tokens: 7,
          cache_write_tokens: 0,
          tokens_from: "reported",
        },
        how,
      );
      tokens += record.held_tokens ?? 0;
      spend += record.held_microdollars ?? 0;
      t.strictSame(await levels(journey), taken(at + 1, tokens, spend), how);
    }
    t.strictSame(faultsIn(journey.paths.usage), []);
  },
);
