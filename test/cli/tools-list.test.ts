import t from "tap";
import { gauge, limitLines, whenInWords } from "../../src/cli/tools/limit-lines.ts";
import { listInWords } from "../../src/cli/tools/list.ts";
import { textWidth } from "../../src/cli/ui/text.ts";
import type { LimitStatus, ToolStatus } from "../../src/control/tool-status.ts";
import { zoneCalendar } from "../../src/shared/calendar.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";

// Everything here happens in UTC, wherever the test runs.
process.env.TZ = "UTC";
const UTC = zoneCalendar("UTC");

const NOW = Date.UTC(2026, 10, 15, 12);
const MINUTE = 60_000;

function limit(more: Partial<LimitStatus>): LimitStatus {
  return {
    limit: "requests",
    per: "minute",
    used: 0,
    estimated: 0,
    held: 0,
    most: 60,
    extra: 0,
    resets_at: NOW + MINUTE,
    machines: [],
    ...more,
  };
}

function tool(more: Partial<ToolStatus>): ToolStatus {
  return {
    name: "codex",
    state: "active",
    gateway: "main",
    group: null,
    watch_only: false,
    key: "…a1b2",
    tokens: 1,
    last_use: NOW - 180_000,
    why: null,
    next: null,
    refused: null,
    paused: null,
    limits: [],
    running: 0,
    waiting: 0,
    expires: null,
    console: null,
    ...more,
  };
}

t.test("a time is shown as briefly as it is clear", async (t) => {
  const moments: [number, string][] = [
    [NOW, "now"],
    [NOW - 5, "now"],
    [NOW + 1, "in 1 s"],
    [NOW + 40_000, "in 40 s"],
    [NOW + 12 * MINUTE, "in 12 min"],
    [NOW + 120 * MINUTE, "in 2 h"],
    [Date.UTC(2026, 10, 15, 23, 5), "at 23:05"],
    [Date.UTC(2026, 10, 16), "tomorrow at 00:00"],
    [Date.UTC(2026, 10, 16, 23, 59), "tomorrow at 23:59"],
    [Date.UTC(2026, 10, 17), "on 2026-11-17"],
    [Date.UTC(2026, 11, 1), "on 2026-12-01"],
    [Date.UTC(2027, 0, 2, 9, 30), "on 2027-01-02 at 09:30"],
  ];
  for (const [time, words] of moments) t.equal(whenInWords(time, NOW, UTC), words);
  t.equal(
    whenInWords(Date.UTC(2027, 0, 1), Date.UTC(2026, 11, 31, 1), UTC),
    "tomorrow at 00:00",
    "over a year's end",
  );
});

t.test("a gauge has at least one cell for any use, and is full only at the limit", async (t) => {
  const drawn: [used: number, held: number, most: number, string][] = [
    [0, 0, 8, "[........]"],
    [1, 0, 1_000_000, "[#.......]"],
    [4, 0, 8, "[####....]"],
    [4, 2, 8, "[####==..]"],
    [0, 1, 1_000_000, "[=.......]"],
    [999_999, 0, 1_000_000, "[#######.]"],
    [8, 0, 8, "[########]"],
    [12, 5, 8, "[########]"],
    [7, 1, 8, "[#######=]"],
    [0, 0, 0, "[........]"],
    [1, 0, 0, "[########]"],
  ];
  for (const [used, held, most, plain] of drawn) {
    t.equal(gauge(used, held, most, false), plain, `${used}+${held} of ${most}`);
    const utf8 = plain.replaceAll("#", "█").replaceAll("=", "▒").replaceAll(".", "░");
    t.equal(gauge(used, held, most, true), utf8.replace("[", "▕").replace("]", "▏"));
  }
});

const ALL: readonly LimitStatus[] = [
  limit({ used: 12 }),
  limit({ limit: "tokens", used: 41_000, estimated: 12_400, held: 8000, most: 400_000 }),
  limit({
    limit: "spend",
    per: "day",
    used: 4_100_000,
    most: 10_000_000,
    extra: 5_000_000,
    resets_at: Date.UTC(2026, 10, 16),
  }),
  limit({
    limit: "spend",
    per: "month",
    used: 59_000_000,
    estimated: 100_000,
    held: 120_000,
    most: 60_000_000,
    resets_at: Date.UTC(2026, 11, 1),
  }),
  limit({ limit: "concurrent", per: null, used: 2, most: 4, resets_at: null }),
  limit({ limit: "quota", per: null, used: 31_200_000, most: 200_000_000, resets_at: null }),
];

t.test(
  "limits are shown in columns: used of the maximum, when they reset, what is extra, estimated and reserved",
  async (t) => {
    t.strictSame(limitLines(ALL, NOW, { width: 80, utf8: false }, UTC).flat(), [
      "    requests/minute  [##......]              12/60  resets in 60 s",
      "    tokens/minute    [#.......]     41,000/400,000  resets in 60 s",
      "      incl. 12,400 estimated, 8,000 reserved for requests in flight",
      "    spend/day        [###.....]  $4.10/$5.00+$5.00  resets tomorrow at 00:00",
      "    spend/month      [#######.]      $59.00/$60.00  resets on 2026-12-01",
      "      incl. $0.10 estimated, $0.12 reserved for requests in flight",
      "    concurrent       [####....]                2/4",
      "    quota            [#.......]     $31.20/$200.00",
    ]);
    const narrow = limitLines(ALL, NOW, { width: 50, utf8: false }, UTC).flat();
    t.match(narrow[0], /^ {4}requests\/minute +12\/60$/);
    t.match(narrow[5], /^ {6}incl\. \$0\.10 estimated, \$0\.12 reserved /, "amounts are named at any width");
  },
);

t.test("nearly used up does not read as used up", async (t) => {
  const tokens = (used: number) =>
    limitLines(
      [limit({ limit: "tokens", used, most: 1_500_000 })],
      NOW,
      { width: 80, utf8: false },
      UTC,
    ).join();
  t.match(tokens(1_499_999), " 1,499,999/1,500,000 ");
  t.match(tokens(9999), " 9,999/1,500,000 ");
});

t.test("an unknown use is shown as a dash, without a gauge", async (t) => {
  const unknown = limit({ used: null, held: null, resets_at: null });
  t.strictSame(limitLines([unknown], NOW, { width: 80, utf8: true }, UTC), [["    requests/minute  -/60"]]);
  t.strictSame(limitLines([], NOW, { width: 80, utf8: true }, UTC), []);
});

t.test("each tool has its line, and its own limits below it, within 80 columns", async (t) => {
  const tools = [
    tool({ name: "claude-code", group: "coding", limits: ALL, running: 2, waiting: 1 }),
    tool({ name: "plain" }),
    tool({
      name: "scripts-with-a-long-name-that-nobody-wanted",
      state: "key-unavailable",
      key: null,
      limits: [limit({ used: 60 })],
    }),
  ];
  for (const utf8 of [true, false]) {
    const lines = listInWords(tools, NOW, { width: 80, utf8 }).trimEnd().split("\n");
    t.match(lines.splice(1 + 3 + 7 + 2), [/not shown: tokens/], "what does not fit is said below");
    t.match(lines[0], /^tool +state +gateway +key +running +last use$/);
    t.match(lines[1], /^claude-code +active +main\/coding +…a1b2 +2, 1 waits +3 min ago$/);
    t.match(lines.slice(2, 10), [
      /^ {4}requests/,
      /^ {4}tokens/,
      /^ {6}incl\. 12,400 estimated, 8,000 reserved/,
      /^ {4}spend\/day/,
      /^ {4}spend\/month/,
      /^ {6}incl/,
      /^ {4}concurrent/,
      /^ {4}quota/,
    ]);
    t.match(lines[10], /^plain /);
    t.match(lines[11], /^scripts-with/);
    t.match(lines[12], /^ {4}requests\/minute .* 60\/60/);
    for (const line of lines) t.ok(textWidth(line) <= 80, line);
    const drawn = lines.filter((line) => line.startsWith("    ")).join("");
    t[utf8 ? "match" : "notMatch"](drawn, /[^\x20-\x7e]/);
  }
});

t.test("below the list are only notes that a person can act on", async (t) => {
  const notes = (more: Partial<ToolStatus>) => {
    const [, below = ""] = listInWords([tool(more)], NOW, { width: 200, utf8: true })
      .trimEnd()
      .split("\n\n");
    return below;
  };
  const day = 86_400_000;
  t.equal(notes({}), "");
  t.equal(
    notes({ why: "no token yet", next: "keybearer use codex --new-token" }),
    "codex: no token yet → keybearer use codex --new-token",
  );
  t.match(notes({ expires: NOW + 30 * MINUTE }), /^codex: expires in 30 min → change tools\.codex\.expires$/);
  const dayEnd = new Date(2026, 10, 19).getTime();
  t.match(notes({ expires: dayEnd }), /^codex: expires at the end of 2026-11-18 → change/);
  t.equal(notes({ expires: NOW + 8 * day }), "", "far off is no news");
  t.equal(notes({ expires: NOW - day }), "", "an expired tool has that state already");
  const full = { limit: "spend", per: "day", used: 5, most: 5 } as const;
  t.match(
    notes({ limits: [limit({ ...full, resets_at: NOW + 90 * MINUTE })] }),
    /^codex: spend\/day is used up: \$0\.000005 of \$0\.000005, resets .* → keybearer tools lift codex --spend$/,
  );
  t.equal(
    notes({ limits: [limit({ ...full, used: 4, held: 1, resets_at: NOW + 90 * MINUTE })] }),
    "",
    "what is reserved may come back",
  );
  t.equal(notes({ limits: [limit({ used: 60 })] }), "", "a minute is over before it is read");
  t.equal(
    notes({ limits: [limit({ limit: "concurrent", per: null, used: 4, most: 4, resets_at: null })] }),
    "",
  );
  t.match(
    notes({ limits: [limit({ limit: "quota", per: null, used: 7, most: 5, resets_at: null })] }),
    /^codex: quota is used up: \$0\.000007 of \$0\.000005 → raise tools\.codex\.quota$/,
  );
});

t.test("nothing in a name can control the terminal", async (t) => {
  const evil = "\u001b[2J\u202ecodex\n";
  const shown = listInWords(
    [tool({ name: evil, gateway: evil, why: evil, next: evil, expires: NOW + 1 })],
    NOW,
    { width: 80, utf8: true },
  );
  t.notMatch(shown, /(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
});

t.test("without a daemon the limits are listed from the file, and used is a dash", async (t) => {
  const home = await newHome(t);
  await saveConfig(
    home,
    "gateway: http://127.0.0.1:9/v1\ntools:\n  codex: { key: env:X, limits: { requests: 60/minute, spend: [$5/day, $60/month], concurrent: 4 }, quota: $200 }\n  plain: { key: env:Y }\n",
  );
  const words = await command(t, home, ["tools"]);
  t.equal(words.code, 0);
  t.match(
    words.stdout,
    /^codex +no-token .*\n {4}requests\/minute +-\/60\n {4}spend\/day +-\/\$5\.00\n {4}spend\/month +-\/\$60\.00\n {4}concurrent +-\/4\n {4}quota +-\/\$200\.00\nplain /m,
  );
  for (const line of words.stdout.split("\n")) t.ok(textWidth(line) <= 80, line);
  const [codex] = JSON.parse((await command(t, home, ["tools", "--json"])).stdout);
  t.match(codex, { name: "codex", running: 0, waiting: 0, expires: null });
  t.strictSame(codex.limits[1], {
    limit: "spend",
    per: "day",
    most: 5_000_000,
    used: null,
    estimated: null,
    held: null,
    extra: 0,
    resets_at: null,
    machines: [],
  });
});

t.test("the next step is on one line, however long the problem is", async (t) => {
  const why = `the gateway ${"answers and ".repeat(20)}refuses`;
  const shown = listInWords([tool({ why, next: "keybearer trust codex" })], NOW, { width: 80, utf8: true });
  t.match(shown, /\n {2}→ keybearer trust codex\n$/);
  for (const line of shown.split("\n")) t.ok(textWidth(line) <= 80, line);
});
