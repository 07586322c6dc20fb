import t from "tap";
import { alarmRemedy } from "../../src/mirror/report/messages.ts";
import { EVERY_CONSOLE } from "../doubles/consoles/start-console.ts";
import { longTest, oneOf } from "../doubles/effort.ts";
import { consoleKey, DAY, fingerprint, HOUR, MINUTE, startJourney } from "../doubles/mirror-journey.ts";

const OUTSIDE = /used outside keybearer/;
const ROTATE = /keybearer tools rotate codex/;

for (const name of oneOf(EVERY_CONSOLE, "sub2api without ids")) {
  t.test(
    `${name}: a key that is used outside keybearer raises the alarm until it is acknowledged`,
    async (t) => {
      const journey = await startJourney(t, name);
      const certain = name !== "sub2api without ids";
      await journey.idle();
      for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
      journey.clock.pass(1000);
      const first = journey.clock.now();
      journey.elsewhere({ model: "stolen-a", dollars: 0.02 });
      await journey.sync();
      const young = await journey.mirror();
      t.equal(young.rows.pending, 1, "it is too recent to be called foreign");
      t.strictSame(young.alarms, []);

      journey.clock.pass(10_000);
      journey.elsewhere({ model: "stolen-b", dollars: 0.03 });
      journey.clock.pass(31_000);
      await journey.sync();
      const report = await journey.mirror();
      const { foreign_certain, foreign_suspected } = report.rows;
      t.strictSame(
        [foreign_certain, foreign_suspected],
        certain ? [2, 0] : [0, 2],
        JSON.stringify(report.rows),
      );
      const two = certain
        ? { foreign: 2, foreign_microdollars: 50_000, suspected: 0, suspected_microdollars: 0 }
        : { foreign: 0, foreign_microdollars: 0, suspected: 2, suspected_microdollars: 50_000 };
      t.match(report.tools, [{ tool: "codex", requests: 3, ...two }]);
      t.equal((await journey.diff()).filter(({ verdict }) => verdict === "foreign").length, 2);
      const alarm = {
        gateway: "main",
        key: fingerprint(journey.codex.key),
        certain,
        reason: String,
        tools: ["codex"],
        count: 2,
        models: ["stolen-a", "stolen-b"],
        billed_microdollars: 50_000,
        replaced: false,
      };
      t.match(report.alarms, [alarm]);
      t.match((await journey.status()).consoles, [{ alarms: [alarm] }]);
      t.ok(Math.abs((report.alarms[0]?.first_at ?? 0) - first) <= 1000, "its first time");
      t.ok(Math.abs((report.alarms[0]?.last_at ?? 0) - first - 10_000) <= 1000, "its last");
      const [line] = journey.logged(OUTSIDE);
      t.match(line, {
        level: certain ? "error" : "warn",
        msg: ROTATE,
        certain,
        fingerprint: alarm.key,
        tools: ["codex"],
        count: 2,
        models: alarm.models,
      });

      journey.clock.pass(MINUTE);
      await journey.sync();
      t.equal(journey.logged(OUTSIDE).length, 1, "a sync does not report it again");
      journey.clock.pass(DAY);
      await journey.sync();
      t.equal(journey.logged(OUTSIDE).length, 2, "a day later it is reported again");
      t.equal(await journey.ack(), 2);
      t.strictSame((await journey.mirror()).alarms, []);
      journey.clock.pass(DAY + HOUR);
      await journey.sync();
      t.equal(journey.logged(OUTSIDE).length, 2, "an acknowledged alarm is not reported again");
      t.strictSame((await journey.mirror()).alarms, []);

      journey.elsewhere({ model: "stolen-c", dollars: 0.01 });
      journey.clock.pass(31_000);
      await journey.sync();
      t.match(
        (await journey.mirror()).alarms,
        [{ certain, count: 1, models: ["stolen-c"] }],
        "a new row raises it again",
      );
      t.equal(journey.logged(OUTSIDE).length, 3);
    },
  );
}

t.test("a suspected use of a key with keys_elsewhere raises no alarm", async (t) => {
  const journey = await startJourney(t, "sub2api without ids", { tools: { codex: "keys_elsewhere: true" } });
  await journey.idle();
  await journey.ask();
  journey.clock.pass(MINUTE);
  journey.elsewhere();
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.match(report.rows, { foreign_suspected: 0, elsewhere: 1 });
  t.strictSame(report.alarms, []);
  t.strictSame(journey.logged(OUTSIDE), []);
});

longTest(t, "uses of keys with keys_elsewhere or watch_only are counted and raise no alarm", async (t) => {
  const journey = await startJourney(t, "sub2api", {
    tools: { codex: "keys_elsewhere: true", cursor: "watch_only: true", scripts: "" },
  });
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  await journey.ask({}, { tool: "scripts" });
  journey.elsewhere();
  journey.elsewhere({ key: journey.caller("cursor").key });
  journey.elsewhere({ key: journey.caller("cursor").key });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.strictSame(report.alarms, []);
  t.strictSame(journey.logged(OUTSIDE), []);
  t.equal(report.rows.by_id, 2);
  t.match(report.elsewhere, [
    { tool: "codex", day: 1, day_microdollars: 20_000 },
    { tool: "cursor", day: 2, day_microdollars: 40_000 },
  ]);

  await journey.edit(journey.config({ tools: { codex: "", cursor: "watch_only: true", scripts: "" } }));
  await journey.sync();
  t.match(
    (await journey.mirror()).alarms,
    [{ tools: ["codex"], count: 1 }],
    "without keys_elsewhere it is a leak",
  );
});

longTest(t, "a key that no tool has raises no alarm", async (t) => {
  const stranger = consoleKey();
  const journey = await startJourney(t, "sub2api", {
    before: (console) => void console.addKey({ name: "phone", key: stranger }),
  });
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  journey.elsewhere({ key: stranger });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.strictSame([report.rows.total, report.rows.foreign_certain], [1, 0]);
  t.strictSame(report.alarms, []);
  const { keys } = await journey.keys();
  t.match(
    keys.find(({ name }) => name === "phone"),
    { tools: [], key: fingerprint(stranger) },
  );
  t.match(
    keys.find(({ name }) => name === "codex"),
    { tools: ["codex"] },
  );
  t.notOk(JSON.stringify(keys).includes(stranger));
});

for (const name of oneOf(["sub2api", "new-api v1.0.0-rc.25"] as const, "sub2api")) {
  t.test(`${name}: a key that was replaced here and is still used raises the alarm`, async (t) => {
    const next = consoleKey();
    const journey = await startJourney(t, name, {
      before: (console) => void console.addKey({ name: "codex-new", key: next }),
    });
    await journey.idle();
    await journey.ask();
    journey.clock.pass(MINUTE);
    await journey.sync();
    await journey.edit(journey.config({ tools: { codex: `key: ${next}` } }));
    journey.clock.pass(MINUTE);
    await journey.ask();
    journey.elsewhere();
    journey.clock.pass(MINUTE);
    await journey.sync();
    const report = await journey.mirror();
    t.match(report.alarms, [
      { key: fingerprint(journey.codex.key), tools: ["codex"], count: 1, replaced: true },
    ]);
    t.equal(report.rows.by_id, 2, JSON.stringify(report.rows));
    t.match(journey.logged(OUTSIDE), [
      { msg: /if the console still lists this one: keybearer keys delete …/ },
    ]);
    const { console } = journey;
    const old = console.keys.find(({ key }) => key === journey.codex.key);
    if (old === undefined) throw new Error("the old key is not in the account");
    console.deleteKey(old);
    journey.clock.pass(MINUTE);
    await journey.sync();
    const [alarm] = (await journey.mirror()).alarms;
    if (alarm === undefined) throw new Error("there is no alarm");
    t.equal(alarm.unlisted, true);
    t.match(alarmRemedy(alarm, String), /^the console does not list this key any more/);
  });
}

longTest(t, "the key of a tool that was removed from config.yaml raises no alarm", async (t) => {
  const journey = await startJourney(t, "sub2api", { tools: { codex: "", scripts: "" } });
  await journey.idle();
  await journey.ask({}, { tool: "scripts" });
  await journey.ask();
  journey.clock.pass(MINUTE);
  await journey.sync();
  await journey.edit(journey.config({ tools: { codex: "" } }));
  journey.clock.pass(MINUTE);
  journey.elsewhere({ key: journey.caller("scripts").key });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.strictSame(report.alarms, [], JSON.stringify(report.rows));
  t.strictSame([report.rows.by_id, report.rows.unwatched], [2, 1]);
});

for (const name of oneOf(EVERY_CONSOLE, "new-api v1.0.0-rc.25")) {
  t.test(`${name}: rows from before the first sync raise no alarm`, async (t) => {
    const journey = await startJourney(t, name, {
      before(console, { codex }) {
        const use = { model: "m", stream: false, input: 5, output: 5, dollars: 0.01, key: codex?.key ?? "" };
        for (const ago of [20 * DAY, 2 * DAY, HOUR]) console.bill({ ...use, at: 1_800_000_000_000 - ago });
      },
    });
    await journey.idle();
    await journey.ask();
    journey.clock.pass(MINUTE);
    await journey.sync();
    const { rows, alarms } = await journey.mirror();
    t.strictSame(
      [rows.before, rows.foreign_certain, rows.foreign_suspected],
      [3, 0, 0],
      JSON.stringify(rows),
    );
    t.strictSame(alarms, []);
  });
}
