import fc from "fast-check";
import t from "tap";
import type { Spliced } from "../../src/clients/write/spliced.ts";
import { readToml } from "../../src/clients/write/toml-read.ts";
import { changeToml, hasToml, tomlTextAt } from "../../src/clients/write/toml-splice.ts";
import { runs } from "../doubles/random.ts";
import { changedRange } from "../doubles/written-config.ts";

function done(spliced: Spliced): string {
  if (!spliced.ok) throw new Error(`line ${spliced.line}: ${spliced.reason}`);
  return spliced.text;
}

const TABLE = ["model_providers", "keybearer"];

/** Lines that look like what they are not, and all the ways to write a value. */
const setting = fc.constantFrom(
  ["approval_policy = 'never'  # it's mine"],
  ["notify = [", "  'a', # one", '  ["b"],', "]"],
  ['note = """', "[model_providers.keybearer]", 'name = "not a setting" \\', '  """'],
  ["raw = '''", 'model_provider = "no"', "''''"],
  ["when = 2026-11-15T09:00:00Z", "day = 2026-11-15", "at = 09:00:00.5"],
  ['"quoted key" = { a = 1, "b.c" = [ { d = 0xff } ] }'],
  ["tui.theme = 'dark'", "tui . size = 1_000"],
  ["flag = true", "", "# a comment", "nothing = inf"],
);
const tables = fc.constantFrom(
  ["[mcp_servers.files]", "command = 'npx' # run", "  args = ['-y']"],
  ["[model_providers.other]", 'name = "Other"', 'env_key = "OTHER"'],
  ["[[hooks]]", "a = 1", "[[hooks]]", "a = 2", "[hooks.inner]", "b = 3"],
  ['[ projects . "/home/me/x y" ]', 'trust_level = "trusted"'],
  ["# above", "[empty] # beside", ""],
);
const ours = fc.constantFrom(
  [],
  [
    "[model_providers.keybearer]",
    'name = "keybearer"',
    'env_key = "X" # gone',
    'base_url = "http://old" # stays',
  ],
  ["[model_providers.keybearer] # ours", "", "  experimental_bearer_token = 'kb_old'", "  # the end", ""],
  ["[model_providers.keybearer]"],
);
const root = fc.constantFrom(
  [],
  ['model = "old"  # mine'],
  ["model_provider = 'x'"],
  ['"model" = """old"""'],
);
const file = fc
  .record({
    settings: fc.uniqueArray(setting, { maxLength: 4, selector: (lines) => lines[0] }),
    root,
    before: fc.uniqueArray(tables, { maxLength: 2, selector: (lines) => lines[0] }),
    ours,
    after: fc.constantFrom([], ["[last]", "x = 1"]),
    eol: fc.constantFrom("\n", "\r\n"),
    end: fc.constantFrom("", "\n", "\n\n"),
    bom: fc.constantFrom("", "\uFEFF"),
  })
  .map(({ settings, root, before, ours, after, eol, end, bom }) => {
    const lines = [...settings.slice(0, 2), root, ...settings.slice(2), ...before, ours, after].flat();
    return bom + [lines.join("\n"), end].join("").replaceAll("\n", eol);
  });
const wanted = fc.oneof(fc.constantFrom("keybearer", 'a "b" \\c', "ü\u007f"), fc.string());

t.test("texts come in or change below their header, and no other byte does", (t) => {
  fc.assert(
    fc.property(file, wanted, (text, value) => {
      const top = done(changeToml(text, { table: [], set: { model: value } }));
      if (tomlTextAt(top, ["model"]) !== value) throw new Error("model is not set");
      const set = { base_url: value, experimental_bearer_token: "kb_x", env_key: null };
      const after = done(changeToml(top, { table: TABLE, set }));
      if (tomlTextAt(after, [...TABLE, "base_url"]) !== value) throw new Error("base_url is not set");
      if (hasToml(after, [...TABLE, "env_key"])) throw new Error("env_key is still there");
      if (done(changeToml(after, { table: TABLE, set })) !== after) throw new Error("twice is not once");
      if (done(changeToml(top, { table: [], set: { model: value } })) !== top)
        throw new Error("twice is not once");
      // One place is touched by one setting: all that is before and behind it is as it was.
      const [from, to] = changedRange(text, top);
      const gone = text.slice(from, to);
      if (/[\n#]/.test(gone)) throw new Error(`more than a value went: ${gone}`);
      if (text.includes("\r\n") && /(?<!\r)\n/.test(after))
        throw new Error("a line break of another kind came in");
      if (/\w/.test(text) && text.endsWith("\n") !== after.endsWith("\n"))
        throw new Error("the end is another");
      for (const line of text.replace("\uFEFF", "").split(/\r?\n/)) {
        const touched = /^\s*"?(?:model|env_key|base_url|experimental_bearer_token)"? =/.test(line);
        if (!touched && !after.includes(line)) throw new Error(`gone: ${line}`);
      }
    }),
    { numRuns: runs(50) },
  );
  t.end();
});

t.test("what is new stands where the format and the eye want it", (t) => {
  const change = (text: string) =>
    done(
      changeToml(done(changeToml(text, { table: [], set: { model_provider: "k" } })), {
        table: TABLE,
        set: { name: "k" },
      }),
    );
  const table = '[model_providers.keybearer]\nname = "k"\n';
  t.equal(change(""), `model_provider = "k"\n\n${table}`);
  t.equal(
    change("a = 1 # one\n\n[b]\nc = 2\n"),
    `a = 1 # one\nmodel_provider = "k"\n\n[b]\nc = 2\n\n${table}`,
  );
  t.equal(change("# about b\n[b]"), `model_provider = "k"\n\n# about b\n[b]\n\n${table.trimEnd()}`);
  t.equal(change(`model_provider = 'o' # mine\n\n${table}`), `model_provider = "k" # mine\n\n${table}`);
  t.equal(
    change("[model_providers.keybearer]\n  wire_api = 'x' # y\n\n[z]\n"),
    'model_provider = "k"\n\n[model_providers.keybearer]\n  wire_api = \'x\' # y\n  name = "k"\n\n[z]\n',
  );
  t.end();
});

t.test("ways of writing that an edit cannot follow are left for the person", (t) => {
  for (const text of [
    'model_providers = { other = { name = "x" } }\n',
    'model_providers.keybearer.name = "x"\n',
    '[model_providers]\nkeybearer = { name = "x" }\n',
    '[model_providers]\nkeybearer.name = "x"\n',
    "[[model_providers]]\nname = 1\n",
    "model_providers = 1\n",
  ]) {
    t.match(changeToml(text, { table: TABLE, set: { name: "k" } }), { ok: false, reason: /by hand/ }, text);
  }
  t.end();
});

t.test("a file that is no TOML is refused with its line", (t) => {
  const bad: [string, number, RegExp][] = [
    ["a = 1\nb = \n", 2, /value is missing/],
    ["a = 1\nb\n", 2, /an = is missing/],
    ["a = 1\n\na = 2\n", 3, /a is set twice/],
    ["[a]\n[b]\n[a]\n", 3, /\[a\] is there already/],
    ["a = { b = 1 }\n[a.c]\n", 2, /already/],
    ["[a]\nb.c = 1\n[a.b]\n", 3, /already/],
    ["a = []\n[[a]]\n", 2, /already/],
    ["a = bare\n", 1, /needs quotes/],
    ["a = 1 b = 2\n", 1, /behind the end/],
    ['\na = "C:\\Users"\n', 2, /single quotes/],
    ['a = "x\n', 1, /closing quote/],
    ['a = """x\n', 1, /closing quotes/],
    ["[a\n", 1, /\] is missing/],
    ["a = [1, 2\n", 2, /comma or \]/],
    ["a = 2026-02-29\n", 1, /not written as TOML/],
    ["a = 'x\u0001'\n", 1, /control/],
    [`a = ${"[".repeat(50_000)}`, 1, /brackets/],
  ];
  for (const [text, line, what] of bad)
    t.match(readToml(text), { ok: false, fault: { line, what } }, text.slice(0, 30));
  t.end();
});
