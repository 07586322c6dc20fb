import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { EventsAnswer } from "../../src/control/routes.ts";
import { MINUTE, startJourney } from "../doubles/mirror-journey.ts";
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
