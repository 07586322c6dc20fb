import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { causeOf } from "../../src/proxy/cause.ts";
import { KeyHealth } from "../../src/proxy/health.ts";
import { NOTHING_OBSERVED } from "../../src/proxy/observer.ts";
import { NOTHING_SENT, type Outcome } from "../../src/proxy/outcome.ts";
import { heldClock } from "../doubles/held-clock.ts";

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
