import t from "tap";
import type { FindingLevel } from "../../src/doctor/findings.ts";
import { sharedFindings } from "../../src/doctor/shared-findings.ts";
import type { SharedStatus } from "../../src/shared/status.ts";
import { CONNECTED } from "../doubles/shared-status.ts";

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
  t.same(sharedFindings(null), []);
});

t.test("a good store is one line", async (t) => {
  t.same(sharedFindings(GOOD), [
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
    const findings = sharedFindings({ ...GOOD, ...change });
    t.equal(findings.length, 1);
    t.equal(findings[0]?.level, level);
    t.match(`${findings[0]?.what} → ${findings[0]?.next}`, words);
  }
});

function signedBy(signature: "missing" | "wrong" | null): SharedStatus["machines"] {
  return CONNECTED.machines.map((machine) => (machine.self ? machine : { ...machine, signature }));
}

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
    "warning",
    /lost its data.*have reported: desktop, server → start keybearer there/,
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
    const [first, second, ...others] = sharedFindings({ ...GOOD, ...change });
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
    t.equal(sharedFindings({ ...GOOD, server, version }).length, 1, `${server} ${version}`);
});
