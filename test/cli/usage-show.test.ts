import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { recordInWords } from "../../src/cli/usage/record-words.ts";
import { tailLine } from "../../src/cli/usage/tail-line.ts";
import { REFUSALS } from "../../src/core/refusal.ts";
import { EXPORTED, type UsageRecord } from "../../src/usage/record.ts";
import { exportedRecord } from "../../src/usage/reports/records.ts";
import { command, newHome } from "../doubles/command.ts";
import { writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";

process.env.TZ = "UTC";

const UNKNOWN = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
} as const;

const LEFT = { end: "client-left", status: null, bytes_in: 0, bytes_out: 0 } as const;

/** A stream of messages that ended before it counted its output. */
const CUT = {
  output_tokens: null,
  reasoning_tokens: null,
  list_microdollars: null,
  cost_microdollars: null,
} as const;

async function homeWith(t: Test, records: readonly UsageRecord[]): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), records);
  return home;
}

t.test("one record whole, as it is for people", async (t) => {
  t.equal(
    recordInWords(record(7)),
    `record      01KA2CZH3V0000000000000007
began       2025-11-15 00:00:00.123 +00:00
first byte  2025-11-15 00:00:01.001 +00:00, after 878 ms
ended       2025-11-15 00:00:02.456 +00:00, after 2,333 ms
tool        codex
gateway     main
group       coding, multiplier 1.5
key         …a1b2
request     POST /v1/responses (openai)
model       gpt-5.1, answered by gpt-5.1-2026-08
status      200, streamed
end         complete
tokens      1,200 input, 800 read from cache, 0 written to cache, 342 output, 128 of it reasoning; reported by the gateway
cost        $0.0081 = list price $0.0054 × 1.5
bytes       40,192 to the gateway, 18,231 back
ids         x-client-request-id: id-7
`,
  );
});

t.test("what a record means is said: why something is unknown, and what to do", async (t) => {
  const cases: [Partial<UsageRecord>, RegExp][] = [
    [
      { ...UNKNOWN, endpoint: "/v1/chat/completions" },
      /reported no usage, so tokens and cost are unknown, which is not zero\. tools\.codex\.ask_usage/,
    ],
    [{ ...UNKNOWN, endpoint: "/v1/models", method: "GET" }, /nothing that is billed by tokens/],
    [
      { list_microdollars: null, cost_microdollars: null },
      /no price is known for gpt-5\.1.*prices: in config\.yaml/,
    ],
    [{ tokens_from: "estimated" }, /are an estimate/],
    [
      { end: "refused", refusal: "rate-limited", ...UNKNOWN },
      /refused it, and nothing was sent.*limit of requests/,
    ],
    [{ end: "client-left", ...UNKNOWN }, /hung up before the answer was complete; the gateway may bill/],
    [{ ...LEFT, ...UNKNOWN }, /hung up before anything was sent$/m],
    [{ ...LEFT, ...UNKNOWN, method: "GET", endpoint: "/v1/models" }, /hung up before an answer came$/m],
    [
      { ...UNKNOWN, method: "GET", status: 101, stream: null },
      /^a websocket's usage is not read, so tokens and cost are unknown, which is not zero$/m,
    ],
    [{ ...UNKNOWN, endpoint: "/v1/rerank" }, /^nobody here knows what this endpoint costs, .* not zero$/m],
    [{ endpoint: "/v1/rerank", tokens_from: "estimated" }, /are an estimate/],
    [
      { ...CUT, end: "client-left" },
      /^it ended early, before its output was counted: .* neither is its cost$/m,
    ],
    [{ ...CUT, end: "gateway-failed" }, /^tokens +1,200 input, .*, output not known; reported/m],
    [{ ...UNKNOWN, endpoint: "/v1/messages" }, /not zero\. tools\.codex\.estimate: true estimates it$/m],
    [{ ...UNKNOWN, end: "gateway-failed" }, /the gateway reported no usage, so tokens and cost are unknown/],
    [{ ...UNKNOWN, end: "gateway-failed", refusal: "gateway-unreachable" }, /failed costs nothing at most/],
    [{ end: "gateway-failed", ...UNKNOWN }, /broke off/],
    [{ end: "gateway-failed", refusal: "gateway-timeout", ...UNKNOWN }, /did not answer in time/],
    [{ end: "interrupted", ended_at: null, ...UNKNOWN }, /cut off while it ran/],
    [{ end: null, ended_at: null, ...UNKNOWN }, /has not ended yet/],
    [{ status: 401, cause: "incomplete-key", ...UNKNOWN }, /does not know the key/],
    [{ status: 401, cause: "unknown", cause_detail: "key-disabled", ...UNKNOWN }, /the key was disabled/],
    [{ status: 401, cause: "unknown", cause_detail: "something-new", ...UNKNOWN }, /without a reason/],
    [{ status: 418, cause: "something-new", ...UNKNOWN }, /the gateway's refusal: something-new/],
    [{ waited_ms: 1500 }, /waited +1\.5 s for room under a limit/],
    [{ billed_microdollars: 9000 }, /billed +\$0\.0090, as the console says/],
  ];
  for (const [given, words] of cases) t.match(recordInWords(record(1, given)), words, words.source);
  for (const code of Object.keys(REFUSALS)) {
    t.notMatch(
      recordInWords(record(1, { end: "refused", refusal: code })),
      new RegExp(`gateway: ${code}$`, "m"),
    );
  }
});

t.test("a record is found by its id, how that begins, the gateway's id, or as the last", async (t) => {
  const at = Date.UTC(2026, 10, 1);
  const [first, second, last] = [
    record(1, { started_at: at, gateway_ids: { body: "chatcmpl-AbC123" } }),
    record(2, { started_at: at + 5 }),
    record(3, { started_at: at + 86_400_000 }),
  ];
  const home = await homeWith(t, [first, second, last]);
  const show = (...args: string[]) => command(t, home, ["usage", "show", ...args]);
  const whole = await show("last", "--json");
  t.equal(whole.code, 0);
  t.same(JSON.parse(whole.stdout), exportedRecord(last));
  t.same(Object.keys(JSON.parse(whole.stdout)), EXPORTED);
  const several = await show(first.id.slice(0, 6));
  t.same([several.code, several.stdout], [1, ""]);
  t.match(several.stderr, /fits several records; write more of the id:\n01.* codex .*\n01/);
  const none = await show("01ZZZZZZ");
  t.same([none.code, none.stdout], [1, ""]);
  t.match(none.stderr, /there is no record 01ZZZZZZ/);
  t.equal((await command(t, await newHome(t), ["usage", "show", "last"])).code, 1, "nor where nothing is");
  const unused = await homeWith(t, []);
  // As a daemon leaves it that had no requests.
  writeFileSync(join(unused, "state", "usage", "2026-11-01.jsonl"), '{"kind":"carry","tools":0}\n');
  const empty = await command(t, unused, ["usage", "show", "last"]);
  t.match(empty, { code: 1, stdout: "", stderr: /^nothing was recorded yet, .* → keybearer run/ });
});

t.test("nothing that a record holds can steer the terminal", async (t) => {
  const evil = "\u001b]0;owned\u0007\u009b31m\r\n\u202eevil";
  const hostile = record(1, {
    ...{
      tool: evil,
      model: evil,
      model_answered: `${evil}2`,
      endpoint: evil,
      cause: evil,
      cause_detail: evil,
      refusal: evil,
    },
    ...{ process: evil, group: evil, gateway_ids: { [evil]: evil } },
  });
  for (const shown of [recordInWords(hostile), tailLine(hostile), tailLine({ ...hostile, end: "refused" })]) {
    t.notMatch(shown, /(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  }
  t.notMatch(tailLine(hostile), /\n/);
});

t.test("one line a record tells how it ended, what it took and what it cost", async (t) => {
  const lines: [Partial<UsageRecord>, string][] = [
    [
      {},
      "00:00:00 codex        gpt-5.1                200         1.2k in + 800 cached, 342 out   $0.0081 first 878 ms, all 2.3 s",
    ],
    [
      { ...UNKNOWN, end: "client-left" },
      "00:00:00 codex        gpt-5.1                200 left    no usage reported                    $? first 878 ms, all 2.3 s",
    ],
    [
      { ...UNKNOWN, end: "refused", status: 429, refusal: "rate-limited", tool: null },
      "00:00:00 (nobody)     gpt-5.1                429 refused rate-limited",
    ],
    [
      {
        ...UNKNOWN,
        status: 401,
        cause: "incomplete-key",
        model: "a-model-with-quite-a-long-name",
        first_byte_at: null,
      },
      "00:00:00 codex        a-model-with-quite-a-… 401                                                 all 2.3 s (incomplete-key)",
    ],
    [
      { ...UNKNOWN, status: 401, cause: "unknown", cause_detail: "key-disabled", first_byte_at: null },
      "00:00:00 codex        gpt-5.1                401                                                 all 2.3 s (key-disabled)",
    ],
    [
      { ...CUT, end: "client-left", cache_write_tokens: 1_000_000 },
      "00:00:00 codex        gpt-5.1                200 left    1.2k in + 800 cached + 1.0M written, ? out       $? first 878 ms, all 2.3 s",
    ],
    [
      { cache_read_tokens: 0, cache_write_tokens: 17_000, tokens_from: "estimated" },
      "00:00:00 codex        gpt-5.1                200         about 1.2k in + 17k written, 342 out  $0.0081 first 878 ms, all 2.3 s",
    ],
    [
      { ...UNKNOWN, method: "GET", endpoint: "/v1/realtime", status: 101, model: null, model_answered: null },
      "00:00:00 codex        GET /v1/realtime       101         no usage reported                    $? first 878 ms, all 2.3 s",
    ],
    [
      { ...UNKNOWN, method: "GET", endpoint: "/v1/models", model: null, model_answered: null },
      "00:00:00 codex        GET /v1/models         200                                                 first 878 ms, all 2.3 s",
    ],
  ];
  for (const [given, line] of lines) t.equal(tailLine(record(1, given)), line);
});
