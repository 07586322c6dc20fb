import t from "tap";
import type { FindingLevel } from "../../src/doctor/findings.ts";
import { sharedFindings } from "../../src/doctor/shared-findings.ts";
import type { SharedMachine, SharedStatus } from "../../src/shared/status.ts";
import { CONNECTED, LAST_CONTACT, machine } from "../doubles/shared-status.ts";

const NOW = LAST_CONTACT + 7_200_000;

const GOOD: SharedStatus = { ...CONNECTED, clock_offset_ms: -1900 };

const UNANSWERED: Partial<SharedStatus> = {
  server: null,
  version: null,
  append_only: null,
  eviction_policy: null,
  clock_offset_ms: 0,
  machines: [],
};

t.test("a store that is not configured has no finding", async (t) => {
  t.same(sharedFindings(null, NOW), []);
});

t.test("a good store is one line", async (t) => {
  t.same(sharedFindings(GOOD, NOW), [
    {
      id: "shared",
      level: "ok",
      about: "the shared store",
      what: "rediss://valkey.example.net:6379, Valkey 8.1.3, used by laptop, desktop",
      next: null,
    },
  ]);
});

/** What the store is like, the level of the finding, and what it says. */
const CASES: readonly (readonly [Partial<SharedStatus>, FindingLevel, RegExp])[] = [
  [
    { ...UNANSWERED, state: "unreachable", problem: "connection refused" },
    "problem",
    /6379 cannot be reached: connection refused → check that the server runs/,
  ],
  [{ ...UNANSWERED, state: "connecting" }, "warning", /6379 is not connected yet → keybearer status/],
  [
    {
      ...UNANSWERED,
      state: "refused",
      problem: "its password waits for your confirmation",
      next: "keybearer trust shared",
    },
    "problem",
    /cannot be used: its password waits for your confirmation → keybearer trust shared/,
  ],
  [
    { ...UNANSWERED, state: "refused", problem: "WRONGPASS invalid username-password pair" },
    "problem",
    /cannot be used: WRONGPASS .* → check shared in config\.yaml/,
  ],
];

t.test("a store that cannot be used is one line with what to do", async (t) => {
  for (const [change, level, words] of CASES) {
    const findings = sharedFindings({ ...GOOD, ...change }, NOW);
    t.equal(findings.length, 1);
    t.equal(findings[0]?.level, level);
    t.match(`${findings[0]?.what} → ${findings[0]?.next}`, words);
  }
});

function signedBy(signature: "missing" | "wrong" | null): SharedStatus["machines"] {
  return CONNECTED.machines.map((machine) => (machine.self ? machine : { ...machine, signature }));
}

const HOLDS: SharedMachine["holds"] = [
  { tool: "codex", limit: "requests", per: "day", amount: 12 },
  { tool: "codex", limit: "spend", per: "day", amount: 1_200_000 },
  { tool: "zed", limit: "concurrent", per: null, amount: 1 },
];

const MORE: readonly (readonly [Partial<SharedStatus>, FindingLevel, RegExp])[] = [
  [{ server: "redis", version: "6.2.14" }, "problem", /Redis 6\.2\.14 is too old → update it to Redis 7\.0/],
  [{ server: "valkey", version: "7.1.9" }, "problem", /Valkey 7\.1\.9 is too old → update it to Valkey 7\.2/],
  [{ append_only: false }, "warning", /\(appendonly\).*CONFIG SET appendonly yes; and .* configuration file/],
  [
    { eviction_policy: "allkeys-lru" },
    "problem",
    /\(maxmemory-policy allkeys-lru\) → .*CONFIG SET maxmemory-policy noeviction/,
  ],
  [{ clock_offset_ms: 2001 }, "ok", /clock is 3 s behind the store's; limits follow the store's → null/],
  [{ clock_offset_ms: -60_000 }, "ok", /clock is 60 s ahead of the store's/],
  [{ clock_offset_ms: 300_000 }, "warning", /clock is 5 min behind the store's.* → set the clocks/],
  [
    { recovering: ["desktop", "server"] },
    "problem",
    /lost its data.*\(store-unavailable\) until these machines have reported: desktop, server → start keybearer there; if desktop is lost: keybearer tools lift codex --machine desktop$/,
  ],
  [{ settled: false }, "warning", /lost its data.* for some seconds, .* join again → wait 15 seconds/],
  [
    { machines: [...CONNECTED.machines, machine("laptop")] },
    "problem",
    /^2 machines have the name laptop, .* → set shared\.machine to another name on one of them$/,
  ],
  [
    { machines: [...CONNECTED.machines, machine("laptop", { stopped: true })] },
    "problem",
    /^2 machines have .* contact of one was 2 h ago → if it was set up again: keybearer tools lift codex --machine laptop; otherwise set shared\.machine/,
  ],
  [
    { machines: [...CONNECTED.machines, machine("server", { silent: true, holds: HOLDS })] },
    "warning",
    /^machine server has been silent for 2 h, and keeps what it holds: codex requests\/day 12, spend\/day \$1\.20; zed concurrent 1 → start keybearer there; if server is lost: keybearer tools lift codex --machine server; keybearer tools lift zed --machine server$/,
  ],
  [
    { signs: false, machines: signedBy(null) },
    "warning",
    /do not sign their records, .* stays a suspicion → set shared\.secret .* openssl rand -hex 32$/,
  ],
  [
    { machines: signedBy("missing") },
    "warning",
    /do not sign their records: desktop\. .* → set shared\.secret there/,
  ],
  [
    { machines: signedBy("wrong") },
    "problem",
    /with another secret: desktop → set shared\.secret to the same/,
  ],
];

t.test("each problem of a connected store has its own line", async (t) => {
  for (const [change, level, words] of MORE) {
    const [first, second, ...others] = sharedFindings({ ...GOOD, ...change }, NOW);
    t.match(first, { level: "ok", what: /used by laptop, desktop/ });
    t.equal(second?.level, level);
    t.match(`${second?.what} → ${second?.next}`, words);
    t.same(others, []);
  }
});

t.test("a version that is new enough has no finding of its own", async (t) => {
  for (const [server, version] of [
    ["redis", "7.0.0"],
    ["redis", "7.4.2"],
    ["redis", "8.0"],
    ["redis", "10.0.1"],
    ["valkey", "7.2.5"],
    ["valkey", "8.0.0"],
  ] as const)
    t.equal(sharedFindings({ ...GOOD, server, version }, NOW).length, 1, `${server} ${version}`);
});
