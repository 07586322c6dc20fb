import t, { type Test } from "tap";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { HOUR, type JourneyOptions, MINUTE, startBeside } from "../doubles/mirror-journey.ts";

async function start(t: Test, options: JourneyOptions = {}, limits = false) {
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now, keyOnly: true, limits });
  const journey = await startBeside(t, double, clock, options);
  const status = await journey.idle();
  t.equal(status.state, "ok", status.why ?? "");
  return { clock, double, journey };
}

t.test(
  "the report names more than 1,000 calls of a key between two syncs, and ours are not missing",
  async (t) => {
    const { clock, journey } = await start(t);
    await journey.ask();
    await journey.sync();
    clock.pass(MINUTE);
    for (let n = 0; n < 5; n += 1) await journey.ask();
    clock.pass(MINUTE);
    for (let n = 0; n < 1000; n += 1) journey.elsewhere();
    t.equal((await journey.sync()).state, "ok");
    clock.pass(HOUR);
    t.equal((await journey.sync()).state, "ok");
    const { records, blind } = await journey.mirror();
    t.match(records, { matched: 1, missing: 0 });
    const words = blind.filter((one) => one.includes("more than 1,000 calls"));
    t.equal(words.length, 1);
    t.match(words[0], /^codex .*–.*, more than 1,000 calls between syncs → log in with an access token/);
  },
);

t.test("a sync without any call left does not count as a sync", async (t) => {
  const { clock, double, journey } = await start(t, {}, true);
  const first = await journey.sync();
  let last = first;
  for (let n = 0; n < 20 && last.state === "ok"; n += 1) {
    clock.pass(10_000);
    last = await journey.sync();
  }
  t.match(last, { state: "rate-limited", why: /20 key lookups in 20 minutes/ });
  t.ok((last.last_sync ?? 0) < clock.now(), "the last sync was the one that read something");
  t.ok(double.asked.filter(({ credential }) => credential).length <= 16);
  clock.pass(20 * MINUTE);
  t.equal((await journey.sync()).state, "ok");
});

for (const what of ["disabled", "deleted"] as const) {
  t.test(`a key that is ${what} makes a gap, and no request is missing`, async (t) => {
    const { clock, double, journey } = await start(t, { tools: { codex: "", other: "" } });
    await journey.ask();
    await journey.ask({}, { tool: "other" });
    await journey.sync();
    clock.pass(MINUTE);
    await journey.ask();
    await journey.ask({}, { tool: "other" });
    const at = double.keys.findIndex(({ name }) => name === "codex");
    const [key] = double.keys.splice(at, 1);
    if (key !== undefined && what === "disabled") double.keys.push(Object.assign(key, { disabled: true }));
    clock.pass(MINUTE);
    await journey.sync();
    clock.pass(HOUR);
    t.equal((await journey.sync()).state, "ok");
    const { records, blind } = await journey.mirror();
    t.match(records, { matched: 3, missing: 0 });
    t.ok(
      blind.some((one) => /^codex .*–.*: the console does not accept its key/.test(one)),
      blind.join(";"),
    );
  });
}
