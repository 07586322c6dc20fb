import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";

const URL = "https://gateway.example.com/v1";
const MINUTE = 60_000;

t.test("processes share 16 calls in 20 minutes for each origin, also after a restart", async (t) => {
  let now = 1_794_874_660_000;
  const file = join(t.testdir(), "state", "key-calls.json");
  const daemon = new KeyCallBudgets(() => now, file);
  for (let n = 0; n < 10; n += 1) t.ok(daemon.of(URL).take());
  await daemon.saved();
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.notMatch(readFileSync(file, "utf8"), /sk-/);

  now += MINUTE;
  const command = new KeyCallBudgets(() => now, file);
  t.equal(command.of("https://gateway.example.com").left(), 6, "the path does not matter");
  t.equal(command.of("https://other.example.com/v1").left(), 16);
  while (command.of(URL).take());
  await command.saved();
  t.equal(daemon.of(URL).left(), 0, "the daemon learns of them");
  t.equal(daemon.of(URL).take(), false);
  t.equal(daemon.of(URL).wait(), 19 * MINUTE);

  now += 19 * MINUTE;
  t.equal(new KeyCallBudgets(() => now, file).of(URL).left(), 10);
});

t.test("a damaged file is an empty budget, and is replaced", async (t) => {
  const texts = [
    "",
    "{",
    "[]",
    "null",
    '{"https://gateway.example.com":[1,2]}',
    '{"https://gateway.example.com":{"a":"b"}}',
  ];
  for (const text of texts) {
    const file = join(t.testdir(), "key-calls.json");
    writeFileSync(file, text);
    const budgets = new KeyCallBudgets(() => 1_794_874_660_000, file);
    t.equal(budgets.of(URL).left(), 16, text);
    budgets.of(URL).spend();
    await budgets.saved();
    t.equal(new KeyCallBudgets(() => 1_794_874_660_000, file).of(URL).left(), 15, text);
  }
});

t.test("a process that cannot write the file still counts its own calls", async (t) => {
  const file = t.testdir();
  const budgets = new KeyCallBudgets(() => 1_794_874_660_000, file);
  while (budgets.of(URL).take());
  await budgets.saved();
  t.equal(budgets.of(URL).left(), 0);
});
