import assert from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { type Get, ListedRows, type LogSource, walkLog } from "../../src/mirror/consoles/log-walk.ts";
import { longTest, runs } from "../doubles/effort.ts";

const NOON = Date.UTC(2026, 7, 21, 12) / 1000;
const HOUR = 3600;
const SINCE = (NOON - 24 * HOUR) * 1000;
const PAGE = 10;

interface Written {
  readonly created_at: number;
  /** "": this version gives rows no id. */
  readonly request_id: string;
  readonly type: number;
}

/** A usage log that pages and counts as the consoles do. */
class Log {
  /** In the order in which they were written. */
  readonly rows: Written[] = [];
  calls = 0;
  /** Called before a page is listed. */
  before: (page: number) => void = () => {};
  readonly #totals: boolean;
  /** id: newest written first. time: by created_at, as a console on ClickHouse does. */
  readonly #order: "id" | "time";

  constructor(totals: boolean, order: "id" | "time") {
    this.#totals = totals;
    this.#order = order;
  }

  readonly source: LogSource = {
    get: ((path) => this.#list(path)) satisfies Get,
    numbers: { first: 1 },
    path: (page, { from, to }) => `${page} ${from} ${to}`,
    readRow: (raw) =>
      raw.type === 2 ? ({ created_at: Number(raw.created_at) * 1000 } as never) : ("other" as const),
  };

  async #list(path: string): Promise<unknown> {
    this.calls += 1;
    const [page = 0, from = 0, to = 0] = path.split(" ").map(Number);
    this.before(page);
    const inside = this.rows.filter(({ created_at: at }) => at >= from && at <= to).reverse();
    if (this.#order === "time") inside.sort((a, b) => b.created_at - a.created_at);
    const start = (page - this.source.numbers.first) * PAGE;
    const items = inside.slice(start, start + PAGE);
    return this.#totals ? { items, total: inside.length } : items;
  }

  write(created_at: number, id = true, type = 2): void {
    this.rows.push({ created_at, type, request_id: id ? `id-${this.rows.length}` : "" });
  }
}

/** What is stored, and how the walks go on from there. */
class Reader {
  readonly stored = new Set<string>();
  cursor: string | null = null;
  readonly #log: Log;
  #listed = new ListedRows();

  constructor(log: Log) {
    this.#log = log;
  }

  /** The process ends; the cursor and the rows stay. */
  restart(): void {
    this.#listed = new ListedRows();
  }

  /** Returns how many calls it took. @param most the walk is broken off after so many pages */
  async walk(now: number, most = Number.POSITIVE_INFINITY): Promise<number> {
    const before = this.#log.calls;
    let pages = 0;
    for await (const page of walkLog(this.#log.source, this.cursor, SINCE, now * 1000, this.#listed)) {
      for (const { identity } of page.rows) this.stored.add(identity);
      this.cursor = page.cursor;
      pages += 1;
      if (pages >= most) break;
    }
    return this.#log.calls - before;
  }
}

/** What happens in a minute: rows, each written so many seconds after its own time, and perhaps something else. */
function minutes(latest: number) {
  const minute = fc.record({
    rows: fc.array(
      fc.record({
        late: fc.oneof(
          fc.constant(0),
          fc.integer({ min: 0, max: Math.min(30, latest) }),
          fc.integer({ min: 0, max: latest }),
        ),
        usage: fc.boolean(),
      }),
      { maxLength: 40 },
    ),
    event: fc.constantFrom("none", "none", "none", "none", "restart", "broken off", "deleted", "shifted"),
  });
  return fc.array(minute, { minLength: 1, maxLength: 60 });
}

/** Every row that the log has now is stored, under the name that a first walk gives it. */
async function checkStored(log: Log, reader: Reader, now: number): Promise<void> {
  const first = new Reader(log);
  await first.walk(now);
  const missing = [...first.stored].filter((identity) => !reader.stored.has(identity));
  assert.deepEqual(missing, []);
}

t.test(
  "where rows are counted, the next walk reads every row that is up to an hour late, and little else",
  async (t) => {
    const history = fc.record({
      minutes: minutes(HOUR - 120),
      order: fc.constantFrom("id" as const, "time" as const),
      ids: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(history, async ({ minutes, order, ids }) => {
        const log = new Log(true, order);
        const reader = new Reader(log);
        for (let at = 0; at < 60; at += 1) log.write(NOON - HOUR + at * 50);
        await reader.walk(NOON);
        let now = NOON;
        let unread = 0;
        for (const { rows, event } of minutes) {
          now += 60;
          for (const { late, usage } of rows) log.write(now - 1 - late, ids, usage ? 2 : 1);
          unread += rows.length;
          if (event === "restart") reader.restart();
          if (event === "deleted") log.rows.splice(0, 3);
          log.before = (page) => {
            if (event === "shifted" && page === 2) log.write(now, ids);
          };
          const calls = await reader.walk(now, event === "broken off" ? 1 : undefined);
          if (event === "broken off") continue;
          // New rows are on the first pages, except where late ones are sorted in between. Rows that are alike look read.
          if (event === "none" && order === "id" && ids)
            assert.ok(calls <= Math.max(1, Math.ceil(unread / PAGE)), `${calls} calls for ${unread} rows`);
          unread = event === "shifted" ? 1 : 0;
        }
        log.before = () => {};
        now += 60;
        await reader.walk(now);
        // As many rows deleted as came late look like none. They are found when the day is read again.
        if (minutes.some(({ event }) => event === "deleted"))
          for (let day = 0; day < 40; day += 1) await reader.walk(now + 24 * HOUR + day);
        await checkStored(log, reader, now);
      }),
      { numRuns: runs(60) },
    );
    t.end();
  },
);

t.test(
  "without counts, a row that is half a minute late is read at once, and a later one in time",
  async () => {
    for (const latest of [30, HOUR - 120]) {
      const history = fc.record({ minutes: minutes(latest), ids: fc.boolean() });
      await fc.assert(
        fc.asyncProperty(history, async ({ minutes, ids }) => {
          const log = new Log(false, "id");
          const reader = new Reader(log);
          await reader.walk(NOON);
          let now = NOON;
          for (const { rows, event } of minutes) {
            now += 60;
            for (const { late, usage } of rows) log.write(now - 1 - late, ids, usage ? 2 : 1);
            if (event === "restart") reader.restart();
            await reader.walk(now, event === "broken off" ? 1 : undefined);
          }
          now += 60;
          await reader.walk(now);
          for (let more = 0; latest > 30 && more < 150; more += 1) {
            now += 60;
            await reader.walk(now);
          }
          await checkStored(log, reader, now);
        }),
        { numRuns: runs(20) },
      );
    }
  },
);

longTest(
  t,
  "without counts, how far a walk goes back is learned from late rows, and remembered",
  async (t) => {
    const log = new Log(false, "id");
    const reader = new Reader(log);
    let now = NOON;
    async function callsOf(minutes: number): Promise<number> {
      let calls = 0;
      for (let minute = 0; minute < minutes; minute += 1) {
        now += 60;
        for (let row = 0; row < 20; row += 1) log.write(now - 1 - row);
        calls = await reader.walk(now);
      }
      return calls;
    }
    await reader.walk(now);
    const usual = await callsOf(30);
    log.write(now - 400);
    await callsOf(60);
    const { late } = JSON.parse(reader.cursor ?? "");
    t.ok(late >= 400, `the cursor has ${late} s`);
    const careful = await callsOf(40);
    t.ok(careful > 3 * usual, `${careful} calls instead of ${usual}`);
    await checkStored(log, reader, now);
  },
);

t.test("a busy day is read again in parts, beside what is new", async (t) => {
  const log = new Log(true, "id");
  const reader = new Reader(log);
  let now = NOON;
  await reader.walk(now);
  for (let hour = 0; hour < 23; hour += 1) {
    now += HOUR;
    for (let row = 0; row < 100; row += 1) log.write(now - 1 - row * 30);
    await reader.walk(now);
  }
  // No other walk would find this one.
  log.write(now - 5 * HOUR);
  const parts: number[] = [];
  for (let minute = 0; minute < 90; minute += 1) {
    now += 60;
    log.write(now - 5);
    parts.push(await reader.walk(now));
  }
  await checkStored(log, reader, now);
  const busiest = Math.max(...parts);
  t.ok(busiest <= 45, `at most ${busiest} calls`);
  t.ok(parts.filter((calls) => calls > 1).length > 5);
  t.equal(parts.at(-1), 1);
});
