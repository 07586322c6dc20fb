import fc from "fast-check";
import t from "tap";
import type { ClientId } from "../../src/clients/description.ts";
import { settingsOf } from "../../src/clients/settings-files.ts";
import { describeChange, takeBack } from "../../src/clients/undo.ts";
import { Secret } from "../../src/core/secret.ts";
import { makeToken } from "../../src/core/token.ts";
import { runs } from "../doubles/effort.ts";

const KEY = "sk-9f3Kx7Qm2LpZ8vTn4RbW6yHc1DsJ5gEa0UoXiNfMkBtVqYwC";
const secret = new Secret(KEY);

/** Settings that a write changes, among others, each of which may be there or not. */
const JSON_SETTINGS: Readonly<Record<"opencode" | "claude-code", Record<string, fc.Arbitrary<unknown>>>> = {
  opencode: {
    $schema: fc.constant("https://opencode.ai/config.json"),
    model: fc.string(),
    provider: optional({
      other: fc.constant({}),
      keybearer: optional({
        name: fc.string(),
        options: optional({ apiKey: fc.constant(KEY), timeout: fc.nat() }),
        models: fc.constant({ "some-model": { limit: 1 }, mine: {} }),
      }),
    }),
  },
  "claude-code": {
    apiKeyHelper: fc.constant(`echo ${KEY}`),
    env: optional({
      OTHER: fc.string(),
      ANTHROPIC_API_KEY: fc.constant(KEY),
      ANTHROPIC_AUTH_TOKEN: fc.constantFrom(KEY, "", "x", "a b\n\u00e9", 'q"\\uote'),
      ANTHROPIC_BASE_URL: fc.constantFrom("https://gw.example.com", "https://a:b@gw.example.com", ""),
      ANTHROPIC_MODEL: fc.string(),
      CLAUDE_CODE_USE_BEDROCK: fc.constantFrom("1", 1, true),
    }),
  },
};

function optional(settings: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> {
  return fc.record(settings, { requiredKeys: [] });
}

const toml = fc
  .tuple(
    fc.subarray([
      "# mine",
      "model = 'x' # y",
      'model_provider = "gw"',
      "",
      "other = [1,\n  2]",
      'a."b c" = 2',
    ]),
    fc.subarray(
      [
        `experimental_bearer_token = '${KEY}'`,
        'base_url="https://gw.example.com"   # base',
        "env_key = 'X' # why",
        "requires_openai_auth = true",
        "name = '''k'''",
        "# a comment",
        "stream_idle_timeout_ms = 1",
      ],
      { minLength: 0 },
    ),
    fc.boolean(),
    fc.constantFrom("", "\n", "\n[other]\nb = 1", "\n\n[[list]]\nc = 1979-05-27\n"),
  )
  .map(([top, provider, isThere, rest]) =>
    [...top, ...(isThere ? ["[model_providers.keybearer]", ...provider] : [])].join("\n").concat(rest),
  );

function texts(client: ClientId): fc.Arbitrary<string> {
  const eol = fc.constantFrom("\n", "\r\n");
  if (client === "codex") return fc.tuple(toml, eol).map(([text, end]) => text.replaceAll("\n", end));
  return fc
    .tuple(
      optional({
        permissions: fc.jsonValue({ maxDepth: 2 }),
        ...JSON_SETTINGS[client === "opencode" ? client : "claude-code"],
        last: fc.jsonValue({ maxDepth: 1 }),
      }),
      fc.constantFrom(0, 1, 2, "\t"),
      eol,
      fc.boolean(),
      fc.constantFrom("", "\uFEFF"),
    )
    .map(([value, indent, end, isLast, mark]) => {
      const text = JSON.stringify(value, null, indent).replaceAll("\n", end);
      return `${mark}${text}${isLast ? end : ""}`;
    });
}

t.test("what a write changes is taken back to the byte, and its description holds no key", async (t) => {
  for (const client of ["claude-code", "codex", "opencode"]) {
    const settings = settingsOf(client);
    const target = { origin: "http://localhost:5397", token: makeToken(), model: "some-model", small: null };
    let count = 0;
    fc.assert(
      fc.property(texts(client), (before) => {
        const base = before.trim() === "" ? settings.empty : before;
        let edited = settings.merge(base, target);
        for (const { remove } of settings.conflicts(base)) if (edited.ok) edited = remove(edited.text);
        if (!edited.ok || edited.text === before) return true;
        count += 1;
        const described = describeChange(settings, before, edited.text);
        if (!described.ok) throw new Error(described.problem);
        const { change } = described;
        const { fields, layout } = change;
        const shown = fields.map((field) => ({
          ...field,
          before: field.before && "key" in field.before ? {} : field.before,
        }));
        if (secret.isIn(JSON.stringify([shown, layout]))) throw new Error("a key is in it");
        const back = takeBack(settings, change, edited.text, fields, (key) => key);
        if (!back.ok) throw new Error(back.problem);
        if (layout !== null) return back.text === before;
        // Written in a way that would leave a part of a key in the description.
        return describeChange(settings, back.text, edited.text).ok;
      }),
      { numRuns: runs(60) },
    );
    t.ok(count > runs(60) / 3, `${client}: ${count} files were changed`);
  }
});

/** Lines in any order, some with a setting that a write changes. */
const LINES: Readonly<Record<string, readonly string[]>> = {
  "gemini-cli": [
    "# mine",
    "",
    "OTHER=1",
    "export A='b c'",
    `GEMINI_API_KEY=${KEY}`,
    `export GEMINI_API_KEY="${KEY}" # why`,
    "GOOGLE_GEMINI_BASE_URL='https://gw.example.com'",
    "GEMINI_MODEL = x",
    "  B=$A",
  ],
  "copilot-cli": [
    "# mine",
    "",
    "alias ll='ls -l'",
    'export PATH="$HOME/bin:$PATH"',
    "if true; then export B=1; fi",
    `export COPILOT_PROVIDER_API_KEY=${KEY}`,
    "COPILOT_MODEL='x'",
    "cat <<END\nexport COPILOT_MODEL=no\nEND",
    "f() {\n\treturn 0\n}",
  ],
  aider: [
    "# mine",
    "",
    `openai-api-key: ${KEY} # why`,
    'openai-api-base: "https://gw.example.com/v1"',
    "model: 'x'",
    "auto-commits: false",
    "read: [a, b]",
    "set-env:\n  - A=1\n  - B=2",
  ],
};

t.test("what a write changes in a script or in YAML is taken back", async (t) => {
  const target = { origin: "http://localhost:5397", token: makeToken(), model: "some-model", small: null };
  for (const [client, lines] of Object.entries(LINES)) {
    const settings = settingsOf(client);
    let count = 0;
    fc.assert(
      fc.property(
        fc.shuffledSubarray([...lines]),
        fc.constantFrom("\n", "\r\n"),
        fc.boolean(),
        (some, end, isLast) => {
          const before = some
            .join("\n")
            .concat(isLast ? "\n" : "")
            .replaceAll("\n", end);
          const edited = settings.merge(before, target);
          if (!edited.ok) return true;
          const described = describeChange(settings, before, edited.text);
          if (!described.ok) return true;
          count += 1;
          const { change } = described;
          const shown = change.fields.map((field) => ({
            ...field,
            before: field.before && "key" in field.before ? {} : field.before,
          }));
          if (secret.isIn(JSON.stringify([shown, change.layout]))) throw new Error("a key is in it");
          const back = takeBack(settings, change, edited.text, change.fields, (key) => key);
          if (!back.ok) throw new Error(back.problem);
          const isScript = settings.format !== "yaml";
          return isScript || change.layout !== null ? back.text === before : true;
        },
      ),
      { numRuns: runs(60) },
    );
    t.ok(count > runs(60) / 3, `${client}: ${count} files were changed`);
  }
});
