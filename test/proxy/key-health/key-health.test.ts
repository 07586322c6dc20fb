import t from "tap";
import type { KeyState } from "../../../src/config/snapshot.ts";
import { refuse } from "../../../src/core/refusal.ts";
import { Secret } from "../../../src/core/secret.ts";
import { findCause, type Tested } from "../../../src/proxy/key-health/cause.ts";
import { KeyHealth } from "../../../src/proxy/key-health/key-health.ts";
import { NOTHING_OBSERVED } from "../../../src/proxy/observer.ts";
import { NOTHING_SENT, type Outcome } from "../../../src/proxy/outcome.ts";
import { heldClock } from "../../doubles/held-clock.ts";
import { movableClock } from "../../doubles/movable-clock.ts";

const KEY = new Secret("sk-health-0123456789");
const OTHER_KEY = new Secret("sk-health-9876543210");
const MINUTE = 60_000;

function answered(status: number, body = "", text: string | null = null): Outcome {
  const cause = findCause({ status, contentType: "application/json", body });
  return {
    ...NOTHING_SENT,
    end: "complete",
    status,
    observed: { ...NOTHING_OBSERVED, cause, errorText: text },
  };
}

/** What is known of keys, and requests of the tool codex. */
function scene(clock: ReturnType<typeof heldClock> = heldClock()) {
  const health = new KeyHealth(clock);
  let number = 0;
  const start = (key = KEY) => {
    number += 1;
    const id = `request-${number}`;
    const refusal = health.admit("codex", key, id);
    return {
      refusal,
      end: (outcome: Outcome, isFree = false) => health.settle("codex", key, id, outcome, isFree),
    };
  };
  const send = (outcome: Outcome, { key = KEY, isFree = false } = {}) => {
    const request = start(key);
    request.end(request.refusal === null ? outcome : { ...NOTHING_SENT, refusal: request.refusal }, isFree);
    return request.refusal;
  };
  const report = (key = KEY) => {
    const state: KeyState = { state: "ready", key };
    const tool = { name: "codex", key: { kind: "literal", secret: key } as const };
    return health.report(tool, state, { facts: null, canRotate: false });
  };
  const cause = (key = KEY) => report(key).refusal?.cause ?? null;
  return { health, clock, start, send, report, cause };
}

t.test("a list of models does not show that there is money again", async (t) => {
  const refusals = [
    // new-api 2d8e50bf
    answered(
      403,
      '{"error":{"message":"用户额度不足","type":"new_api_error","code":"insufficient_user_quota"}}',
    ),
    // sub2api 0.1.135
    answered(
      429,
      '{"error":{"message":"api key 5小时限额已用完","type":"rate_limit_exceeded"},"type":"error"}',
    ),
  ];
  for (const refused of refusals) {
    const { send, report } = scene();
    send(refused);
    send(answered(200), { isFree: true });
    t.match(report(), { state: "refused", refusal: { cause: { name: "balance-or-quota" }, times: 1 } });
    send(answered(200));
    t.match(report(), { state: "usable", problem: null, refusal: null });
  }
});

t.test("a list of models shows that the key is accepted again, and so does one for a new key", async (t) => {
  const { health, send, cause } = scene();
  send(answered(401, '{"code":"API_KEY_DISABLED","message":"API key is disabled"}'));
  t.match(cause(), { detail: "key-disabled" });
  send(answered(200), { isFree: true });
  t.equal(cause(), null);
  // new-api answers 401 also to a key whose quota is used up.
  send(answered(401, '{"error":{"message":"Invalid token","type":"new_api_error"}}'));
  health.learn("codex", KEY, "key-quota");
  t.match(cause(), { detail: "key-quota" });
  send(answered(200), { isFree: true });
  t.equal(cause(), null);
  send(answered(402, "{}"));
  t.equal(cause(OTHER_KEY), null, "a refusal of one key says nothing about another");
  send(answered(200), { key: OTHER_KEY, isFree: true });
  t.equal(cause(OTHER_KEY), null);
});

t.test(
  "a 401 in words that are not known may be retried once: the key is read again meanwhile",
  async (t) => {
    const { health, send } = scene();
    const refused = answered(401, "who knows");
    const { cause } = refused.observed;
    if (cause === null) throw new Error("a 401 has a cause");
    const canRetry = (key: Secret) => health.refine("codex", key, cause).canRetry;
    t.equal(canRetry(KEY), true);
    send(refused);
    t.equal(canRetry(KEY), false, "it is still the same key");
    t.equal(canRetry(new Secret("sk-health-0123456789")), false, "as another object, too");
    t.equal(canRetry(OTHER_KEY), true);
    send(answered(200));
    t.equal(canRetry(KEY), true);
  },
);

/** Of sub2api 0.1.135. */
const DAILY =
  '{"code":"USAGE_LIMIT_EXCEEDED","message":"error: code=429 reason=\\"DAILY_LIMIT_EXCEEDED\\" message=\\"daily usage limit exceeded\\" metadata=map[]"}';
const USED_UP: readonly [what: string, refused: Outcome, endsWith: Tested][] = [
  [
    "a key's own window",
    answered(429, '{"error":{"message":"api key 日限额已用完","type":"rate_limit_exceeded"},"type":"error"}'),
    "key-windows",
  ],
  ["a plan's day", answered(429, DAILY), "plan"],
  [
    "a plan's day, from another cache",
    answered(403, '{"error":{"message":"daily usage limit exceeded","type":"billing_error"},"type":"error"}'),
    "plan",
  ],
  [
    "a platform's quota, which the gateway does not report",
    answered(
      429,
      '{"error":{"message":"Daily usage quota exhausted for this platform.","type":"rate_limit_exceeded"},"type":"error"}',
    ),
    "request",
  ],
];

t.test("no probe ends a refusal that it did not test", async (t) => {
  const all: readonly Tested[] = ["key", "money", "key-windows", "plan"];
  for (const [what, refused, endsWith] of USED_UP) {
    const { clock, health, send, cause } = scene(movableClock());
    send(refused);
    clock.pass(300_000);
    health.accept(
      "codex",
      KEY,
      all.filter((one) => one !== endsWith),
    );
    t.match(cause(), { detail: "window-used-up" }, what);
    health.accept("codex", KEY, [endsWith]);
    t.equal(cause(), null, `${what}, tested`);
  }
});

t.test("a report of the plan right after its refusal may be older than the refusal", async (t) => {
  const { clock, health, send, cause } = scene(movableClock());
  send(answered(429, DAILY));
  clock.pass(11_000);
  health.accept("codex", KEY, ["key", "money", "plan"]);
  t.match(cause(), { detail: "window-used-up" });
  clock.pass(300_000);
  health.accept("codex", KEY, ["key", "money", "plan"]);
  t.equal(cause(), null);
});

t.test("a key that worked before is complete, so the gateway that does not know it deleted it", async (t) => {
  const unknown = answered(401, '{"code":"INVALID_API_KEY","message":"Invalid API key"}');
  const ambiguous = answered(401, '{"error":{"message":"Invalid token","type":"new_api_error"}}');
  const { health, send } = scene();
  const refine = ({ observed }: Outcome) => {
    if (observed.cause === null) throw new Error("a 401 has a cause");
    const { name, detail } = health.refine("codex", KEY, observed.cause);
    return [name, detail];
  };
  t.strictSame(refine(unknown), ["incomplete-key", null]);
  t.strictSame(refine(ambiguous), ["incomplete-key", null]);
  send(answered(200), { isFree: true });
  t.strictSame(refine(unknown), ["unknown", "key-deleted"]);
  t.strictSame(refine(ambiguous), ["unknown", null], "deleted, disabled, expired or used up");
});

/** A refusal of sub2api's. With other statuses than 401 it says nothing about the key. */
function denied(status = 401): Outcome {
  return answered(status, '{"code":"INVALID_API_KEY","message":"Invalid API key"}', "Invalid API key");
}

function pausing() {
  const all = scene();
  const pause = () => {
    for (let n = 0; n < 5; n += 1) t.equal(all.send(denied()), null);
  };
  return { ...all, pause };
}

t.test("after five 401s in a row nothing is sent for a minute, and the answer is quoted", async (t) => {
  const { report, clock, send, pause } = pausing();
  pause();
  const refusal = send(answered(200));
  t.equal(refusal?.code, "key-unavailable");
  t.match(refusal?.message, /refused the key of tool codex 5 times in a row: 401 "Invalid API key"/);
  t.match(refusal?.message, /the next request is sent in 60 s.*keybearer tools rotate codex/);
  send(answered(200));
  t.strictSame(report().pause, {
    since: clock.now(),
    until: clock.now() + MINUTE,
    probing: false,
    refused: 2,
  });
  clock.pass(MINUTE - 1);
  t.equal(send(answered(200))?.code, "key-unavailable");
});

t.test("after the minute one request tries the key, the others are refused until its answer", async (t) => {
  const { report, clock, start, pause } = pausing();
  pause();
  clock.pass(MINUTE);
  const probe = start();
  const others = [start(), start(), start()];
  t.equal(probe.refusal, null);
  for (const { refusal } of others) t.match(refusal?.message, /another request is trying the key right now/);
  for (const { end, refusal } of others) end({ ...NOTHING_SENT, refusal });
  t.match(report().pause, { probing: true, refused: 3 });
  t.ok(start().refusal, "settling a refused one does not free the place of the one that tries");
  probe.end(answered(200));
  t.equal(report().pause, null);
  t.equal(start().refusal, null);
});

t.test("a try that gets another 401 starts the next minute", async (t) => {
  const { clock, send, pause } = pausing();
  pause();
  clock.pass(MINUTE);
  t.equal(send(denied()), null);
  clock.pass(MINUTE - 1);
  t.match(send(answered(200))?.message, /6 times in a row/);
  clock.pass(1);
  t.equal(send(answered(200)), null);
  t.equal(send(denied()), null, "it counts from the beginning");
  t.equal(send(denied()), null);
});

t.test("a try without an answer leaves its place to the next request", async (t) => {
  const { clock, send, pause } = pausing();
  pause();
  clock.pass(MINUTE);
  for (const outcome of [
    { ...NOTHING_SENT, end: "client-left" as const },
    { ...NOTHING_SENT, refusal: refuse("rate-limited", "") },
    denied(502),
    denied(429),
  ])
    t.equal(send(outcome), null);
  t.equal(send(denied()), null);
  t.ok(send(answered(200)), "and then the next minute has begun");
});

t.test(
  "only 401s in a row count, and those of requests that were sent before do not prolong it",
  async (t) => {
    const { report, clock, start, send } = pausing();
    for (let n = 0; n < 4; n += 1) send(denied());
    send(denied(404));
    for (let n = 0; n < 4; n += 1) send(denied());
    // These say nothing about the key, so the row goes on.
    send(denied(503));
    send(denied(429));
    const early = [start(), start(), start()];
    for (const { refusal, end } of early) {
      t.equal(refusal, null);
      clock.pass(1000);
      end(denied());
    }
    t.match(report().pause, { since: clock.now() - 2000, until: clock.now() - 2000 + MINUTE });
  },
);

t.test("a provider's 401 that the gateway passes on does not count", async (t) => {
  const { send } = pausing();
  const body = '{"error":{"message":"Incorrect API key provided","type":"invalid_request_error"}}';
  const cause = findCause({ status: 401, contentType: "application/json", body, isNewApi: true });
  const relayed = { ...denied(), observed: { ...NOTHING_OBSERVED, cause } };
  for (let n = 0; n < 9; n += 1) t.equal(send(relayed), null);
});

t.test("where the account is disabled, no new key is advised", async (t) => {
  const { send } = pausing();
  // sub2api 0.1.135
  const body = '{"code":"USER_INACTIVE","message":"User account is not active"}';
  const cause = findCause({ status: 401, contentType: "application/json", body });
  const inactive = { ...denied(), observed: { ...NOTHING_OBSERVED, cause } };
  for (let n = 0; n < 5; n += 1) t.equal(send(inactive), null);
  const refusal = send(answered(200));
  t.match(refusal?.message, /a new key does not help.*the next request is sent in 60 s$/);
  t.notMatch(refusal?.message, /rotate/);
});

t.test("another key is tried at once, and so is the same one after a reload", async (t) => {
  const { health, report, send, pause } = pausing();
  pause();
  t.equal(report(OTHER_KEY).pause, null);
  t.equal(send(denied(), { key: OTHER_KEY }), null);
  t.equal(send(answered(200), { key: OTHER_KEY }), null);
  pause();
  t.ok(send(answered(200)));
  health.endPauses();
  t.equal(send(answered(200)), null);
});

t.test("a late answer to the key before says nothing about the new one", async (t) => {
  const { report, start, send } = scene();
  const late = [start(), start()];
  send(answered(200), { key: OTHER_KEY });
  for (const [at, outcome] of [denied(), answered(200)].entries()) late[at]?.end(outcome);
  t.match(report(OTHER_KEY), { state: "usable", refusal: null });
  t.match(report(), { state: "usable", refusal: null });
});
