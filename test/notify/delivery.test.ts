import { readFileSync } from "node:fs";
import t, { type Test } from "tap";
import type { WebhookKind } from "../../src/config/schema.ts";
import type { ChannelStatus } from "../../src/notify/status.ts";
import {
  eventOf,
  type Receiver,
  startNotifier,
  startReceiver,
  trustedSnapshot,
  type UnderTest,
} from "../doubles/alerts.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { until } from "../doubles/until.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

interface KindCase {
  /** Behind the receiver's origin. */
  readonly path: string;
  readonly more?: string;
  readonly good: string;
  /** With status 200, and what is wrong then; null: 200 is always good. */
  readonly bad: string | null;
}

const KINDS: Readonly<Record<WebhookKind, KindCase>> = {
  generic: { path: "/hook", good: "", bad: null },
  slack: { path: "/services/T/B/x", good: "", bad: null },
  feishu: { path: "/open-apis/bot/v2/hook/x", good: '{"code":0}', bad: '{"code":19021}' },
  dingtalk: { path: "/robot/send?access_token=x", good: '{"errcode":0}', bad: '{"errcode":310000}' },
  wecom: { path: "/cgi-bin/webhook/send?key=x", good: '{"errcode":0}', bad: '{"errcode":93000}' },
  telegram: { path: "/bot1:x", more: 'to: "1"', good: '{"ok":true}', bad: '{"ok":false,"error_code":403}' },
  ntfy: { path: "/", more: "to: alerts", good: "{}", bad: null },
  bark: { path: "/", more: "to: device", good: '{"code":200}', bad: '{"code":400}' },
};

function notifyOf(receiver: Receiver, kind: WebhookKind, name = "ops"): string {
  const { path, more } = KINDS[kind];
  const settings = [
    `kind: ${kind}`,
    `url: "${receiver.origin}${path}"`,
    ...(more === undefined ? [] : [more]),
  ];
  return `{ desktop: false, webhooks: { ${name}: { ${settings.join(", ")} } } }`;
}

function channel({ notifier }: UnderTest, name = "ops"): ChannelStatus {
  const found = notifier.status().channels.find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no channel ${name}`);
  return found;
}

async function untilState(under: UnderTest, state: ChannelStatus["state"], waiting: number): Promise<void> {
  await until(`ops is ${state}, ${waiting} waiting`, () => {
    const found = channel(under);
    return found.state === state && found.waiting === waiting;
  });
}

// Each waits for a receiver that hangs, so they run side by side.
t.test("each kind of webhook", { jobs: 8 }, async (t) => {
  for (const kind of Object.keys(KINDS) as WebhookKind[]) {
    const { good, bad } = KINDS[kind];
    t.test(`${kind}: delivered, and again after each way to fail`, async (t) => {
      const receiver = await startReceiver(t, good);
      const elsewhere = await startReceiver(t, good);
      const clock = movableClock();
      // Long enough for a slow machine to answer, short enough for the one that hangs.
      const under = startNotifier(t, notifyOf(receiver, kind), { clock, timeoutMs: 1500 });
      under.notifier.notify(eventOf());
      await untilState(under, "ok", 0);
      t.equal(receiver.received.length, 1);
      t.equal(readFileSync(under.file, "utf8"), "", "nothing is left in the queue");

      const failures: Readonly<Record<string, Receiver["answer"]>> = {
        fails: (res) => void res.writeHead(500).end(),
        redirects: (res) => void res.writeHead(307, { location: `${elsewhere.origin}/` }).end(),
        hangs: () => {},
        "breaks off": (res) => void res.destroy(),
        ...(bad === null ? {} : { "answers 200 with an error": (res) => void res.end(bad) }),
      };
      for (const [what, answer] of Object.entries(failures)) {
        receiver.answer = answer;
        clock.pass(5000);
        under.notifier.notify(eventOf());
        await untilState(under, "failing", 1);
        const tried = receiver.received.length;
        under.ticker.tick();
        t.equal(receiver.received.length, tried, `one that ${what} is left alone for a while`);
        receiver.answer = (res) => void res.end(good);
        clock.pass(5000);
        under.ticker.tick();
        await untilState(under, "ok", 0);
        t.equal(receiver.received.at(-1)?.body === undefined, false);
      }
      t.equal(elsewhere.received.length, 0, "a redirect is not followed");
      t.notOk(under.ticker.isNeeded, "nothing runs while nothing waits");
    });
  }
});

t.test("attempts are 5 s apart, then twice as long, up to 15 minutes", async (t) => {
  const receiver = await startReceiver(t);
  // Another status each time, so that status shows when an attempt is over.
  receiver.answer = (res) => void res.writeHead(500 + receiver.received.length).end();
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  const untilAttempt = (number: number) =>
    until(`attempt ${number} is over`, () => channel(under).why === `it answered ${500 + number}`);
  under.notifier.notify(eventOf());
  await untilAttempt(1);
  for (const [index, seconds] of [5, 10, 20, 40, 80, 160, 320, 640, 900, 900].entries()) {
    clock.pass((seconds / 2) * 1000);
    under.ticker.tick();
    t.equal(receiver.received.length, index + 1, `not before ${seconds} s`);
    clock.pass((seconds / 2) * 1000);
    under.ticker.tick();
    await untilAttempt(index + 2);
  }
});

t.test("a failure is logged once, and its end too", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(500).end();
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  await under.notifier.test("ops");
  receiver.answer = (res) => void res.end();
  await under.notifier.test("ops");
  await untilState(under, "ok", 0);
  const messages = under.log.map((line) => JSON.parse(line).msg);
  t.same(messages, ["notify: ops cannot be notified: it answered 500", "notify: ops works again"]);
});

t.test("a test goes before the alerts that wait", async (t) => {
  const receiver = await startReceiver(t);
  const held: (() => void)[] = [];
  receiver.answer = (res) => void held.push(() => res.end());
  const under = startNotifier(t, notifyOf(receiver, "generic"));
  for (const message of ["one", "two", "three"]) under.notifier.notify(eventOf({ message }));
  await until("the first is on its way", () => held.length === 1);
  const tests = Promise.all([under.notifier.test("ops"), under.notifier.test(null)]);
  receiver.answer = (res) => void res.end();
  for (const answer of held) answer();
  t.match(await tests, [[{ result: "delivered" }], [{ result: "delivered" }]]);
  await untilState(under, "ok", 0);
  t.same(
    receiver.received
      .map(({ body }) => JSON.parse(body).data)
      .map(({ kind, message }) => (kind === "test" ? kind : message)),
    ["one", "test", "test", "two", "three"],
  );
});

t.test("a receiver that says when to come again is left alone until then", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(429, { "retry-after": "120" }).end();
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  receiver.answer = (res) => void res.end();
  clock.pass(100_000);
  under.ticker.tick();
  t.equal(receiver.received.length, 1);
  clock.pass(21_000);
  under.ticker.tick();
  await untilState(under, "ok", 0);
});

t.test("after a day of attempts an alert is given up, and status and log say so", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(500).end();
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  clock.pass(DAY - HOUR);
  under.ticker.tick();
  await until("a second attempt", () => receiver.received.length === 2);
  t.match(channel(under), { waiting: 1, lost: 0 });
  clock.pass(2 * HOUR);
  under.ticker.tick();
  await until("it is given up", () => channel(under).lost === 1);
  t.equal(channel(under).waiting, 0);
  t.match(under.log.join(""), /gave up an alert for ops: it failed for a day: it answered 500/);
});

t.test("an alert for a channel that is blocked is given up after a day, too", async (t) => {
  const clock = movableClock();
  // Its source is no literal, so nothing has read it.
  const notify = "{ desktop: false, webhooks: { ops: { url: keychain:keybearer/ops } } }";
  const under = startNotifier(t, notify, { clock });
  under.notifier.notify(eventOf());
  await untilState(under, "unavailable", 1);
  clock.pass(DAY - HOUR);
  under.ticker.tick();
  t.match(channel(under), { waiting: 1, lost: 0 });
  clock.pass(2 * HOUR);
  under.ticker.tick();
  t.match(channel(under), { state: "unavailable", waiting: 0, lost: 1 });
  t.match(under.log.join(""), /gave up an alert for ops: it could not be sent for a day/);
  t.notOk(under.ticker.isNeeded);
});

t.test("a machine that slept for two days tries for an hour before it gives up", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(500).end();
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  clock.pass(2 * DAY);
  under.notifier.apply(trustedSnapshot(notifyOf(receiver, "generic")));
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  clock.pass(1000);
  t.match(channel(under), { waiting: 1, lost: 0 });
});

t.test("a receiver that is gone gets nothing more until config.yaml changes", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(410).end();
  const under = startNotifier(t, notifyOf(receiver, "generic"));
  under.notifier.notify(eventOf());
  await untilState(under, "gone", 0);
  t.match(channel(under), { lost: 1, why: /410/ });
  under.notifier.notify(eventOf());
  t.equal(channel(under).waiting, 0);
  receiver.answer = (res) => void res.end();
  under.notifier.apply(trustedSnapshot(notifyOf(receiver, "generic")));
  under.notifier.notify(eventOf());
  await untilState(under, "ok", 0);
  t.equal(receiver.received.length, 2);
});

t.test("a message that a receiver refuses does not hold up the others", async (t) => {
  const receiver = await startReceiver(t);
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "generic"), { clock });
  receiver.answer = (res) => {
    const isBad = receiver.received.at(-1)?.body.includes("poison") === true;
    res.writeHead(isBad ? 400 : 200).end();
  };
  under.notifier.notify(eventOf({ message: "poison" }));
  under.notifier.notify(eventOf({ message: "medicine" }));
  await untilState(under, "failing", 2);
  clock.pass(5000);
  under.ticker.tick();
  await until("the other one arrived", () => receiver.received.some(({ body }) => body.includes("medicine")));
  await until("one waits", () => channel(under).waiting === 1);
});

t.test("one that hangs delays neither the other channels nor the caller", async (t) => {
  const slow = await startReceiver(t);
  slow.answer = () => {};
  const fast = await startReceiver(t);
  const under = startNotifier(
    t,
    `{ desktop: false, webhooks: { slow: { url: "${slow.origin}/x" }, ops: { url: "${fast.origin}/x" } } }`,
  );
  under.notifier.notify(eventOf());
  under.notifier.notify(eventOf());
  await untilState(under, "ok", 0);
  t.equal(fast.received.length, 2);
  t.equal(slow.received.length, 1, "one at a time");
  t.equal(channel(under, "slow").waiting, 2);
});

t.test("each kind of event goes where config.yaml says", async (t) => {
  const [one, two] = [await startReceiver(t), await startReceiver(t)];
  const under = startNotifier(
    t,
    `{ desktop: false, webhooks: { ops: { url: "${one.origin}/x" }, mine: { url: "${two.origin}/x" } }, events: { limit: false, suspicion: [mine] } }`,
  );
  under.notifier.notify(eventOf({ kind: "limit" }));
  under.notifier.notify(eventOf({ kind: "suspicion" }));
  under.notifier.notify(eventOf({ kind: "leak" }));
  await until("both have theirs", () => one.received.length === 1 && two.received.length === 2);
  t.match(one.received[0]?.body, "keybearer.leak");
  t.match(
    two.received.map(({ body }) => JSON.parse(body).type),
    ["keybearer.suspicion", "keybearer.leak"],
  );
});

t.test("in quiet hours only what is critical is sent, and the rest at their end", async (t) => {
  const receiver = await startReceiver(t);
  const clock = movableClock(new Date(2026, 10, 19, 23, 30).getTime());
  const notify = notifyOf(receiver, "generic").replace(/}$/, ', quiet: "22:00-07:00" }');
  const under = startNotifier(t, notify, { clock });
  under.notifier.notify(eventOf({ severity: "warning", message: "later" }));
  under.notifier.notify(eventOf({ severity: "critical", message: "at once" }));
  await until("one arrived", () => receiver.received.length === 1 && channel(under).waiting === 1);
  t.match(receiver.received[0]?.body, "at once");
  t.ok(under.notifier.status().quiet);
  clock.pass(7 * HOUR);
  under.ticker.tick();
  t.equal(receiver.received.length, 1, "it is half past six");
  clock.pass(HOUR);
  under.ticker.tick();
  await untilState(under, "ok", 0);
  t.match(receiver.received[1]?.body, "later");
});

t.test("a receiver with limits of its own is called at its pace", async (t) => {
  const receiver = await startReceiver(t, '{"errcode":0}');
  const clock = movableClock();
  const under = startNotifier(t, notifyOf(receiver, "wecom"), { clock });
  under.notifier.notify(eventOf());
  under.notifier.notify(eventOf());
  await until("the first arrived", () => channel(under).waiting === 1);
  under.ticker.tick();
  t.equal(receiver.received.length, 1);
  clock.pass(3000);
  under.ticker.tick();
  await untilState(under, "ok", 0);
});

t.test("of an endless answer little is read", async (t) => {
  const receiver = await startReceiver(t);
  const ended: Promise<void> = new Promise((resolve) => {
    receiver.answer = (res) => {
      const piece = "x".repeat(65_536);
      const write = () => {
        while (res.write(piece));
      };
      res.on("drain", write).once("close", () => resolve());
      write();
    };
  });
  const under = startNotifier(t, notifyOf(receiver, "bark"));
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  await ended;
  t.match(channel(under).why, /not one of Bark/);
});

async function testOne(t: Test, under: UnderTest, wanted: object): Promise<void> {
  const [result] = (await under.notifier.test("ops")) ?? [];
  t.match(result, wanted);
}

t.test("a test says how it went, and what waits goes with it", async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (res) => void res.writeHead(503).end();
  const under = startNotifier(t, notifyOf(receiver, "generic"));
  t.equal(await under.notifier.test("elsewhere"), null);
  under.notifier.notify(eventOf());
  await untilState(under, "failing", 1);
  await testOne(t, under, { channel: "ops", kind: "generic", result: "failed", problem: "it answered 503" });
  receiver.answer = (res) => void res.end();
  await testOne(t, under, { result: "delivered" });
  await untilState(under, "ok", 0);
  t.match(receiver.received.at(-2)?.body, "keybearer.test");
});
