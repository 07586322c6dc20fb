import t from "tap";
import { alarmRemedy } from "../../src/mirror/report/messages.ts";
import { longTest } from "../doubles/effort.ts";
import { DAY, MINUTE, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

t.test("a leaked key is rotated automatically, once a day", async (t) => {
  const journey = await startJourney(t, "sub2api", { tools: { codex: "on_leak: rotate" } });
  const keyOf = async () => (await journey.status()).tools.find(({ name }) => name === "codex")?.key;
  const keysAtConsole = () => journey.console.keys.map(({ key }) => key);
  const leak = async (key: string) => {
    journey.clock.pass(1000);
    journey.elsewhere({ key });
    journey.clock.pass(MINUTE);
    await journey.sync();
  };
  // The gateway's ids are learned from requests of our own.
  await journey.idle();
  for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
  const first = await keyOf();

  await leak(journey.codex.key);
  await until("the key is another one", async () => ![first, null].includes(await keyOf()));
  const second = await keyOf();
  await until("it is reported", () => journey.logText().includes("the key was rotated because it leaked"));
  const { actions } = await journey.status();
  t.match(actions[0]?.what, /rotated the key of codex because it leaked/);
  t.notOk(keysAtConsole().includes(journey.codex.key), "the thief's key is deleted at the console");
  t.equal((await journey.ask()).status, 200, "the tool goes on");

  await leak(keysAtConsole().at(-1) ?? "");
  const { alarms } = await journey.idle();
  t.ok(
    alarms.some(({ key, certain }) => certain && key === second),
    "the next leak is an alarm",
  );
  t.equal(await keyOf(), second, "on the same day nothing more is rotated");

  journey.clock.pass(DAY);
  await journey.sync();
  await until("a day later it is", async () => (await keyOf()) !== second);
});

longTest(
  t,
  "after that, the alarm does not ask to delete the key, although the console is not read again",
  async (t) => {
    const journey = await startJourney(t, "sub2api", { tools: { codex: "on_leak: rotate" } });
    const { console, codex } = journey;
    await journey.idle();
    for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
    console.onReply = ({ method, path }, reply) => {
      const isDeleted = console.keys.every(({ key }) => key !== codex.key);
      const isList = method === "GET" && path === "/api/v1/keys";
      return isDeleted && isList ? { status: 500, body: { code: 500, message: "internal error" } } : reply;
    };
    journey.clock.pass(1000);
    journey.elsewhere();
    journey.clock.pass(MINUTE);
    await journey.sync();
    await until("it is rotated", () => journey.logged(/the key was rotated because it leaked/).length > 0);
    const { state, alarms } = await journey.idle();
    const [alarm] = alarms;
    if (alarm === undefined) throw new Error("there is no alarm");
    t.match(alarm, { certain: true, replaced: true, key: `…${codex.key.slice(-4)}` });
    t.match(alarmRemedy(alarm, String), /there is nothing left to delete$/);
    t.equal(state, "failing", "no later list shows it");
  },
);
