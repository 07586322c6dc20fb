import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { parse as parseYaml } from "yaml";
import { WRITABLE } from "../../src/clients/settings-files.ts";
import { Secret } from "../../src/core/secret.ts";
import { hashToken } from "../../src/core/token.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";

const CONFIG = `gateway: http://127.0.0.1:9/v1
tools:
  mine: { key: env:A_KEY, model: some-model, ask_usage: true }
`;
const TOKEN = /kb_[A-Za-z0-9_-]{49}/;
const KEY = "sk-9f3Kx7Qm2LpZ8vTn4RbW6yHc1DsJ5gEa0UoXiNfMkBtVqYwC";

/** For each client: its files, each with what a person may have in it already. */
const FILES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "claude-code": {
    ".claude/settings.json": `{\r\n  "env": { "ANTHROPIC_AUTH_TOKEN": "${KEY}", "A": "1" },\r\n  "hooks": {}\r\n}`,
  },
  codex: {
    ".codex/config.toml": `# mine\nmodel = "x" # why\n\n[model_providers.gw]\nbase_url = "https://gw.example.com/v1"\nexperimental_bearer_token = "${KEY}"\n\n[tui]\ntheme = "dark"`,
  },
  opencode: {
    ".config/opencode/opencode.jsonc": `{ // mine\n  "provider": { "gw": { "options": { "apiKey": "${KEY}" } } },\n  "theme": "dark", // last\n}\n`,
  },
  "kilo-code": {
    ".config/kilo/kilo.jsonc": `{\n\t"model": "other/x",\n\t/* two */ "provider": {}\n}\n`,
  },
  "qwen-code": {
    ".qwen/settings.json": `{\n  // mine\n  "security": { "auth": { "selectedType": "qwen-oauth" } },\n  "modelProviders": { "openai": [{ "id": "x", "envKey": "X_KEY" }] },\n  "env": { "X_KEY": "${KEY}" }\n}\n`,
  },
  "gemini-cli": {
    ".gemini/.env": `# mine\nexport GEMINI_API_KEY="${KEY}"\nOTHER=1`,
    ".gemini/settings.json": `{ "ui": { "theme": "x" }, "security": { "auth": { "selectedType": "oauth-personal" } } }`,
  },
  "copilot-cli": { ".profile": `# mine\nexport PATH="$HOME/bin:$PATH"\nalias ll='ls -l'\n` },
  "cline-cli": {
    ".cline/data/settings/providers.json": `{\n  "version": 1,\n  "lastUsedProvider": "anthropic",\n  "modes": {},\n  "providers": {\n    "anthropic": {\n      "settings": { "provider": "anthropic", "apiKey": "${KEY}" },\n      "updatedAt": "2026-10-01T00:00:00.000Z",\n      "tokenSource": "manual"\n    }\n  }\n}\n`,
  },
  continue: {
    ".continue/config.yaml": `# mine\nname: all\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: gw # first\n    provider: openai\n    model: x\n    apiBase: https://gw.example.com/v1\n    apiKey: ${KEY}\nrules: []\n`,
  },
  aider: {
    ".aider.conf.yml": `# mine\nopenai-api-key: ${KEY} # the gateway's\nopenai-api-base: "https://gw.example.com/v1"\r\n\nauto-commits: false\n`,
  },
  llm: {
    ".config/io.datasette.llm/keys.json": `{\n  "// Note": "This file stores secret API credentials. Do not share!",\n  "gw": "${KEY}"\n}`,
    ".config/io.datasette.llm/extra-openai-models.yaml": `- model_id: gw-x\n  model_name: x\n  api_base: https://gw.example.com/v1\n  api_key_name: gw\n`,
  },
  goose: {
    ".config/goose/custom_providers/keybearer.json": "",
    ".config/goose/config.yaml": `# mine\nextensions:\n  developer:\n    enabled: true\nGOOSE_PROVIDER: openai\nOPENAI_HOST: https://gw.example.com\n`,
  },
  crush: {
    ".config/crush/crush.json": `{"providers":{"gw":{"type":"openai-compat","base_url":"https://gw.example.com/v1","api_key":"${KEY}"}}}`,
    ".local/share/crush/crush.json": `{\n  "models": {\n    "large": { "model": "x", "provider": "gw" }\n  }\n}\n`,
  },
  pi: {
    ".pi/agent/models.json": `{\n  "providers": {\n    "gw": { "baseUrl": "https://gw.example.com/v1", "api": "openai-completions", "apiKey": "${KEY}", "models": [{ "id": "x" }] }\n  }\n}\n`,
    ".pi/agent/settings.json": `{\n  "theme": "dark"\n}\n`,
  },
};

/** Files that are only changed where they are. */
const ONLY_IF_THERE = [".local/share/crush/crush.json"];

async function prepare(t: Test) {
  const home = await newHome(t);
  const config = await saveConfig(home, CONFIG);
  const path = (name: string) => join(home, name);
  return {
    home,
    config,
    path,
    read: (name: string) => readFileSync(path(name), "utf8"),
    put(name: string, text: string) {
      mkdirSync(dirname(path(name)), { recursive: true });
      writeFileSync(path(name), text);
      chmodSync(path(name), 0o640);
    },
    use: (client: string, ...options: string[]) =>
      command(t, home, ["use", "mine", "--for", client, ...options], { env: { SHELL: "/bin/sh" } }),
  };
}

t.test("there is a case for each client", async (t) => {
  t.same(Object.keys(FILES).toSorted(), [...WRITABLE].toSorted());
});

for (const [client, files] of Object.entries(FILES)) {
  t.test(`${client}: on an empty home the files are made, and --undo removes them`, async (t) => {
    const { use, path, read, config, home } = await prepare(t);
    const names = Object.keys(files)
      .filter((name) => !ONLY_IF_THERE.includes(name))
      .map((name) => name.replace(/\.jsonc$/, ".json"));
    const written = await use(client, "--write", "--yes");
    t.equal(written.code, 0, written.stderr);
    const texts = names.map(read);
    const token = TOKEN.exec(texts.join("\n"))?.[0] ?? "";
    t.match(readFileSync(config, "utf8"), hashToken(token), "its token is in config.yaml");
    t.match(texts.join("\n"), "http://localhost:5397");
    t.match(texts.join("\n"), "some-model");
    for (const name of names) t.equal(statSync(path(name)).mode & 0o777, 0o600, name);
    t.match(await use(client, "--write", "--yes"), { code: 0, stdout: /already; nothing changed/ });
    const back = await use(client, "--undo", "--yes");
    t.match(back, { code: 0, stdout: /is removed/ }, back.stderr);
    for (const name of names) {
      t.notOk(existsSync(path(name)), name);
      const left = readdirSync(dirname(path(name))).filter((each) => each.endsWith(".tmp"));
      t.same(left, [], "nothing is left behind");
    }
    t.same(readdirSync(join(home, "state/undo")), []);
    t.notMatch(readFileSync(config, "utf8"), "sha256:");
  });

  t.test(`${client}: what was there stays, and --undo restores every byte`, async (t) => {
    const { use, put, read, path, home } = await prepare(t);
    const there = Object.entries(files).filter(([, text]) => text !== "");
    for (const [name, text] of there) put(name, text);
    const written = await use(client, "--write", "--yes");
    t.equal(written.code, 0, written.stderr);
    t.equal(new Secret(KEY).isIn(written.stdout + written.stderr), false, "no key is shown");
    for (const record of readdirSync(join(home, "state/undo")))
      t.equal(new Secret(KEY).isIn(read(`state/undo/${record}`)), false, "none is in the record");
    for (const [name, text] of there) {
      t.not(read(name), text, `${name} is changed`);
      t.equal(statSync(path(name)).mode & 0o777, 0o640, "its mode stays");
    }
    const back = await use(client, "--undo", "--yes");
    t.equal(back.code, 0, back.stderr);
    for (const [name, text] of there) t.equal(read(name), text, name);
    t.same(readdirSync(join(home, "state/undo")), []);
  });
}

t.test("one setting that was changed since stays, and the others go back", async (t) => {
  const { use, put, read, path } = await prepare(t);
  put(".continue/config.yaml", FILES.continue?.[".continue/config.yaml"] ?? "");
  await use("continue", "--write", "--yes");
  const name = ".continue/config.yaml";
  writeFileSync(path(name), read(name).replace("some-model", "mine"));
  const { code, stdout } = await use("continue", "--undo", "--yes");
  t.equal(code, 0);
  t.match(stdout, /models\.1\.model was changed since, and stays as it is/);
  t.same(parseYaml(read(name)).models, [
    {
      name: "gw",
      provider: "openai",
      model: "x",
      apiBase: "https://gw.example.com/v1",
      apiKey: KEY,
    },
    { model: "mine" },
  ]);
});

t.test("a client with two files keeps both, if one cannot be written", async (t) => {
  const { use, put, read, config } = await prepare(t);
  put(".pi/agent/models.json", "{}\n");
  put(".pi/agent/settings.json", "{ nope");
  t.match(await use("pi", "--write", "--yes"), { code: 1, stderr: /settings\.json was left as it is/ });
  t.equal(read(".pi/agent/models.json"), "{}\n");
  t.equal(readFileSync(config, "utf8"), CONFIG, "no token was made");
});

t.test("Cline 2 has its settings in two files", async (t) => {
  const { use, put, read } = await prepare(t);
  const state = `{\n  "actModeApiProvider": "anthropic",\n  "mode": "act"\n}\n`;
  const secrets = `{\n  "apiKey": "${KEY}"\n}\n`;
  put(".cline/data/globalState.json", state);
  put(".cline/data/secrets.json", secrets);
  t.match(await use("cline-cli", "--write", "--yes"), { code: 0 });
  t.match(JSON.parse(read(".cline/data/globalState.json")), {
    openAiBaseUrl: "http://localhost:5397/v1",
    actModeApiProvider: "openai",
    planModeOpenAiModelId: "some-model",
    mode: "act",
  });
  t.match(JSON.parse(read(".cline/data/secrets.json")), { apiKey: KEY, openAiApiKey: TOKEN });
  t.match(await use("cline-cli", "--undo", "--yes"), { code: 0 });
  t.equal(read(".cline/data/globalState.json"), state);
  t.equal(read(".cline/data/secrets.json"), secrets);
});

t.test("a time that Cline changes itself does not keep the rest from going back", async (t) => {
  const { use, put, read } = await prepare(t);
  const name = ".cline/data/settings/providers.json";
  put(name, FILES["cline-cli"]?.[name] ?? "");
  await use("cline-cli", "--write", "--yes");
  const now = JSON.parse(read(name));
  now.providers["openai-compatible"].updatedAt = "2026-11-18T10:00:00.000Z";
  put(name, JSON.stringify(now));
  t.match(await use("cline-cli", "--undo", "--yes"), { code: 0 });
  t.same(JSON.parse(read(name)), JSON.parse(FILES["cline-cli"]?.[name] ?? ""));
});

t.test("Copilot CLI's variables go into the start file of the person's own shell", async (t) => {
  const { home, path, read } = await prepare(t);
  const cases = [
    ["/bin/zsh", ".zshrc", /^export COPILOT_PROVIDER_TYPE=openai$/m],
    ["/usr/bin/fish", ".config/fish/config.fish", /^set -gx COPILOT_PROVIDER_TYPE openai$/m],
  ] as const;
  for (const [shell, name, line] of cases) {
    const use = (...options: string[]) =>
      command(t, home, ["use", "mine", "--for", "copilot-cli", ...options], { env: { SHELL: shell } });
    t.match(await use("--write", "--yes"), { code: 0 });
    t.match(read(name), line);
    // From another shell it goes back, too.
    const back = await command(t, home, ["use", "mine", "--for", "copilot-cli", "--undo", "--yes"], {
      env: { SHELL: "/bin/sh" },
    });
    t.match(back, { code: 0 }, back.stderr);
    t.notOk(existsSync(path(name)));
  }
});
