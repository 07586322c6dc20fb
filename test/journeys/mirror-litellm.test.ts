import t from "tap";
import type { ComparedRow } from "../../src/mirror/report/shape.ts";
import { LOGIN } from "../doubles/consoles/console-double.ts";
import { startLiteLlm } from "../doubles/consoles/litellm.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { HOUR, leave, MINUTE, startBeside } from "../doubles/mirror-journey.ts";

t.test("LiteLLM is recognized, and every request is matched by the id that it brought", async (t) => {
  const clock = heldClock();
  const console = await startLiteLlm(t, { now: clock.now });
  const detected = [`url: ${console.url}`, `login: { access_token: ${LOGIN.accessToken} }`];
  const journey = await startBeside(t, console, clock, { console: detected });
  t.match(await journey.idle(), { kind: "litellm", detected: true, state: "ok" });

  // As of an answer to /v1/responses.
  console.providerIds[console.rows.length] = `resp_${"a".repeat(392)}`;
  const { id, headers } = await journey.ask({ "X-LiteLLM-Call-Id": "the-client's" });
  t.equal(console.callIds.at(-1), id, "keybearer's own id replaces the client's");
  t.equal(headers.get("x-litellm-call-id"), id);
  const streamed = await journey.ask({}, { stream: true });
  const failed = await journey.ask({ "x-test-status": "500" });
  console.timedOut.set(failed.id, 2);
  await leave(journey, "before-headers");
  const unanswered = console.callIds.at(-1) ?? "";
  clock.pass(MINUTE);
  await journey.sync();
  for (const [what, found] of Object.entries({ id, streamed: streamed.id, unanswered }))
    t.match(
      await journey.compared(found),
      { verdict: "matched", row: { how: "id" }, record: { id: found } },
      what,
    );
  t.match(await journey.mirror(), { records: { matched: 4, missing: 0 }, alarms: [] });
  t.match(
    await journey.control<ComparedRow[]>("POST", "/compared", { what: failed.id }),
    [1, 2, 3].map(() => ({ row: { how: "id" }, record: { id: failed.id } })),
    "every attempt is the request's own",
  );

  const { keys } = await journey.keys();
  t.match(keys, [
    { name: "codex", tools: ["codex"], state: "active", key: `…${journey.codex.key.slice(-4)}` },
  ]);

  const [codex] = console.keys;
  if (codex !== undefined) codex.disabled = true;
  const refused = await journey.ask();
  t.equal(refused.headers.get("x-keybearer-cause-detail"), "key-disabled");
  if (codex !== undefined) codex.disabled = false;
  clock.pass(MINUTE);
  await journey.sync();
  t.match(await journey.compared(refused.id), {
    verdict: "matched",
    row: { how: "presumed", kind: "error" },
  });
  t.same((await journey.mirror()).alarms, [], "LiteLLM lists a refusal under an id of its own");

  // LiteLLM answers so without its database, and then lists nothing.
  console.logging = false;
  await journey.ask({ "x-test-status": "503" });
  console.logging = true;
  journey.elsewhere();
  clock.pass(MINUTE);
  await journey.sync();
  t.match(
    (await journey.mirror()).alarms,
    [{ certain: true, count: 1 }],
    "a row without one of our ids is foreign",
  );
  await journey.ack();
  const { blind } = await journey.mirror();
  t.match(
    blind.filter((spot) => /id of a request of yours that is still in flight|refused call/.test(spot)),
    { length: 2 },
    "what is taken for ours has the id of a request in flight, or cost nothing",
  );
  t.notMatch(blind.join(), /not billed: it is taken for yours/);

  // LiteLLM takes an id from everyone who knows it, as often as it comes.
  console.providerIds[console.rows.length] = `resp_${"b".repeat(392)}`;
  await fetch(`${console.url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${journey.codex.key}`,
      "content-type": "application/json",
      "x-litellm-call-id": id,
    },
    body: JSON.stringify({ model: "gpt-5.1", messages: [] }),
  });
  clock.pass(MINUTE);
  await journey.sync();
  t.match(
    (await journey.mirror()).alarms,
    [{ certain: true, count: 1 }],
    "an id of a request that is over proves nothing",
  );
  t.match((await journey.diff())[0], {
    verdict: "foreign",
    reason: new RegExp(`has the id of request ${id}`),
  });
  await journey.ack();

  // Both answers have one id.
  const rows = console.rows.length;
  console.providerIds[rows] = "chatcmpl-double";
  console.providerIds[rows + 1] = "chatcmpl-double";
  const first = await journey.ask();
  const second = await journey.ask();
  clock.pass(HOUR);
  await journey.sync();
  t.match(await journey.compared(first.id), { verdict: "matched" });
  t.match(await journey.compared(second.id), {
    verdict: "missing",
    reason: /gave its answer the id of another one.*the key's spend counts both/,
  });
  t.same((await journey.mirror()).alarms, [], "that is no alarm");

  // From the first request on, although the console cannot be asked what it is.
  await journey.daemon.stop(0);
  console.fault = "500";
  const again = await journey.startAgain();
  const known = await again.ask();
  t.equal(console.callIds.at(-1), known.id, "its kind is stored");

  const { revision } = (await again.status()).config;
  await again.edit(again.config({ console: ["kind: litellm", "url: http://127.0.0.1:9"] }));
  t.ok((await again.status()).config.revision > revision);
  await again.ask({ "x-litellm-call-id": "the-client's" });
  t.equal(console.callIds.at(-1), "the-client's", "another origin gets no ids");
});
