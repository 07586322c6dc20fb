import t from "tap";
import { systemClock } from "../../src/core/clock.ts";
import type { Lease } from "../../src/limits/limiter.ts";
import { Call } from "../../src/proxy/call.ts";
import type { ProxyDeps } from "../../src/proxy/deps.ts";
import { NOTHING_OBSERVED, type Observed } from "../../src/proxy/observer.ts";
import { NOTHING_SENT, type Outcome } from "../../src/proxy/outcome.ts";
import { buildOpening } from "../../src/proxy/records.ts";
import { RequestHead } from "../../src/proxy/request-head.ts";
import { settle } from "../../src/proxy/settle.ts";
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
  observed: {
    ...NOTHING_OBSERVED,
    reading: {
      tokens: { input: 7, output: 5, cacheRead: 0, cacheWrite: 0, reasoning: 0 },
      model: "penny",
      reached: true,
    } as unknown as Observed["reading"],
  },
};

/** A call that was admitted and recorded, and what its settling did. */
function scene(deps: Partial<Record<"prices" | "inFlight", object>> = {}) {
  const parts = { method: "POST", url: "/v1/chat/completions", headers: {}, rawHeaders: [] };
  const call = new Call(new RequestHead(parts, SNAPSHOT, []), systemClock);
  call.tool = SNAPSHOT.config.tools.codex ?? null;
  call.lease = { tool: "codex", reservation: { tokens: 10, spend: 10, at: 1 } } as unknown as Lease;
  call.opening = buildOpening(call);
  call.sentAt = call.startedAt;
  const closings: Closing[] = [];
  const settled: unknown[] = [];
  const lines: string[] = [];
  const all = {
    clock: systemClock,
    log: quietLog(lines),
    keyHealth: { settle: () => {} },
    gatewayHealth: { note: () => {} },
    otherModels: { note: () => {} },
    metrics: () => null,
    journal: { close: (_id: string, closing: Closing) => closings.push(closing) },
    prices: { findPrice: () => null },
    limiter: {
      settle: (_lease: Lease, used: unknown) => settled.push(used),
      note: () => {},
      cancel: () => {},
    },
    inFlight: { remove: () => {} },
    bodies: { release: () => {} },
    isFollowed: () => false,
    notify: () => {},
    rereadKey: () => {},
    checkKey: () => {},
    ...deps,
  };
  return { call, closings, settled, lines, deps: all as unknown as ProxyDeps };
}

const FAILS = () => {
  throw new Error("injected");
};

t.test("a request is settled once, however often that is asked for", async (t) => {
  const { call, deps, closings, settled } = scene();
  settle(call, ANSWERED, deps);
  settle(call, ANSWERED, deps);
  t.match(closings, [{ end: "complete", status: 200, input_tokens: 7, output_tokens: 5 }]);
  t.equal(closings.length, 1);
  t.match(settled, [{ tokens: 12, spend: null }]);
});

t.test("a request whose cost cannot be worked out is settled all the same, as held", async (t) => {
  const { call, deps, closings, settled, lines } = scene({ prices: { findPrice: FAILS } });
  settle(call, ANSWERED, deps);
  t.match(closings, [
    { end: "complete", status: 200, input_tokens: null, tokens_from: "none", counts: true },
  ]);
  t.match(settled, [{ tokens: null, spend: null }]);
  t.match(lines.join(""), /injected.*could not be settled: its tokens and cost are unknown/);
});

t.test("a step that fails keeps no other one from happening", async (t) => {
  const { call, deps, closings, settled } = scene({ inFlight: { remove: FAILS } });
  settle(call, ANSWERED, deps);
  t.equal(closings.length, 1);
  t.equal(settled.length, 1);
});
