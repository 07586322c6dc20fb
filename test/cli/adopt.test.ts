import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import t, { type Test } from "tap";
import { type CommandOptions, command, flat, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { startModelList } from "../doubles/model-list.ts";
import { canary, filesBelow } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

/** A home folder with clients' files, and a keybearer that runs with its configuration there. */
async function prepare(t: Test, files: Readonly<Record<string, string>>, config?: string) {
  const home = await newHome(t);
  if (config !== undefined) await saveConfig(home, config);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text, { mode: 0o600 });
  }
  // The current folder is searched up to the root of its repository.
  const cwd = process.cwd();
  process.chdir(home);
  t.teardown(() => process.chdir(cwd));
  const adopt = (args: readonly string[], options: CommandOptions = {}) =>
    command(t, home, ["adopt", ...args], { ...options, env: { SHELL: "/bin/zsh", ...options.env } });
  const read = (name: string) => readFileSync(join(home, name), "utf8");
  return { home, adopt, read };
}

/** The files below a home folder that hold a text, without keybearer's own key store. */
function filesWith(home: string, text: string): string[] {
  return filesBelow(home)
    .filter((file) => statSync(file).isFile() && readFileSync(file).includes(text))
    .map((file) => relative(home, file))
    .filter((file) => !file.startsWith("keys/"))
    .toSorted();
}

const EMPTY =
  "listen: localhost:0\ngateways: { other: { base_url: https://gateway.example.com/v1 } }\ntools: {}\n";

function claudeSettings(origin: string, key: string): string {
  return `{\n  "model": "opus",\n  "env": {\n    "ANTHROPIC_BASE_URL": "${origin}",\n    "ANTHROPIC_AUTH_TOKEN": "${key}",\n    "OTHER": "1"\n  }\n}`;
}

function codexConfig(origin: string, key: string): string {
  return `# mine\r\nmodel_provider = "gw"\r\n\r\n[model_providers.gw]\r\nbase_url = "${origin}/v1" # here\r\nexperimental_bearer_token = "${key}"\r\n`;
}

t.test("adopt lists every key with its address and its place, and changes nothing", async (t) => {
  const claude = canary();
  const codex = canary();
  const files = {
    ".claude/settings.json": claudeSettings("https://gateway.example.com", claude),
    ".codex/config.toml": codexConfig("https://gateway.example.com", codex),
    ".zshrc": `export ANTHROPIC_AUTH_TOKEN=${claude}\n`,
    ".bash_history": `curl -H 'x-api-key: ${claude}' https://gateway.example.com\n`,
  };
  const { home, adopt, read } = await prepare(t, files);
  const { code, stdout, stderr } = await adopt([]);
  t.equal(code, 1, "a script can use it");
  t.match(stdout, /^2 keys in 3 places; nothing was changed$/m);
  t.match(stdout, /codex\S* +~\/\.codex\/config\.toml {2}model_providers\.gw\.experimental_bearer_token/);
  t.match(stdout, /claude-code\S* +~\/\.claude\/settings\.json {2}env\.ANTHROPIC_AUTH_TOKEN/);
  t.match(stdout, /~\/\.zshrc:1 {2}ANTHROPIC_AUTH_TOKEN +\(wins in a terminal\)/);
  t.match(stdout, `traces  …${claude.slice(-4)} in ~/.bash_history: only a rotation helps`);
  t.match(stdout, "keybearer adopt --write");
  for (const key of [claude, codex]) t.notOk(`${stdout}${stderr}`.includes(key.slice(0, -4)));
  for (const [name, text] of Object.entries(files)) t.equal(read(name), text, name);
  t.same(readdirSync(home).toSorted(), [".bash_history", ".claude", ".codex", ".zshrc"]);

  const json = JSON.parse((await adopt(["--json"])).stdout);
  t.same(
    json.keys.map(({ base_url, places }: { base_url: string; places: { client: string }[] }) => [
      base_url,
      places.map(({ client }) => client),
    ]),
    [
      ["https://gateway.example.com/v1", ["claude-code", "shell"]],
      ["https://gateway.example.com/v1", ["codex"]],
    ],
  );
  const only = await adopt(["--only", "codex", "--json"]);
  t.equal(JSON.parse(only.stdout).keys.length, 1);
});

t.test(
  "a home folder without keys is fine, and so is one with placeholders, references and tokens",
  async (t) => {
    const { adopt } = await prepare(t, {
      ".claude/settings.json": claudeSettings("http://localhost:11434", "ollama"),
      ".zshrc": 'export OPENAI_API_KEY=$(pass show openai)\nexport ANTHROPIC_API_KEY="YOUR_API_KEY"\n',
      ".config/opencode/opencode.json":
        '{"provider":{"a":{"options":{"baseURL":"https://gateway.example.com/v1","apiKey":"{env:A_KEY}"}}}}',
    });
    const { code, stdout } = await adopt([]);
    t.match(stdout, /^no key in \d+ settings files of your tools$/m);
    t.equal(code, 0);
  },
);

t.test(
  "--write moves every key, the clients' files keep every other byte, and --undo restores them",
  async (t) => {
    const claude = canary();
    const codex = canary();
    const gateway = await startModelList(t, claude, codex);
    const files = {
      ".claude/settings.json": claudeSettings(gateway.origin, claude),
      ".codex/config.toml": codexConfig(gateway.origin, codex),
      ".zshrc": `alias ll='ls -l'\nexport ANTHROPIC_AUTH_TOKEN='${claude}' # work\n`,
    };
    const { home, adopt, read } = await prepare(t, files, EMPTY);
    await serveIn(t, home);
    const { code, stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, /claude-code: a request went through keybearer to http/);
    t.match(stdout, /codex: a request went through keybearer to http/);
    for (const key of [claude, codex]) {
      t.same(filesWith(home, key), [], "only keybearer's own store has the key");
      t.notOk(`${stdout}${stderr}`.includes(key.slice(0, -4)));
    }
    const settings = JSON.parse(read(".claude/settings.json"));
    t.match(settings, { model: "opus", env: { OTHER: "1" } });
    const { ANTHROPIC_BASE_URL: address, ANTHROPIC_AUTH_TOKEN: token } = settings.env;
    t.match(address, /^http:\/\/localhost:\d+$/);
    t.equal(
      read(".claude/settings.json"),
      files[".claude/settings.json"].replace(gateway.origin, address).replace(claude, token),
    );
    t.equal(
      read(".zshrc"),
      `alias ll='ls -l'\nexport ANTHROPIC_AUTH_TOKEN='${token}' # work\nexport ANTHROPIC_BASE_URL='${address}'\n`,
      "the address of a variable is written behind it",
    );
    const [, codexToken = ""] =
      /experimental_bearer_token = "(kb_[^"]+)"/.exec(read(".codex/config.toml")) ?? [];
    t.equal(
      read(".codex/config.toml"),
      files[".codex/config.toml"].replace(gateway.origin, address).replace(codex, codexToken),
    );
    gateway.seen.clear();
    const answer = await fetch(`${address}/v1/models`, { headers: { "x-api-key": token } });
    t.equal(answer.status, 200);
    t.same([...gateway.seen], [claude]);

    const again = await adopt([]);
    t.equal(again.code, 0, again.stdout);
    const undone = await adopt(["--undo", "--yes"]);
    t.equal(undone.code, 0, undone.stdout + undone.stderr);
    t.match(undone.stdout, "+export ANTHROPIC_AUTH_TOKEN='[hidden]' # work");
    t.match(undone.stdout, `ANTHROPIC_AUTH_TOKEN gets its key …${claude.slice(-4)} back`);
    t.match(flat(undone.stdout), /\.zshrc is as it was before: open a new terminal/);
    t.match(flat(undone.stdout), /settings\.json is as it was before: restart Claude Code/);
    for (const key of [claude, codex]) t.notOk(undone.stdout.includes(key.slice(0, -4)));
    for (const [name, text] of Object.entries(files)) t.equal(read(name), text, name);
    await until("the token has ended", async () => {
      const late = await fetch(`${address}/v1/models`, { headers: { "x-api-key": token } });
      return late.status === 401;
    });
    t.match((await adopt(["--undo", "--yes"])).stderr, /there is nothing to undo/);
  },
);

t.test(
  "a key is only sent to the address beside it, and one that is refused stays where it is",
  async (t) => {
    const good = canary();
    const bad = canary();
    const one = await startModelList(t, good);
    const other = await startModelList(t);
    const files = {
      ".claude/settings.json": claudeSettings(one.origin, good),
      ".codex/config.toml": codexConfig(other.origin, bad),
    };
    const { home, adopt, read } = await prepare(t, files, EMPTY);
    await serveIn(t, home);
    const { stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
    t.same([...one.seen], [good]);
    t.same([...other.seen], [bad]);
    t.match(stderr, `…${bad.slice(-4)} stays where it is: `);
    t.equal(read(".codex/config.toml"), files[".codex/config.toml"]);
    t.same(filesWith(home, good), []);
    t.match(stdout, /claude-code: a request went through/);
    t.equal((await adopt([])).code, 1);
  },
);

t.test("a tool with another key is never overwritten", async (t) => {
  const key = canary();
  const gateway = await startModelList(t, key);
  const config = `listen: localhost:0\ngateways: { main: { base_url: ${gateway.origin}/v1 } }\ntools: { codex: { key: env:OTHER } }\n`;
  const { home, adopt, read } = await prepare(
    t,
    { ".codex/config.toml": codexConfig(gateway.origin, key) },
    config,
  );
  await serveIn(t, home);
  const { code, stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
  t.equal(code, 0, stdout + stderr);
  t.match(read("config.yaml"), /codex: \{ key: env:OTHER \}/);
  t.match(read("config.yaml"), /codex-main:/);
  t.match(stdout, /codex-main: a request went through keybearer/);
});

t.test(
  "of two credentials that Claude Code sends together, one is removed, and --undo brings it back",
  async (t) => {
    const token = canary();
    const key = canary();
    const gateway = await startModelList(t, token, key);
    const text = JSON.stringify(
      {
        env: {
          ANTHROPIC_BASE_URL: gateway.origin,
          ANTHROPIC_AUTH_TOKEN: token,
          ANTHROPIC_API_KEY: key,
        },
      },
      null,
      2,
    );
    const { home, adopt, read } = await prepare(t, { ".claude/settings.json": text }, EMPTY);
    await serveIn(t, home);
    const { code, stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
    t.equal(code, 0, stdout + stderr);
    t.match(stdout, /ANTHROPIC_API_KEY is removed: it would be sent beside the token/);
    t.same(Object.keys(JSON.parse(read(".claude/settings.json")).env), [
      "ANTHROPIC_BASE_URL",
      "ANTHROPIC_AUTH_TOKEN",
    ]);
    t.same(filesWith(home, key), []);
    t.equal((await adopt(["--undo", "--yes"])).code, 0);
    t.equal(read(".claude/settings.json"), text);
  },
);

t.test("with --yes, a project's files change only in folders that the command names", async (t) => {
  const key = canary();
  const gateway = await startModelList(t, key);
  const text = `DEBUG=1\nOPENAI_BASE_URL=${gateway.origin}/v1\nOPENAI_API_KEY="${key}"\n`;
  const { home, adopt, read } = await prepare(t, { "work/app/.env": text }, EMPTY);
  await serveIn(t, home);
  process.chdir(join(home, "work/app"));
  const unnamed = await adopt(["--write", "--yes", "--store", "file"]);
  t.match(
    unnamed.stderr,
    /~\/work\/app\/\.env:3 {2}OPENAI_API_KEY stays as it is: name the project's folder/,
  );
  t.equal(read("work/app/.env"), text);
  const named = await adopt([".", "--write", "--yes", "--store", "file"]);
  t.equal(named.code, 0, named.stdout + named.stderr);
  t.match(read("work/app/.env"), /^DEBUG=1\nOPENAI_BASE_URL=http:\/\/localhost:\d+\/v1\nOPENAI_API_KEY="kb_/);
});

t.test("files that are not ours to change are reported with the reason", async (t) => {
  const key = canary();
  const outside = await newHome(t);
  writeFileSync(join(outside, "settings.json"), claudeSettings("https://gateway.example.com", key));
  const { home, adopt } = await prepare(t, {
    ".codex/config.toml": codexConfig("ftp://gateway.example.com", key),
  });
  writeFileSync(join(home, ".zshrc"), `export GEMINI_API_KEY="${key.slice(0, 5)}"${key.slice(5)}\n`);
  mkdirSync(join(home, ".claude"));
  symlinkSync(join(outside, "settings.json"), join(home, ".claude/settings.json"));
  const { code, stdout } = await adopt([]);
  t.equal(code, 1);
  t.match(
    flat(stdout),
    /~\/\.claude\/settings\.json env\.ANTHROPIC_AUTH_TOKEN: .* is a link that leads out of/,
  );
  t.match(flat(stdout), /~\/\.codex\/config\.toml .*: its address cannot be a gateway/);
  t.match(flat(stdout), /~\/\.zshrc:1 GEMINI_API_KEY: the way it is written, .* move the key by hand/);
  t.notMatch(stdout, "next:");
});

t.test("llm's models keep their ids, and name the token instead of the key", async (t) => {
  const key = canary();
  const gateway = await startModelList(t, key);
  const files = {
    ".config/io.datasette.llm/keys.json": `{\n  "// Note": "secret",\n  "gw": "${key}",\n  "mine": "YOUR_KEY"\n}`,
    ".config/io.datasette.llm/extra-openai-models.yaml": `# mine\n- model_id: good # best\n  model_name: x\n  api_base: "${gateway.origin}/v1"\n  api_key_name: gw\n- {model_id: small, model_name: y, api_base: ${gateway.origin}/v1, api_key_name: gw}\n- model_id: other\n  model_name: z\n  api_base: http://localhost:9/v1\n  api_key_name: mine\n`,
  };
  const [keys = "", models = ""] = Object.keys(files);
  const { home, adopt, read } = await prepare(t, files, EMPTY);
  const { url } = await serveIn(t, home);
  const { code, stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
  t.equal(code, 0, stdout + stderr);
  const address = `${url.replace("127.0.0.1", "localhost")}/v1`;
  t.equal(
    read(models),
    files[models as keyof typeof files]
      .replaceAll(`${gateway.origin}/v1`, address)
      .replaceAll("api_key_name: gw", "api_key_name: keybearer-gw"),
  );
  const { "keybearer-gw": token, ...others } = JSON.parse(read(keys));
  t.same(others, { "// Note": "secret", mine: "YOUR_KEY" });
  const answer = await fetch(`${address}/models`, { headers: { authorization: `Bearer ${token}` } });
  t.equal(answer.status, 200);
  t.same(filesWith(home, key), []);

  // As a run leaves it that was killed before the last write.
  writeFileSync(join(home, keys), read(keys).replace("{", `{ "gw": "${key}",`));
  t.equal((await adopt([])).code, 1);
  const again = await adopt(["--write", "--yes", "--store", "file"]);
  t.equal(again.code, 0, again.stdout + again.stderr);
  t.same(filesWith(home, key), []);
  t.match(
    read(models),
    /^# mine\n- model_id: good # best\n {2}model_name: x\n {2}api_base: "http:\/\/localhost/,
  );
  t.notMatch(read(models), "keybearer-null");
});

t.test("what adopt changed for llm goes back to the byte", async (t) => {
  const key = canary();
  const gateway = await startModelList(t, key);
  const files = {
    ".config/io.datasette.llm/keys.json": `{\n  "gw": "${key}"\n}`,
    ".config/io.datasette.llm/extra-openai-models.yaml": `- {model_id: small, model_name: y, api_base: ${gateway.origin}/v1, api_key_name: gw} # fast\n`,
  };
  const { home, adopt, read } = await prepare(t, files, EMPTY);
  await serveIn(t, home);
  t.equal((await adopt(["--write", "--yes", "--store", "file"])).code, 0);
  t.match(read(".config/io.datasette.llm/extra-openai-models.yaml"), /localhost.*keybearer-gw\} # fast/);
  t.equal((await adopt(["--undo", "--yes"])).code, 0);
  for (const [name, text] of Object.entries(files)) t.equal(read(name), text, name);
});

t.test(
  "of several .env files, of which Gemini CLI reads one, adopt says what it reads without each",
  async (t) => {
    const keys = [canary(), canary(), canary(), canary()];
    const gateway = await startModelList(t, ...keys);
    const text = (at: number) => `GOOGLE_GEMINI_BASE_URL=${gateway.origin}\nGEMINI_API_KEY=${keys[at]}\n`;
    const { home, adopt, read } = await prepare(
      t,
      {
        ".env": text(0),
        ".gemini/.env": text(1),
        "app/.env": text(2),
        "app/.gemini/.env": text(3),
        "app/.git/HEAD": "ref: refs/heads/main\n",
      },
      EMPTY,
    );
    const alone = flat((await adopt([])).stdout);
    t.match(alone, "~/.env:2 GEMINI_API_KEY (Gemini CLI reads ~/.gemini/.env instead)");
    t.match(alone, "~/.gemini/.env:2 GEMINI_API_KEY (without this file Gemini CLI reads ~/.env)");
    process.chdir(join(home, "app"));
    const { stdout: inProject } = await adopt([]);
    t.match(
      flat(inProject),
      "~/app/.env:2 GEMINI_API_KEY (Gemini CLI reads ~/app/.gemini/.env instead; without this file Gemini CLI reads ~/.gemini/.env)",
    );
    t.match(
      flat(inProject),
      "~/app/.gemini/.env:2 GEMINI_API_KEY (without this file Gemini CLI reads ~/app/.env)",
    );
    const json = JSON.parse((await adopt(["--json"])).stdout);
    const places = json.keys.flatMap(({ places }: { places: object[] }) => places);
    t.match(
      places.find(({ file }: { file: string }) => file.endsWith("app/.gemini/.env")),
      { read_without_it: join(home, "app/.env"), read_instead: null },
    );

    process.chdir(home);
    await serveIn(t, home);
    const { code, stdout, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
    t.equal(code, 0, stdout + stderr);
    t.match(flat(stdout), "~/.gemini/.env:2 GEMINI_API_KEY: without this file Gemini CLI reads ~/.env");
    for (const file of [".env", ".gemini/.env"])
      t.match(read(file), /^GOOGLE_GEMINI_BASE_URL=http:\/\/localhost:\d+\nGEMINI_API_KEY=kb_/, file);
  },
);

t.test("a gateway that cannot be reached leaves everything as it is", async (t) => {
  const key = canary();
  const files = { ".codex/config.toml": codexConfig(`http://127.0.0.1:${CLOSED_PORT}`, key) };
  const { home, adopt, read } = await prepare(t, files, EMPTY);
  await serveIn(t, home);
  const before = read("config.yaml");
  const { code, stderr } = await adopt(["--write", "--yes", "--store", "file"]);
  t.equal(code, 1);
  t.match(stderr, /stays where it is/);
  t.equal(read(".codex/config.toml"), files[".codex/config.toml"]);
  t.equal(read("config.yaml"), before);
});
