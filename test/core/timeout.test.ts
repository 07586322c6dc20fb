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
