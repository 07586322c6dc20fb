import { fork } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { EVENT_KINDS } from "../../src/config/schema.ts";
import { Queue } from "../../src/notify/queue.ts";
import { eventOf, startNotifier, startReceiver, trustedSnapshot, type UnderTest } from "../doubles/alerts.ts";
import { mountSmallDisk } from "../doubles/small-disk.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

function waiting({ notifier }: UnderTest): number | undefined {
  return notifier.status().channels[0]?.waiting;
}

t.test("a kill between alert and delivery loses none", async (t) => {
  const receiver = await startReceiver(t);
  const file = join(t.testdir(), "notify-queue.jsonl");
  const notify = `{ desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }`;
  const killed = fork(join(import.meta.dirname, "killed-daemon.js"), [file, notify, "20"], { execArgv: [] });
  const [, signal] = await once(killed, "exit");
  t.equal(signal, "SIGKILL");
  t.equal(receiver.received.length, 0);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const under = startNotifier(t, notify, { file });
  await until("all arrived", () => receiver.received.length === 20 && waiting(under) === 0);
  t.same(
    receiver.received.map(({ body }) => JSON.parse(body).data.message),
    Array.from({ length: 20 }, (_, index) => `alert ${index + 1}`),
  );
});

t.test("an alert that one of two channels has is not sent to it again", async (t) => {
  const [one, two] = [await startReceiver(t), await startReceiver(t)];
  two.answer = (res) => void res.writeHead(500).end();
  const file = join(t.testdir(), "notify-queue.jsonl");
  const notify = `{ desktop: false, webhooks: { one: { url: "${one.origin}/x" }, two: { url: "${two.origin}/x" } } }`;
  const first = startNotifier(t, notify, { file });
  first.notifier.notify(eventOf());
  await until(
    "one has it, and two has failed",
    () =>
      first.notifier
        .status()
        .channels.every(({ state, waiting }) => (state === "ok" ? waiting === 0 : waiting === 1)) &&
      two.received.length === 1 &&
      one.received.length === 1,
  );
  await first.notifier.stop();
  two.answer = (res) => void res.end();
  startNotifier(t, notify, { file });
  await until("two has it", () => two.received.length === 2 && readFileSync(file, "utf8") === "");
  t.equal(one.received.length, 1);
});

t.test("a thousand alerts wait, and of more the oldest that is not critical goes", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = () => {};
  const file = join(t.testdir(), "notify-queue.jsonl");
  const notify = `{ desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }`;
  const under = startNotifier(t, notify, { file });
  under.notifier.notify(eventOf({ message: "first" }));
  under.notifier.notify(eventOf({ message: "critical" }));
  under.notifier.notify(eventOf({ message: "warning", severity: "warning" }));
  for (let number = 3; number <= 1000; number += 1) under.notifier.notify(eventOf());
  t.match(under.notifier.status().channels[0], { waiting: 1000, lost: 1 });
  t.match(under.log.join(""), /gave up an alert for ops: more than 1000 wait/);
  await under.notifier.stop();
  receiver.answer = (res) => void res.end();
  const before = receiver.received.length;
  const again = startNotifier(t, notify, { file });
  await until("all arrived", () => waiting(again) === 0);
  const messages = receiver.received.slice(before).map(({ body }) => JSON.parse(body).data.message);
  t.equal(messages.length, 1000);
  t.same(messages.slice(0, 2), ["first", "critical"]);
  t.notOk(messages.includes("warning"));
  t.equal(readFileSync(file, "utf8"), "");
});

t.test("what waits for a webhook that was removed or renamed is dropped, and that is logged", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(500).end();
  const named = (name: string) =>
    `{ desktop: false, webhooks: { ${name}: { url: "${receiver.origin}/x" } } }`;
  const under = startNotifier(t, named("ops"));
  under.notifier.notify(eventOf());
  under.notifier.notify(eventOf());
  await until("it failed", () => under.notifier.status().channels[0]?.state === "failing");
  under.notifier.apply(trustedSnapshot(named("team")));
  t.match(under.notifier.status().channels, [{ name: "team", waiting: 0 }]);
  t.match(
    under.log.join(""),
    /ops is no longer in config.yaml, so alerts that waited for it were dropped: 2/,
  );
  t.equal(readFileSync(under.file, "utf8"), "");
});

t.test("without a config.yaml what waits for a webhook stays", async (t) => {
  const receiver = await startReceiver(t);
  const file = join(t.testdir(), "notify-queue.jsonl");
  new Queue(file).add(eventOf(), Date.now(), ["ops"]);
  let isSandbox = true;
  const under = startNotifier(t, "{}", { file, isSandbox: () => isSandbox });
  t.same(under.log, []);
  isSandbox = false;
  under.notifier.apply(
    trustedSnapshot(`{ desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }`),
  );
  await until("it arrived", () => receiver.received.length === 1 && waiting(under) === 0);
});

t.test("with a full disk alerts stay in memory, are delivered, and are written later", async (t) => {
  const disk = mountSmallDisk(t, 1);
  if (disk === null) return;
  const receiver = await startReceiver(t);
  const file = join(disk.folder, "notify-queue.jsonl");
  const notify = `{ desktop: false, webhooks: { ops: { url: "${receiver.origin}/x" } } }`;
  const under = startNotifier(t, notify, { file });
  disk.fill();
  under.notifier.notify(eventOf());
  await until("it arrived", () => receiver.received.length === 1 && waiting(under) === 0);
  receiver.answer = (res) => void res.writeHead(500).end();
  const kept = eventOf({ message: "kept in memory" });
  under.notifier.notify(kept);
  t.match(under.notifier.status().problem, /ENOSPC/);
  t.match(under.log.join(""), /kept in memory only: .*ENOSPC/);
  disk.free();
  under.ticker.tick(10);
  await until("it is written", () => under.notifier.status().problem === null);
  t.match(readFileSync(file, "utf8"), "kept in memory");
});

t.test("the file is input: nothing but whole events is taken from it, and no link is followed", async (t) => {
  const folder = t.testdir();
  const file = join(folder, "notify-queue.jsonl");
  const good = eventOf();
  const lines = [
    { event: good, at: 1, channels: ["ops"] },
    { event: { ...good, id: "../../etc/passwd" }, at: 1, channels: ["ops"] },
    { event: { ...good, kind: "test" }, at: 1, channels: ["ops"] },
    { event: { ...good, message: "x".repeat(5000) }, at: 1, channels: ["ops"] },
    { event: { ...good, severity: "low" }, at: 1, channels: ["ops"] },
    { event: { ...good, next: 1 }, at: 1, channels: ["ops"] },
    { event: good, at: "1", channels: ["ops"] },
    { event: good, at: 1, channels: [] },
    [],
  ];
  writeFileSync(file, `${lines.map((line) => JSON.stringify(line)).join("\n")}\n{"event`, { mode: 0o600 });
  const queue = new Queue(file);
  t.match(queue.load(), /damaged lines .* skipped: 9/);
  t.same([...queue.all()], [{ event: good, at: 1, channels: new Set(["ops"]) }]);

  const link = join(folder, "link.jsonl");
  writeFileSync(join(folder, "target"), "");
  symlinkSync(join(folder, "target"), link);
  const linked = new Queue(link);
  t.match(linked.load(), /is a link/);
  t.ok(linked.add(good, 1, ["ops"]), "it works without a file");
  t.equal(readFileSync(join(folder, "target"), "utf8"), "");
});

t.test("a line that was cut off spoils no other", async (t) => {
  const file = join(t.testdir(), "notify-queue.jsonl");
  const first = new Queue(file);
  first.add(eventOf({ message: "one" }), 1, ["ops"]);
  appendFileSync(file, '{"event":{"id":"');
  const second = new Queue(file);
  t.match(second.load(), /skipped: 1/);
  second.add(eventOf({ message: "two" }), 1, ["ops"]);
  const third = new Queue(file);
  third.load();
  t.same(
    [...third.all()].map(({ event }) => event.message),
    ["one", "two"],
  );
});

t.test("the file is written again without what was delivered", async (t) => {
  const file = join(t.testdir(), "notify-queue.jsonl");
  const queue = new Queue(file);
  queue.add(eventOf({ message: "stays" }), 1, ["ops"]);
  for (let number = 0; number < 600; number += 1) {
    const event = eventOf();
    t.ok(queue.add(event, 1, ["ops"]));
    queue.done(event.id, "ops");
  }
  t.ok(readFileSync(file, "utf8").split("\n").length > 1000);
  await queue.tidy();
  t.equal(readFileSync(file, "utf8").trim().split("\n").length, 1);
  t.notOk(queue.add([...queue.all()][0]?.event ?? eventOf(), 1, ["ops"]), "the same event is queued once");
  const again = new Queue(file);
  t.equal(again.load(), null);
  t.same(
    [...again.all()].map(({ event }) => event.message),
    ["stays"],
  );
});

t.test("a file that was deleted is an empty queue", async (t) => {
  const file = join(t.testdir(), "notify-queue.jsonl");
  const queue = new Queue(file);
  const event = eventOf();
  queue.add(event, 1, ["ops"]);
  rmSync(file);
  queue.done(event.id, "ops");
  t.equal(queue.problem, null);
});

t.test("every kind of event survives", async (t) => {
  const file = join(t.testdir(), "notify-queue.jsonl");
  const queue = new Queue(file);
  const events = EVENT_KINDS.map((kind) => eventOf({ kind, next: null, state: "summary", severity: "info" }));
  for (const event of events) queue.add(event, 5, ["ops", "mine"]);
  const again = new Queue(file);
  t.equal(again.load(), null);
  t.same(
    [...again.all()].map(({ event }) => event),
    events,
  );
});
