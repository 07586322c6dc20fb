import fc from "fast-check";
import t from "tap";
import { isInGroup } from "../../src/limits/admit.ts";
import { runs } from "../doubles/random.ts";

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
