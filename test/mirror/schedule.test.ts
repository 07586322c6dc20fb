import { mock } from "node:test";
import t from "tap";
import { SyncSchedule } from "../../src/mirror/sync/schedule.ts";
import { createRandom } from "../doubles/random.ts";
import { HOUR, MINUTE } from "./mirror-file.ts";

t.test("a console is read at most half a minute later than its interval, whoever else asks", async (t) => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_800_000_000_000 });
  t.teardown(() => mock.timers.reset());
  for (const interval of [MINUTE, 5 * MINUTE]) {
    const clock = { now: () => Date.now(), elapsed: () => Date.now() };
    const syncs = [clock.now()];
    const sync = () => {
      schedule.began();
      syncs.push(clock.now());
    };
    const schedule = new SyncSchedule(
      clock,
      sync,
      () => interval,
      () => {},
    );
    t.teardown(() => schedule.stop());
    schedule.follow(null);
    const random = createRandom(1);
    const end = clock.now() + HOUR;
    while (clock.now() < end) {
      mock.timers.tick(1000);
      await new Promise((done) => setImmediate(done));
      // A key is changed, or a person asks.
      if (random() < 1000 / (2 * interval)) sync();
    }
    const gaps = syncs.slice(1).map((at, number) => at - (syncs[number] ?? 0));
    t.ok(gaps.length >= HOUR / (interval + MINUTE / 2), `${gaps.length} syncs`);
    const most = Math.max(...gaps);
    t.ok(most <= interval + MINUTE / 2 + 1000, `at most ${most} ms`);
  }
});
