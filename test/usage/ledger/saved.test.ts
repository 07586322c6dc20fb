import { closeSync, mkdirSync, openSync, unlinkSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { pino } from "pino";
import t, { type Test } from "tap";
import { createBeat } from "../../../src/beat.ts";
import { type Books, openBooks } from "../../../src/bookkeeping.ts";
import { systemClock } from "../../../src/clock.ts";
import type { Tool } from "../../../src/config/shape.ts";
import { findPlaces, type Places } from "../../../src/places.ts";
import { openForWriting } from "../../../src/usage/ledger/connect.ts";
import { openSource } from "../../../src/usage/ledger/repair/source.ts";
import { MIGRATIONS } from "../../../src/usage/ledger/schema.ts";
import { writeLift } from "../../../src/usage/ledger/spent.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { configOf } from "../../doubles/parsed-config.ts";
import { until } from "../../doubles/until.ts";
import { ask, closing, newFolder, opening } from "./ledger-under-test.ts";

const PAGE = 4096;
const COUNT = 6000;

/** A log with many requests of this month, and one extra allowance. */
function filled(t: Test): Places {
  const places = findPlaces({ env: { KEYBEARER_HOME: newFolder(t) } });
  mkdirSync(dirname(places.usage), { recursive: true });
  const book = openBook(places.usage, "normal");
  const now = Date.now();
  const one = () => opening({ started_at: now, admitted_at: now, held_tokens: 1 });
  book.write(
    Array.from({ length: COUNT }, () => ({ kind: "add", opening: one(), closing: closing() }) as const),
  );
  const lift = { kind: "requests", amount: 500, givenAt: now, until: null } as const;
  writeLift(book.connection.db, "codex", lift, "owner");
  book.abandon();
  return places;
}

function overwriteAPage(file: string): void {
  const pages = ask(
    file,
    "SELECT pageno FROM dbstat('log') WHERE name = 'records' AND pagetype = 'leaf' ORDER BY pageno",
  );
  const fd = openSync(file, "r+");
  writeSync(fd, Buffer.alloc(PAGE, 0xa5), 0, PAGE, (Number(pages[2]) - 1) * PAGE);
  closeSync(fd);
}

function start(t: Test, places: Places): { readonly books: Books; readonly tool: Tool } {
  const config = configOf(
    "gateway: https://gateway.example.com/v1\ntools: { codex: { limits: { requests: 1M/month } } }\n",
  );
  const { codex } = config.tools;
  if (codex === undefined) throw new Error("there is no tool codex");
  const log = pino({ level: "silent" });
  const time = { clock: systemClock, beat: createBeat() };
  const books = openBooks({ places, ...time, log, config: () => config, onSaved: () => {} });
  // None of its timers keeps a process alive; in the daemon the ports do.
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => {
    clearInterval(alive);
    return books.ledger.stop();
  });
  return { books, tool: codex };
}

const levelOf = ({ limiter }: Books, tool: Tool) => {
  const [level] = limiter.levels(tool).levels;
  return { used: level?.used ?? -1, extra: level?.extra ?? -1 };
};

t.test("what is saved from a damaged log counts under the limits without a restart", async (t) => {
  const places = filled(t);
  overwriteAPage(places.usage);
  const { books, tool } = start(t, places);
  t.same(levelOf(books, tool), { used: 0, extra: 0 }, "nothing was saved yet");
  const onTheWay = new Set<number>();
  await until("all is saved", () => {
    const { work } = books.ledger.state();
    if (work !== null) onTheWay.add(levelOf(books, tool).used);
    return work === null && books.ledger.state().aside.length > 0;
  });
  const saved = Number(books.ledger.state().aside[0]?.saved);
  t.ok(saved > COUNT - 200, `${saved} were saved`);
  t.same(levelOf(books, tool), { used: saved, extra: 500 });
  t.ok(
    [...onTheWay].some((used) => used > 0 && used < saved),
    "and what is saved first counts on the way",
  );
  t.same(ask(places.usage, "SELECT tool, amount, given_by FROM lifts"), [["codex", 500, "owner"]]);
});

t.test("a log that is deleted under a running program gives no allowance back", async (t) => {
  const places = filled(t);
  const { books, tool } = start(t, places);
  t.same(levelOf(books, tool), { used: COUNT, extra: 500 });
  for (const side of ["", "-wal", "-shm"]) unlinkSync(places.usage + side);
  const seen = new Set<string>();
  await until("it is noticed", () => books.ledger.state().warnings.length > 0);
  await until("all is saved", () => {
    seen.add(JSON.stringify(levelOf(books, tool)));
    return books.ledger.state().work === null;
  });
  seen.add(JSON.stringify(levelOf(books, tool)));
  t.same([...seen], [JSON.stringify({ used: COUNT, extra: 500 })]);
  t.same(ask(places.usage, "SELECT count(*) FROM lifts"), [[1]]);
});

t.test("a log from before there were limits is saved as if it had been migrated", async (t) => {
  const file = join(newFolder(t), "usage.db");
  const { db, close } = openForWriting(file, { sync: "normal" });
  db.exec(`
    DROP TABLE log.lifts; DROP TABLE log.cells; DROP TABLE log.records; DROP TABLE log.facts;
    ${MIGRATIONS[0]}
    INSERT INTO log.records (id, started_at, multiplier, protocol, method, endpoint, end, input_tokens,
      cache_read_tokens, cache_write_tokens, output_tokens, cost_microdollars)
      VALUES ('a', 77, 1, 'openai', 'POST', '/', 'complete', 1, 2, 3, 4, 500),
        ('b', 78, 1, 'openai', 'POST', '/', 'refused', NULL, NULL, NULL, NULL, NULL);
    INSERT INTO log.cells VALUES (0, 'codex', '', '', '', '', 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 90, 0, 0, '');
    PRAGMA log.user_version = 1`);
  close();
  const source = openSource(file);
  t.teardown(() => source.close());
  t.match(source.read(1, 10), {
    unreadable: 0,
    records: [
      { id: "b", counts: false },
      { id: "a", admitted_at: 77, counts: true, counted_tokens: 10, counted_microdollars: 500 },
    ],
  });
  t.match(source.folded(), [{ tool: "codex", sums: { cost_microdollars: 90, counted_microdollars: 90 } }]);
  t.same(source.lifts(), []);
});
