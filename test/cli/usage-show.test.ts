import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { recordLine } from "../../src/cli/usage/record-line.ts";
import { formatRecord } from "../../src/cli/usage/show.ts";
import { REFUSALS } from "../../src/core/refusal.ts";
import { EXPORTED, type UsageRecord } from "../../src/usage/record.ts";
import { exportedRecord } from "../../src/usage/reports/records.ts";
import { command, newHome } from "../doubles/command.ts";
import { writeJournal } from "../doubles/journal.ts";
import { NO_USAGE, record } from "../doubles/records.ts";

process.env.TZ = "UTC";

const LEFT = { end: "client-left", status: null, first_byte_at: null } as const;

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

t.test("a record is shown with all its fields", async (t) => {
  t.equal(
    formatRecord(record(7), null, 80),
    `record      01KA2CZH3V0000000000000007
began       2025-11-15 00:00:00.123 +00:00
first byte  2025-11-15 00:00:01.001 +00:00, after 878 ms
ended       2025-11-15 00:00:02.456 +00:00, after 2.3 s
tool        codex
gateway     main
group       coding, multiplier 1.5
key         …a1b2
request     POST /v1/responses (openai)
model       gpt-5.1, answered by gpt-5.1-2026-08
status      200, streamed
end         complete
tokens      1,200 input, 800 read from cache, 0 written to cache, 342 output,
              128 of it reasoning; reported by the gateway
cost        $0.0081 = list price $0.0054 × 1.5
bytes       40,192 from the tool, 18,231 back
ids         x-client-request-id: id-7
`,
  );
});

t.test("a request with unknown usage shows what its tool's limits count for it", async (t) => {
  const counted = (given: Partial<UsageRecord>) =>
    /^counted +(.*)$/m.exec(formatRecord(record(1, given), null, 200))?.[1] ?? null;
  const held = { held_tokens: 33_000, held_microdollars: 483_848 };
  const left = { ...CUT, ...held, end: "client-left", counts: true } as const;
  t.match(
    counted({ ...left, counted_tokens: 5200, counted_microdollars: 60_000 }),
    /^5,200 tokens and \$0\.060? under the tool's limits, estimated$/,
  );
  t.match(counted(left), /^33,000 tokens and \$0\.48 /, "what was reserved");
  t.equal(counted({ ...left, counts: false }), null);
  t.equal(counted({ ...left, end: null }), null, "it still runs");
  t.equal(counted({ ...held, counted_tokens: 2342, counted_microdollars: 8130 }), null, "it was reported");
});

t.test("a note explains why something is unknown or failed, and what to do", async (t) => {
  const cases: [Partial<UsageRecord>, RegExp][] = [
    [
      { ...NO_USAGE, endpoint: "/v1/chat/completions" },
      /reported no usage, so tokens and cost are unknown, which is not zero\. tools\.codex\.ask_usage/,
    ],
    [{ ...NO_USAGE, endpoint: "/v1/models", method: "GET" }, /this is not billed by tokens/],
    [
      { list_microdollars: null, cost_microdollars: null },
      /no price is known for gpt-5\.1.*prices: in config\.yaml/,
    ],
    [{ tokens_from: "estimated" }, /are an estimate/],
    [
      { end: "refused", refusal: "rate-limited", ...NO_USAGE },
      /refused it and sent nothing.*limit of requests/,
    ],
    [{ end: "client-left", ...NO_USAGE }, /canceled it before the answer was complete; the gateway may bill/],
    [{ ...LEFT, ...NO_USAGE, sent_at: null }, /canceled it before anything was sent$/m],
    [{ ...LEFT, ...NO_USAGE, method: "GET", endpoint: "/v1/models" }, /canceled it before an answer came$/m],
    [
      { ...NO_USAGE, method: "GET", status: 101, stream: null },
      /^the usage of a WebSocket is not read, so tokens and cost are unknown, which is not zero$/m,
    ],
    [{ ...NO_USAGE, endpoint: "/v1/rerank" }, /^the price of this endpoint is not known, .* not zero$/m],
    [{ endpoint: "/v1/rerank", tokens_from: "estimated" }, /are an estimate/],
    [
      { ...CUT, end: "client-left" },
      /^it ended before its output was counted, so the output and the cost are not known$/m,
    ],
    [{ ...CUT, end: "gateway-failed" }, /^tokens +1,200 input, .*, output not known; reported/m],
    [{ ...NO_USAGE, endpoint: "/v1/messages" }, /not zero\. tools\.codex\.estimate: true estimates it$/m],
    [{ ...NO_USAGE, end: "gateway-failed" }, /the gateway reported no usage, so tokens and cost are unknown/],
    [
      { ...NO_USAGE, end: "gateway-failed", refusal: "gateway-unreachable" },
      /do not charge for a request that failed/,
    ],
    [{ end: "gateway-failed", ...NO_USAGE }, /ended its answer early/],
    [{ end: "gateway-failed", refusal: "gateway-timeout", ...NO_USAGE }, /did not answer in time/],
    [{ end: "interrupted", ended_at: null, ...NO_USAGE }, /stopped while it ran/],
    [{ end: null, ended_at: null, ...NO_USAGE }, /has not ended yet/],
    [{ status: 401, cause: "incomplete-key", ...NO_USAGE }, /does not know the key/],
    [{ status: 401, cause: "unknown", cause_detail: "key-disabled", ...NO_USAGE }, /the key was disabled/],
    [{ status: 401, cause: "unknown", cause_detail: "something-new", ...NO_USAGE }, /for an unknown reason/],
    [{ status: 418, cause: "something-new", ...NO_USAGE }, /the gateway's refusal: something-new/],
    [{ waited_ms: 1500 }, /waited +1\.5 s for a limit/],
    [
      { admitted_at: record(1).started_at, sent_at: record(1).started_at + 8200 },
      /sent +.*, after 8\.2 s: before, there was no connection to the\s+gateway/,
    ],
    [{ billed_microdollars: 9000 }, /billed +\$0\.009, according to the console/],
  ];
  for (const [given, text] of cases) t.match(formatRecord(record(1, given), null, 200), text, text.source);
  for (const code of Object.keys(REFUSALS)) {
    t.notMatch(
      formatRecord(record(1, { end: "refused", refusal: code }), null, 200),
      new RegExp(`gateway: ${code}$`, "m"),
    );
  }
});

t.test("show prints the last record, lists those that a short id fits, or says there is none", async (t) => {
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

t.test("nothing in a record can control the terminal", async (t) => {
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
  for (const shown of [
    formatRecord(hostile, null, 80),
    recordLine(hostile, 120),
    recordLine({ ...hostile, end: "refused" }, 120),
  ]) {
    t.notMatch(shown, /(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  }
  t.notMatch(recordLine(hostile, 80), /\n/);
});

const LINES: readonly [given: Partial<UsageRecord>, at80: string, at120: string][] = [
  [
    {},
    "00:00:00 200 codex       gpt-5.1           $0.0081  2.3 s 2.0k in, 342 out",
    "00:00:00 200 codex          gpt-5.1                  $0.0081  2.3 s 1.2k in + 800 cached, 342 out, first byte 878 ms",
  ],
  [
    { ...NO_USAGE, end: "client-left" },
    "00:00:00 200 codex       gpt-5.1                $?  2.3 s canceled",
    "00:00:00 200 codex          gpt-5.1                       $?  2.3 s canceled, first byte 878 ms",
  ],
  [
    { ...NO_USAGE, end: "refused", status: 429, refusal: "rate-limited", tool: null },
    "00:00:00 429 (unknown)   gpt-5.1           refused: rate-limited",
    "00:00:00 429 (unknown)      gpt-5.1                  refused: rate-limited",
  ],
  [
    {
      ...NO_USAGE,
      status: 401,
      cause: "incomplete-key",
      cause_detail: "key-disabled",
      model: "a-model-with-quite-a-long-name",
      first_byte_at: null,
    },
    "00:00:00 401 codex       a-model-with-qui… incomplete-key: key-disabled",
    "00:00:00 401 codex          a-model-with-quite-a-lo… incomplete-key: key-disabled",
  ],
  [
    { ...NO_USAGE, status: 403, cause: "balance-or-quota", cause_detail: "account-disabled" },
    "00:00:00 403 codex       gpt-5.1           balance-or-quota: account-disabled",
    "00:00:00 403 codex          gpt-5.1                  balance-or-quota: account-disabled",
  ],
  [
    { ...NO_USAGE, end: "gateway-failed", status: 502, refusal: "gateway-unreachable" },
    "00:00:00 502 codex       gpt-5.1           failed: gateway-unreachable",
    "00:00:00 502 codex          gpt-5.1                  failed: gateway-unreachable",
  ],
  [
    { ...CUT, end: "client-left", cache_write_tokens: 1_000_000 },
    "00:00:00 200 codex       gpt-5.1                $?  2.3 s canceled, 1.0M in, ? …",
    "00:00:00 200 codex          gpt-5.1                       $?  2.3 s canceled, 1.0M in, ? out, first byte 878 ms",
  ],
  [
    { cache_read_tokens: 0, cache_write_tokens: 17_000, tokens_from: "estimated" },
    "00:00:00 200 codex       gpt-5.1           $0.0081  2.3 s about 18k in, 342 out",
    "00:00:00 200 codex          gpt-5.1                  $0.0081  2.3 s about 18k in, 342 out, first byte 878 ms",
  ],
  [
    { ...NO_USAGE, method: "GET", endpoint: "/v1/realtime", status: 101, model: null, model_answered: null },
    "00:00:00 101 codex       GET /v1/realtime       $?  2.3 s no usage reported",
    "00:00:00 101 codex          GET /v1/realtime              $?  2.3 s no usage reported, first byte 878 ms",
  ],
  [
    { ...NO_USAGE, method: "GET", endpoint: "/v1/models", model: null, model_answered: null },
    "00:00:00 200 codex       GET /v1/models             2.3 s",
    "00:00:00 200 codex          GET /v1/models                    2.3 s first byte 878 ms",
  ],
];

t.test("one line per record has its result, cost, duration and tokens, or why there are none", async (t) => {
  for (const [given, at80, at120] of LINES) {
    t.equal(recordLine(record(1, given), 80), at80);
    t.equal(recordLine(record(1, given), 120), at120);
  }
});
