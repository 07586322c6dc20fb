import t from "tap";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { type ConsoleName, startConsole } from "../doubles/consoles/start-console.ts";
import {
  consoleKey,
  DAY,
  fingerprint,
  MINUTE,
  type MirrorJourney,
  startJourney,
} from "../doubles/mirror-journey.ts";

const USE = { model: "m", stream: false, input: 40, output: 9, dollars: 0.02 };

/** Saves config.yaml and runs `keybearer trust` where it is needed. */
async function editAndTrust(journey: MirrorJourney, text: string): Promise<void> {
  await journey.edit(text);
  await journey.sync();
  const { tools, consoles } = await journey.status();
  if (![...tools, ...consoles].some(({ state }) => state === "needs-trust")) return;
  await journey.control("POST", "/trust/main", await journey.control("GET", "/held/main"));
  await journey.sync();
}

async function syncedLater(journey: MirrorJourney): Promise<void> {
  journey.clock.pass(MINUTE);
  await journey.sync();
}

function configOf(journey: MirrorJourney, to: ConsoleDouble, key: string): string {
  const text = journey.config({ tools: { codex: `key: ${key}` }, console: to.config });
  return text.replace(`base_url: ${journey.console.url}/`, `base_url: ${to.url}/`);
}

const MOVES: readonly (readonly [ConsoleName, ConsoleName])[] = [
  ["sub2api", "new-api v1.0.0-rc.25"],
  ["sub2api", "sub2api"],
  ["one-api", "sub2api"],
];

for (const [name, next] of MOVES) {
  t.test(`${name} to ${next}: a gateway that moves starts over, and its old alarm stays`, async (t) => {
    const journey = await startJourney(t, name);
    const { codex, clock } = journey;
    await journey.idle();
    clock.pass(MINUTE);
    for (let n = 0; n < 4; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
    journey.elsewhere({ model: "stolen" });
    await syncedLater(journey);
    const old = { key: fingerprint(codex.key), count: 1, models: ["stolen"] };
    t.match(await journey.mirror(), { rows: { by_id: 4 }, alarms: [old] });

    // Its ids start over: our key's id there belongs to another key here.
    const other = await startConsole(t, next, { now: clock.now });
    const [phone, key] = [consoleKey(), consoleKey()];
    other.addKey({ name: "phone", key: phone });
    other.addKey({ name: "codex", key });
    for (let n = 0; n < 3; n += 1) other.bill({ ...USE, key, at: clock.now() - n * MINUTE });
    clock.pass(MINUTE);
    await editAndTrust(journey, configOf(journey, other, key));
    t.equal((await journey.idle()).state, "ok");
    for (let n = 0; n < 5; n += 1) other.bill({ ...USE, key: phone });
    await syncedLater(journey);
    const moved = await journey.mirror();
    t.match(moved.alarms, [old], "nothing but the old alarm");
    t.equal(moved.alarms.length, 1);
    t.match(moved.rows, { by_id: 0, before: 3, foreign_certain: 1, foreign_suspected: 0 });
    t.match(moved.records, { matched: 0, differs: 0, missing: 0 });
    t.equal(moved.tools.find(({ tool }) => tool === "codex")?.theirs_microdollars ?? null, null);

    await journey.ask();
    other.bill({ ...USE, key, model: "stolen-again" });
    await syncedLater(journey);
    const again = await journey.mirror();
    t.match(again.rows, { by_id: 1, foreign_certain: 2 }, "the new one is watched");
    t.strictSame(
      new Map(again.alarms.map(({ key, models }) => [key, models])),
      new Map([
        [fingerprint(key), ["stolen-again"]],
        [fingerprint(codex.key), ["stolen"]],
      ]),
    );
    t.equal(await journey.ack(), 2);
    await syncedLater(journey);
    t.strictSame((await journey.mirror()).alarms, [], "both are acknowledged");

    await editAndTrust(journey, journey.config());
    t.equal((await journey.idle()).state, "ok");
    t.strictSame((await journey.mirror()).alarms, [], "after the way back, older rows raise no alarm");
    clock.pass(MINUTE);
    await journey.ask();
    journey.elsewhere({ model: "stolen-last" });
    await syncedLater(journey);
    const back = await journey.mirror();
    t.match(back.alarms, [{ key: old.key, count: 1, models: ["stolen-last"] }]);
    t.equal(back.alarms.length, 1);
    t.match(back, { rows: { by_id: 5, before: 1 }, records: { missing: 0 } }, "ours are known by their ids");
  });
}

t.test("the same console under the same name does not start over after an edit", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  await journey.ask();
  await syncedLater(journey);
  for (const gateway of [["websockets: true"], ["timeouts: { connect: 5s }"], []])
    await editAndTrust(journey, journey.config({ gateway }));
  await editAndTrust(
    journey,
    journey.config({ console: [...journey.console.config, 'schedule: "*/7 * * * *"'] }),
  );
  await syncedLater(journey);
  t.match(await journey.mirror(), { rows: { by_id: 1, before: 0 }, records: { matched: 1 } });
  t.strictSame(journey.logged(/another one than before/), []);
});

t.test("a console that was added while the clock was ahead is watched", async (t) => {
  const journey = await startJourney(t, "sub2api");
  const { clock } = journey;
  await journey.idle();
  await journey.ask();
  await syncedLater(journey);
  const other = await startConsole(t, "sub2api", { now: clock.now });
  const key = consoleKey();
  other.addKey({ name: "codex", key });
  await editAndTrust(journey, configOf(journey, other, key));
  clock.pass(-30 * DAY);
  await syncedLater(journey);
  clock.pass(MINUTE);
  await journey.ask();
  other.bill({ ...USE, key, model: "stolen" });
  await syncedLater(journey);
  const { alarms, watched_since, rows } = await journey.mirror();
  t.match(alarms, [{ key: fingerprint(key), count: 1 }], JSON.stringify(rows));
  t.ok((watched_since ?? 0) <= clock.now(), "not from the future");
  other.logging = false;
  for (let n = 0; n < 3; n += 1) await journey.ask();
  clock.pass(20 * MINUTE);
  await journey.sync();
  t.match(await journey.mirror(), { records: { missing: 3 }, state: "cannot-see" });
});
