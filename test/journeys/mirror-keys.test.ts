import t from "tap";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { fingerprint, HOUR, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";

const CONSOLES = ["sub2api", "new-api v1.0.0-rc.25", "one-api"] as const;

for (const name of oneOf(CONSOLES, "sub2api"))
  t.test(`${name}: a key is expired after its time, even if the console last called it active`, async (t) => {
    const journey = await startJourney(t, name);
    const [key] = journey.console.keys;
    Object.assign(key ?? {}, { expiresAt: journey.clock.now() + HOUR });
    await journey.sync();
    t.match((await journey.keys()).keys, [{ name: "codex", state: "active" }]);
    journey.clock.pass(HOUR + MINUTE);
    // The console cannot be asked now: what it said before is an hour old.
    journey.console.fault = "500";
    await journey.sync();
    const { keys, problems } = await journey.keys();
    t.match(keys, [{ name: "codex", state: "expired", tools: ["codex"] }]);
    t.match(problems, [{ gateway: "main" }]);
    t.ok((keys[0]?.as_of ?? 0) <= journey.clock.now() - HOUR, "it has the time of the last answer");
    const { tools } = await journey.status();
    t.match(tools, [{ name: "codex", console: { state: "expired" } }]);
  });

t.test("new-api without a login: a quota has the time of the call that read it", async (t) => {
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now, keyOnly: true });
  const journey = await startBeside(t, double, clock);
  await journey.idle();
  const asked = clock.now();
  const key = fingerprint(journey.codex.key);
  t.match((await journey.keys()).keys, [{ key, state: "active", unlimited: true, as_of: asked }]);
  clock.pass(2 * MINUTE);
  await journey.sync();
  t.match((await journey.keys()).keys, [{ as_of: asked }], "it is not asked in every sync");
  clock.pass(60 * MINUTE);
  await journey.sync();
  t.match((await journey.keys()).keys, [{ as_of: clock.now() }]);
});
