import t from "tap";
import type { KeyState } from "../../src/config/snapshot.ts";
import {
  limitStatuses,
  type ToolStatusDeps,
  toolStatus,
  toolStatusOffline,
} from "../../src/control/tool-status.ts";
import { Secret } from "../../src/core/secret.ts";
import type { Level } from "../../src/limits/counters.ts";
import { KeyHealth } from "../../src/proxy/key-health/key-health.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { NO_MIRROR } from "../doubles/no-mirror.ts";
import { configOf, toolOf } from "../doubles/parsed-config.ts";

const NOW = Date.UTC(2026, 10, 15, 12);
const RESET = NOW + 60_000;
const HASH = `sha256:${"a".repeat(64)}`;
const LIMITS = `token: ${HASH}, quota: $200, limits: { spend: [$5/day, $60/month], concurrent: 4, tokens: 400k/minute, requests: 60/minute }`;
const ready: KeyState = { state: "ready", key: new Secret("sk-canary-0123456789") };

const WINDOW = { start: NOW, end: RESET };

/** A limit that is used only here. */
function level(limit: Level["limit"], used: number, held: number, max: number, extra = 0): Level {
  const window = "per" in limit ? WINDOW : null;
  return { limit, window, grant: null, used, estimated: 0, held, max, extra };
}

const levels: readonly Level[] = [
  level({ kind: "requests", per: "minute" }, 12, 0, 60),
  level({ kind: "tokens", per: "minute" }, 7, 9, 400_000),
  level({ kind: "spend", per: "day" }, 1, 2, 10_000_000, 5_000_000),
  level({ kind: "spend", per: "month" }, 3, 2, 60_000_000),
  level({ kind: "concurrent" }, 3, 0, 4),
  level({ kind: "quota" }, 4, 2, 200_000_000),
];

const config = configOf(
  `gateways: { main: { base_url: "https://gateway.example.com/v1", groups: { open: {}, shut: { enabled: false } } } }\ntools: { codex: {} }\n`,
);

function deps(more: Partial<ToolStatusDeps> = {}): ToolStatusDeps {
  return {
    keyHealth: new KeyHealth(heldClock()),
    journal: { lastUse: () => NOW - 5000 },
    limiter: { levels: () => ({ levels, neededAllowances: { requests: 60 }, inFlight: 3, waiting: 2 }) },
    shared: { listParts: () => [] },
    mirror: NO_MIRROR,
    otherModels: { status: () => null },
    config,
    now: NOW,
    ...more,
  };
}

t.test("every limit, also of concurrent requests, shows what is used, held and its maximum", async (t) => {
  const status = toolStatus(toolOf(LIMITS), ready, deps());
  t.match(status, { state: "active", running: 3, waiting: 2, last_use: NOW - 5000, expires: null });
  t.strictSame(status.limits, [
    {
      limit: "requests",
      per: "minute",
      used: 12,
      estimated: 0,
      held: 0,
      most: 60,
      extra: 0,
      lift: 60,
      resets_at: RESET,
      machines: [],
    },
    {
      limit: "tokens",
      per: "minute",
      used: 7,
      estimated: 0,
      held: 9,
      most: 400_000,
      extra: 0,
      lift: null,
      resets_at: RESET,
      machines: [],
    },
    {
      limit: "spend",
      per: "day",
      used: 1,
      estimated: 0,
      held: 2,
      most: 10_000_000,
      extra: 5_000_000,
      lift: null,
      resets_at: RESET,
      machines: [],
    },
    {
      limit: "spend",
      per: "month",
      used: 3,
      estimated: 0,
      held: 2,
      most: 60_000_000,
      extra: 0,
      lift: null,
      resets_at: RESET,
      machines: [],
    },
    {
      limit: "concurrent",
      per: null,
      used: 3,
      estimated: 0,
      held: 0,
      most: 4,
      extra: 0,
      lift: null,
      resets_at: null,
      machines: [],
    },
    {
      limit: "quota",
      per: null,
      used: 4,
      estimated: 0,
      held: 2,
      most: 200_000_000,
      extra: 0,
      lift: null,
      resets_at: null,
      machines: [],
    },
  ]);
});

t.test(
  "a tool is at its limit when a limit or its quota is used up, and says which lasts longest",
  async (t) => {
    const day = (used: number, held = 0, max = 5_000_000): Level => ({
      ...level({ kind: "spend", per: "day" }, used, held, max),
      window: { start: NOW, end: NOW + 8 * 3_600_000 },
    });
    const minute = level({ kind: "requests", per: "minute" }, 60, 0, 60);
    const quota = level({ kind: "quota" }, 200_000_000, 0, 200_000_000);
    const at = (...given: Level[]) => {
      const limiter = { levels: () => ({ levels: given, neededAllowances: {}, inFlight: 0, waiting: 0 }) };
      return toolStatus(toolOf(`token: ${HASH}`), ready, deps({ limiter }));
    };
    t.match(at(day(4_999_999)), { state: "active", why: null, next: null });
    t.match(at(day(4_000_000, 1_000_000)), { state: "active" }, "what is reserved may come back");
    t.match(at(level({ kind: "concurrent" }, 4, 0, 4)), { state: "active" }, "one of them ends soon");
    t.match(at(minute), {
      state: "at-limit",
      why: /^requests\/minute is used up: 60 of 60, resets at /,
      next: null,
    });
    const lift = "keybearer tools lift codex --spend";
    t.match(at(day(5_004_000), minute), {
      state: "at-limit",
      why: /^spend\/day is used up: \$5\.00 of \$5\.00, resets /,
      next: lift,
    });
    t.match(at(day(5_000_000), quota, minute), {
      why: "quota is used up: $200.00 of $200.00",
      next: "raise tools.codex.quota",
    });
    t.match(at(day(0, 0, 0)), {
      why: "spend/day is used up: $0 of $0",
      next: "raise tools.codex.limits.spend",
    });
    const off = toolStatus(
      toolOf("enabled: false"),
      ready,
      deps({
        limiter: { levels: () => ({ levels: [quota], neededAllowances: {}, inFlight: 0, waiting: 0 }) },
      }),
    );
    t.equal(off.state, "disabled", "the first thing that a request would meet");
  },
);

t.test("an estimated part of what is used is shown, and is left out where there is none", async (t) => {
  const estimated: Level & { readonly estimated: number } = {
    ...level({ kind: "quota" }, 4, 2, 200),
    estimated: 3,
  };
  const levels = { levels: [estimated], neededAllowances: {}, inFlight: 0, waiting: 0 };
  t.match(
    limitStatuses(levels, () => []),
    [{ used: 4, estimated: 3, held: 2 }],
  );
});

t.test("a tool without limits shows none, however many requests are in flight", async (t) => {
  const idle = { levels: [], neededAllowances: {}, inFlight: 9, waiting: 0 };
  t.strictSame(
    limitStatuses(idle, () => []),
    [],
  );
});

t.test("a shared limit shows the sum of all machines, and each machine's part", async (t) => {
  const parts = [
    { name: "laptop", granted: 10, used: 5 },
    { name: "desktop", granted: 12, used: 8 },
  ];
  const grant = { granted: 10, usedElsewhere: 8, heldElsewhere: 4 };
  const shared = { ...level({ kind: "requests", per: "day" }, 5, 1, 60), grant };
  const levels = { levels: [shared], neededAllowances: {}, inFlight: 1, waiting: 0 };
  const [status] = limitStatuses(levels, () => parts);
  t.match(status, { used: 13, held: 9, most: 60 });
  t.strictSame(status?.machines, parts);
});

t.test("without a daemon the same limits are shown, and what is used is unknown", async (t) => {
  const running = toolStatus(toolOf(LIMITS), ready, deps());
  const { limits, ...status } = toolStatusOffline(toolOf(LIMITS), config, NOW);
  t.match(status, { state: "not-running", running: 0, waiting: 0, last_use: null });
  t.strictSame(
    limits.map(({ limit, per }) => `${limit} ${per}`),
    running.limits.map(({ limit, per }) => `${limit} ${per}`),
  );
  t.strictSame(
    limits.map(({ most, extra }) => most - extra),
    running.limits.map(({ most, extra }) => most - extra),
  );
  for (const { used, held, resets_at } of limits) t.strictSame([used, held, resets_at], [null, null, null]);
});

t.test("a tool shows when it expires, before and after", async (t) => {
  const expires = NOW + 1000;
  const tool = toolOf(`token: ${HASH}, expires: ${new Date(expires).toISOString()}`);
  t.match(toolStatus(tool, ready, deps()), { state: "active", expires });
  t.match(toolStatus(tool, ready, deps({ now: expires })), { state: "expired", expires });
  t.match(toolStatusOffline(tool, config, expires), { state: "expired", expires });
  const why = "expired at the end of 2020-01-01";
  t.match(toolStatus(toolOf("expires: 2020-01-01"), ready, deps()), { why });
  const local = new Date(2020, 0, 1, 18, 30).toISOString();
  t.match(toolStatusOffline(toolOf(`expires: ${local}`), config, NOW), {
    why: "expired at 2020-01-01 18:30",
  });
});

t.test("problems are shown in the order in which the tool's requests would meet them", async (t) => {
  const unread: KeyState = { state: "unavailable", problem: "the file is not there", next: null };
  const lines: [string, KeyState, string, RegExp][] = [
    [
      "enabled: false, expires: 2020-01-01, group: shut",
      unread,
      "disabled",
      /^keybearer tools enable codex$/,
    ],
    ["expires: 2020-01-01, group: shut", unread, "expired", /tools\.codex\.expires/],
    ["group: shut", unread, "group-disabled", /gateways\.main\.groups\.shut\.enabled/],
    ["group: open", unread, "key-unavailable", /^unlock the keychain/],
    ["group: open", ready, "no-token", /^keybearer use codex --new-token$/],
  ];
  for (const [text, key, state, next] of lines)
    t.match(toolStatus(toolOf(text), key, deps()), { state, next }, state);
  t.match(toolStatusOffline(toolOf("group: shut"), config, NOW), { state: "group-disabled" });
});
