import t from "tap";
import { StoreClock } from "../../src/shared/store-clock.ts";

/** Two clocks that can be moved apart. */
function start() {
  const clocks = { wall: 1_000_000, elapsed: 0 };
  const clock = new StoreClock({ now: () => clocks.wall, elapsed: () => clocks.elapsed });
  const pass = (milliseconds: number) => {
    clocks.wall += milliseconds;
    clocks.elapsed += milliseconds;
  };
  return { clocks, clock, pass };
}

t.test("the machine's idea of the store's time is never behind it, even after a slow answer", async (t) => {
  const { clock, pass } = start();
  t.equal(clock.now(), null);
  const sentAt = clock.mark();
  pass(300);
  clock.learn(5_000_000, sentAt);
  t.ok((clock.now() ?? 0) >= 5_000_300, "the store may have read its clock as soon as the call was sent");
  t.ok((clock.now() ?? 0) < 5_000_301);
});

t.test("the store's time passes while the machine sleeps, and while its clock is set", async (t) => {
  const { clocks, clock } = start();
  clock.learn(5_000_000, clock.mark());
  clocks.wall += 60_000;
  t.ok((clock.now() ?? 0) >= 5_060_000, "the other clock stood still during the sleep");
  clocks.wall -= 3_600_000;
  clocks.elapsed += 90_000;
  t.ok((clock.now() ?? 0) >= 5_090_000, "a clock that is set back brings no time back");
});

t.test("clocks that differ by less than two seconds count as equal", async (t) => {
  const { clock } = start();
  clock.learn(1_001_900, clock.mark());
  t.equal(clock.offset(), 0);
  clock.learn(700_000, clock.mark());
  t.equal(clock.offset(), -300_000);
  t.equal(clock.problemWith(700_000), null);
  t.match(clock.problemWith(1_000_000 + 25 * 3_600_000), /differ by more than a day/);
});

t.test("the store's time advances no faster than this machine's, except towards it", async (t) => {
  const { clocks, clock, pass } = start();
  // The store is ten minutes ahead, and stays so.
  clock.learn(1_600_000, clock.mark());
  pass(1000);
  t.equal(clock.problemWith(1_601_000), null);
  t.match(clock.problemWith(1_661_000), /went ahead faster/, "a minute in a second");
  for (let step = 0; step < 100; step += 1) clock.learn((clock.now() ?? 0) + 1900, clock.mark());
  t.ok((clock.now() ?? 0) < 1_601_001, "small steps lead nowhere either");
  clocks.wall += 3_600_000;
  t.equal(clock.problemWith(1_601_000 + 3_600_000), null, "the machine slept");
  clock.learn(1_000_000, clock.mark());
  t.equal(clock.learn(clocks.wall, clock.mark()), clocks.wall, "a wrong clock of the store is corrected");
});
