import t, { type Test } from "tap";
import { command } from "../doubles/command.ts";
import type { ConsoleName } from "../doubles/consoles/start-console.ts";
import {
  consoleKey,
  DAY,
  fingerprint,
  MINUTE,
  type MirrorJourney,
  startJourney,
} from "../doubles/mirror-journey.ts";
import { atTerminal, hasTerminal } from "../doubles/terminal.ts";

const OUTSIDE = /used outside keybearer/;

/** One request through the daemon, and then this many past it. */
async function stolen(journey: MirrorJourney, count = 1): Promise<void> {
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  journey.clock.pass(MINUTE);
  for (let n = 0; n < count; n += 1) journey.elsewhere({ model: "stolen" });
  journey.clock.pass(MINUTE);
  await journey.sync();
}

const counts = async (journey: MirrorJourney) =>
  (await journey.mirror()).alarms.map(({ key, count }) => [key, count]);

async function acknowledge(t: Test, journey: MirrorJourney): Promise<void> {
  if (!hasTerminal(t)) {
    t.equal(await journey.ack(), 1);
    return;
  }
  const ack = atTerminal(t, journey.home, "mirror", "ack", "main");
  await ack.says(/acknowledge this\?/);
  ack.child.stdin?.write("yes\r");
  t.match(await ack.ended, { code: 0, stdout: /acknowledged 1 row/ });
}

t.test("an alarm stays while its key, its tool or its console is not in config.yaml", async (t) => {
  const journey = await startJourney(t, "sub2api", { tools: { codex: "", other: "" } });
  await stolen(journey);
  const standing = [[fingerprint(journey.codex.key), 1]];
  t.strictSame(await counts(journey), standing);

  const edits = [
    ["another key", journey.config({ tools: { codex: `key: ${consoleKey()}`, other: "" } })],
    ["no such tool", journey.config({ tools: { other: "" } })],
    ["a tool that is off", journey.config({ tools: { codex: "enabled: false", other: "" } })],
  ] as const;
  for (const [name, text] of edits) {
    for (const [when, saved] of [
      [name, text],
      [`${name}, and back`, journey.config()],
    ] as const) {
      await journey.edit(saved);
      journey.clock.pass(MINUTE);
      await journey.sync();
      t.strictSame(await counts(journey), standing, when);
    }
  }

  await journey.edit(journey.config({ console: [] }));
  t.match((await journey.status()).consoles, [
    { gateway: "main", state: "cannot-see", why: /no console/, next: /ack main/, alarms: [{ count: 1 }] },
  ]);
  t.strictSame(await counts(journey), standing, "no console any more");
  const told = await command(t, journey.home, ["mirror"]);
  t.match(told, { code: 1, stdout: OUTSIDE });
  await journey.edit(journey.config());
  await journey.sync();
  t.strictSame(await counts(journey), standing, "the console is back");

  await journey.edit(journey.config({ console: [] }));
  await acknowledge(t, journey);
  t.strictSame((await journey.status()).consoles, [], "it was acknowledged without a console");
  await journey.edit(journey.config());
  await journey.sync();
  t.strictSame(await counts(journey), [], "it stays acknowledged");
});

t.test("an alarm is repeated every day while the console fails", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await stolen(journey);
  t.equal(journey.logged(OUTSIDE).length, 1);
  journey.console.fault = "500";
  for (let day = 1; day <= 3; day += 1) {
    journey.clock.pass(DAY);
    await journey.sync();
    await journey.sync();
    t.equal(journey.logged(OUTSIDE).length, 1 + day);
  }
});

t.test("an alarm stays when the clock is set back to before it", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await stolen(journey);
  for (const back of [2 * MINUTE, 60 * MINUTE, 3 * DAY]) {
    journey.clock.pass(-back);
    await journey.sync();
    t.strictSame(await counts(journey), [[fingerprint(journey.codex.key), 1]], `by ${back} ms`);
  }
});

interface ClockCase {
  readonly name: ConsoleName;
  /** The console's clock was right. */
  readonly alone: boolean;
}

const CLOCKS: readonly ClockCase[] = [
  { name: "sub2api", alone: true },
  { name: "new-api v0.13.2", alone: false },
  { name: "sub2api", alone: false },
  { name: "new-api v1.0.0-rc.25", alone: true },
  { name: "one-api", alone: true },
];

for (const { name, alone } of CLOCKS) {
  const whose = alone ? "this machine's clock was" : "the clocks of both sides were";
  t.test(`${name}: a leak is seen after ${whose} ahead and set right`, async (t) => {
    const journey = await startJourney(t, name, {
      before: (console) => {
        console.skew = alone ? -30 * DAY : 0;
      },
    });
    await journey.idle();
    journey.clock.pass(MINUTE);
    await journey.ask();
    journey.clock.pass(MINUTE);
    await journey.sync();
    journey.console.fault = "500";
    await journey.sync();
    journey.clock.pass(-30 * DAY);
    journey.console.skew = 0;
    journey.console.fault = null;
    await journey.keys();
    t.equal((await journey.idle()).state, "ok", "the next sync does not wait for the wrong time");

    await stolen(journey, 2);
    const { rows, alarms, watched_since, last_sync } = await journey.mirror();
    t.match(alarms, [{ tools: ["codex"], count: 2, models: ["stolen"] }], JSON.stringify(rows));
    const now = journey.clock.now();
    t.ok((watched_since ?? 0) <= now && (last_sync ?? 0) <= now, "no time is in the future");
    // Long enough that the missing requests cannot be those rows.
    journey.clock.pass(15 * MINUTE);
    journey.console.logging = false;
    for (let n = 0; n < 3; n += 1) await journey.ask();
    journey.clock.pass(20 * MINUTE);
    await journey.sync();
    t.match(await journey.mirror(), { records: { missing: 3 }, state: "cannot-see", alarms: [{ count: 2 }] });
  });
}

t.test("keys_elsewhere of one key does not count for another with the same last letters", async (t) => {
  const [mine, shared] = [consoleKey().slice(0, -4), consoleKey().slice(0, -4)].map((key) => `${key}2026`);
  const journey = await startJourney(t, "sub2api", {
    tools: { codex: `key: ${mine}`, laptop: `key: ${shared}, keys_elsewhere: true` },
    before(console) {
      console.addKey({ name: "mine", key: mine ?? "" });
      console.addKey({ name: "shared", key: shared ?? "" });
    },
  });
  await journey.idle();
  journey.clock.pass(MINUTE);
  t.equal((await journey.ask()).status, 200);
  for (let n = 0; n < 3; n += 1) journey.elsewhere({ key: mine ?? "", model: "stolen" });
  journey.clock.pass(MINUTE);
  await journey.sync();
  t.match((await journey.mirror()).alarms, [{ key: "…2026", count: 3, models: ["stolen"] }]);
});

t.test("an acknowledgement of other rows than were shown changes nothing", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await stolen(journey);
  const [shown] = (await journey.mirror()).alarms;
  // Listed late, and older than what was shown.
  journey.elsewhere({ model: "late", at: journey.clock.now() - 90_000 });
  await journey.sync();
  const { gateway = null, key = null, certain = null, last_at = null, count = null } = shown ?? {};
  const heard = { gateway, key, certain, last_at, count };
  t.strictSame(await journey.control("POST", "/ack", heard), { acknowledged: null });
  t.strictSame(await counts(journey), [[key, 2]]);
  t.strictSame(await journey.control("POST", "/ack", { ...heard, count: 2 }), { acknowledged: 2 });
  t.strictSame(await counts(journey), []);
});

t.test(
  "uses with keys_elsewhere or watch_only are not foreign, and the report names keys that no tool has any more",
  async (t) => {
    const journey = await startJourney(t, "sub2api", {
      tools: { codex: "", cursor: "watch_only: true", laptop: "keys_elsewhere: true", old: "" },
    });
    await journey.idle();
    journey.clock.pass(MINUTE);
    await journey.ask();
    for (const tool of ["cursor", "cursor", "laptop"]) journey.elsewhere({ key: journey.caller(tool).key });
    journey.clock.pass(MINUTE);
    await journey.sync();
    const report = await journey.mirror();
    t.match(report.rows, { total: 4, by_id: 1, elsewhere: 3, foreign_certain: 0, foreign_suspected: 0 });
    t.strictSame(
      report.tools.filter(({ foreign, suspected }) => foreign + suspected > 0),
      [],
    );
    t.strictSame(await journey.diff(), []);
    t.match(report.elsewhere, [
      { tool: "cursor", day: 2 },
      { tool: "laptop", day: 1 },
    ]);

    const old = fingerprint(journey.caller("old").key);
    t.notMatch(report.blind.join("\n"), old);
    const { codex, cursor } = { codex: "", cursor: "watch_only: true" };
    await journey.edit(journey.config({ tools: { codex, cursor, laptop: "keys_elsewhere: true" } }));
    await journey.sync();
    t.match((await journey.mirror()).blind.join("\n"), `keys that no tool here has any more: ${old}`);
  },
);
