import t from "tap";
import type { Fault } from "../doubles/consoles/console-double.ts";
import { EVERY_CONSOLE } from "../doubles/consoles/start-console.ts";
import { startSub2api } from "../doubles/consoles/sub2api.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { HOUR, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

const STATES: readonly (readonly [Fault, RegExp])[] = [
  ["html", /^not-a-console$/],
  ["401", /^login-(needed|refused)$/],
  ["429", /^rate-limited$/],
  ["empty", /^not-a-console$/],
  ["shape", /^(other-shape|not-a-console)$/],
  ["data", /^other-shape$/],
  ["cut", /^unreachable$/],
  ["redirect", /^not-a-console$/],
  ["500", /^failing$/],
];

/** Those that a person must end, and those that are tried again by themselves. */
const BY_A_PERSON = /login|not-a-console|other-shape/;

for (const name of EVERY_CONSOLE) {
  t.test(`${name}: each fault of the console has its state, and requests are served as before`, async (t) => {
    const journey = await startJourney(t, name);
    await journey.idle();
    const usual = await journey.ask();
    journey.clock.pass(MINUTE);
    for (const [fault, expected] of STATES) {
      // A password that was refused is not sent again for a day.
      journey.clock.pass(25 * HOUR);
      const before = await journey.sync();
      t.equal(before.state, "ok", `before ${fault}: ${before.why}`);
      journey.console.fault = fault;
      journey.clock.pass(15 * MINUTE);
      const status = await journey.sync();
      t.match(status.state, expected, `${fault}: ${status.state}, ${status.why}`);
      t.ok(status.why?.startsWith("the console "), `${status.why}`);
      t.equal(status.next !== null, BY_A_PERSON.test(status.state), `${fault}: ${status.next}`);
      t.equal(status.last_sync, before.last_sync, "the time of the last sync stays");
      t.ok((status.next_sync ?? 0) >= journey.clock.now() + MINUTE, "the next sync is not soon");
      const answer = await journey.ask();
      t.strictSame([answer.status, answer.text.length], [200, usual.text.length]);
      t.match((await journey.mirror()).blind[0], /since the last sync/, "the report names the blind time");
      journey.console.fault = null;
    }
    journey.clock.pass(30 * MINUTE);
    t.equal((await journey.sync()).state, "ok");
    journey.console.fault = "slow";
    await journey.control("POST", "/sync/main", {});
    await until("it was asked", () =>
      journey.status().then(({ consoles }) => consoles[0]?.state === "syncing"),
    );
    t.equal((await journey.ask()).status, 200, "no request waits for a slow console");
    journey.console.fault = null;
    t.equal((await journey.idle()).state, "ok");
    t.strictSame(journey.console.thief.seen, [], "no redirect was followed");
    journey.clock.pass(20 * MINUTE);
    await journey.sync();
    const { rows, records } = await journey.mirror();
    t.strictSame(
      [rows.foreign_certain, rows.foreign_suspected, records.missing],
      [0, 0, 0],
      JSON.stringify(rows),
    );
    t.equal(records.matched, 2 + STATES.length, "requests during the faults are matched");
  });
}

t.test("asking for the keys again does not call a failing console again", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  journey.console.fault = "500";
  journey.clock.pass(2 * MINUTE);
  await journey.sync();
  const before = journey.console.asked.length;
  for (let n = 0; n < 5; n += 1) {
    journey.clock.pass(2000);
    const { problems } = await journey.keys();
    t.match(problems, [{ gateway: "main", why: /the console/ }]);
  }
  t.equal(journey.console.asked.length, before);
});

t.test("an expired login is renewed; a refused password is not tried again", async (t) => {
  const clock = heldClock();
  const double = await startSub2api(t, { now: clock.now });
  const journey = await startBeside(t, double, clock);
  await journey.idle();
  double.endSessions("access");
  t.equal((await journey.sync()).state, "ok");
  double.endSessions("all");
  journey.clock.pass(30 * MINUTE);
  t.equal((await journey.sync()).state, "ok", "with the password of config.yaml");
  const wrong = double.config.map((line) => line.replace(double.login.password, "wrong-password"));
  await journey.edit(journey.config({ console: wrong }));
  double.endSessions("all");
  const status = await journey.sync();
  t.equal(status.state, "login-refused", status.why ?? "");
  t.equal(status.next, "keybearer mirror login main");
  const asked = double.asked.filter(({ path }) => path.endsWith("/auth/login")).length;
  for (let n = 0; n < 4; n += 1) {
    journey.clock.pass(10 * MINUTE);
    await journey.sync();
  }
  const again = double.asked.filter(({ path }) => path.endsWith("/auth/login")).length;
  t.ok(again - asked <= 1, `a refused password is not sent again: ${again - asked} more`);
});
