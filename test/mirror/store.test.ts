import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { ROW_FIELDS } from "../../src/mirror/console-row.ts";
import { hasChangedDays, planDays } from "../../src/mirror/store/changed-days.ts";
import { addLogGap, readConsoleGaps, readLogGaps } from "../../src/mirror/store/coverage-gaps.ts";
import { coverFrom, readTime } from "../../src/mirror/store/facts.ts";
import { heldTimes, holdKeys, keyLinks, learnKeys, linkKeys } from "../../src/mirror/store/keys.ts";
import {
  clearCursor,
  forgetConsole,
  pruneStep,
  readCursor,
  writePage,
  writeRows,
} from "../../src/mirror/store/rows.ts";
import { dayOf, journalFiles } from "../../src/usage/journal/files.ts";
import { lineOf } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";
import {
  AT,
  acknowledge,
  all,
  compareAll,
  content,
  HOUR,
  MINUTE,
  mirrorFile,
  page,
  row,
} from "./mirror-file.ts";

t.test("a page's rows are kept with every allowed field, and nothing else", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  const whole = row(1, { ip: "192.0.2.7", user_agent: "curl/8.5.0", upstream_id: "up", endpoint: "/v1/x" });
  const more = { ...whole, token: "sk-somebody-elses-whole-key" };
  t.same(page(db, [more]), { added: 1, changed: 0 });
  const names = ROW_FIELDS.map((name) => `"${name}"`).join(", ");
  const [stored] = all(db, `SELECT ${names} FROM mirror.console_rows`);
  t.same(
    stored,
    ROW_FIELDS.map((name) => (name === "stream" ? 1 : whole[name])),
  );
  t.notMatch(JSON.stringify(all(db, "SELECT * FROM mirror.console_rows")), "somebody");
});

t.test("the same page again changes nothing, and a row that changed at the console is updated", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  page(db, [row(1), row(2)]);
  const before = content(db);
  t.same(page(db, [row(2), row(1), row(2)]), { added: 0, changed: 0 });
  t.same(content(db), before);
  t.same(page(db, [row(2, { billed_microdollars: 1, stream: null })]), { added: 0, changed: 1 });
  t.same(all(db, "SELECT identity, billed_microdollars, stream FROM mirror.console_rows"), [
    ["row-1", 9000, 1],
    ["row-2", 1, null],
  ]);
});

t.test("a page with fractions or NUL characters is stored", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  const odd = row(1, {
    billed_microdollars: 12.6,
    input_tokens: Number.NaN,
    model: "a\0b",
    multiplier: 1.25,
  });
  t.same(page(db, [odd, row(2, { created_at: Number.NaN })]), { added: 1, changed: 0 });
  t.same(all(db, "SELECT billed_microdollars, input_tokens, model, multiplier FROM mirror.console_rows"), [
    [13, null, "a\uFFFDb", 1.25],
  ]);
  t.same(page(db, [odd]), { added: 0, changed: 0 }, "and say the same when they come again");
});

t.test("the cursor is stored together with the rows, and gaps that touch become one", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  t.equal(readCursor(db, "main"), null);
  writePage(db, "main", { rows: [row(1)], cursor: "first", gap: { from: 10, to: 20 } });
  writePage(db, "main", { rows: [], cursor: "second", gap: { from: 20, to: 30 } });
  writePage(db, "main", { rows: [], cursor: "second", gap: { from: 10, to: 20 } });
  writePage(db, "main", { rows: [], cursor: "second", gap: { from: 50, to: 60 } });
  t.equal(readCursor(db, "main"), "second");
  t.equal(readCursor(db, "other"), null);
  t.same(readConsoleGaps(db, "main"), [
    { from: 10, to: 30 },
    { from: 50, to: 60 },
  ]);
  clearCursor(db, "main");
  t.equal(readCursor(db, "main"), null);
});

t.test("a large page is written in parts, and its cursor comes with the last one", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  t.same(writeRows(db, "main", [row(1), row(2)]), { added: 2, changed: 0 });
  t.equal(readCursor(db, "main"), null, "if the program ends now, the page is read again");
  t.ok(hasChangedDays(db, "main"));
  const rest = { rows: [row(2, { billed_microdollars: 1 }), row(3)], cursor: "last", gap: null };
  t.same(writePage(db, "main", rest), { added: 1, changed: 1 });
  t.equal(readCursor(db, "main"), "last");
});

t.test("rows of keys that are known not to be ours are skipped", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  linkKeys(db, "main", [{ ref: "id:2", key: null }]);
  const given = [row(1), row(2, { key_ref: "id:2" }), row(3, { key_ref: "id:3" }), row(4, { key_ref: null })];
  t.same(page(db, given), { added: 3, changed: 0 });
  t.same(
    linkKeys(db, "main", [{ ref: "id:2", key: "…ffff" }]),
    ["id:2"],
    "a key that becomes ours is returned",
  );
  t.same(page(db, given), { added: 1, changed: 0 });
});

t.test("a key that may be one that was held is not known to be another's any more", async (t) => {
  const { db } = mirrorFile(t);
  const links = (mayBeOurs: boolean) =>
    ["id:1", "id:2", "id:3"].map((ref) => ({ ref, key: null, mayBeOurs }));
  linkKeys(db, "main", [{ ref: "id:2", key: null }]);
  t.same(linkKeys(db, "main", links(true)), ["id:2"], "its rows were skipped");
  t.same([...keyLinks(db, "main").keys], [["id:1", "…a1b2"]]);
  t.same(linkKeys(db, "main", links(true)), [], "once");
  linkKeys(db, "main", links(false));
  t.equal(keyLinks(db, "main").keys.get("id:3"), null);
});

t.test("a name stands for a key unless two keys have it or rows contradict each other", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  t.same([...keyLinks(db, "main").keys], [["id:1", "…a1b2"]]);
  linkKeys(db, "main", [{ ref: "id:1", key: null }]);
  t.same([...keyLinks(db, "main").keys], [["id:1", "…a1b2"]], "a rotated key is not forgotten");
  const twice = [
    { ref: "name:codex", key: "…a1b2" },
    { ref: "name:codex", key: null },
  ];
  linkKeys(db, "main", twice);
  t.notOk(keyLinks(db, "main").keys.has("name:codex"), "two keys with one name");
  learnKeys(db, "main", new Map([["name:codex", new Set(["…a1b2"])]]));
  t.notOk(keyLinks(db, "main").keys.has("name:codex"));
  learnKeys(db, "main", new Map([["name:new", new Set(["…0001"])]]));
  t.equal(keyLinks(db, "main").keys.get("name:new"), "…0001");
  learnKeys(db, "main", new Map([["name:new", new Set(["…0002"])]]));
  t.notOk(keyLinks(db, "main").keys.has("name:new"), "rows that contradict each other");
  const before = content(db);
  linkKeys(db, "main", twice);
  t.same(content(db), before);
});

t.test("rows of a key are compared again when its link is new", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  page(db, [row(1, { key_ref: "id:9", created_at: AT - 5 * HOUR })]);
  compareAll(mirror);
  t.notOk(hasChangedDays(db, "main"));
  linkKeys(db, "main", [{ ref: "id:9", key: "…a1b2" }]);
  t.ok(
    planDays(db, "main", { now: AT + HOUR, skew: 0, siblings: [] }).days.includes(
      Math.floor((AT - 5 * HOUR) / (24 * HOUR)),
    ),
  );
});

t.test("the time since when a key is held is stored", async (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  const held = (key: string, tool = "codex") => ({ gateway: "main", key, tool });
  const now = () => Object.fromEntries(heldTimes(db, "main"));
  const old = { since: AT - 24 * HOUR, tools: ["codex"] };
  t.same(holdKeys(db, [held("…a1b2")], AT), []);
  t.same(now(), { "…a1b2": { ...old, until: null, replaced: false } }, "what did not change stays");
  holdKeys(db, [{ ...held(""), key: null }], AT + 1);
  t.equal(now()["…a1b2"]?.until, null, "a key that cannot be read just now is still held");
  const line = { kind: "key-held", ...held("…new1"), since: AT + 2, until: null };
  t.same(holdKeys(db, [held("…new1")], AT + 2), [
    { ...line, key: "…a1b2", since: AT - 24 * HOUR, until: AT + 2 },
    line,
  ]);
  t.same(now(), {
    "…a1b2": { ...old, until: AT + 2, replaced: true },
    "…new1": { since: AT + 2, until: null, replaced: false, tools: ["codex"] },
  });
  holdKeys(db, [], AT + 3);
  t.same(now()["…a1b2"], { ...old, until: AT + 2, replaced: false }, "the tool itself is gone");
  holdKeys(db, [held("…a1b2")], AT + 4);
  t.same(now()["…a1b2"], { since: AT + 4, until: null, replaced: false, tools: ["codex"] });
  holdKeys(db, [held("…a1b2", "scripts")], AT + 5);
  t.same(now()["…a1b2"], { since: AT + 4, until: null, replaced: false, tools: ["scripts"] });
  t.equal(heldTimes(db, "other").size, 0);
  const set = holdKeys(db, [held("…a1b2", "scripts")], AT - HOUR);
  t.match(set, [{ since: AT - HOUR, until: null }], "the clock was ahead");
});

t.test("another gateway with the same name starts without history", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  page(db, [row(1)]);
  compareAll(mirror);
  const billed = () => all(db, "SELECT billed_microdollars FROM usage.records");
  t.same(billed(), [[9000]]);
  t.same(forgetConsole(db, "main", AT + HOUR, false), [
    { kind: "key-held", gateway: "main", key: "…a1b2", tool: "codex", since: AT + HOUR, until: null },
  ]);
  coverFrom(db, "main", AT - 30 * HOUR, AT + 48 * HOUR);
  t.same(content(db)["mirror.console_rows"], []);
  t.same(content(db)["mirror.verdicts"], []);
  t.equal(readTime(db, "main", "last_sync"), null);
  t.equal(heldTimes(db, "main").get("…a1b2")?.since, AT + HOUR);
  page(db, [row(7, { identity: "new", request_id: "other", created_at: AT })]);
  linkKeys(db, "main", [{ ref: "id:1", key: "…a1b2" }]);
  compareAll(mirror, { now: AT + 2 * HOUR });
  t.same(billed(), [[9000]], "the record keeps the numbers it took");
  t.same(all(db, "SELECT verdict FROM mirror.console_rows"), [["before"]]);
  t.same(content(db)["mirror.verdicts"], [], "and it is not missing there");
});

t.test("only foreign rows are acknowledged, once", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  page(db, [row(1), row(2), row(3, { created_at: AT - 40 * HOUR })]);
  compareAll(mirror);
  const shown = { gateway: null, key: null, certain: null, until: AT + HOUR };
  t.same(acknowledge(db, { ...shown, key: "…0000" }, 5), []);
  t.same(acknowledge(db, { ...shown, gateway: "other" }, 5), []);
  t.same(acknowledge(db, { ...shown, until: AT }, 5), [], "a row that came after it was shown");
  t.same(acknowledge(db, shown, 5), [{ kind: "ack", gateway: "main", row: "row-2", certain: true, at: 5 }]);
  t.same(acknowledge(db, { ...shown, gateway: "main", key: "…a1b2" }, 6), []);
  t.same(all(db, "SELECT identity, acknowledged_at FROM mirror.console_rows"), [
    ["row-1", null],
    ["row-2", 5],
    ["row-3", null],
  ]);
});

t.test("acknowledgements survive the loss of mirror.db, but not for rows that came later", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const lines = [
    { kind: "ack", gateway: "main", row: "row-2", certain: true, at: AT + HOUR },
    { kind: "ack", gateway: "main", row: "row-3", certain: true, at: AT - HOUR },
    { kind: "ack", gateway: "other", row: "row-4", certain: true, at: AT + HOUR },
  ];
  appendLines(mirror.state, lines);
  mirror.catchUp();
  page(mirror.db, [row(1), row(2), row(3), row(4)]);
  t.same(all(mirror.db, "SELECT identity, acknowledged_at FROM mirror.console_rows"), [
    ["row-1", null],
    ["row-2", AT + HOUR],
    ["row-3", null],
    ["row-4", null],
  ]);
});

t.test("an acknowledged suspicion does not end a certain alarm, even if mirror.db is lost", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  appendLines(mirror.state, [
    { kind: "ack", gateway: "main", row: "row-2", certain: false, at: AT + 2 * HOUR },
    { kind: "ack", gateway: "main", row: "row-3", certain: true, at: AT + 2 * HOUR },
  ]);
  mirror.catchUp();
  page(db, [row(1), row(2), row(3)]);
  compareAll(mirror);
  t.same(all(db, "SELECT identity, verdict, certain, acknowledged_at FROM mirror.console_rows"), [
    ["row-1", "matched", 0, null],
    ["row-2", "foreign", 1, null],
    ["row-3", "foreign", 1, AT + 2 * HOUR],
  ]);
});

t.test("console rows and verdicts are deleted with the records that are no longer kept", async (t) => {
  const old = record(1, { started_at: AT - 48 * HOUR });
  // It ended after midnight, so it is in the journal as long as that day is.
  const late = record(2, { started_at: AT - MINUTE, ended_at: AT + MINUTE });
  const mirror = mirrorFile(t, [old]);
  const { db, state } = mirror;
  appendFileSync(join(state, "usage", `${dayOf(AT)}.jsonl`), lineOf(late) + lineOf(record(3)));
  mirror.catchUp();
  const rows = [
    row(1, { created_at: AT - 48 * HOUR }),
    row(2, { created_at: AT + MINUTE }),
    row(3),
    row(4, { created_at: AT - 47 * HOUR }),
  ];
  page(db, rows);
  compareAll(mirror);
  t.equal(content(db)["mirror.verdicts"].length, 3);
  t.notOk(pruneStep(db), "nothing is old yet");
  for (const { day, path } of journalFiles(join(state, "usage"))) if (day < dayOf(AT)) rmSync(path);
  mirror.catchUp();
  let steps = 0;
  while (pruneStep(db, 1)) steps += 1;
  t.equal(steps, 3);
  t.same(all(db, "SELECT identity FROM mirror.console_rows ORDER BY identity"), [["row-2"], ["row-3"]]);
  t.same(all(db, "SELECT record FROM mirror.verdicts"), [[late.id], [record(3).id]]);
});

t.test("a program that is killed between pages leaves whole pages, and no row twice", async (t) => {
  const { db, state } = mirrorFile(t);
  const program = join(import.meta.dirname, "write-pages.js");
  const child = spawn(process.execPath, [program, state], { stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  child.stdout.on("data", (chunk) => {
    printed += chunk;
    if (printed.split("\n").length > 4) child.kill("SIGKILL");
  });
  await once(child, "exit");
  const pages = Number(readCursor(db, "main"));
  t.ok(pages >= 3, `${pages} pages were written`);
  t.same(all(db, "SELECT count(*) FROM mirror.console_rows"), [[pages * 50]]);
  const again = Array.from({ length: pages * 50 }, (_, number) => row(number));
  t.same(page(db, again), { added: 0, changed: 0 });
});

function appendLines(state: string, lines: readonly object[]): void {
  const newest = journalFiles(join(state, "usage")).at(-1)?.path ?? "";
  appendFileSync(newest, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
}

t.test(
  "gaps in the log are bounded: the oldest become one, and nothing that was not covered is now",
  async (t) => {
    const { db } = mirrorFile(t);
    for (let hour = 0; hour < 150; hour += 1)
      t.ok(addLogGap(db, { from: AT + hour * HOUR, to: AT + hour * HOUR + MINUTE }));
    const gaps = readLogGaps(db);
    t.equal(gaps.length, 100);
    t.same(gaps[0], { from: AT, to: AT + 50 * HOUR + MINUTE });
    t.same(gaps.at(-1), { from: AT + 149 * HOUR, to: AT + 149 * HOUR + MINUTE });
  },
);
