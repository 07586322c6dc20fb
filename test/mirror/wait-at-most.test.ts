import t from "tap";
import { waitAtMost } from "../../src/mirror/wait-at-most.ts";

const LONG_MS = 3_600_000;
const never = () => new Promise<void>(() => {});

// As in the daemon, something else keeps the process alive.
const alive = setInterval(() => {}, LONG_MS);
t.teardown(() => clearInterval(alive));

t.test("work that ends in time is waited for, and its failure is the caller's", async (t) => {
  t.equal(await waitAtMost(LONG_MS, Promise.resolve("anything")), true);
  await t.rejects(waitAtMost(LONG_MS, Promise.reject(new Error("it failed"))), { message: "it failed" });
});

t.test("work that takes longer goes on, and a later failure ends nothing", async (t) => {
  t.equal(await waitAtMost(1, never()), false);
  let fail = (_error: Error): void => {};
  const work = new Promise<void>((_, reject) => {
    fail = reject;
  });
  t.equal(await waitAtMost(1, work), false);
  fail(new Error("too late"));
  await t.rejects(work, { message: "too late" });
});

t.test("an aborted signal ends the waiting", async (t) => {
  const stop = new AbortController();
  const waiting = waitAtMost(LONG_MS, never(), stop.signal);
  stop.abort();
  t.equal(await waiting, false);
  t.equal(await waitAtMost(LONG_MS, never(), stop.signal), false);
});
