import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { Slips } from "../../../src/usage/ledger/writing/slips.ts";
import type { Opening } from "../../../src/usage/record.ts";
import { slipOf } from "../../doubles/records.ts";
import { until } from "../../doubles/until.ts";
import {
  closing,
  isSound,
  type LedgerUnderTest,
  newFolder,
  opening,
  recordsIn,
  startLedger,
  turn,
} from "./ledger-under-test.ts";

const slipsOf = (file: string) => `${file}-slips`;
const notedIn = (file: string) => readFileSync(slipsOf(file), "utf8");
const idsIn = (file: string) => recordsIn(file).map(({ id }) => id);

/** One was opened just now: those that follow do not wait for the log. */
async function busy({ ledger }: LedgerUnderTest): Promise<void> {
  await ledger.open(opening());
}

t.test("where little goes on, a record is in the log before its request is let through", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening();
  t.equal(await ledger.open(one), true);
  t.match(recordsIn(file), [{ id: one.id, end: null }]);
  t.equal(notedIn(file), "");
});

t.test("under load it is on disk at once, in the log soon, and never in both for long", async (t) => {
  const under = startLedger(t);
  const { ledger, file } = under;
  await busy(under);
  const one = opening();
  t.equal(ledger.open(one), true, "nobody waits");
  t.notOk(idsIn(file).includes(one.id));
  t.match(notedIn(file), one.id);
  t.equal(statSync(slipsOf(file)).mode & 0o777, 0o600);
  await until("it is in the log", () => idsIn(file).includes(one.id));
  t.equal(notedIn(file), "");
  t.match(recordsIn(file)[1], { ...one, end: null });
  ledger.close(one.id, closing());
  await turn();
  t.match(recordsIn(file)[1], { ...one, ...closing({ ended_at: null, model: one.model }), ended_at: Number });
});

t.test("a record that ends before it was in the log is the same as one that was in it", async (t) => {
  const under = startLedger(t);
  const { ledger, file } = under;
  const given: Partial<Opening> = { process: "node", waited_ms: 7, held_tokens: 100, admitted_at: 5 };
  const end = closing({ first_byte_at: Date.now(), model: "asked later", counts: true, counted_tokens: 5 });
  const slow = opening(given);
  await ledger.open(slow);
  ledger.close(slow.id, end);
  const quick = opening({ ...given, started_at: slow.started_at });
  t.equal(ledger.open(quick), true);
  ledger.close(quick.id, end);
  await turn();
  const [first, second] = recordsIn(file);
  t.match(second, { id: quick.id, model: "asked later", end: "complete", counts: true });
  t.same({ ...second, id: "" }, { ...first, id: "" });
});

t.test("records stand in the order in which they began, whichever ended first", async (t) => {
  const under = startLedger(t);
  const { ledger, file } = under;
  await busy(under);
  const all = [opening(), opening(), opening()];
  for (const one of all) t.equal(ledger.open(one), true);
  for (const one of [...all].reverse()) ledger.close(one.id, closing());
  await turn();
  t.same(
    idsIn(file).slice(1),
    all.map(({ id }) => id),
  );
});

t.test(
  "what a killed process noted is interrupted at the next start, once, and nothing else is",
  async (t) => {
    const file = join(newFolder(t), "usage.db");
    const before = startLedger(t, { file });
    const done = opening();
    await before.ledger.open(done);
    before.ledger.close(done.id, closing());
    await before.ledger.stop();
    t.same(readdirSync(dirname(file)), ["usage.db"], "a clean end leaves nothing behind");
    const odd = opening({ tool: 'a "quoted" tool', endpoint: "/v1/…\n", group: null, held_tokens: 12 });
    const cut = slipOf(opening());
    writeFileSync(
      slipsOf(file),
      `${slipOf(done)}${slipOf(odd)}${slipOf(odd)}\nnull\n[]\n7\n{"id":5}\n\0\0${cut.slice(0, -9)}`,
    );
    const { ledger, log } = startLedger(t, { file });
    t.match(
      recordsIn(file).map(({ id, end }) => ({ id, end })),
      [
        { id: done.id, end: "complete" },
        { id: odd.id, end: "interrupted" },
      ],
    );
    t.match(recordsIn(file)[1], { ...odd, ended_at: null, tokens_from: "none" });
    t.match(log(), /"records":1.*cut off when keybearer last ended/);
    t.ok(isSound(file));
    await ledger.stop();
    const again = startLedger(t, { file });
    t.equal(recordsIn(file).length, 2);
    t.notMatch(again.log(), /cut off/);
  },
);

t.test("slips that are taken away or replaced are noticed, and nothing is missing", async (t) => {
  for (const how of ["gone", "replaced"] as const) {
    const under = startLedger(t);
    const { ledger, file, log } = under;
    await busy(under);
    const [one, other] = [opening(), opening()];
    t.equal(ledger.open(one), true);
    rmSync(slipsOf(file));
    if (how === "replaced") writeFileSync(slipsOf(file), "somebody else's");
    t.equal(ledger.open(other), true);
    await until("it is noticed", () => ledger.state().warnings.length > 0);
    t.match(ledger.state().warnings, [/usage\.db-slips (is gone|was replaced).*nothing is missing/], how);
    t.ok(idsIn(file).includes(one.id) && idsIn(file).includes(other.id));
    await until("it goes on", () => ledger.open(opening()) === true);
    t.notMatch(log(), /does not take|lost/);
    await ledger.stop();
  }
});

t.test("where nothing can be noted, requests wait for the log, and it is said", async (t) => {
  for (const what of ["folder", "link", "something large"] as const) {
    const file = join(newFolder(t), "usage.db");
    if (what === "folder") mkdirSync(slipsOf(file));
    else if (what === "link") {
      writeFileSync(`${file}.theirs`, "theirs");
      symlinkSync(`${file}.theirs`, slipsOf(file));
    } else writeFileSync(slipsOf(file), Buffer.alloc(65 * 1024 * 1024));
    const under = startLedger(t, { file });
    await busy(under);
    const opened = under.ledger.open(opening());
    t.ok(opened instanceof Promise, what);
    t.equal(await opened, true);
    t.match(under.log(), /wait longer for their records/);
    if (what === "link") t.equal(readFileSync(`${file}.theirs`, "utf8"), "theirs");
    await under.ledger.stop();
    t.ok(statSync(slipsOf(file)), "and it is left as it is");
  }
});

t.test("what is to survive a power cut is never only noted", async (t) => {
  const under = startLedger(t, { sync: "full" });
  await busy(under);
  const opened = under.ledger.open(opening());
  t.ok(opened instanceof Promise);
  t.equal(await opened, true);
  t.throws(() => notedIn(under.file), /ENOENT/);
});

t.test("slips of somebody who died while writing one do not swallow the next", async (t) => {
  const file = join(newFolder(t), "usage.db");
  const one = opening();
  writeFileSync(slipsOf(file), '\n{"id":"01J');
  appendFileSync(slipsOf(file), slipOf(one));
  startLedger(t, { file });
  t.same(idsIn(file), [one.id]);
});

t.test("what was noted is entered also by a run that notes nothing", async (t) => {
  const file = join(newFolder(t), "usage.db");
  const one = opening();
  writeFileSync(slipsOf(file), slipOf(one), { mode: 0o600 });
  const { ledger } = startLedger(t, { file, sync: "full" });
  t.match(recordsIn(file), [{ id: one.id, end: "interrupted" }]);
  await ledger.stop();
  t.same(readdirSync(dirname(file)), ["usage.db"]);
});

const noProc = existsSync("/proc/self/fd") ? false : "this system does not tell which files are open";

t.test("a log that is deleted again and again leaves no slips open", { skip: noProc }, async (t) => {
  const { ledger, file } = startLedger(t);
  const open = () =>
    readdirSync("/proc/self/fd").filter((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`).includes("usage.db-slips");
      } catch {
        return false;
      }
    }).length;
  for (let n = 0; n < 3; n += 1) {
    for (const side of ["", "-wal", "-shm", "-slips"]) rmSync(file + side, { force: true });
    await until("a new one is there", () => existsSync(file) && ledger.state().aside.length === 0);
    t.equal(await ledger.open(opening()), true);
  }
  t.ok(open() <= 1, `${open()} are open`);
});

t.test("slips that cannot be emptied do not grow for ever", async (t) => {
  const file = join(newFolder(t), "usage.db");
  writeFileSync(slipsOf(file), Buffer.alloc(33 * 1024 * 1024, "\n"), { mode: 0o600 });
  const slips = Slips.open(file);
  t.equal(slips.note(opening()), false);
  slips.clear();
  t.equal(slips.note(opening()), true);
  slips.close();
  slips.close();
});
