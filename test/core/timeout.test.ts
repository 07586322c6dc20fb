import t from "tap";
import { withTimeout } from "../../src/core/timeout.ts";

t.test("what ends in time, what does not, and what fails are distinguished", async (t) => {
  t.equal(await withTimeout(Promise.resolve("done"), 60_000, "late"), "done");
  t.equal(await withTimeout(new Promise(() => {}), 1, "late"), "late");
  await t.rejects(withTimeout(Promise.reject(new Error("no")), 60_000, "late"), { message: "no" });
});

t.test("a time that no timer can hold has no limit", async (t) => {
  const slow = new Promise((resolve) => setTimeout(() => resolve("done"), 5));
  t.equal(await withTimeout(slow, Number.MAX_SAFE_INTEGER, "late"), "done");
});

t.test("work that takes longer goes on, and a later failure ends nothing", async (t) => {
  let fail = (_error: Error): void => {};
  const work = new Promise((_, reject) => {
    fail = reject;
  });
  t.equal(await withTimeout(work, 1, "late"), "late");
  fail(new Error("too late"));
  await t.rejects(work, { message: "too late" });
});

t.test("an aborted signal ends the waiting", async (t) => {
  const stop = new AbortController();
  const never = new Promise(() => {});
  const waiting = withTimeout(never, 60_000, "late", stop.signal);
  stop.abort();
  t.equal(await waiting, "late");
  t.equal(await withTimeout(never, 60_000, "late", stop.signal), "late");
});
