import t from "tap";
import { notifyLines } from "../../src/cli/notify/messages.ts";
import type { FindingLevel } from "../../src/doctor/findings.ts";
import { notifyFindings } from "../../src/doctor/notify-findings.ts";
import type { ChannelStatus, NotifyStatus } from "../../src/notify/status.ts";

const NOW = new Date(2026, 10, 19, 14, 30).getTime();

const GOOD: ChannelStatus = {
  name: "ops",
  kind: "slack",
  state: "ok",
  since: null,
  waiting: 0,
  lost: 0,
  delivered_at: NOW,
  why: null,
  next: null,
};

function notifyOf(change: Partial<ChannelStatus>): NotifyStatus {
  return { channels: [{ ...GOOD, ...change }], quiet: false, problem: null };
}

/** What the channel is like, the level of the finding, what doctor says, and what status says below its first line. */
const CASES: readonly (readonly [Partial<ChannelStatus>, FindingLevel, RegExp, RegExp | null])[] = [
  [{}, "ok", /^ops \(slack\) works → null$/, null],
  [{ name: "desktop", kind: "desktop" }, "ok", /^desktop works → null$/, null],
  [
    { delivered_at: null },
    "ok",
    /^ops \(slack\) is set up, and nothing was sent to it since the start/,
    null,
  ],
  [{ waiting: 2 }, "ok", /works, 2 waiting → null$/, /^ {2}ops: 2 wait$/],
  [{ lost: 1 }, "warning", /works, 1 given up → null$/, /^ {2}ops: 1 given up$/],
  [
    { state: "failing", since: NOW - 60_000, why: "it answered 503", waiting: 1 },
    "warning",
    /is failing, 1 waiting: it answered 503 → keybearer notify test ops$/,
    /^ {2}ops: failing since 14:29: it answered 503; 1 waits → keybearer notify test ops$/,
  ],
  [
    { state: "held", why: "the address of webhook ops waits", next: "keybearer trust notify" },
    "problem",
    /is held: .* → keybearer trust notify$/,
    /ops: the address .* → keybearer trust notify$/,
  ],
  [{ state: "gone", why: "it answered 410", next: "check it" }, "problem", /is gone: .* → check it$/, /410/],
  [
    { state: "unavailable", why: "there is no file", next: null },
    "problem",
    /→ keybearer notify test ops$/,
    /no file/,
  ],
  [
    { state: "absent", why: "there is no session bus", waiting: 7 },
    "ok",
    /no session bus → null$/,
    /no session bus$/,
  ],
];

t.test("what doctor and status say about a channel", async (t) => {
  for (const [change, level, found, shown] of CASES) {
    const [finding] = notifyFindings(notifyOf(change));
    t.equal(finding?.level, level, JSON.stringify(change));
    t.match(`${finding?.what} → ${finding?.next}`, found);
    const [first, second] = notifyLines(notifyOf(change), NOW, 200);
    t.equal(first, `alerts: sent to ${change.name ?? "ops"}`);
    if (shown === null) t.equal(second, undefined);
    else t.match(second, shown);
  }
});

t.test("no channel, quiet hours, a queue that cannot be written, and an older daemon", async (t) => {
  t.same(notifyFindings(null), []);
  const none = { channels: [], quiet: false, problem: null };
  t.same(notifyLines(none, NOW, 200), ["alerts: sent nowhere"]);
  const full: NotifyStatus = { channels: [GOOD], quiet: true, problem: "ENOSPC" };
  t.match(notifyLines(full, NOW, 200), [
    "alerts: sent to ops; quiet hours, so only critical ones are sent now",
    "  alerts that wait are kept in memory only: ENOSPC",
  ]);
  t.match(notifyFindings(full), [{ level: "ok" }, { level: "warning", what: /in memory only: ENOSPC/ }]);
});
