import t from "tap";
import { Secret } from "../../../src/core/secret.ts";
import { causeOf, type Tested } from "../../../src/proxy/key-health/cause.ts";
import { KeyHealth } from "../../../src/proxy/key-health/key-health.ts";
import { NOTHING_OBSERVED } from "../../../src/proxy/observer.ts";
import { NOTHING_SENT, type Outcome } from "../../../src/proxy/outcome.ts";
import { heldClock } from "../../doubles/held-clock.ts";
import { movableClock } from "../../doubles/movable-clock.ts";

const KEY = new Secret("sk-health-0123456789");

function answered(status: number, body = ""): Outcome {
  const cause = causeOf({ status, contentType: "application/json", body });
  return { ...NOTHING_SENT, end: "complete", status, observed: { ...NOTHING_OBSERVED, cause } };
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
    const health = new KeyHealth(heldClock());
    health.note("codex", KEY, refused);
    health.note("codex", KEY, answered(200), true);
    t.match(health.of("codex"), { cause: "balance-or-quota", times: 1 });
    health.note("codex", KEY, answered(200));
    t.equal(health.of("codex"), null);
  }
});

t.test("a list of models shows that the key is accepted again, and so does one for a new key", async (t) => {
  const health = new KeyHealth(heldClock());
  health.note("codex", KEY, answered(401, '{"code":"API_KEY_DISABLED","message":"API key is disabled"}'));
  health.note("codex", KEY, answered(200), true);
  t.equal(health.of("codex"), null);
  // new-api answers 401 also to a key whose quota is used up.
  health.note("codex", KEY, answered(401, '{"error":{"message":"Invalid token","type":"new_api_error"}}'));
  health.learn("codex", KEY, "key-quota");
  health.note("codex", KEY, answered(200), true);
  t.equal(health.of("codex"), null);
  health.note("codex", KEY, answered(402, "{}"));
  health.note("codex", new Secret("sk-health-9876543210"), answered(200), true);
  t.equal(health.of("codex"), null);
});

t.test(
  "a 401 in words that are not known may be retried once: the key is read again meanwhile",
  async (t) => {
    const health = new KeyHealth(heldClock());
    const refused = answered(401, "who knows");
    const { cause } = refused.observed;
    if (cause === null) throw new Error("a 401 has a cause");
    const canRetry = (key: Secret) => health.refine("codex", key, cause).canRetry;
    t.equal(canRetry(KEY), true);
    health.note("codex", KEY, refused);
    t.equal(canRetry(KEY), false, "it is still the same key");
    t.equal(canRetry(new Secret("sk-health-9876543210")), true);
    health.note("codex", KEY, answered(200));
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
    const clock = movableClock();
    const health = new KeyHealth(clock);
    health.note("codex", KEY, refused);
    clock.pass(300_000);
    health.accept(
      "codex",
      KEY,
      all.filter((one) => one !== endsWith),
    );
    t.match(health.of("codex"), { detail: "window-used-up" }, what);
    health.accept("codex", KEY, [endsWith]);
    t.equal(health.of("codex"), null, `${what}, tested`);
  }
});

t.test("a report of the plan right after its refusal may be older than the refusal", async (t) => {
  const clock = movableClock();
  const health = new KeyHealth(clock);
  health.note("codex", KEY, answered(429, DAILY));
  clock.pass(11_000);
  health.accept("codex", KEY, ["key", "money", "plan"]);
  t.match(health.of("codex"), { detail: "window-used-up" });
  clock.pass(300_000);
  health.accept("codex", KEY, ["key", "money", "plan"]);
  t.equal(health.of("codex"), null);
});

t.test("a key that worked before is complete, so the gateway that does not know it deleted it", async (t) => {
  const unknown = answered(401, '{"code":"INVALID_API_KEY","message":"Invalid API key"}');
  const ambiguous = answered(401, '{"error":{"message":"Invalid token","type":"new_api_error"}}');
  const health = new KeyHealth(heldClock());
  const refine = ({ observed }: Outcome) => {
    if (observed.cause === null) throw new Error("a 401 has a cause");
    const { name, detail } = health.refine("codex", KEY, observed.cause);
    return [name, detail];
  };
  t.strictSame(refine(unknown), ["incomplete-key", null]);
  t.strictSame(refine(ambiguous), ["incomplete-key", null]);
  health.note("codex", KEY, answered(200), true);
  t.strictSame(refine(unknown), ["unknown", "key-deleted"]);
  t.strictSame(refine(ambiguous), ["unknown", null], "deleted, disabled, expired or used up");
});
