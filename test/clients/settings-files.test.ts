import t from "tap";
import { redactedDiff } from "../../src/clients/diff.ts";
import { jsonAt } from "../../src/clients/json-edit.ts";
import { settingsFiles, settingsOf, WRITABLE, type Writable } from "../../src/clients/settings-files.ts";
import { settingsFor } from "../../src/clients/snippets.ts";
import { findClient } from "../../src/clients/table.ts";
import { tomlAt } from "../../src/clients/toml-edit.ts";
import { makeToken } from "../../src/core/token.ts";

const token = makeToken();
const WANTED = { origin: "http://localhost:5397", token, model: "some-model", small: null };

function merged(client: Writable, text: string): string {
  const edited = settingsOf(client).merge(text, WANTED);
  if (!edited.ok) throw new Error(edited.reason);
  return edited.text;
}

t.test("what is written says what use prints, but for Codex's token, which needs no variable", (t) => {
  for (const client of WRITABLE) {
    const known = findClient(client);
    if (known === null) throw new Error(client);
    const printed = settingsFor(known, WANTED).find(({ kind }) => kind === "file")?.text ?? "";
    const text = merged(client, settingsOf(client).empty);
    t.equal(settingsOf(client).tokenIn(text), token);
    t.equal(merged(client, text), text, "twice is once");
    if (client !== "codex") {
      const { $schema: _, ...settings } = JSON.parse(text);
      t.same(settings, JSON.parse(printed), client);
      continue;
    }
    for (const path of [
      ["model"],
      ["model_provider"],
      ...["name", "base_url", "wire_api"].map((name) => ["model_providers", "keybearer", name]),
    ]) {
      t.equal(tomlAt(text, path), tomlAt(printed, path), path.join("."));
      t.ok(tomlAt(text, path), "and there is something");
    }
  }
  t.end();
});

t.test("what would be sent beside the token is found in Claude Code's file, and can go", (t) => {
  const claude = settingsOf("claude-code");
  const text =
    '{\n  "apiKeyHelper": "/bin/key",\n  "env": {\n    "ANTHROPIC_API_KEY": "sk-old",\n    "OTHER": "1"\n  }\n}\n';
  const conflicts = claude.conflicts(text);
  t.same(
    conflicts.map(({ name }) => name),
    ["ANTHROPIC_API_KEY", "apiKeyHelper"],
  );
  let now = text;
  for (const conflict of conflicts) {
    const edited = conflict.remove(now);
    if (edited.ok) now = edited.text;
  }
  t.equal(now, '{\n  "env": {\n    "OTHER": "1"\n  }\n}\n');
  t.same(claude.conflicts(now), []);
  t.end();
});

t.test("a model's own options in opencode stay, and a list that leaves keybearer out is said", (t) => {
  const text =
    '{ "enabled_providers": ["x"], "provider": { "keybearer": { "models": { "some-model": { "name": "Mine" } } } } } // end';
  const after = merged("opencode", text);
  t.same(jsonAt(after, ["provider", "keybearer", "models"], "comments"), { "some-model": { name: "Mine" } });
  t.match(settingsOf("opencode").notes(after), [/enabled_providers/]);
  t.same(settingsOf("opencode").notes("{}"), []);
  t.end();
});

t.test("in Codex's file env_key goes, which would win, and a profile that wins is said", (t) => {
  const text =
    'profile = "work"\n[model_providers.keybearer]\nenv_key = "X"\n[profiles.work]\nmodel_provider = "other"\n';
  const after = merged("codex", text);
  t.notMatch(after, /env_key/);
  t.match(settingsOf("codex").notes(after), [/profile work uses the provider other/]);
  t.match(settingsOf("codex").merge("[model_providers.keybearer.auth]\ncommand = 'x'\n", WANTED), {
    ok: false,
    reason: /auth/,
  });
  t.end();
});

t.test("each client's own variables say where its file is", (t) => {
  const files = (client: Writable, env: Record<string, string>) =>
    settingsFiles(client, { env, home: "/home/me", cwd: "/home/me/project" });
  t.same(files("claude-code", {}), ["/home/me/.claude/settings.json"]);
  t.same(files("claude-code", { CLAUDE_CONFIG_DIR: "/c" }), ["/c/settings.json"]);
  t.same(files("codex", {}), ["/home/me/.codex/config.toml"]);
  t.same(files("codex", { CODEX_HOME: "/x" }), ["/x/config.toml"]);
  const usual = ["/home/me/.config/opencode/opencode.jsonc", "/home/me/.config/opencode/opencode.json"];
  t.same(files("opencode", { XDG_CONFIG_HOME: "relative" }), usual);
  t.same(
    files("opencode", { XDG_CONFIG_HOME: "/xdg" }),
    usual.map((path) => path.replace("/home/me/.config", "/xdg")),
  );
  t.same(files("opencode", { OPENCODE_CONFIG: "own.json" }), ["/home/me/project/own.json"]);
  t.end();
});

t.test("a diff shows what changes and three lines around it", (t) => {
  const lines = (...all: string[]) => `${all.join("\n")}\n`;
  t.same(redactedDiff("f", "a\n", "a\n"), []);
  t.same(redactedDiff("f", null, "a\nb\n"), ["--- /dev/null", "+++ f", "@@ -0,0 +1,2 @@", "+a", "+b"]);
  t.same(redactedDiff("f", "a\n", null), ["--- f", "+++ /dev/null", "@@ -1,1 +0,0 @@", "-a"]);
  t.same(redactedDiff("f", "a", "a\n").slice(2), [
    "@@ -1,1 +1,1 @@",
    "-a",
    "\\ No newline at end of file",
    "+a",
  ]);
  const old = lines("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12");
  const now = old.replace("5\n", "five\n").replace("12\n", "12\n13\n");
  t.same(redactedDiff("f", old, now).slice(2), [
    ...["@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8"],
    ...["@@ -10,3 +10,4 @@", " 10", " 11", " 12", "+13"],
  ]);
  t.end();
});

t.test("no shown diff contains a secret, and the new token is shortened", (t) => {
  const secrets = [
    "sk-ant-REAL0123456789",
    "hunter2",
    "Bearer abc def",
    "pass word",
    "0123456789abcdef0123456789ABCDEF",
  ];
  const before = `{
  "env": {
    "ANTHROPIC_API_KEY": "${secrets[0]}", "DB_PASSWORD": '${secrets[3]}',
    "ANTHROPIC_CUSTOM_HEADERS": "${secrets[2]}",
    "X": "${secrets[4]}",
    "my_secret": "${secrets[1]}"
  }
}`;
  const toml = `experimental_bearer_token = "${secrets[1]}"\nhttp_headers = { Authorization = "${secrets[2]}" }\nenv_key = "NAME"\n`;
  const shown = [
    ...redactedDiff("f", before, before.replace(secrets[0] ?? "", token)),
    ...redactedDiff("f", toml, null),
    ...redactedDiff("f", toml, toml.replace(secrets[1] ?? "", token)),
  ].join("\n");
  for (const secret of [...secrets, token, token.slice(0, 12)])
    t.notOk(shown.includes(secret), secret.slice(0, 4));
  t.match(shown, `"${token.slice(0, 6)}…"`);
  t.match(shown, 'env_key = "NAME"', "the name of a variable is no secret");
  t.end();
});
