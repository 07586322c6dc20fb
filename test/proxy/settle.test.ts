import t from "tap";
import { systemClock } from "../../src/clock.ts";
import type { Lease } from "../../src/limits/limiter.ts";
import { NOTHING_SENT, type Outcome } from "../../src/proxy/exchange.ts";
import { openingOf } from "../../src/proxy/recording.ts";
import { openRequest, type Request } from "../../src/proxy/request.ts";
import { type SettleMeans, settle, settling } from "../../src/proxy/settle.ts";
import type { Closing } from "../../src/usage/record.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const SNAPSHOT = snapshotOf(
  "gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-settle-0123456789 } }\n",
);
const ANSWERED: Outcome = {
  ...NOTHING_SENT,
  end: "complete",
  status: 200,
  arrived: true,
  reading: {
    tokens: { input: 7, output: 5, cacheRead: 0, cacheWrite: 0, reasoning: 0 },
    model: "penny",
    reached: true,
    text: { characters: 0, others: 0 },
  } as unknown as Outcome["reading"],
};

/** A request that was let in and recorded, and what its settling did. */
function scene(means: Partial<Record<"prices" | "running", object>> = {}) {
  const request: Request = openRequest(
    { method: "POST", url: "/v1/chat/completions", headers: {} },
    SNAPSHOT,
    systemClock,
  );
  const lease = { tool: "codex", reservation: { tokens: 10, spend: 10, at: 1 } } as unknown as Lease;
  Object.assign(request, { tool: SNAPSHOT.config.tools.codex, lease, recorded: true });
  request.opening = openingOf(request);
  const closings: Closing[] = [];
  const settled: unknown[] = [];
  const lines: string[] = [];
  const all = {
    clock: systemClock,
    log: quietLog(lines),
    keyHealth: { note: () => {} },
    gatewayHealth: { note: () => {} },
    journal: { close: (_id: string, closing: Closing) => closings.push(closing) },
    prices: { priceOf: () => null },
    strangers: {},
    limiter: {
      settle: (_lease: Lease, used: unknown) => settled.push(used),
      note: () => {},
      cancel: () => {},
    },
    running: { remove: () => {} },
    followed: () => false,
    tell: () => {},
    rereadKey: () => {},
    ...means,
  };
  return { request, closings, settled, lines, means: all as unknown as SettleMeans };
}

const FAILS = () => {
  throw new Error("injected");
};

t.test("a request is settled once, however often that is asked for", async (t) => {
  const { request, means, closings, settled } = scene();
  await settling(request, means, async () => {
    settle(request, ANSWERED, means);
    settle(request, ANSWERED, means);
  });
  t.match(closings, [{ end: "complete", status: 200, input_tokens: 7, output_tokens: 5 }]);
  t.equal(closings.length, 1);
  t.same(settled, [{ tokens: 12, spend: null }]);
});

t.test("where its cost cannot be worked out, it is settled all the same, as held", async (t) => {
  const { request, means, closings, settled, lines } = scene({ prices: { priceOf: FAILS } });
  settle(request, ANSWERED, means);
  t.match(closings, [
    { end: "complete", status: 200, input_tokens: null, tokens_from: "none", counts: true },
  ]);
  t.same(settled, [{ tokens: null, spend: null }]);
  t.match(lines.join(""), /injected.*could not be settled: its tokens and cost are unknown/);
  t.match(lines.at(-1), /"end":"complete"/, "its own log line is there, too");
});

t.test("a step that fails keeps no other one from happening", async (t) => {
  const { request, means, closings, settled } = scene({ running: { remove: FAILS } });
  settle(request, ANSWERED, means);
  t.equal(closings.length, 1);
  t.equal(settled.length, 1);
});

t.test("a request that a bug ends before it is settled is settled as failed", async (t) => {
  const { request, means, closings } = scene();
  await t.rejects(
    settling(request, means, async () => FAILS()),
    { message: "injected" },
  );
  t.match(closings, [{ end: "gateway-failed" }]);
});
