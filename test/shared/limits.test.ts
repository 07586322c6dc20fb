import t, { type Test } from "tap";
import { until } from "../doubles/until.ts";
import { LimiterMachine } from "./limiter-machine.ts";
import { missingStore, StoreServer } from "./redis.ts";

const skip = missingStore() ?? false;

async function twoMachines(test: Test, settings: string) {
  const store = await StoreServer.start(test);
  const laptop = new LimiterMachine(test, store, "laptop", { settings, folder: test.testdir() });
  const desktop = new LimiterMachine(test, store, "desktop", {
    settings,
    folder: `${test.testdir({ b: {} })}/b`,
  });
  await laptop.connected();
  await desktop.connected();
  return { store, laptop, desktop };
}

t.test("two machines together never get more than the limit", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  const outcomes: string[] = [];
  for (let at = 0; at < 15; at += 1) outcomes.push(await laptop.send(), await desktop.send());
  t.equal(outcomes.filter((outcome) => outcome === "go").length, 20);
  t.equal(outcomes.filter((outcome) => outcome === "rate-limited").length, 10);
});

t.test("what is not used goes back, so one machine can use all of the limit", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  t.equal(await desktop.send(), "go");
  await desktop.shared.stop();
  let went = 0;
  while ((await laptop.send()) === "go") went += 1;
  t.equal(went, 19);
});

t.test("requests at once", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { concurrent: 2 }");
  const first = await laptop.take();
  const second = await desktop.take();
  t.ok(first.ok && second.ok);
  t.equal(await laptop.send(), "too-many-at-once");
  t.equal(await desktop.send(), "too-many-at-once");
  if (first.ok) laptop.end(first.lease);
  await until("the place is free again", async () => (await desktop.send()) === "go");
});

t.test("a window of a second", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 3/second }");
  const outcomes = await Promise.all([1, 2, 3, 4, 5].flatMap(() => [laptop.send(), desktop.send()]));
  const went = outcomes.filter((outcome) => outcome === "go").length;
  t.ok(went >= 3 && went <= 6, `${went} went, in one second or two`);
});

t.test("tokens are held and given back", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { tokens: 1000/day }");
  const taken = await laptop.take({ tokens: 700, spend: 0 });
  t.ok(taken.ok);
  t.equal(await desktop.send({ tokens: 700, spend: 0 }), "tokens-limited");
  if (taken.ok) laptop.limiter.settle(taken.lease, { tokens: 100, spend: 0 });
  await laptop.shared.stop();
  t.equal(await desktop.send({ tokens: 700, spend: 0 }), "go");
});
