import t from "tap";
import type { ShownRecord, UsageSums } from "../../src/dashboard/api.ts";
import { nameInWords } from "../../src/dashboard/page/components/chart-layers.ts";
import { createTranslate } from "../../src/dashboard/page/messages/messages.ts";
import {
  binFor,
  binsFor,
  datesOf,
  type Period,
  spanBefore,
  spanOf,
} from "../../src/dashboard/page/pages/usage/period.ts";
import {
  type Change,
  changed,
  hrefTo,
  selectionQuery,
  viewOf,
} from "../../src/dashboard/page/pages/usage/view.ts";
import {
  changeInWords,
  costOf,
  errorRate,
  outcomeInWords,
  outcomeOf,
} from "../../src/dashboard/page/pages/usage/words.ts";
import { causeMessage } from "../../src/dashboard/page/refusals.ts";
import { record } from "../doubles/records.ts";

const HOUR = 3_600_000;

/** Node takes a change of TZ up at once. */
function inZone<T>(zone: string, work: () => T): T {
  const before = process.env.TZ;
  process.env.TZ = zone;
  try {
    return work();
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
}

function local(text: string): number {
  return new Date(text).getTime();
}

function iso(span: { readonly since: number; readonly until: number } | null): string[] {
  return span === null ? [] : [span.since, span.until].map((at) => new Date(at).toISOString());
}

t.test("periods follow the browser's time zone", (t) => {
  inZone("Asia/Shanghai", () => {
    const span = (period: Period) => iso(spanOf(period, local("2026-11-15T09:30:00")));
    t.same(span("today"), ["2026-11-14T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span("7d"), ["2026-11-08T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span("30d"), ["2026-10-16T16:00:00.000Z", "2026-11-15T16:00:00.000Z"]);
    t.same(span("month"), ["2026-10-31T16:00:00.000Z", "2026-11-30T16:00:00.000Z"]);
    t.same(span("2026-02-27..2026-03-01"), ["2026-02-26T16:00:00.000Z", "2026-03-01T16:00:00.000Z"]);
  });
  t.end();
});

t.test("a day at the change of the clocks has 23 or 25 hours", (t) => {
  inZone("Europe/Berlin", () => {
    const hours = (now: string) => {
      const { since, until } = spanOf("today", local(now));
      return (until - since) / HOUR;
    };
    t.equal(hours("2026-03-29T12:00:00"), 23);
    t.equal(hours("2026-10-25T12:00:00"), 25);
    const week = spanOf("7d", local("2026-10-28T12:00:00"));
    t.same(datesOf(week), { from: "2026-10-22", to: "2026-10-28" });
  });
  inZone("America/Sao_Paulo", () => {
    // On 2018-11-04 there was no midnight: the day began at one.
    const day = spanOf("2018-11-04..2018-11-04", 0);
    t.equal(new Date(day.since).getHours(), 1);
    t.equal((day.until - day.since) / HOUR, 23);
  });
  t.end();
});

t.test("what has passed of a period is compared with as much of the one before", (t) => {
  inZone("UTC", () => {
    const before = (period: Period, now: string) =>
      iso(spanBefore(period, spanOf(period, local(now)), local(now)));
    t.same(before("today", "2026-11-15T09:38:11"), ["2026-11-14T00:00:00.000Z", "2026-11-14T09:30:00.000Z"]);
    t.same(before("7d", "2026-11-15T09:38:11"), ["2026-11-02T00:00:00.000Z", "2026-11-08T09:30:00.000Z"]);
    t.same(before("month", "2026-11-15T09:38:11"), ["2026-10-01T00:00:00.000Z", "2026-10-15T09:30:00.000Z"]);
    t.same(
      before("month", "2026-03-31T12:00:00"),
      ["2026-02-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"],
      "a month with fewer days",
    );
    t.same(before("2026-11-01..2026-11-02", "2026-11-15T09:38:11"), [
      "2026-10-30T00:00:00.000Z",
      "2026-11-01T00:00:00.000Z",
    ]);
    t.same(before("today", "2026-11-15T00:03:00"), [], "too little has passed");
  });
  t.end();
});

t.test("bars are offered as far as they can be distinguished", (t) => {
  const days = (count: number) => ({ since: 0, until: count * 24 * HOUR });
  t.same(binsFor(days(1)), ["hour"]);
  t.same(binsFor(days(7)), ["hour", "day"]);
  t.same(binsFor(days(31)), ["hour", "day", "month"]);
  t.same(binsFor(days(400)), ["day", "month"]);
  t.same(binsFor(days(3000)), ["month"]);
  t.equal(binFor(days(1), null), "hour");
  t.equal(binFor(days(30), null), "day");
  t.equal(binFor(days(365), null), "month");
  t.equal(binFor(days(400), "hour"), "month", "a wish that does not fit");
  t.equal(binFor(days(7), "hour"), "hour");
  t.end();
});

const ID = "01JC0000000000000000000000";
const FIRST = viewOf(new URLSearchParams());

t.test("a view is what the address says", (t) => {
  const named = "tool=a%26b%3Dc+%23%3Ci%3E&group=&project=~/src/x&end=failed&search=50%25+off_";
  const shape = "period=2026-11-01..2026-11-07&bin=hour&by=session&show=tokens&sort=-cost";
  const place = `bar=1763164800000..1763168400000&after=${ID}&record=${ID}`;
  const { query: _, ...view } = viewOf(new URLSearchParams(`${shape}&${named}&${place}`));
  t.same(view, {
    period: "2026-11-01..2026-11-07",
    bin: "hour",
    by: "session",
    measure: "tokens",
    filters: { tool: "a&b=c #<i>", group: "", project: "~/src/x" },
    end: "failed",
    search: "50% off_",
    sort: "-cost",
    bar: { since: 1_763_164_800_000, until: 1_763_168_400_000 },
    cursor: ["after", ID],
    record: ID,
  });
  t.same(viewOf(new URLSearchParams({ before: ID })).cursor, ["before", ID]);
  t.equal(hrefTo(FIRST, {}), "#/usage", "the first view needs no words");
  t.equal(hrefTo(FIRST, { tool: "a&b", end: null }), "#/usage?tool=a%26b");
  t.end();
});

t.test("an address that cannot be read is ignored", (t) => {
  for (const query of [
    "period=fortnight&bin=second&by=color&show=love&end=happy&bar=-1..2&record=../x&before=x&after=y",
    "period=2026-02-30..2026-03-01&bar=1e9..2e9",
    "period=2026-01-01..2026-01-02..2026-01-03&bar=2..1",
    "bar=99999999999999999999..1&period=0026-01-01..2026-01-01",
  ]) {
    t.same({ ...viewOf(new URLSearchParams(query)), query: FIRST.query }, FIRST, query);
  }
  t.same(
    viewOf(new URLSearchParams("period=2026-01-05..2026-01-01")).period,
    "2026-01-01..2026-01-05",
    "the wrong way round",
  );
  t.end();
});

t.test("another selection begins at its newest records, and another look at the same ones does not", (t) => {
  const deep = viewOf(new URLSearchParams({ bar: "1..2", before: ID, record: ID }));
  const after = (change: Change) => viewOf(changed(deep, change));
  t.match(after({ by: "model", sort: "cost" }), { cursor: ["before", ID], record: ID, by: "model" });
  t.match(after({ record: null }), { cursor: ["before", ID], record: null });
  t.match(after({ search: "x" }), { cursor: null, record: null, bar: { since: 1, until: 2 } });
  t.match(after({ period: "today" }), { cursor: null, bar: null }, "other bars");
  t.same(after({ tool: "codex", key: "" }).filters, { tool: "codex", key: "" });
  t.end();
});

t.test("the chart, the list and its file are asked for with the same selection", (t) => {
  const view = viewOf(new URLSearchParams({ tool: "a&b", group: "", end: "refused", search: "x y" }));
  t.equal(
    selectionQuery(view, { since: 1, until: 2 }).toString(),
    "since=1&until=2&tool=a%26b&group=&end=refused&search=x+y",
  );
  t.end();
});

function shown(given: Partial<ShownRecord>): ShownRecord {
  return record(1, given);
}

t.test("an answer that is an error is a failure, with its status", (t) => {
  const en = createTranslate("en");
  const words = (given: Partial<ShownRecord>) => outcomeInWords(shown(given), en);
  t.equal(words({}), "complete");
  t.equal(words({ status: 401 }), "failed (401)");
  t.equal(words({ end: "gateway-failed", status: 200 }), "failed", "its stream broke");
  t.equal(
    words({ end: "gateway-failed", status: null, refusal: "gateway-timeout" }),
    "failed (gateway-timeout)",
  );
  t.equal(
    words({ end: "refused", refusal: "rate-limited", requests: 1200 }),
    "refused (rate-limited) ×1,200",
  );
  t.equal(words({ end: null }), "still running");
  t.equal(outcomeOf(shown({ end: "client-left", status: 500 })), "client-left");
  t.equal(outcomeInWords(shown({ status: 401 }), createTranslate("zh-CN")), "失败 (401)");
  t.equal(causeMessage({ cause: "incomplete-key", cause_detail: "key-deleted" }), "cause.key-deleted");
  t.equal(causeMessage({ cause: "rate-limit", cause_detail: "new-one" }), "cause.rate-limit");
  t.equal(causeMessage({ cause: "constructor", cause_detail: null }), null);
  t.end();
});

t.test("what is unknown is not zero, and what is free is neither", (t) => {
  t.equal(costOf(shown({}), null), "$?");
  t.equal(costOf(shown({ method: "GET", endpoint: "/v1/models" }), null), "–");
  t.equal(costOf(shown({ end: "refused" }), null), "–");
  t.equal(costOf(shown({ status: 401 }), null), "–", "the gateway refused it");
  t.equal(costOf(shown({ end: "client-left", status: null }), null), "$?");
  t.equal(costOf(shown({}), 8130), "$0.0081");
  t.equal(nameInWords("", "machine", createTranslate("en")), "this machine");
  t.end();
});

t.test("a change is said in percent, and errors as a share of what was sent", (t) => {
  t.equal(changeInWords(150, 100), "+50%");
  t.equal(changeInWords(50, 100), "-50%");
  t.equal(changeInWords(100, 100), "0%");
  t.equal(changeInWords(100, 0), null, "nothing to compare with");
  const sums = { requests: 12, refused: 2, failed: 1, interrupted: 1 } as UsageSums;
  t.equal(errorRate(sums), 0.2);
  t.equal(errorRate({ ...sums, requests: 2 }), null);
  t.end();
});
