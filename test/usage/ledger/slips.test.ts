import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
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
