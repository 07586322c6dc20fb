import fc from "fast-check";
import t from "tap";
import type { KeyState } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import { admit, isInGroup } from "../../src/limits/admit.ts";
import { runs } from "../doubles/effort.ts";
import { configOf, toolOf } from "../doubles/parsed-config.ts";

const { main } = configOf(
  `gateways: { main: { base_url: "https://gateway.example.com/v1", groups: { open: {}, shut: { enabled: false } } } }\ntools: { codex: {} }\n`,
).gateways;
const key = new Secret("sk-canary-0123456789");
const ready: KeyState = { state: "ready", key };
const NOW = Date.UTC(2026, 10, 15, 12);

t.test("a tool that is enabled, not expired and has a key is let in", async (t) => {
  if (!main) return void t.fail();
  for (const lines of ["", "group: open", 'expires: "2027-01-01"']) {
    t.strictSame(admit(toolOf(lines), main, ready, NOW), { ok: true, key }, lines);
  }
});

const cases: [string, string, KeyState, string, string][] = [
  ["a disabled tool", "enabled: false", ready, "tool-disabled", "type: keybearer tools enable codex"],
  ["an expired tool", 'expires: "2026-11-01"', ready, "tool-expired", "tools.codex.expires"],
  ["a tool whose group is disabled", "group: shut", ready, "group-disabled", "group shut"],
  [
    "a tool without its key",
    "",
    { state: "unavailable", problem: "the file is not there", next: null },
    "key-unavailable",
    "the file is not there",
  ],
  [
    "a held tool",
    "",
    { state: "needs-trust", what: "the key …6789 of codex", from: "https://a", to: "https://b" },
    "needs-trust",
    "keybearer trust codex",
  ],
  [
    "a disabled tool without its key",
    "enabled: false",
    { state: "unavailable", problem: "no", next: null },
    "tool-disabled",
    "disabled",
  ],
];
for (const [what, lines, state, code, words] of cases) {
  t.test(`${what} is refused as ${code}, saying what to do`, async (t) => {
    if (!main) return void t.fail();
    const result = admit(toolOf(lines), main, state, NOW);
    if (result.ok) return void t.fail("it was let in");
    t.equal(result.refusal.code, code);
    t.match(result.refusal.message, words);
    t.match(result.refusal.message, "codex", "the tool is named");
    t.notMatch(result.refusal.message, "sk-canary");
  });
}

t.test(
  "the refusal of an expired tool names its last day as it was written, or the local time",
  async (t) => {
    if (!main) return void t.fail();
    const local = new Date(2026, 10, 14, 18, 30);
    const times: [string, string][] = [
      [
        "2026-01-01",
        "expired at the end of 2026-01-01. the owner can change tools.codex.expires in config.yaml",
      ],
      ["2026-02-28", "expired at the end of 2026-02-28. "],
      [local.toISOString(), "expired at 2026-11-14 18:30. "],
    ];
    for (const [expires, words] of times) {
      const result = admit(toolOf(`expires: "${expires}"`), main, ready, NOW);
      if (result.ok) return void t.fail("it was let in");
      t.match(result.refusal.message, words, expires);
    }
  },
);

t.test("a tool is let in until the very moment it expires", async (t) => {
  if (!main) return void t.fail();
  const tool = toolOf('expires: "2026-11-15T12:00:00Z"');
  t.equal(admit(tool, main, ready, NOW - 1).ok, true);
  t.equal(admit(tool, main, ready, NOW).ok, false);
});

t.test("a group has the models that one of its patterns names", async (t) => {
  const rows: [model: string, patterns: string[], has: boolean][] = [
    ["gpt-5.1", ["gpt-5.1"], true],
    ["gpt-5.1-mini", ["gpt-5.1"], false],
    ["gpt-5", ["gpt-5.1"], false],
    ["claude-sonnet-4-5", ["gpt-5*", "claude-*"], true],
    ["claude-", ["claude-*"], true],
    ["claude", ["claude-*"], false],
    ["gpt-4o-mini", ["*-mini"], true],
    ["gpt-4o-mini-2", ["*-mini"], false],
    ["gemini-2.5-pro", ["gemini-*-pro"], true],
    ["gemini-pro", ["gemini-*-pro"], false],
    ["anything/at all", ["*"], true],
    ["", ["*"], true],
    ["x", ["**"], true],
    ["x", [""], false],
    ["x", [], false],
    ["aXbXc", ["a*b*c"], true],
    ["aba", ["ab*ba"], false],
    ["a.b", ["a?b"], false],
    ["axb", ["a.b"], false],
    ["Claude-Sonnet-4-5", ["claude-*"], false],
    ["claude-sonnet-4-5", ["Claude-*"], false],
  ];
  for (const [model, patterns, has] of rows)
    t.equal(isInGroup(model, patterns), has, `${model} in ${patterns.join(" ")}`);
});

t.test("a pattern says the same as the regular expression it is short for", async () => {
  const text = fc.string({ unit: fc.constantFrom("a", "b", "-"), maxLength: 12 });
  const pattern = fc.string({ unit: fc.constantFrom("a", "b", "-", "*"), maxLength: 8 });
  fc.assert(
    fc.property(text, pattern, (model, glob) => {
      const same = new RegExp(`^${glob.replaceAll("*", ".*")}$`).test(model);
      return isInGroup(model, [glob]) === same;
    }),
    { numRuns: runs(250), seed: 20261115 },
  );
});

// A matcher that tried every way to share out the letters would not end before the sun does.
t.test("no pattern takes exponential time", async (t) => {
  t.equal(isInGroup("a".repeat(512), [`${"a*".repeat(200)}b`]), false);
});
