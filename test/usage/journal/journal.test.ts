import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import t from "tap";
import { pick } from "../../../src/core/pick.ts";
import type { ToolCarry } from "../../../src/limits/limiter.ts";
import type { Journal } from "../../../src/usage/journal/journal.ts";
import { AMENDED } from "../../../src/usage/journal/lines.ts";
import { repeats } from "../../doubles/effort.ts";
import { record } from "../../doubles/records.ts";
import { mountSmallDisk } from "../../doubles/small-disk.ts";
import { faultsIn, recordsIn } from "../../doubles/usage-file.ts";
import {
  closing,
  DAY,
  linesIn,
  NOON,
  newFolder,
  opening,
  setClock,
  shapesIn,
  startJournal,
  textIn,
} from "./journal-under-test.ts";

const TODAY = "2026-11-16";

const CARRY: ToolCarry = {
  tool: "codex",
  total: 123_456,
  estimated_total: 56,
  windows: [
    {
      per: "day",
      start: NOON - DAY / 2,
      end: NOON + DAY / 2,
      requests: 3,
      tokens: 400,
      spend: 5,
      estimated_tokens: 40,
      estimated_spend: 2,
      last: NOON,
    },
  ],
  allowances: [{ limit: "spend", amount: 7, given_at: NOON, until: null }],
  sessions: [],
  open: [],
};

t.test("a request is one open line before it is sent and one close line", async (t) => {
  const { journal, folder } = startJournal(t);
  const first = opening({ model: "a" });
  t.equal(await journal.open(first), true);
  t.strictSame(shapesIn(folder), ["carry of 0", "open a"], "on disk as soon as it is opened");
  journal.head(
    first.id,
    { status: 200, first_byte_at: NOON + 5, gateway_ids: { "x-request-id": "7" } },
    false,
  );
  journal.close(first.id, closing());
  journal.close(first.id, closing({ end: "client-left" }));
  journal.add(opening({ model: "b" }), closing({ end: "refused", refusal: "rate-limited" }));
  await turn();
  t.strictSame(
    shapesIn(folder),
    ["carry of 0", "open a", "close a complete", "close b refused"],
    "no head line: the whole response came at once",
  );
  const text = textIn(folder, TODAY);
  for (const line of text.trimEnd().split("\n")) t.type(JSON.parse(line), "object", "each line is JSON");
  t.notMatch(text, "machine", "a line of this machine does not name it");
  t.equal(statSync(join(folder, `${TODAY}.jsonl`)).mode & 0o777, 0o600);
  t.equal(statSync(folder).mode & 0o777, 0o700);
});

t.test("records of other machines are no use of this one, neither now nor after a start", async (t) => {
  const { journal, folder } = startJournal(t);
  const theirs = record(1, { started_at: NOON + 5000, tool: "theirs", machine: "laptop" });
  const machine = { machine: "laptop", machine_id: "id-of-laptop", verified: true };
  t.ok(journal.append({ ...theirs, kind: "sibling", ...machine }));
  const billed = { ...theirs, billed_microdollars: 7 };
  t.ok(journal.append({ kind: "sibling-amend", id: theirs.id, ...machine, ...pick(billed, AMENDED) }));
  t.equal(journal.last(), null);
  t.equal(journal.lastUse("theirs"), null);
  journal.stop();
  const again = startJournal(t, { folder });
  t.equal(again.journal.last(), null);
  t.equal(again.journal.lastUse("theirs"), null);
  t.strictSame(shapesIn(folder), ["carry of 0", "sibling", "sibling-amend"], "nothing is interrupted");
});

t.test("a response that is still arriving has a head line", async (t) => {
  const { journal, folder } = startJournal(t);
  const stream = opening({ model: "a" });
  await journal.open(stream);
  const head = { status: 200, first_byte_at: NOON + 5, gateway_ids: { "x-request-id": "7" } };
  journal.head(stream.id, head, true);
  t.strictSame(shapesIn(folder), ["carry of 0", "open a", "head"], "before the client sees it");
  const slow = opening({ model: "b" });
  await journal.open(slow);
  journal.head(slow.id, head, false);
  await turn();
  t.strictSame(shapesIn(folder), ["carry of 0", "open a", "head", "open b", "head"]);
  journal.close(stream.id, closing());
  await turn();
  t.strictSame(shapesIn(folder).at(-1), "close a complete");
});

t.test("closings of one turn are written at its end, or before the next line", async (t) => {
  const { journal, folder } = startJournal(t);
  const first = opening({ model: "a" });
  const second = opening({ model: "b" });
  const third = opening({ model: "c" });
  await journal.open(first);
  await journal.open(second);
  journal.close(first.id, closing());
  t.equal(shapesIn(folder).at(-1), "open b", "nothing is written yet");
  await journal.open(third);
  t.strictSame(shapesIn(folder).slice(-2), ["close a complete", "open c"]);
  journal.close(second.id, closing());
  journal.close(third.id, closing());
  await turn();
  t.strictSame(shapesIn(folder).slice(-2), ["close b complete", "close c complete"]);
});

t.test("a closing belongs to the day that ends in the same turn, because the carry counts it", async (t) => {
  const clock = setClock();
  const { journal, folder } = startJournal(t, { clock });
  const last = opening({ model: "last" });
  await journal.open(last);
  journal.close(last.id, closing());
  clock.time = NOON + DAY;
  await journal.open(opening({ model: "next", started_at: clock.time }));
  t.match(textIn(folder, TODAY), /"kind":"close".*"model":"last"/);
  t.notMatch(textIn(folder, "2026-11-17"), /"last"/);
  t.match(textIn(folder, "2026-11-17"), /"kind":"carry".*\n.*"kind":"open".*"model":"next"/s);
});

t.test(
  "records that a process left open are interrupted at the next start, and keep their heads, or the ids that they were sent with",
  async (t) => {
    const { journal, folder } = startJournal(t);
    const sentIds = { "x-litellm-call-id": "01KA" };
    const [first, second] = [
      opening({ model: "a", gateway_ids: sentIds }),
      opening({ model: "b", gateway_ids: sentIds }),
    ];
    await journal.open(first);
    await journal.open(second);
    journal.head(
      second.id,
      { status: 200, first_byte_at: NOON + 9, gateway_ids: { "x-request-id": "9" } },
      true,
    );
    await turn();
    for (let n = 0; n < 2; n += 1) {
      startJournal(t, { folder });
      t.match(recordsIn(folder), [
        { id: first.id, end: "interrupted", status: null, ended_at: null, gateway_ids: sentIds },
        { id: second.id, end: "interrupted", status: 200, gateway_ids: { "x-request-id": "9" } },
      ]);
      t.equal(linesIn(folder).filter(({ kind }) => kind === "close").length, 2, "once");
    }
  },
);

t.test("the next day's file begins with carry lines and with the requests in flight", async (t) => {
  const clock = setClock();
  const { journal, folder } = startJournal(t, { clock, carry: () => [CARRY] });
  const stream = opening({ model: "stream" });
  await journal.open(stream);
  journal.head(stream.id, { status: 200, first_byte_at: NOON + 9, gateway_ids: {} }, true);
  clock.time = NOON + DAY;
  await journal.open(opening({ model: "next", started_at: clock.time }));
  journal.close(stream.id, closing());
  await turn();
  t.strictSame(readdirSync(folder), [`${TODAY}.jsonl`, "2026-11-17.jsonl"]);
  t.strictSame(
    textIn(folder, "2026-11-17")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line).kind),
    ["carry", "carry", "open", "head", "open", "close"],
  );

  const next = startJournal(t, { folder, clock });
  t.match(next.replayed[0], { kind: "carry", tools: 1 }, "only the newest file is read");
  t.match(next.replayed[1], { ...CARRY, last_use: NOON });
  t.match(
    recordsIn(folder).map(({ model, end }) => ({ model, end })),
    [
      { model: "stream", end: "complete" },
      { model: "next", end: "interrupted" },
    ],
  );
});

t.test("a file that another program made for the next day does not become the current one", async (t) => {
  const clock = setClock();
  const { journal, folder } = startJournal(t, { clock, carry: () => [CARRY] });
  await journal.open(opening());
  writeFileSync(join(folder, "2026-11-17.jsonl"), '{"kind":"carry","tools":0}\n', { mode: 0o600 });
  clock.time = NOON + DAY;
  await journal.open(opening({ model: "next", started_at: clock.time }));
  t.notMatch(textIn(folder, "2026-11-17"), '"tools":0');
  t.match(textIn(folder, "2026-11-17"), '"next"');
  t.match(journal.state().fileProblem, /2026-11-17\.jsonl was not made by keybearer, and was set aside as/);
});

t.test("a line that is longer than any text can be is skipped", async (t) => {
  const { journal, folder } = startJournal(t);
  const before = opening({ model: "before" });
  await journal.open(before);
  journal.close(before.id, closing());
  journal.stop();
  const file = join(folder, `${TODAY}.jsonl`);
  // Without blocks on the disk.
  truncateSync(file, 540_000_000);
  appendFileSync(file, "\n");
  const next = startJournal(t, { folder });
  t.match(next.replayed.at(-1), { kind: "close", id: before.id });
  t.equal(await next.journal.open(opening()), true, "it serves");
});

t.test("a start on a later day writes the carry lines after what it interrupts", async (t) => {
  const clock = setClock();
  const first = startJournal(t, { clock, carry: () => [CARRY] });
  await first.journal.open(opening({ model: "a" }));
  clock.time = NOON + 3 * DAY;
  const second = startJournal(t, { folder: first.folder, clock, carry: () => [CARRY] });
  t.strictSame(
    shapesIn(first.folder).slice(-3),
    ["close a interrupted", "carry of 1", "carry codex"],
    "so that the next start needs no older file",
  );
  t.ok(second.journal.available());
  rmSync(join(first.folder, `${TODAY}.jsonl`));
  const third = startJournal(t, { folder: first.folder, clock });
  t.match(third.replayed.at(-1), { kind: "carry", tool: "codex", total: CARRY.total });
});

t.test(
  "carry lines that are cut off do not count: the file before is read, and they are written again",
  async (t) => {
    const clock = setClock();
    const first = startJournal(t, { clock });
    await first.journal.open(opening({ model: "a" }));
    writeFileSync(
      join(first.folder, "2026-11-17.jsonl"),
      `${JSON.stringify({ kind: "carry", tools: 2 })}\n${JSON.stringify({ kind: "carry", ...CARRY })}\n{"kind":"car`,
    );
    clock.time = NOON + DAY;
    const next = startJournal(t, { folder: first.folder, clock, carry: () => [CARRY] });
    t.match(
      next.replayed.map(({ kind }) => kind),
      ["carry", "open", "close"],
      "the group of two tools is not whole",
    );
    const last = startJournal(t, { folder: first.folder, clock });
    t.match(last.replayed.at(-1), { kind: "carry", tool: "codex" }, "a whole one follows");
  },
);

t.test("a clock that is set back or forward loses nothing, and lines stay in order", async (t) => {
  const clock = setClock();
  const { journal, folder } = startJournal(t, { clock });
  const models: string[] = [];
  for (const [model, time] of [
    ["noon", NOON],
    ["a-day-back", NOON - DAY],
    ["a-day-ahead", NOON + DAY],
    ["back-again", NOON],
  ] as const) {
    clock.time = time;
    const one = opening({ model, started_at: time });
    t.equal(await journal.open(one), true);
    journal.close(one.id, closing());
    await turn();
    models.push(model);
  }
  t.strictSame(
    recordsIn(folder).map(({ model }) => model),
    models,
  );
  t.strictSame(readdirSync(folder), [`${TODAY}.jsonl`, "2026-11-17.jsonl"], "no file for the day before");
  const after = startJournal(t, { folder, clock });
  t.equal(after.journal.day, "2026-11-17", "the newest file stays the current one");
});

t.test("a line that is cut at any byte is skipped, and every other line is read", async (t) => {
  const { journal, folder } = startJournal(t);
  const ids: string[] = [];
  for (const model of ["a", "b", "c"]) {
    const one = opening({ model });
    await journal.open(one);
    journal.close(one.id, closing());
    await turn();
    ids.push(one.id);
  }
  journal.stop();
  const file = join(folder, `${TODAY}.jsonl`);
  const whole = readFileSync(file);
  const lines = whole.toString().trimEnd().split("\n");
  const before = Buffer.byteLength(`${lines.slice(0, -1).join("\n")}\n`);
  // In npm test every seventh byte, and the last ones.
  const step = repeats("KEYBEARER_CUT_STEP", 7, 1);
  for (let end = before; end < whole.length; end += end < whole.length - 10 ? step : 1) {
    truncateSync(file, end);
    const again = startJournal(t, { folder });
    const last = opening({ model: "after" });
    await again.journal.open(last);
    again.journal.close(last.id, closing());
    await turn();
    again.journal.stop();
    const found = recordsIn(folder);
    // Without its line break the last line is still whole.
    const isWhole = end === whole.length - 1;
    if (found.length !== 4 || found[2]?.end !== (isWhole ? "complete" : "interrupted"))
      t.fail(`cut at byte ${end}: ${JSON.stringify(found.map(({ id, end }) => [id, end]))}`);
    writeFileSync(file, whole);
  }
  t.strictSame(
    recordsIn(folder).map(({ id }) => id),
    ids,
  );
});

t.test(
  "a file that is deleted, replaced or emptied while it is open is noticed within a second",
  async (t) => {
    const changes: Readonly<Record<string, (file: string) => void>> = {
      deleted: (file) => rmSync(file),
      replaced: (file) => {
        writeFileSync(`${file}.new`, "another program's\n");
        renameSync(`${file}.new`, file);
      },
      "cut off": (file) => truncateSync(file, 0),
    };
    for (const [what, change] of Object.entries(changes)) {
      const { journal, folder, ticker, log } = startJournal(t, { carry: () => [CARRY] });
      const early = opening({ model: "early" });
      await journal.open(early);
      journal.close(early.id, closing());
      ticker.pass();
      const running = opening({ model: "running" });
      await journal.open(running);
      change(join(folder, `${TODAY}.jsonl`));
      const late = opening({ model: "late" });
      t.equal(await journal.open(late), true, `${what}: requests go on`);
      journal.close(late.id, closing());
      ticker.pass();
      t.match(log(), new RegExp(`was ${what} while it was open`));
      t.match(journal.state().fileProblem, /2026-11-16\.jsonl was /);
      journal.close(running.id, closing());
      await turn();
      const kept = what === "deleted" ? ["early complete"] : [];
      t.match(
        recordsIn(folder)
          .map(({ model, end }) => `${model} ${end}`)
          .sort(),
        [...kept, "late complete", "running complete"],
        `${what}: everything since the last check is in the new file`,
      );
      t.match(shapesIn(folder).join(), /carry codex/, "and what the limits know");
    }
  },
);

t.test("a folder that is removed is made again; one that cannot be made refuses requests", async (t) => {
  const { journal, folder, ticker } = startJournal(t);
  const running = opening({ model: "running" });
  await journal.open(running);
  rmSync(folder, { recursive: true });
  ticker.pass();
  t.ok(journal.available());
  t.strictSame(
    recordsIn(folder).map(({ model }) => model),
    ["running"],
  );
  const state = join(folder, "..");
  renameSync(state, `${state}-away`);
  ticker.pass();
  t.notOk(journal.available());
  t.match(journal.state().unavailable?.problem, /gone/);
  t.equal(await journal.open(opening()), false);
  journal.close(running.id, closing());
  await turn();
  t.equal(journal.state().waiting, 1);
  renameSync(`${state}-away`, state);
  ticker.pass();
  t.ok(journal.available());
  t.match(recordsIn(folder), [{ model: "running", end: "complete" }]);
});

t.test(
  "a line that the disk writes only in part is removed again, and waits until there is space",
  async (t) => {
    const disk = mountSmallDisk(t, 1);
    if (disk === null) return;
    const folder = join(disk.folder, "usage");
    const { journal, ticker, log } = startJournal(t, { folder });
    const running = Array.from({ length: 3 }, (_, n) => opening({ model: `running-${n}` }));
    for (const one of running) t.equal(await journal.open(one), true);
    const file = join(folder, `${TODAY}.jsonl`);
    fillPage(file);
    ticker.pass();
    disk.fill();
    const size = statSync(file).size;
    t.equal(await journal.open(opening({ model: "refused" })), false, "nothing is sent that is not recorded");
    t.equal(statSync(file).size, size, "the part that was written is gone again");
    t.match(journal.state().unavailable?.problem, /disk is full/);
    t.match(log(), /disk is full/);
    for (const one of running) journal.close(one.id, closing());
    t.equal(journal.state().waiting, 3);
    ticker.pass();
    t.notOk(journal.available(), "as long as the disk is full");
    disk.free();
    ticker.pass();
    t.ok(journal.available());
    t.strictSame(
      recordsIn(folder).map(({ model, end }) => `${model} ${end}`),
      running.map(({ model }) => `${model} complete`),
    );
    for (const line of textIn(folder, TODAY).split("\n")) if (line.trim() !== "") t.ok(JSON.parse(line));
  },
);

/** Counts so many refusals of a kind. Returns the ids of those that are only counted. */
function refuse(
  journal: Journal,
  times: number,
  code = "token-unknown",
  tool: string | null = null,
): string[] {
  const ids = Array.from({ length: times }, () => opening().id);
  return ids.filter((id) => journal.count({ id, tool, gateway: null, code }));
}

function runsIn(folder: string): unknown[] {
  return linesIn(folder).flatMap((line) =>
    line.kind === "refusals" ? [[line.tool, line.code, line.count]] : [],
  );
}

t.test(
  "beyond twenty of a kind in a minute, refusals share a line that is written as they double",
  async (t) => {
    const clock = setClock();
    const { journal, folder, ticker, log } = startJournal(t, { clock });
    const heard: unknown[] = [];
    journal.onRefusals(({ id, last_id, requests }) => heard.push([id, last_id, requests]));
    t.strictSame(refuse(journal, 20), [], "each has its own record");
    const ids = [...refuse(journal, 1), ...refuse(journal, 9)];
    t.equal(ids.length, 10);
    t.strictSame(refuse(journal, 20, "token-unknown", "codex"), [], "another tool");
    t.strictSame(refuse(journal, 20, "rate-limited"), [], "another code");
    t.strictSame(runsIn(folder), []);
    ticker.pass();
    ticker.pass();
    t.strictSame(runsIn(folder), [[null, "token-unknown", 10]], "what a crash keeps");
    ids.push(...refuse(journal, 9));
    ticker.pass();
    t.equal(runsIn(folder).length, 1, "not yet twice as many");
    journal.writeRefusals();
    journal.writeRefusals();
    t.strictSame(runsIn(folder).slice(1), [[null, "token-unknown", 19]], "a report wants to know");
    ids.push(...refuse(journal, 1));
    t.equal(log().includes("more requests"), false);

    clock.time += 60_000;
    ticker.pass();
    t.strictSame(runsIn(folder).slice(2), [[null, "token-unknown", 20]], "the minute is over");
    t.match(log(), /"refusal":"token-unknown".*"20 more requests were refused in the minute from 12:00 UTC"/);
    t.strictSame(heard, [[ids[0], ids.at(-1), 20]]);
    t.strictSame(refuse(journal, 20), [], "the next minute is another one");
    t.equal(refuse(journal, 3, "client-left").length, 0);
    t.equal(refuse(journal, 40, "client-left", "codex").length, 20);
    t.equal(journal.lastUse("codex"), clock.time);

    // Across midnight, and at the end.
    clock.time = NOON + DAY / 2 - 1000;
    t.equal(refuse(journal, 25).length, 5);
    clock.time += 2000;
    t.equal(refuse(journal, 25).length, 5);
    journal.stop();
    t.strictSame(runsIn(folder).slice(3), [
      ["codex", "client-left", 20],
      [null, "token-unknown", 5],
      [null, "token-unknown", 5],
    ]);
    const { replayed, journal: next } = startJournal(t, { folder, clock });
    t.equal(replayed.filter(({ kind }) => kind === "refusals").length, 2, "the newest file is read");
    t.strictSame(refuse(next, 21).length, 1);
    t.strictSame(faultsIn(folder), []);
  },
);

t.test("refusals that were counted wait for the disk, in one line for each minute", async (t) => {
  const clock = setClock();
  const { journal, folder, ticker } = startJournal(t, { clock });
  const state = join(folder, "..");
  renameSync(state, `${state}-away`);
  ticker.pass();
  for (let minute = 0; minute < 3; minute += 1) {
    refuse(journal, 1020);
    ticker.pass();
    clock.time += 60_000;
    ticker.pass();
  }
  t.match(journal.state(), { waiting: 3, refusalsLost: 0 });
  renameSync(`${state}-away`, state);
  ticker.pass();
  t.strictSame(runsIn(folder), Array(3).fill([null, "token-unknown", 1000]));
  renameSync(state, `${state}-away`);
  ticker.pass();
  refuse(journal, 1020);
  journal.stop();
  t.match(journal.state(), { refusalsLost: 1000 });
  renameSync(`${state}-away`, state);
});

t.test("what waits for the disk is bounded, and refusals go before what was sent", async (t) => {
  const { journal, folder, ticker } = startJournal(t);
  const running = Array.from({ length: 600 }, () => opening());
  for (const one of running) await journal.open(one);
  const state = join(folder, "..");
  renameSync(state, `${state}-away`);
  ticker.pass();
  for (let n = 0; n < 900; n += 1) journal.add(opening(), closing({ end: "refused" }));
  for (const one of running) journal.close(one.id, closing());
  t.match(journal.state(), { waiting: 1000, lost: 0, refusalsLost: 500 });
  renameSync(`${state}-away`, state);
  ticker.pass();
  t.match(journal.state(), { waiting: 0, lost: 0 });
  t.equal(recordsIn(folder).filter(({ end }) => end === "complete").length, 600);
});

t.test("with sync: full, requests that arrive together share one fdatasync", async (t) => {
  const { journal, folder } = startJournal(t, { sync: "full" });
  const openings = Array.from({ length: 20 }, (_, n) => opening({ model: `m${n}` }));
  const opened = openings.map((one) => journal.open(one));
  t.strictSame(
    await Promise.all(opened),
    openings.map(() => true),
  );
  for (const one of openings) journal.close(one.id, closing());
  await turn();
  journal.stop();
  t.equal(recordsIn(folder).filter(({ end }) => end === "complete").length, 20);
});

t.test("a journal that cannot be read at its start is read as soon as it can be", async (t) => {
  const folder = newFolder(t);
  const inTheWay = join(folder, "usage");
  writeFileSync(inTheWay, "not a folder");
  const { journal, ticker } = startJournal(t, { folder: inTheWay });
  t.notOk(journal.available());
  t.equal(await journal.open(opening()), false);
  rmSync(inTheWay);
  ticker.pass();
  t.ok(journal.available());
  t.equal(await journal.open(opening()), true);
});

t.test("modes are made private again, and unknown names in the folder are left alone", async (t) => {
  const folder = join(newFolder(t), "usage");
  mkdirSync(folder, { mode: 0o700 });
  writeFileSync(join(folder, "notes.txt"), "mine");
  writeFileSync(join(folder, `${TODAY}.jsonl`), "", { mode: 0o644 });
  chmodSync(join(folder, `${TODAY}.jsonl`), 0o644);
  startJournal(t, { folder });
  t.equal(statSync(join(folder, `${TODAY}.jsonl`)).mode & 0o777, 0o600);
  t.ok(existsSync(join(folder, "notes.txt")));
});

t.test("a file that is deleted under heavy load is put back once, whole", async (t) => {
  const { journal, folder, log } = startJournal(t);
  const endpoint = `/v1/${"x".repeat(8000)}`;
  const open = async (count: number) => {
    for (let n = 0; n < count; n += 1) await journal.open(opening({ endpoint }));
  };
  await open(500);
  rmSync(join(folder, `${TODAY}.jsonl`));
  // Beyond what is kept in memory between two checks, so that it is noticed before the next second.
  await open(1000);
  t.match(log(), /was deleted while it was open/);
  t.equal(recordsIn(folder).length, 1500);
  t.ok(statSync(join(folder, `${TODAY}.jsonl`)).size < 1500 * 9000, "and nothing is there twice");
});

t.test(
  "a disk that is full at midnight stops requests, and the carry lines follow when there is space",
  async (t) => {
    const disk = mountSmallDisk(t, 1);
    if (disk === null) return;
    const folder = join(disk.folder, "usage");
    const clock = setClock();
    const { journal, ticker } = startJournal(t, { folder, clock, carry: () => [CARRY] });
    const stream = opening({ model: "stream" });
    await journal.open(stream);
    disk.fill();
    clock.time = NOON + DAY;
    t.equal(await journal.open(opening({ model: "refused" })), false);
    ticker.pass();
    t.notOk(journal.available(), "as long as the disk is full");
    journal.close(stream.id, closing());
    await turn();
    disk.free();
    ticker.pass();
    t.ok(journal.available());
    rmSync(join(folder, `${TODAY}.jsonl`));
    const next = startJournal(t, { folder, clock });
    t.ok(
      next.replayed.some((line) => line.kind === "carry" && "tool" in line && line.tool === "codex"),
      "the new file alone is enough",
    );
    t.match(recordsIn(folder), [{ model: "stream", end: "complete" }]);
  },
);

t.test("a start on a full disk reads everything again once there is space", async (t) => {
  const disk = mountSmallDisk(t, 1);
  if (disk === null) return;
  const folder = join(disk.folder, "usage");
  const first = startJournal(t, { folder, carry: () => [CARRY] });
  await first.journal.open(opening({ model: "killed" }));
  fillPage(join(folder, `${TODAY}.jsonl`));
  disk.fill();
  const second = startJournal(t, { folder, carry: () => [CARRY] });
  t.notOk(second.journal.available());
  disk.free();
  second.ticker.pass();
  t.ok(second.journal.available());
  t.strictSame(
    second.replayed.map(({ kind }) => kind),
    ["carry", "carry", "open", "close"],
    "once, from the beginning",
  );
});

t.test("with sync: full, a file can change under requests that wait for the disk", async (t) => {
  const clock = setClock();
  const { journal, folder } = startJournal(t, { sync: "full", clock });
  const opened: Promise<boolean>[] = [];
  for (let day = 0; day < 30; day += 1) {
    clock.time = NOON + day * DAY;
    for (let n = 0; n < 3; n += 1) opened.push(journal.open(opening({ started_at: clock.time })));
  }
  t.ok((await Promise.all(opened)).every((isWritten) => isWritten));
  t.equal(journal.state().unavailable, null);
  t.equal(recordsIn(folder).length, 90);
});

/** Leaves less space than a line needs in the last page of a file: a full disk then writes a part and reports success. */
function fillPage(file: string): void {
  const padding = 4096 - ((statSync(file).size + 200) % 4096);
  appendFileSync(file, `${" ".repeat(padding - 1)}\n`);
}
