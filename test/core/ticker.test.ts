import { mock } from "node:test";
import t from "tap";
import { createTicker } from "../../src/core/ticker.ts";

t.test("one timer serves all, each at its own pace, and no timer is left without listeners", (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.teardown(() => mock.timers.reset());
  const ticker = createTicker();
  const seen = { often: 0, seldom: 0 };
  const endOften = ticker.every(1, () => {
    seen.often += 1;
  });
  const endSeldom = ticker.every(5, () => {
    seen.seldom += 1;
  });
  mock.timers.tick(10_000);
  t.same(seen, { often: 10, seldom: 2 });
  endOften();
  endOften();
  mock.timers.tick(5000);
  t.same(seen, { often: 10, seldom: 3 });
  endSeldom();
  mock.timers.tick(10_000);
  t.same(seen, { often: 10, seldom: 3 });
  ticker.every(1, () => {
    seen.often += 1;
  });
  mock.timers.tick(1000);
  t.equal(seen.often, 11, "and it begins again for the next one");
  t.end();
});
