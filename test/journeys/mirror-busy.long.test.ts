import t, { type Test } from "tap";
import type { Changed } from "../../src/control/routes.ts";
import type { KeyChange } from "../../src/lifecycle/lifecycle.ts";
import type { KeysAnswer } from "../../src/mirror/report/shape.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { HOUR, MINUTE, type MirrorJourney, startBeside } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

/** A new-api that counts calls, and whose account had so many requests in the last hour. */
async function startBusy(t: Test, rows: number): Promise<MirrorJourney> {
  const clock = heldClock();
  const console = await startNewApi(t, { now: clock.now, limits: true, version: "v0.13.2" });
  return startBeside(t, console, clock, {
    before: (console, { codex }) => {
      for (let row = rows; row > 0; row -= 1) {
        const at = clock.now() - Math.floor((row * HOUR) / rows);
        const use = { key: codex?.key ?? "", model: "m", stream: false, input: 40, output: 9, dollars: 0.02 };
        console.bill({ ...use, at });
      }
    },
  });
}

t.test("on an account with 4,000 rows an hour, a sync costs a few calls", async (t) => {
  const journey = await startBusy(t, 4000);
  const { console, clock } = journey;
  await journey.idle();
  const { total } = (await journey.mirror()).rows;
  const calls: number[] = [];
  for (let minute = 0; minute < 3; minute += 1) {
    clock.pass(MINUTE);
    for (let row = 0; row < 67; row += 1) journey.elsewhere();
    const before = console.asked.length;
    t.equal((await journey.sync()).state, "ok");
    calls.push(console.asked.length - before);
  }
  t.ok(Math.max(...calls) <= 7, `${calls.join(", ")} calls`);
  t.equal((await journey.mirror()).rows.total, total + 3 * 67, "and every row is read");
});

t.test("keys are listed and rotated while a sync waits for the console's limit", async (t) => {
  const journey = await startBusy(t, 14_000);
  const { console, codex } = journey;
  const waiting = async () => (await journey.status()).consoles[0]?.limited_until?.rows ?? null;
  await until("the sync waits for the limit", async () => (await waiting()) !== null);
  const { keys, problems } = await journey.control<KeysAnswer>("POST", "/refreshkeys", {});
  t.match(keys, [{ name: "codex", tools: ["codex"] }]);
  t.strictSame(problems, []);
  const changed = await journey.control<Changed<KeyChange>>("POST", "/rotate/codex", {
    store: "file",
    force: false,
  });
  t.match(changed, { ok: true, value: { state: "done", why: null } });
  t.notOk(
    console.keys.some(({ key }) => key === codex.key),
    "the old key is deleted",
  );
  t.match((await journey.status()).consoles, [{ state: "syncing" }], "the sync still waits");
});
