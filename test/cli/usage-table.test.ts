import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import t, { type Test } from "tap";
import { bar, sparkline } from "../../src/cli/ui/chart.ts";
import { renderTable } from "../../src/cli/ui/table.ts";
import { readScreen } from "../../src/cli/ui/terminal.ts";
import { textWidth, truncate, wrap } from "../../src/cli/ui/text.ts";
import { formatReport } from "../../src/cli/usage/report.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import type { Dimension, Report } from "../../src/usage/reports/report.ts";
import { readReport } from "../../src/usage/reports/report.ts";
import { makeIndex } from "../doubles/journal.ts";
import { NO_USAGE, record } from "../doubles/records.ts";

process.env.TZ = "UTC";

const DAY = 86_400_000;
const NOW = Date.UTC(2026, 10, 15, 12);
const WEEK = { since: Date.UTC(2026, 10, 9), until: null };

function reportOf(t: Test, records: readonly UsageRecord[], by: Dimension[], period = WEEK): Report {
  const folder = mkdtempSync(join(tmpdir(), "kb-table-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  const report = readReport(
    db,
    { by, period, tools: [], models: [], machines: [], projects: [], sessions: [] },
    NOW,
  );
  close();
  return report;
}

/** A week of two tools, one of them with a model that has no price. */
function week(): UsageRecord[] {
  const records: UsageRecord[] = [];
  for (let day = 0; day < 7; day += 1) {
    const morning = WEEK.since + day * DAY + 9 * 3_600_000;
    for (let number = 0; number <= day; number += 1) {
      records.push(record(records.length, { started_at: morning + number * 60_000 }));
    }
    records.push(
      record(records.length, {
        started_at: morning + 7_200_000,
        tool: "claude-code",
        model: "claude-sonnet-4-5",
        input_tokens: 12_000,
        cache_read_tokens: 88_000,
        output_tokens: 4000,
        cost_microdollars: 1_250_000,
        list_microdollars: 1_250_000,
      }),
    );
  }
  const later = { started_at: WEEK.since + 5 * DAY };
  records.push(
    record(90, { ...later, model: "my-model", list_microdollars: null, cost_microdollars: null }),
    record(91, {
      ...later,
      end: "refused",
      status: 429,
      refusal: "rate-limited",
      first_byte_at: null,
      ...NO_USAGE,
    }),
    record(92, { ...later, end: "client-left", ...NO_USAGE }),
    record(93, { ...later, end: "gateway-failed", status: null, ...NO_USAGE }),
  );
  return records;
}

function format(report: Report, width: number, utf8 = true): string {
  // The models of these records are those of any record.
  return formatReport({ ...report, otherModels: [] }, NOW, { width, utf8 }, true);
}

const AFTERWARDS = `1 refused by keybearer, 1 failed at the gateway, 1 canceled by the tool

no price is known for these. add it in config.yaml, $ per million tokens:
prices:
  my-model: { input: …, output: … }  # 1 request
`;

t.test("a week by tool fits 80 columns", async (t) => {
  t.equal(
    format(reportOf(t, week(), ["tool"]), 80),
    `usage since Mon 2026-11-09 00:00, by tool

tool         requests  input  cache  output       cost  unknown   today  by day
claude-code         7    84k    88%     28k  $8.75            0   $1.25  ███████
codex              32    35k    40%    9.9k  $0.23 + ?        3  $0.057  ▂▃▄▅▆▇█
-----------  --------  -----  -----  ------  ---------  -------  ------  -------
sum                39   119k    84%     38k  $8.98 + ?        3   $1.31  ███████
(not shown: cached, first byte, p95 and 5 more; --json has everything)

39 requests, $8.98 + ?
796k tokens: 119k input, 639k read from cache, 38k output
3 requests cost an unknown amount: 2 reported no usage, or ended before they
  could, 1 without a known price
→ in config.yaml, tools.codex.ask_usage: true asks streams for their usage,
  estimate: true estimates it
${AFTERWARDS}`,
  );
});

t.test("a week by tool has more columns at a width of 100", async (t) => {
  t.equal(
    format(reportOf(t, week(), ["tool"]), 100),
    `usage since Mon 2026-11-09 00:00, by tool

tool         requests  input  cached  cache  output       cost  unknown  first byte   today  by day
claude-code         7    84k    616k    88%     28k  $8.75            0      878 ms   $1.25  ███████
codex              32    35k     23k    40%    9.9k  $0.23 + ?        3      878 ms  $0.057  ▂▃▄▅▆▇█
-----------  --------  -----  ------  -----  ------  ---------  -------  ----------  ------  -------
sum                39   119k    639k    84%     38k  $8.98 + ?        3      878 ms   $1.31  ███████
(not shown: p95, refused, failed and 3 more; --json has everything)

39 requests, $8.98 + ?
796k tokens: 119k input, 639k read from cache, 38k output
3 requests cost an unknown amount: 2 reported no usage, or ended before they could, 1 without a
  known price
→ in config.yaml, tools.codex.ask_usage: true asks streams for their usage, estimate: true estimates
  it
${AFTERWARDS}`,
  );
});

t.test("a week by tool has only the most important columns at a width of 40", async (t) => {
  t.equal(
    format(reportOf(t, week(), ["tool"]), 40),
    `usage since Mon 2026-11-09 00:00, by
  tool

tool         requests  output       cost
claude-code         7     28k  $8.75
codex              32    9.9k  $0.23 + ?
-----------  --------  ------  ---------
sum                39     38k  $8.98 + ?
(not shown: input, unknown, cache and 10
  more; --json has everything)

39 requests, $8.98 + ?
796k tokens: 119k input, 639k read from
  cache, 38k output
3 requests cost an unknown amount: 2
  reported no usage, or ended before
  they could, 1 without a known price
→ in config.yaml, tools.codex.ask_usage:
  true asks streams for their usage,
  estimate: true estimates it
1 refused by keybearer, 1 failed at the
  gateway, 1 canceled by the tool

no price is known for these. add it in
  config.yaml, $ per million tokens:
prices:
  my-model: { input: …, output: … }  # 1 request
`,
  );
});

t.test("days have bars, in ASCII where the terminal has no UTF-8", async (t) => {
  const report = reportOf(t, week(), ["day"]);
  t.match(
    format(report, 80),
    `day         requests  input  cache  output       cost  unknown
2026-11-09         2    13k    87%    4.3k  $1.26            0  ███████████▌
`,
  );
  const plain = format(report, 80, false);
  t.match(plain, /^2026-11-15 .* {2}#{12}$/m);
  t.notMatch(plain, /[▁-█]/);
  t.notMatch(format(reportOf(t, week(), ["tool"]), 80, false), /[▁-█]/);
});

t.test("the hour that occurs twice is marked, and no other", async (t) => {
  process.env.TZ = "Europe/Berlin";
  t.teardown(() => {
    process.env.TZ = "UTC";
  });
  const from = Date.UTC(2026, 9, 24, 23);
  const hours = [0, 1, 2, 3].map((hour) => record(hour, { started_at: from + hour * 3_600_000 }));
  const shown = format(reportOf(t, hours, ["hour"], { since: from, until: null }), 80);
  t.same(
    shown.match(/^2026-10-25 .{12}/gm),
    [
      "2026-10-25 01:00         ",
      "2026-10-25 02:00 +02:00  ",
      "2026-10-25 02:00 +01:00  ",
      "2026-10-25 03:00         ",
    ].map((line) => line.slice(0, 23)),
  );
});

t.test("a cost that is entirely unknown is not shown as zero", async (t) => {
  const shown = format(reportOf(t, [record(1, { started_at: NOW - 1000, ...NO_USAGE })], ["tool"]), 80);
  t.match(shown, /^codex .* \$\? +1 /m);
  t.match(shown, /1 request, \$\?\n1 request cost an unknown amount: 1 reported no usage\n/);
});

t.test(
  "what the console billed has a column if it is known for a record, and otherwise it has none",
  async (t) => {
    const billed = [
      record(1, { started_at: NOW - 1000, billed_microdollars: 9000 }),
      record(2, { started_at: NOW - 1000, tool: "chat" }),
    ];
    const shown = format(reportOf(t, billed, ["tool"]), 80);
    t.match(shown, /cost +billed/);
    t.match(shown, /^codex .* \$0\.0081 +\$0\.009 /m);
    t.match(shown, /^chat .* \$0\.0081 +- /m);
    t.notMatch(format(reportOf(t, week(), ["tool"]), 300), /billed/);
  },
);

t.test("cache writes stay in the table where they are many, and are explained", async (t) => {
  const wrote = (cache_write_tokens: number) => [
    record(1, {
      started_at: NOW - 1000,
      input_tokens: 8100,
      cache_read_tokens: 0,
      cache_write_tokens,
      output_tokens: 111,
    }),
    ...week().slice(-3),
  ];
  const many = format(reportOf(t, wrote(17_000), ["tool"]), 80);
  t.match(many, /^tool .* input .* written .* cost /m);
  t.match(many, /^codex .* 8\.1k .* 17k /m);
  t.match(many, /^25k tokens: 8\.1k input, 17k written to cache, 111 output$/m);
  const few = format(reportOf(t, wrote(50), ["tool"]), 80);
  t.notMatch(few, /written .* cost/, "a few are not worth the room");
  t.match(few, /, 50 written to cache, /);
});

t.test("unknown usage comes with what to do, if something can be done", async (t) => {
  const at = { started_at: NOW - 1000 };
  const cutOff = record(1, { ...at, ...NO_USAGE, end: "interrupted", status: null });
  const interrupted = format(reportOf(t, [cutOff], ["tool"]), 200);
  t.match(interrupted, /1 request cost an unknown amount: 1 reported no usage, or ended before they could\n/);
  t.notMatch(interrupted, /ask_usage/);
  const silent = [record(2, { ...at, ...NO_USAGE }), record(3, { ...at, ...NO_USAGE, tool: "chat" })];
  t.match(format(reportOf(t, silent, ["tool"]), 200), /→ in config\.yaml, tools\.<tool>\.ask_usage: true/);
  t.match(format(reportOf(t, silent.slice(1), ["tool"]), 200), /tools\.chat\.ask_usage: true/);
  t.match(format(reportOf(t, silent.slice(1), ["day"]), 200), /tools\.<tool>\.ask_usage: true/);
});

t.test("a missing tool, model or group has a name", async (t) => {
  const bare = record(1, {
    started_at: NOW - 1000,
    tool: null,
    model: null,
    model_answered: null,
    group: null,
  });
  t.match(format(reportOf(t, [bare], ["tool", "model"]), 80), /^\(unknown tool\) {2}\(no model\) /m);
  t.match(format(reportOf(t, [bare], ["group"]), 80), /^\(no group\) /m);
});

t.test("names cannot control the terminal, reverse the text or break the table", async (t) => {
  const evil = "\u001b]0;owned\u0007\u001b[2J\u009b31m\r\nmodel\u202eevil";
  const records = [evil, "模型-七号", "e\u0301clair", "👩🏽 emoji", "=1+1"].map((model, number) =>
    record(number, { started_at: NOW - 1000, model, list_microdollars: null, cost_microdollars: null }),
  );
  const shown = format(reportOf(t, records, ["model"]), 80);
  t.notMatch(shown, /(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  t.match(shown, /\?\]0;owned/);
  const lines = shown.split("\n").filter((line) => / 1 {2,}1\.2k /.test(line));
  t.equal(lines.length, 5);
  const paths = lines.map((line) => textWidth(line.slice(0, line.indexOf(" 1.2k "))));
  t.equal(new Set(paths).size, 1, "the columns are aligned");
  t.match(shown, /^ {2}"\?\]0;owned.*": \{ input: …/m, "and what is to be copied is quoted");
});

t.test("no line is wider than the terminal, with any names", async (t) => {
  const cell = fc.string({ unit: "grapheme", maxLength: 40 });
  const column = fc.record({
    head: cell,
    cells: fc.array(cell, { minLength: 3, maxLength: 3 }),
    dropOrder: fc.nat(5),
    right: fc.boolean(),
  });
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.array(column, { maxLength: 8 }), fc.integer({ min: 20, max: 120 }), (columns, width) => {
        const name = { head: "tool", cells: ["a", "bb", "ccc"], dropOrder: 0 };
        const movable = columns.map((one) => ({ ...one, dropOrder: one.dropOrder + 1 }));
        const lines = renderTable([name, ...movable], width, { sum: true }).split("\n");
        return lines.length >= 5 && lines.every((line) => textWidth(line) <= width);
      }),
    ),
  );
});

t.test("texts are cut and measured by the terminal cells that they take", async (t) => {
  t.equal(textWidth("模型"), 4);
  t.equal(textWidth("e\u0301"), 1);
  t.equal(textWidth("▁█…→"), 4);
  t.equal(truncate("claude-sonnet-4-5", 8), "claude-…");
  t.equal(truncate("模型模型", 6), "模型…");
  t.equal(truncate("short", 5), "short");
  t.equal(wrap("aa bb cc dd", 5), "aa bb\n  cc\n  dd");
});

t.test("a command in a sentence is not broken apart where it fits into a line", async (t) => {
  t.equal(
    wrap("not installed (keybearer service install). more", 40),
    "not installed\n  (keybearer service install). more",
  );
  t.equal(wrap("used up → keybearer doctor", 22), "used up\n  → keybearer doctor");
  t.equal(wrap("see: keybearer status, or the log", 23), "see: keybearer status,\n  or the log");
  t.equal(wrap("see: keybearer status. then wait", 25), "see: keybearer status.\n  then wait");
  t.equal(wrap("see: keybearer service status", 15), "see: keybearer\n  service\n  status");
});

t.test("a sparkline and a bar are empty at zero and full at the maximum", async (t) => {
  t.equal(sparkline([0, 1, 4, 8], true), " ▂▅█");
  t.equal(sparkline([0, 1, 4, 8], false), " .+@");
  t.equal(sparkline([0, 0], true), "  ");
  t.equal(sparkline([1e-9, 1], true), "▁█", "little is not nothing");
  t.equal(bar(1, 2, 12, true), "██████");
  t.equal(bar(1, 1000, 12, true), "▏");
  t.equal(bar(1, 1000, 12, false), "#");
  t.equal(bar(0, 2, 12, true), "");
});

t.test("the width is the terminal's, else COLUMNS, else 80", async (t) => {
  t.same(readScreen({ LANG: "en_US.UTF-8" }, 120), { width: 120, utf8: true });
  t.same(readScreen({ COLUMNS: "40" }, undefined), { width: 40, utf8: false });
  t.same(readScreen({ COLUMNS: "wide", LANG: "C" }, undefined), { width: 80, utf8: false });
  t.same(readScreen({ LC_ALL: "C", LANG: "en_US.UTF-8" }, 0), { width: 80, utf8: false });
  t.equal(readScreen({}, 3).width, 20);
});
