import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { EventsAnswer } from "../../src/control/routes.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import type { Sub2apiDouble } from "../doubles/consoles/sub2api.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { DAY, HOUR, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

t.test("a leak is an event until it is acknowledged", async (t) => {
  const journey = await startJourney(t, "sub2api");
  const events = async () => {
    const asked = await askDaemon<EventsAnswer>(journey.paths, "GET", "/events");
    return asked.ok ? asked.value.events.filter(({ kind }) => kind === "leak") : [];
  };
  await journey.idle();
  // The gateway's ids are learned from requests of our own.
  for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
  journey.clock.pass(1000);
  journey.elsewhere({ key: journey.codex.key });
  journey.clock.pass(MINUTE);
  await journey.sync();
  await until("the leak is reported", async () => (await events()).length === 1);
  const [leak] = await events();
  const fingerprint = `…${journey.codex.key.slice(-4)}`;
  t.match(leak, {
    severity: "critical",
    subject: `key ${fingerprint}`,
    active: true,
    next: "keybearer mirror",
  });
  t.match(leak?.message, `key ${fingerprint} of codex was used outside keybearer: 1 request`);
  t.notOk(JSON.stringify(leak).includes(journey.codex.key));
  const all = { gateway: null, key: null, certain: null, last_at: null, count: null };
  t.match(await askDaemon(journey.paths, "POST", "/ack", all), { value: { acknowledged: 1 } });
  await until("it is over", async () => (await events()).length === 2);
  t.match((await events())[1], { state: "ended", message: `key ${fingerprint} has no open alarm any more` });
});

t.test(
  "a login that renews itself is no event, and one that ends is one seven days and one day before",
  async (t) => {
    const clock = heldClock();
    const console = (await startConsole(t, "sub2api", { now: clock.now })) as Sub2apiDouble;
    console.refreshEnd = () => clock.now() + 3 * DAY;
    const login = `login: { refresh_token: ${console.refreshToken()} }`;
    clock.pass(HOUR);
    const journey = await startBeside(t, console, clock, {
      console: ["kind: sub2api", `url: ${console.url}`, login],
    });
    const expiries = async () => {
      const asked = await askDaemon<EventsAnswer>(journey.paths, "GET", "/events");
      return asked.ok ? asked.value.events.filter(({ kind }) => kind === "expiry") : [];
    };
    const renew = async () => {
      clock.pass(HOUR);
      console.endSessions("access");
      journey.elsewhere();
      clock.pass(MINUTE);
      t.match(await journey.sync(), { state: "ok" });
      // Otherwise the daemon looks at its consoles once a minute.
      t.equal(await journey.ack(), 1);
    };
    t.match(await journey.idle(), { state: "ok" });
    // The gateway's ids are learned from requests of our own.
    for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${30 + n}` });
    await renew();
    // From here on every renewal brings a token with the same end, but for some seconds.
    const end = clock.now() + 4 * DAY;
    console.refreshEnd = () => end + (clock.now() % 7) * 1000;
    await renew();
    t.same(await expiries(), [], "its end moved until now");
    await renew();
    await until("it is reported", async () => (await expiries()).length > 0);
    t.match(await expiries(), [
      { subject: "console main", message: /^the login at console main expires in 4 days/ },
    ]);
    await renew();
    clock.pass(end - clock.now() - DAY + 2 * HOUR);
    await renew();
    await until("it is reported again", async () => (await expiries()).length > 1);
    await renew();
    t.match(await expiries(), [{ message: /in 4 days/ }, { message: /in 21 h/ }]);
  },
);
