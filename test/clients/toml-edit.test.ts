import fc from "fast-check";
import t from "tap";
import type { Edited } from "../../src/clients/text-edit.ts";
import { editToml, tomlAt } from "../../src/clients/toml-edit.ts";
import { runs } from "../doubles/effort.ts";
import { changedRange } from "../doubles/written-config.ts";

function done(edited: Edited): string {
  if (!edited.ok) throw new Error(`line ${edited.line}: ${edited.problem}`);
  return edited.text;
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
      const top = done(editToml(text, [], "model", value));
      if (tomlAt(top, ["model"]) !== value) throw new Error("model is not set");
      if (done(editToml(top, [], "model", value)) !== top) throw new Error("twice is not once");
      const provider = (before: string) => {
        const withUrl = done(editToml(before, TABLE, "base_url", value));
        const withToken = done(editToml(withUrl, TABLE, "experimental_bearer_token", "kb_x"));
        return done(editToml(withToken, TABLE, "env_key", null));
      };
      const after = provider(top);
      if (tomlAt(after, [...TABLE, "base_url"]) !== value) throw new Error("base_url is not set");
      if (tomlAt(after, [...TABLE, "env_key"]) !== undefined) throw new Error("env_key is still there");
      if (provider(after) !== after) throw new Error("twice is not once");
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
    done(editToml(done(editToml(text, [], "model_provider", "k")), TABLE, "name", "k"));
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
    t.match(editToml(text, TABLE, "name", "k"), { ok: false, problem: /by hand/ }, text);
  }
  t.end();
});

t.test("a file that is no TOML is refused with its line", (t) => {
  const bad: [string, number, RegExp][] = [
    ["a = 1\nb = \n", 2, /invalid value/],
    ["a = 1\nb\n", 2, /illegal character in key/],
    ["a = 1\n\na = 2\n", 3, /redefine/],
    ["[a]\n[b]\n[a]\n", 3, /redefine/],
    ["a = { b = 1 }\n[a.c]\n", 2, /redefine/],
    ["[a]\nb.c = 1\n[a.b]\n", 3, /redefine/],
    ["a = []\n[[a]]\n", 2, /redefine/],
    ["a = bare\n", 1, /invalid value/],
    ["a = 1 b = 2\n", 1, /end-of-line/],
    ['\na = "C:\\Users"\n', 2, /unicode/],
    ['a = "x\n', 1, /control characters/],
    ['a = """x\n', 1, /end of file|unfinished/],
    ["[a\n", 1, /key/],
    ["a = [1, 2\n", 2, /expected comma/],
    ["a = 'x\u0001'\n", 1, /control characters/],
    [`a = ${"[".repeat(50_000)}`, 1, /nested/],
  ];
  for (const [text, line, problem] of bad)
    t.match(editToml(text, [], "x", "y"), { ok: false, line, problem }, text.slice(0, 30));
  t.end();
});

t.test("a refusal never quotes the file, which may hold keys", (t) => {
  const edited = editToml('api_key = "sk-real-key\nb = 1\n', [], "x", "y");
  t.match(edited, { ok: false, line: 1 });
  t.notMatch(JSON.stringify(edited), /sk-real-key/);
  t.end();
});
