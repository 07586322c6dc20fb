import t from "tap";
import { refuse } from "../../../src/core/refusal.ts";
import { Secret } from "../../../src/core/secret.ts";
import { causeOf } from "../../../src/proxy/key-health/cause.ts";
import { KeyBreaker } from "../../../src/proxy/key-health/key-breaker.ts";
import { NOTHING_OBSERVED } from "../../../src/proxy/observer.ts";
import { NOTHING_SENT, type Outcome } from "../../../src/proxy/outcome.ts";
import { heldClock } from "../../doubles/held-clock.ts";

const KEY = new Secret("sk-breaker-0123456789");
const MINUTE = 60_000;

function answered(status: number, text = "Invalid API key"): Outcome {
  const body = JSON.stringify({ code: "INVALID_API_KEY", message: text });
  const cause = causeOf({ status, contentType: "application/json", body });
  const observed = { ...NOTHING_OBSERVED, cause, errorText: status < 400 ? null : text };
  return { ...NOTHING_SENT, end: "complete", status, observed };
}

/** A breaker, and requests of the tool codex through it. */
function scene() {
  const clock = heldClock();
  const breaker = new KeyBreaker(clock);
  let number = 0;
  const start = (key = KEY) => {
    number += 1;
    const id = `request-${number}`;
    const refusal = breaker.admit("codex", key, id);
    return {
      refusal,
      end: (outcome: Outcome) => breaker.settle("codex", key, id, outcome),
    };
  };
  const send = (outcome: Outcome, key = KEY) => {
    const request = start(key);
    request.end(request.refusal === null ? outcome : { ...NOTHING_SENT, refusal: request.refusal });
    return request.refusal;
  };
  const pause = () => {
    for (let n = 0; n < 5; n += 1) t.equal(send(answered(401)), null);
  };
  return { clock, breaker, start, send, pause };
}

t.test("after five 401s in a row nothing is sent for a minute, and the answer is quoted", async (t) => {
  const { breaker, clock, send, pause } = scene();
  pause();
  const refusal = send(answered(200));
  t.equal(refusal?.code, "key-unavailable");
  t.match(refusal?.message, /refused the key of tool codex 5 times in a row: 401 "Invalid API key"/);
  t.match(refusal?.message, /the next request is sent in 60 s.*keybearer tools rotate codex/);
  send(answered(200));
  t.strictSame(breaker.of("codex", KEY), {
    since: clock.now(),
    until: clock.now() + MINUTE,
    probing: false,
    refused: 2,
  });
  clock.pass(MINUTE - 1);
  t.equal(send(answered(200))?.code, "key-unavailable");
});

t.test("after the minute one request tries the key, the others are refused until its answer", async (t) => {
  const { breaker, clock, start, pause } = scene();
  pause();
  clock.pass(MINUTE);
  const probe = start();
  const others = [start(), start(), start()];
  t.equal(probe.refusal, null);
  for (const { refusal } of others) t.match(refusal?.message, /another request is trying the key right now/);
  for (const { end, refusal } of others) end({ ...NOTHING_SENT, refusal });
  t.match(breaker.of("codex", KEY), { probing: true, refused: 3 });
  t.ok(start().refusal, "settling a refused one does not free the place of the one that tries");
  probe.end(answered(200));
  t.equal(breaker.of("codex", KEY), null);
  t.equal(start().refusal, null);
});

t.test("a try that gets another 401 starts the next minute", async (t) => {
  const { clock, send, pause } = scene();
  pause();
  clock.pass(MINUTE);
  t.equal(send(answered(401)), null);
  clock.pass(MINUTE - 1);
  t.match(send(answered(200))?.message, /6 times in a row/);
  clock.pass(1);
  t.equal(send(answered(200)), null);
  t.equal(send(answered(401)), null, "it counts from the beginning");
  t.equal(send(answered(401)), null);
});

t.test("a try without an answer leaves its place to the next request", async (t) => {
  const { clock, send, pause } = scene();
  pause();
  clock.pass(MINUTE);
  for (const outcome of [
    { ...NOTHING_SENT, end: "client-left" as const },
    { ...NOTHING_SENT, refusal: refuse("rate-limited", "") },
    answered(502),
    answered(429),
  ])
    t.equal(send(outcome), null);
  t.equal(send(answered(401)), null);
  t.ok(send(answered(200)), "and then the next minute has begun");
});

t.test(
  "only 401s in a row count, and those of requests that were sent before do not prolong it",
  async (t) => {
    const { breaker, clock, start, send } = scene();
    for (let n = 0; n < 4; n += 1) send(answered(401));
    send(answered(404));
    for (let n = 0; n < 4; n += 1) send(answered(401));
    // These say nothing about the key, so the row goes on.
    send(answered(503));
    send(answered(429));
    const early = [start(), start(), start()];
    for (const { refusal, end } of early) {
      t.equal(refusal, null);
      clock.pass(1000);
      end(answered(401));
    }
    t.match(breaker.of("codex", KEY), { since: clock.now() - 2000, until: clock.now() - 2000 + MINUTE });
  },
);

t.test("a provider's 401 that the gateway passes on does not count", async (t) => {
  const { send } = scene();
  const body = '{"error":{"message":"Incorrect API key provided","type":"invalid_request_error"}}';
  const cause = causeOf({ status: 401, contentType: "application/json", body, isNewApi: true });
  const relayed = { ...answered(401), observed: { ...NOTHING_OBSERVED, cause } };
  for (let n = 0; n < 9; n += 1) t.equal(send(relayed), null);
});

t.test("where the account is disabled, no new key is advised", async (t) => {
  const { send } = scene();
  // sub2api 0.1.135
  const body = '{"code":"USER_INACTIVE","message":"User account is not active"}';
  const cause = causeOf({ status: 401, contentType: "application/json", body });
  const inactive = { ...answered(401), observed: { ...NOTHING_OBSERVED, cause } };
  for (let n = 0; n < 5; n += 1) t.equal(send(inactive), null);
  const refusal = send(answered(200));
  t.match(refusal?.message, /a new key does not help.*the next request is sent in 60 s$/);
  t.notMatch(refusal?.message, /rotate/);
});

t.test("another key is tried at once, and so is the same one after a reload", async (t) => {
  const { breaker, send, pause } = scene();
  pause();
  const other = new Secret("sk-breaker-9876543210");
  t.equal(breaker.of("codex", other), null);
  t.equal(send(answered(401), other), null);
  t.equal(send(answered(200), other), null);
  pause();
  t.ok(send(answered(200)));
  breaker.clear();
  t.equal(send(answered(200)), null);
});
