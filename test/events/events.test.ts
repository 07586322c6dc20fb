import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { otherModelAnswered } from "../../src/events/conditions.ts";
import type { Event, Occurrence } from "../../src/events/event.ts";
import { Events } from "../../src/events/events.ts";
import { newHome } from "../doubles/command.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { mountSmallDisk } from "../doubles/small-disk.ts";
import { until } from "../doubles/until.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

const DOWN: Occurrence = {
  kind: "gateway-down",
  severity: "warning",
  subject: "gateway main",
  message: "gateway main has failed for 2 min: nothing listens there",
  next: "keybearer doctor",
};
const OTHER_MODEL: Occurrence = {
  kind: "other-model",
  severity: "warning",
  subject: "tool codex",
  message: "another model answered",
  next: null,
};

/** Events in a file of their own, with a clock that stands still. */
async function scene(t: Test, folder?: string) {
  const file = join(folder ?? (await newHome(t)), "events.jsonl");
  const clock = heldClock();
  const lines: string[] = [];
  const open = () => {
    const events = new Events({ file, clock, log: quietLog(lines) });
    const sent: Event[] = [];
    events.onEvent((event) => sent.push(event));
    return { events, sent };
  };
  const pass = (events: Events, ms: number) => {
    clock.pass(ms);
    events.tick();
  };
  return { file, clock, lines, open, pass, ...open() };
}

const states = (events: readonly Event[]) => events.map(({ state }) => state);

t.test(
  "an event has a ULID, is handed to the channels first, and is in the log and in a file of mode 0600",
  async (t) => {
    const { events, file, lines } = await scene(t);
    // A crash in between must not lose what a channel was to send.
    const stored: boolean[] = [];
    events.onEvent(() => stored.push(existsSync(file) && statSync(file).size > 0));
    const event = events.report(DOWN);
    t.strictSame(stored, [false]);
    t.match(event, { ...DOWN, id: /^[0-9A-Z]{26}$/, state: "begun" });
    t.match(JSON.parse(readFileSync(file, "utf8")), { id: event?.id, state: "begun" });
    t.equal(statSync(file).mode & 0o777, 0o600);
    t.match(JSON.parse(lines[0] ?? ""), { level: "warn", kind: "gateway-down", subject: "gateway main" });
    t.match(lines[0], "→ keybearer doctor");
  },
);

t.test("the same is one event an hour, and then a summary if there was more", async (t) => {
  const { events, sent, pass } = await scene(t);
  for (let n = 0; n < 4; n += 1) events.report(OTHER_MODEL);
  events.report({ ...OTHER_MODEL, subject: "tool chat" });
  t.same(states(sent), ["begun", "begun"]);
  pass(events, HOUR - 1);
  t.equal(sent.length, 2);
  pass(events, 1);
  t.same(states(sent), ["begun", "begun", "summary"]);
  t.equal(sent[2]?.message, "another model answered (3 more times within the hour)");
  // The summary began another hour.
  events.report(OTHER_MODEL);
  pass(events, HOUR);
  t.equal(sent[3]?.message, "another model answered (1 more time within the hour)");
  pass(events, HOUR);
  pass(events, HOUR);
  events.report(OTHER_MODEL);
  t.equal(sent.length, 5, "an hour without one, and the next is an event again");
});

t.test("what is over is said once, and only if its beginning was", async (t) => {
  const { events, sent, pass } = await scene(t);
  events.end("gateway-down", "gateway main", "gateway main answers again");
  t.same(sent, []);
  events.report(DOWN);
  t.same(events.active()[0]?.subject, "gateway main");
  events.end("gateway-down", "gateway main", "gateway main answers again");
  events.end("gateway-down", "gateway main", "gateway main answers again");
  t.same(states(sent), ["begun", "ended"]);
  t.match(sent[1], { severity: "info", next: null, message: "gateway main answers again" });
  t.same(events.active(), []);
  // It comes and goes twice more within the hour, and then stays.
  for (let n = 0; n < 2; n += 1) {
    events.report(DOWN);
    events.end("gateway-down", "gateway main", "gateway main answers again");
  }
  t.equal(sent.length, 2);
  pass(events, HOUR);
  t.match(sent[2], { state: "summary", next: null, message: /2 more times within the hour, and over since/ });
  events.report(DOWN);
  pass(events, HOUR);
  t.match(sent[3], { state: "summary", next: "keybearer doctor", message: /1 more time within the hour\)/ });
  t.equal(events.active().length, 1, "it lasts, and an event said so");
  events.end("gateway-down", "gateway main", "gateway main answers again");
  t.same(states(sent.slice(4)), ["ended"]);
});

t.test("what happens once is not reported again, after a restart either", async (t) => {
  const { events, sent, open, pass } = await scene(t);
  const until = 1_800_000_000_000 + 3 * HOUR;
  const limit: Occurrence = { ...OTHER_MODEL, kind: "limit", once: { name: "spend/day 80", until } };
  t.ok(events.report(limit));
  t.ok(events.report({ ...limit, once: { name: "spend/day 100", until } }), "another name is another event");
  t.ok(events.wasReported(limit));
  pass(events, 2 * HOUR);
  t.equal(events.report(limit), null);
  t.equal(sent.length, 2);
  const again = open();
  t.equal(again.events.report(limit), null);
  pass(again.events, HOUR);
  t.same(states(again.sent), []);
  t.ok(again.events.report(limit), "its time is over");
});

t.test("a gateway that answers with ever other models is one event of a tool an hour", async (t) => {
  const { events, sent, pass } = await scene(t);
  for (let n = 1; n <= 50; n += 1)
    for (const tool of ["codex", "chat"])
      events.report(otherModelAnswered({ tool, asked: "gpt-5.1", answered: `gpt-4.${n}` }));
  const first = "asked for gpt-5.1, and gpt-4.1 answered";
  t.match(sent, [{ message: `codex ${first}` }, { message: `chat ${first}` }]);
  t.equal(sent.length, 2);
  pass(events, HOUR);
  t.match(sent[2], {
    state: "summary",
    message: "codex asked for gpt-5.1, and gpt-4.50 answered (49 more times within the hour)",
  });
  pass(events, 1000 * HOUR);
  t.equal(sent.length, 4);
});

t.test("after kill -9 what lasts is known, is not reported anew, and ends", async (t) => {
  const { events, file, open, clock } = await scene(t);
  events.report(DOWN);
  events.report(OTHER_MODEL);
  // The process ended in the middle of a line.
  appendFileSync(file, '{"id":"01K');
  clock.pass(10 * MINUTE);
  const { events: later, sent } = open();
  t.same(later.lasting(), [
    {
      kind: "gateway-down",
      subject: "gateway main",
      severity: "warning",
      message: DOWN.message,
      next: DOWN.next,
    },
  ]);
  t.equal(later.report(DOWN), null);
  t.equal(later.report(OTHER_MODEL), null);
  later.end("gateway-down", "gateway main", "gateway main answers again");
  t.same(states(sent), ["ended"]);
  t.equal(later.newest(9).length, 3);
  later.tick();
  await later.stop();
  t.same(states(open().events.newest(9)), ["begun", "begun", "ended"], "the damaged line is gone");
  t.same(open().events.active(), []);
});

t.test("a mute keeps events from being sent until it ends, over a restart", async (t) => {
  const { events, sent, open, pass, clock } = await scene(t);
  events.mute("gateway main", clock.now() + 2 * HOUR);
  events.mute("tool codex", clock.now() + HOUR);
  events.mute("tool codex", null);
  events.report(DOWN);
  t.same(sent, []);
  t.match(events.newest(1), [{ muted: true, active: true }]);
  const again = open();
  t.same(again.events.mutes(), [{ subject: "gateway main", until: clock.now() + 2 * HOUR }]);
  again.events.report({ ...DOWN, kind: "log-unavailable" });
  t.same(again.sent, []);
  again.events.report(OTHER_MODEL);
  t.equal(again.sent.length, 1);
  again.events.end("log-unavailable", "gateway main", "over");
  t.equal(again.sent.length, 1, "nobody heard of its beginning");
  pass(again.events, 2 * HOUR);
  t.same(again.events.mutes(), []);
  t.equal(again.sent.length, 2, "what still lasts is sent when the mute ends");
  t.match(again.sent[1], { ...DOWN, state: "begun" });
  t.match(again.events.active(), [{ id: again.sent[1]?.id, muted: false }]);
  pass(again.events, 2 * HOUR);
  t.equal(again.sent.length, 2, "once");
  again.events.end("gateway-down", "gateway main", "over");
  t.match(again.sent[2], { state: "ended" });
});

t.test("what still lasts is sent when a mute is taken back", async (t) => {
  const { events, sent, clock } = await scene(t);
  events.mute("gateway main", clock.now() + HOUR);
  events.report(DOWN);
  events.mute("gateway main", null);
  events.mute("gateway main", null);
  t.match(sent, [DOWN]);
  t.equal(sent.length, 1);
});

t.test("a mute lasts 31 days at most, whatever was asked for and whatever the file says", async (t) => {
  const { events, file, open, clock } = await scene(t);
  const last = clock.now() + 31 * 24 * HOUR;
  t.same(events.mute("tool \u001b[31m sk-canary-0123456789", 8e15), {
    subject: "tool \\u{1b}[31m [hidden]",
    until: last,
  });
  writeFileSync(file, '{"mute":"tool codex","until":9e15}\n');
  t.same(open().events.mutes(), [{ subject: "tool codex", until: last }]);
});

t.test("a clock that is set back silences nothing for long, and ids rise all the same", async (t) => {
  const { events, sent, clock } = await scene(t);
  events.report(OTHER_MODEL);
  clock.pass(-3 * HOUR);
  events.report(OTHER_MODEL);
  const [first, second] = sent;
  t.ok(first && second && second.id > first.id);
});

t.test("a listener that fails neither stops the others nor the reporter", async (t) => {
  const { file, clock, lines } = await scene(t);
  const events = new Events({ file, clock, log: quietLog(lines) });
  const sent: Event[] = [];
  events.onEvent(() => {
    throw new Error("it broke");
  });
  events.onEvent((event) => sent.push(event));
  t.ok(events.report(DOWN));
  t.equal(sent.length, 1);
  t.match(lines.join(""), "handing on an event failed");
});

t.test("the newest 2,000 are kept, with what is active and what must not come again", async (t) => {
  const { events, file, clock, open } = await scene(t);
  events.report(DOWN);
  events.report({ ...OTHER_MODEL, kind: "limit", once: { name: "month", until: clock.now() + 700 * HOUR } });
  for (let n = 0; n < 3100; n += 1) events.report({ ...OTHER_MODEL, subject: `tool t${n}` });
  events.tick();
  await events.stop();
  const lines = readFileSync(file, "utf8").trimEnd().split("\n");
  t.equal(lines.length, 2002);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const again = open().events;
  t.same(again.active()[0]?.subject, "gateway main");
  t.ok(again.wasReported({ ...OTHER_MODEL, kind: "limit", once: { name: "month", until: 0 } }));
});

t.test("events that come while the file is rewritten are in it", async (t) => {
  const { events, file, open } = await scene(t);
  events.report(DOWN);
  appendFileSync(file, "{");
  const { events: later } = open();
  later.tick();
  later.report(OTHER_MODEL);
  await later.stop();
  t.equal(readFileSync(file, "utf8").trimEnd().split("\n").length, 2);
});

t.test("damaged lines are skipped, and a link is never followed", async (t) => {
  const { file, clock } = await scene(t);
  const lines: string[] = [];
  const other = `${file}.other`;
  writeFileSync(other, '{"mute":"tool codex","until":9e15}\n');
  symlinkSync(other, file);
  const events = new Events({ file, clock, log: quietLog(lines) });
  t.match(lines.join(""), "is a link");
  t.same(events.mutes(), []);
  events.report(DOWN);
  events.tick();
  await events.stop();
  t.equal(readFileSync(other, "utf8"), '{"mute":"tool codex","until":9e15}\n');
  rmSync(file);
  const good =
    '{"id":"01","at":1,"kind":"limit","severity":"info","subject":"a","message":"b","next":null,"state":"begun"}';
  const bad = ["[]", "null", "{}", good.replace("limit", "what"), good.replace('"at":1', '"at":"1"'), "\0\0"];
  writeFileSync(file, [...bad, good, ""].join("\n"));
  t.same(
    new Events({ file, clock, log: quietLog() }).newest(9).map(({ id }) => id),
    ["01"],
  );
});

t.test("with a full disk events are sent all the same, and written when there is room", async (t) => {
  const disk = mountSmallDisk(t, 1);
  if (disk === null) return;
  const folder = join(disk.folder, "state");
  mkdirSync(folder);
  const { events, sent, open, lines } = await scene(t, folder);
  events.report(DOWN);
  disk.fill();
  for (let n = 0; n < 50; n += 1) events.report({ ...OTHER_MODEL, subject: `tool t${n}` });
  t.equal(sent.length, 51);
  t.equal(events.newest(99).length, 51);
  events.tick();
  await events.stop();
  t.equal(lines.filter((line) => line.includes("events cannot be written")).length, 1);
  disk.free();
  events.tick();
  await events.stop();
  t.equal(open().events.newest(99).length, 51);
  t.match(lines.join(""), "events are written again");
});

t.test("a disk that stays full is tried again after twice as long each time, up to a minute", async (t) => {
  const home = await newHome(t);
  const folder = join(home, "state");
  // The file cannot be in it.
  writeFileSync(folder, "");
  const clock = heldClock();
  const lines: string[] = [];
  let attempts = 0;
  const events = new Events({
    clock,
    log: quietLog(lines),
    get file() {
      attempts += 1;
      return join(folder, "events.jsonl");
    },
  });
  events.report(DOWN);
  attempts = 0;
  const tick = async () => {
    clock.pass(2000);
    events.tick();
    // Time for an attempt to end.
    for (let n = 0; n < 5; n += 1) await stat(home);
  };
  for (let minute = 0; minute < 20; minute += 1) for (let n = 0; n < 30; n += 1) await tick();
  t.ok(attempts > 3 && attempts <= 25, `${attempts} attempts in 20 minutes`);
  t.equal(lines.filter((line) => line.includes("events cannot be written")).length, 1);
  rmSync(folder);
  mkdirSync(folder);
  for (let n = 0; n < 31; n += 1) await tick();
  await until("it is written", () => existsSync(join(folder, "events.jsonl")));
  t.equal(lines.filter((line) => line.includes("events are written again")).length, 1);
});

t.test("what a full disk took half of spoils no later event", async (t) => {
  const { events, file, open } = await scene(t);
  events.report(DOWN);
  appendFileSync(file, '{"id":"01K');
  const { events: later } = open();
  later.report(OTHER_MODEL);
  t.equal(open().events.newest(9).length, 2, "the process was killed before the file was written again");
});

t.test("no credential and no whole address gets into an event", async (t) => {
  const { events, file, lines } = await scene(t);
  const secret = "sk-canary-3f9a8b7c6d5e4f3a2b1c";
  const event = events.report({
    ...DOWN,
    subject: `tool ${secret}`,
    message: `POST https://user:${secret}@gateway.example.com/v1/chat?key=${secret} failed\nwith Bearer ${secret}\u001b[31m`,
    next: `keybearer tools add ${secret} --gateway https://user:canary@gateway.example.com/canary`,
  });
  for (const text of [JSON.stringify(event), readFileSync(file, "utf8"), lines.join("")])
    t.notOk(text.includes("canary"));
  t.match(event?.message, /^POST https:\/\/gateway\.example\.com failed with Bearer \[hidden\]\\u\{1b\}/);
});

t.test("the names of models and sessions stay readable, and keys among them do not", async (t) => {
  const { events, file } = await scene(t);
  const asked = "Qwen3-Coder-480B-A35B-Instruct";
  const event = events.report(otherModelAnswered({ tool: "codex", asked, answered: "sk-0123456789abcdef" }));
  t.match(event, {
    message: `codex asked for ${asked}, and [hidden] answered`,
    next: `keybearer usage ack-model ${asked} [hidden]`,
  });
  t.notMatch(readFileSync(file, "utf8"), "0123456789abcdef");
  const session = "session 01HXYZABCDabcd0123456789ab of tool codex has used 80 % of its limit";
  t.equal(events.report({ ...OTHER_MODEL, kind: "limit", message: session })?.message, session);
});
