import { deepStrictEqual, equal, ok } from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { isMap, isNode, isScalar, parse, parseDocument } from "yaml";
import { freeTokenName, removeToken, setEnabled, setToken } from "../../src/config/edit-tools.ts";
import { runs } from "../doubles/effort.ts";
import { failureText } from "../doubles/failure-text.ts";
import { changedRange, written } from "../doubles/written-config.ts";

const A = `sha256:${"a".repeat(64)}`;
const B = `sha256:${"b".repeat(64)}`;
const NEW = `sha256:${"0123456789abcdef".repeat(4)}`;

interface Case {
  readonly name: string;
  readonly mode?: "replace" | "add";
  readonly tool?: string;
  readonly before: string;
  readonly after: string;
}

const cases: readonly Case[] = [
  {
    name: "a block tool without a token gets one behind its last setting",
    before: "tools:\n  codex:\n    group: coding # mine\n  other: {}\n",
    after: `tools:\n  codex:\n    group: coding # mine\n    token: ${NEW}\n  other: {}\n`,
  },
  {
    name: "blank lines and comments below a tool stay below the new line",
    before: "tools:\n  codex:\n    group: coding\n    # model: x\n\n  # the next one\n  other: {}\n",
    after: `tools:\n  codex:\n    group: coding\n    token: ${NEW}\n    # model: x\n\n  # the next one\n  other: {}\n`,
  },
  {
    name: "a last setting that is a map keeps the comments inside it",
    before:
      "tools:\n  codex:\n    limits:\n      requests: 60/minute\n      # tokens: 1k/minute\n\nlog: {}\n",
    after: `tools:\n  codex:\n    limits:\n      requests: 60/minute\n      # tokens: 1k/minute\n    token: ${NEW}\n\nlog: {}\n`,
  },
  {
    name: "a last setting that is a list, indented or not, is passed whole",
    before: "tools:\n  codex:\n    allow_origins:\n    - a\n    - b # c\nlog: {}\n",
    after: `tools:\n  codex:\n    allow_origins:\n    - a\n    - b # c\n    token: ${NEW}\nlog: {}\n`,
  },
  {
    name: "a last setting without a value is passed with its comment",
    before: "tools:\n  codex:\n    group:   # none\n",
    after: `tools:\n  codex:\n    group:   # none\n    token: ${NEW}\n`,
  },
  {
    name: "a last setting of several lines is passed whole",
    before: "tools:\n  codex:\n    model: |+\n      x\n\n  other:\n    limits: {\n      concurrent: 4 }\n",
    after: `tools:\n  codex:\n    model: |+\n      x\n\n    token: ${NEW}\n  other:\n    limits: {\n      concurrent: 4 }\n`,
  },
  {
    name: "CRLF, a byte order mark and a missing end of line stay",
    before: "\uFEFFtools:\r\n    codex:\r\n        group: coding",
    after: `\uFEFFtools:\r\n    codex:\r\n        group: coding\r\n        token: ${NEW}`,
  },
  {
    name: "a tool without a value becomes a block, indented like its neighbour",
    before: "tools:\n  codex: # mine\n  other:\n      group: x\n",
    after: `tools:\n  codex: # mine\n      token: ${NEW}\n  other:\n      group: x\n`,
  },
  {
    name: "a tool without a value at the end of the file becomes a block",
    before: "tools:\n    codex:",
    after: `tools:\n    codex:\n        token: ${NEW}`,
  },
  {
    name: "a tool that is null becomes a map",
    before: "tools:\n  codex: ~ # mine\n",
    after: `tools:\n  codex: { token: ${NEW} } # mine\n`,
  },
  {
    name: "an empty flow tool is filled",
    before: "gateway: x\ntools: { claude-code: {}, codex: {}, scripts: {} }\n",
    after: `gateway: x\ntools: { claude-code: {}, codex: { token: ${NEW} }, scripts: {} }\n`,
  },
  {
    name: "a flow tool without a value is filled",
    before: "tools: { claude-code:, codex, scripts: }",
    after: `tools: { claude-code:, codex: { token: ${NEW} }, scripts: }`,
  },
  {
    name: "a flow tool without a value but with its colon is filled",
    before: 'tools: { "codex": , scripts: }',
    after: `tools: { "codex": { token: ${NEW} } , scripts: }`,
  },
  {
    name: "a flow tool on one line gets one more entry",
    before: "tools:\n  codex: { group: coding } # mine\n",
    after: `tools:\n  codex: { group: coding, token: ${NEW} } # mine\n`,
  },
  {
    name: "a comma at the end of a flow tool stays one",
    before: "tools:\n  codex: {group: coding, }\n",
    after: `tools:\n  codex: {group: coding, token: ${NEW}, }\n`,
  },
  {
    name: "a flow tool with one entry a line gets one more line",
    before: "tools:\r\n  codex: {\r\n    group: coding,\r\n    model: x # small\r\n  }\r\n",
    after: `tools:\r\n  codex: {\r\n    group: coding,\r\n    model: x, # small\r\n    token: ${NEW}\r\n  }\r\n`,
  },
  {
    name: "a flow tool with one entry a line and a last comma keeps both",
    before: "tools:\n  codex: {\n    model: x, # small\n  }\n",
    after: `tools:\n  codex: {\n    model: x, # small\n    token: ${NEW},\n  }\n`,
  },
  {
    name: "a token is replaced in front of its comment",
    before: `tools:\n  codex:\n    token: ${A}  # laptop\n    group: x\n`,
    after: `tools:\n  codex:\n    token: ${NEW}  # laptop\n    group: x\n`,
  },
  {
    name: "a quoted token is replaced",
    before: `tools:\n  codex: { token: "${A}", group: x }\n`,
    after: `tools:\n  codex: { token: ${NEW}, group: x }\n`,
  },
  {
    name: "a token without a value is filled in front of its comment",
    before: "tools:\n  codex:\n    token:  # to come\n    group: x\n",
    after: `tools:\n  codex:\n    token: ${NEW}  # to come\n    group: x\n`,
  },
  {
    name: "a block list is replaced by one token",
    before: `tools:\n  codex:\n    token: # per client\n      - ${A} # laptop\n      # old\n      - ${B}\n    # below\n    group: x\n`,
    after: `tools:\n  codex:\n    token: ${NEW} # per client\n    # below\n    group: x\n`,
  },
  {
    name: "a flow list is replaced by one token",
    before: `tools:\n  codex:\n    token: [${A},\n      ${B}] # two\n`,
    after: `tools:\n  codex:\n    token: ${NEW} # two\n`,
  },
  {
    name: "a token of several lines is replaced",
    before: `tools:\n  codex:\n    token: >-\n      ${A}\n    group: x\n`,
    after: `tools:\n  codex:\n    token: ${NEW}\n    group: x\n`,
  },
  {
    name: "a token is added to one token",
    mode: "add",
    before: `tools:\n  codex:\n    token: '${A}' # laptop\n`,
    after: `tools:\n  codex:\n    token: ['${A}', ${NEW}] # laptop\n`,
  },
  {
    name: "a token is added to a flow list",
    mode: "add",
    before: `tools:\n  codex: { token: [ ${A} ] }\n`,
    after: `tools:\n  codex: { token: [ ${A}, ${NEW} ] }\n`,
  },
  {
    name: "a token is added to an empty list",
    mode: "add",
    before: "tools:\n  codex: { token: [ ] }\n",
    after: `tools:\n  codex: { token: [${NEW}] }\n`,
  },
  {
    name: "a token is added to a flow list of several lines",
    mode: "add",
    before: `tools:\n  codex:\n    token: [\n      ${A}, # laptop\n      ${B}  # desk\n    ]\n`,
    after: `tools:\n  codex:\n    token: [\n      ${A}, # laptop\n      ${B},  # desk\n      ${NEW}\n    ]\n`,
  },
  {
    name: "a token is added to a block list",
    mode: "add",
    before: `tools:\n  codex:\n    token:\n      - ${A} # laptop\n      - ${B} # desk\n\n    group: x\n`,
    after: `tools:\n  codex:\n    token:\n      - ${A} # laptop\n      - ${B} # desk\n      - ${NEW}\n\n    group: x\n`,
  },
  {
    name: "a token is added to a block list at the end of the file",
    mode: "add",
    before: `tools:\n  codex:\n    token:\n    - ${A}`,
    after: `tools:\n  codex:\n    token:\n    - ${A}\n    - ${NEW}`,
  },
  {
    name: "a token is added where there is none",
    mode: "add",
    before: "tools: {codex: {}}\n",
    after: `tools: {codex: { token: ${NEW} }}\n`,
  },
  {
    name: "a token that is there already is not added twice",
    mode: "add",
    before: `tools:\n  codex:\n    token: [${A}, "${NEW}"]\n`,
    after: `tools:\n  codex:\n    token: [${A}, "${NEW}"]\n`,
  },
  {
    name: "a tool with a name that YAML would read otherwise is found, quoted or not",
    tool: "no",
    before: 'tools:\n  "no":\n    group: x\n  1.0: {}\n',
    after: `tools:\n  "no":\n    group: x\n    token: ${NEW}\n  1.0: {}\n`,
  },
];

for (const { name, mode = "replace", tool = "codex", before, after } of cases) {
  t.test(name, async (t) => {
    t.same(setToken(before, tool, NEW, mode), { ok: true, text: after });
  });
}

t.test("an unknown tool is answered with the tools there are", async (t) => {
  t.same(setToken("tools: { claude-code: {}, codex: {} }\n", "codx", NEW, "replace"), {
    ok: false,
    problem: "there is no tool codx in config.yaml; its tools are claude-code, codex",
    next: null,
  });
});

const refusals: readonly [name: string, text: string, problem: RegExp][] = [
  ["a file with an error", "tools: { codex: {}\n", /keybearer check/],
  ["an empty file", "", /keybearer check/],
  ["a file without tools", "gateway: x\n", /no map of tools/],
  ["tools that are a list", "tools: [codex]\n", /no map of tools/],
  ["tools twice", "tools: { codex: {} }\ntools: { codex: {} }\n", /has tools twice/],
  ["a tool twice", "tools: { codex: {}, codex: {} }\n", /has tools\.codex twice/],
  ["a token twice", `tools: { codex: { token: ${A}, token: ${B} } }\n`, /tools\.codex\.token twice/],
  ["a tool that is a word", "tools: { codex: yes }\n", /by hand: tools\.codex\.token: sha256:0123/],
  ["an anchor", "tools: { codex: &a {}, other: *a }\n", /anchor.*tools\.codex.*keybearer check/],
  ["an explicit key", "tools:\n  ? codex\n  other: {}\n", /by hand/],
  [
    "a tag on the list",
    `tools:\n  codex:\n    token: !!seq\n      - ${A}\n`,
    /a tag at tools\.codex\.token.*keybearer check/,
  ],
];

for (const [name, text, problem] of refusals) {
  t.test(`${name} is refused with what to do`, async (t) => {
    const result = setToken(text, "codex", NEW, "replace");
    t.match(failureText(result), problem);
  });
}

t.test("adding to what is neither a token nor a list is refused without showing it", async (t) => {
  const result = setToken("tools: { codex: { token: { kb_secretsecret: x } } }\n", "codex", NEW, "add");
  t.match(failureText(result), /by hand/);
  t.notMatch(JSON.stringify(result), /kb_secret/);
});

t.test("a named token is added to any value, and is ended by its name", async (t) => {
  const entry = { name: "laptop", hash: NEW, created: "2026-11-16" };
  const written = `{ name: laptop, hash: ${NEW}, created: 2026-11-16 }`;
  const id = A.slice("sha256:".length, "sha256:".length + 8);
  const forms: readonly [before: string, after: string][] = [
    ["tools: { codex: {} }\n", `tools: { codex: { token: [${written}] } }\n`],
    [`tools: { codex: { token: ${A} } }\n`, `tools: { codex: { token: [${A}, ${written}] } }\n`],
    [
      `tools:\n  codex:\n    token:\n    - ${A}\n`,
      `tools:\n  codex:\n    token:\n    - ${A}\n    - ${written}\n`,
    ],
    [
      `tools: { codex: { token: { name: desk, hash: ${A} } } }\n`,
      `tools: { codex: { token: [{ name: desk, hash: ${A} }, ${written}] } }\n`,
    ],
  ];
  for (const [before, after] of forms) {
    t.same(setToken(before, "codex", entry, "add"), { ok: true, text: after });
    t.same(setToken(after, "codex", entry, "add"), { ok: true, text: after }, "once");
    t.match(setToken(after, "codex", { ...entry, hash: B }, "add"), {
      ok: false,
      problem: /already has a token called laptop/,
    });
    t.equal(freeTokenName(after, "codex", "laptop"), "laptop-2");
    const gone = removeToken(after, "codex", "laptop");
    t.match(gone, { ok: true });
    t.notOk(gone.ok && gone.text.includes(NEW));
  }
  t.match(removeToken(`tools: { codex: { token: [${A}, ${B}] } }\n`, "codex", id), {
    ok: true,
    text: `tools: { codex: { token: [${B}] } }\n`,
    isLast: false,
  });
});

t.test("a token itself is never written in place of its hash", async (t) => {
  t.throws(() => setToken("tools: { codex: {} }\n", "codex", "kb_abcdefgh", "replace"), TypeError);
});

function expected(text: string, tool: string, mode: "replace" | "add"): unknown {
  const config = parse(text, { schema: "failsafe" });
  const was = config.tools[tool]?.token;
  const settings = config.tools[tool] === "" ? {} : config.tools[tool];
  const list = Array.isArray(was) ? was : was ? [was] : [];
  const token = mode === "replace" || list.length === 0 ? NEW : [...list, NEW];
  return { ...config, tools: { ...config.tools, [tool]: { ...settings, token } } };
}

/** Where the old token is, from its key to the end of its value; or null. */
function tokenRange(text: string, tool: string): [start: number, end: number] | null {
  const doc = parseDocument(text, { schema: "failsafe" });
  const settings = doc.getIn(["tools", tool], true);
  const pair = isMap(settings) ? settings.items.find((item) => String(item.key) === "token") : undefined;
  if (!isScalar(pair?.key) || !isNode(pair.value)) return null;
  return [pair.key.range?.[0] ?? 0, pair.value.range?.[1] ?? 0];
}

t.test("in any file the token is set, and nothing else changes", async () => {
  const mode = fc.constantFrom("replace" as const, "add" as const);
  fc.assert(
    fc.property(written, mode, ({ text, tool, eol }, mode) => {
      const result = setToken(text, tool, NEW, mode);
      if (!result.ok) throw new Error(result.problem);
      deepStrictEqual(parse(result.text, { schema: "failsafe" }), expected(text, tool, mode));
      const [start, end] = changedRange(text, result.text);
      const old = tokenRange(text, tool);
      if (old === null || mode === "add") {
        // Nothing goes; a line may come, and a comma or brackets on the line before.
        ok(!text.slice(start, end).includes("\n"), "lines went");
        ok(result.text.replace(NEW, "").length - text.length < 40, "more came than a token");
      } else {
        ok(start >= old[0] && end <= old[1], "changed outside the token");
      }
      for (const note of text.split(eol).filter((line) => /^ *# (?!between)/.test(line))) {
        ok(result.text.split(eol).includes(note), "a comment went");
      }
      if (eol === "\r\n") ok(!/[^\r]\n/.test(result.text), "a line end of another kind");
      equal(result.text.endsWith(eol), text.endsWith(eol), "the end of the file");
      equal(result.text.startsWith("\uFEFF"), text.startsWith("\uFEFF"), "the byte order mark");
    }),
    { numRuns: runs(50) },
  );
});

t.test("a token that was added once is there to be replaced again", async () => {
  fc.assert(
    fc.property(written, ({ text, tool }) => {
      const once = setToken(text, tool, NEW, "add");
      const again = once.ok ? setToken(once.text, tool, NEW, "add") : once;
      if (!once.ok || !again.ok || once.text !== again.text) throw new Error("added twice");
      const last = setToken(again.text, tool, A, "replace");
      if (!last.ok) throw new Error(last.problem);
      equal(parse(last.text, { schema: "failsafe" }).tools[tool].token, A);
    }),
    { numRuns: runs(30) },
  );
});

const switches: readonly [name: string, enabled: boolean, before: string, after: string][] = [
  [
    "a block tool",
    false,
    "tools:\n  a:\n    key: x # k\n  b: {}\n",
    "tools:\n  a:\n    key: x # k\n    enabled: false\n  b: {}\n",
  ],
  ["an empty flow tool", false, "tools:\n  a: {} # a\n", "tools:\n  a: { enabled: false } # a\n"],
  [
    "a tool without a value",
    false,
    "tools:\n  a: # a\n  b:\n",
    "tools:\n  a: # a\n    enabled: false\n  b:\n",
  ],
  ["tools in one line", false, "tools: { a: {}, b: {} }", "tools: { a: { enabled: false }, b: {} }"],
  ["tools in one line without values", false, "tools: { a, b }", "tools: { a: { enabled: false }, b }"],
  [
    "one that was enabled",
    false,
    "tools:\n  a: { enabled: true } # x\n",
    "tools:\n  a: { enabled: false } # x\n",
  ],
  [
    "one that was disabled",
    true,
    "tools:\n  a:\n    enabled: false # x\n",
    "tools:\n  a:\n    enabled: true # x\n",
  ],
  [
    "one with nonsense",
    true,
    "tools:\n  a:\n    enabled: maybe # x\n",
    "tools:\n  a:\n    enabled: true # x\n",
  ],
  ["one left empty", true, "tools:\n  a:\n    enabled: # x\n", "tools:\n  a:\n    enabled: true # x\n"],
];

for (const [name, enabled, before, after] of switches) {
  t.test(`${enabled ? "enabling" : "disabling"} ${name} changes that and no other byte`, async (t) => {
    t.strictSame(setEnabled(before, "a", enabled), { ok: true, text: after });
    t.strictSame(setEnabled(after, "a", enabled), { ok: true, text: after }, "a second time nothing changes");
  });
}

t.test("a tool without the setting is enabled already", async (t) => {
  for (const text of [
    "tools: { a: {} }",
    "tools:\n  a:\n",
    "tools:\n  a: { enabled: true }\n",
    "tools: { a: { enabled: 'true' } }",
  ])
    t.strictSame(setEnabled(text, "a", true), { ok: true, text });
  t.match(setEnabled("tools: { a: {}, b: {} }", "c", true), { ok: false, problem: /no tool c .* are a, b/ });
});

t.test("in any file a tool is disabled, and enabled again", async () => {
  fc.assert(
    fc.property(written, ({ text, tool, eol }) => {
      const off = setEnabled(text, tool, false);
      if (!off.ok) throw new Error(off.problem);
      equal(parse(off.text, { schema: "failsafe" }).tools[tool].enabled, "false");
      deepStrictEqual(setEnabled(off.text, tool, false), off);
      const on = setEnabled(off.text, tool, true);
      if (!on.ok) throw new Error(on.problem);
      equal(on.text, off.text.replace("enabled: false", "enabled: true"));
      const notes = (of: string) => of.split(eol).filter((line) => /^ *#/.test(line));
      deepStrictEqual(notes(off.text), notes(text), "no comment went");
    }),
    { numRuns: runs(25) },
  );
});
