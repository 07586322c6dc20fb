import { deepStrictEqual, equal } from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { parse } from "yaml";
import {
  appendItem,
  type EditResult,
  type Path,
  removeValue,
  renameKey,
  setValue,
} from "../../src/config/edit.ts";
import type { YamlValue } from "../../src/config/edit-layout.ts";
import { runs } from "../doubles/effort.ts";
import { failureText } from "../doubles/failure-text.ts";
import { changedRange, written } from "../doubles/written-config.ts";

function textOf(edited: EditResult): string {
  return edited.ok ? edited.text : edited.problem;
}

const sets: readonly [name: string, path: Path, value: YamlValue, before: string, after: string][] = [
  [
    "a value deep inside, with the maps that lead to it",
    ["tools", "codex", "limits", "spend"],
    "$5/day",
    "tools:\n  codex:\n    key: env:A # mine\n",
    "tools:\n  codex:\n    key: env:A # mine\n    limits: { spend: $5/day }\n",
  ],
  [
    "a value in a map that is there",
    ["tools", "codex", "limits", "spend"],
    ["$5/day", "$60/month"],
    "tools:\n  codex:\n    limits:\n      wait: 20s # long\n      spend: $1/day # little\n",
    "tools:\n  codex:\n    limits:\n      wait: 20s # long\n      spend: [$5/day, $60/month] # little\n",
  ],
  [
    "a whole gateway, as lines",
    ["gateways", "other"],
    { base_url: "https://other.example/v1", groups: { coding: { multiplier: "2" } } },
    "gateways:\n    main:\n        base_url: https://g.example/v1\n\n# below\nlog: {}\n",
    "gateways:\n    main:\n        base_url: https://g.example/v1\n    other:\n        base_url: https://other.example/v1\n        groups: { coding: { multiplier: 2 } }\n\n# below\nlog: {}\n",
  ],
  [
    "a list's item",
    ["tools", "codex", "token", 1],
    "sha256:cc",
    "tools:\n  codex:\n    token:\n      - sha256:aa # one\n      - sha256:bb # two\n",
    "tools:\n  codex:\n    token:\n      - sha256:aa # one\n      - sha256:cc # two\n",
  ],
  [
    "a setting of an item of a list",
    ["tools", "codex", "token", 0, "name"],
    "desk",
    "tools: { codex: { token: [{ name: laptop, hash: x }] } }\n",
    "tools: { codex: { token: [{ name: desk, hash: x }] } }\n",
  ],
  ["a setting at the top", ["drain"], "20s", "log: {} # l", "log: {} # l\ndrain: 20s"],
  [
    "a map in the place of a word, behind which a comment stays",
    ["log"],
    { level: "debug" },
    "log: info # quiet\ntools: {}\n",
    "log: # quiet\n  level: debug\ntools: {}\n",
  ],
  [
    "one word in the place of a block",
    ["dashboard"],
    "false",
    "dashboard: # d\n  when: always # w\n  # more\nlog: {}\n",
    "dashboard: false # d\n  # more\nlog: {}\n",
  ],
];

for (const [name, path, value, before, after] of sets) {
  t.test(`a value is set: ${name}`, async (t) => {
    t.equal(textOf(setValue(before, path, value)), after);
  });
}

const removals: readonly [name: string, path: Path, before: string, after: string][] = [
  [
    "a setting with its comment",
    ["tools", "codex", "limits", "wait"],
    "tools:\n  codex:\n    limits:\n      wait: 20s # long\n      concurrent: 4\n",
    "tools:\n  codex:\n    limits:\n      concurrent: 4\n",
  ],
  [
    "the only setting of a map, which becomes empty",
    ["tools", "codex", "limits", "wait"],
    "tools:\n  codex:\n    limits:\n      wait: 20s\n    group: x\n",
    "tools:\n  codex:\n    limits: {}\n    group: x\n",
  ],
  [
    "an item of a list as lines",
    ["tools", "codex", "token", 0],
    "tools:\n  codex:\n    token:\n      - aa # one\n      - bb # two\n",
    "tools:\n  codex:\n    token:\n      - bb # two\n",
  ],
  [
    "an item of a list of maps",
    ["tools", "codex", "token", 1],
    "tools:\n  codex:\n    token:\n    - name: a\n      hash: x\n    - name: b # mine\n      hash: y\n    group: z\n",
    "tools:\n  codex:\n    token:\n    - name: a\n      hash: x\n    group: z\n",
  ],
  [
    "an item of a list in brackets",
    ["tools", "codex", "token", 1],
    "tools: { codex: { token: [a, b, c] } }\n",
    "tools: { codex: { token: [a, c] } }\n",
  ],
];

for (const [name, path, before, after] of removals) {
  t.test(`a value is removed: ${name}`, async (t) => {
    t.equal(textOf(removeValue(before, path)), after);
  });
}

t.test("a tool is renamed with all that is in it, and never over another", async (t) => {
  const text = "tools:\n  # about it\n  codex: # mine\n    key: env:A\n  other: {}\n";
  t.equal(textOf(renameKey(text, ["tools", "codex"], "no")), text.replace("codex:", '"no":'));
  t.match(renameKey(text, ["tools", "codex"], "other"), { ok: false, problem: /already has an entry other/ });
  t.match(renameKey(text, ["tools", "gone"], "x"), { ok: false, problem: /there is no tools\.gone/ });
});

t.test("values are quoted where a reader of YAML could take them for something else", async (t) => {
  const path: Path = ["tools", "a", "model"];
  for (const value of ["no", "1.0", "a: b", "a, group: b", "x # y", "", "*", "a\n  other: {}", "{", "'"]) {
    for (const text of ["tools: { a: { model: x } }\n", "tools:\n  a:\n    model: x\n"]) {
      const edited = textOf(setValue(text, path, value));
      t.equal(parse(edited, { schema: "failsafe" }).tools.a.model, value, JSON.stringify(value));
    }
  }
});

t.test("what cannot be edited is refused with what to do, and no secret is shown", async (t) => {
  const cases: [EditResult, RegExp][] = [
    [setValue("a: &x 1\nb: *x\n", ["c"], "1"), /anchor or an alias at a,.*keybearer check/],
    [setValue("a: !t 1\n", ["c"], "1"), /a tag at a,/],
    [setValue("a: 1\na: 2\n", ["c"], "1"), /has a twice/],
    [setValue("a: [\n", ["c"], "1"), /keybearer check/],
    [setValue("a: 1\n---\nb: 2\n", ["c"], "1"), /keybearer check/],
    [setValue("- a\n", ["c"], "1"), /keybearer check/],
    [setValue(`${"[".repeat(2000)}`, ["c"], "1"), /keybearer check/],
    [setValue("a: word\n", ["a", "b"], "sk-abcdefghijklmnop"), /by hand: a\.b: /],
    [setValue("a: [x]\n", ["a", 1], "y"), /by hand/],
    [removeValue("a: 1\n", ["b"]), /there is no b/],
    [appendItem("a: { b: c }\n", ["a"], "x"), /by hand/],
  ];
  for (const [edited, problem] of cases) t.match(failureText(edited), problem);
  t.notMatch(JSON.stringify(cases), /abcdefghijklmnop/);
});

t.test("in any file any setting of a tool is set, appended to and removed", async () => {
  const name = fc.constantFrom("limits", "token", "group", "quota", "allow_origins");
  const value: fc.Arbitrary<YamlValue> = fc.constantFrom("x", "a: b", ["p", "q"], {
    wait: "5s",
    spend: ["$1/day"],
  });
  fc.assert(
    fc.property(written, name, value, ({ text, tool, eol }, setting, to) => {
      const path: Path = ["tools", tool, setting];
      const edited = setValue(text, path, to);
      if (!edited.ok) throw new Error(edited.problem);
      const before = parse(text, { schema: "failsafe" });
      const after = parse(edited.text, { schema: "failsafe" });
      deepStrictEqual(after.tools[tool][setting], to);
      deepStrictEqual({ ...after, tools: { ...after.tools, [tool]: before.tools[tool] } }, before);
      if (eol === "\r\n") equal(/[^\r]\n/.test(edited.text), false, "a line end of another kind");
      const removed = removeValue(edited.text, path);
      if (!removed.ok) throw new Error(removed.problem);
      equal(parse(removed.text, { schema: "failsafe" }).tools[tool]?.[setting], undefined);
      const [start, end] = changedRange(edited.text, removed.text);
      equal(edited.text.length - removed.text.length <= end - start, true);
    }),
    { numRuns: runs(60) },
  );
});
