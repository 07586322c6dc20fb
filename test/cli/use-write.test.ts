import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { hashToken, makeToken } from "../../src/core/token.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { atScreen } from "../doubles/screen.ts";

const CONFIG = `gateway: http://127.0.0.1:9/v1
tools:
  claude-code: { key: env:A_KEY, model: some-model, token: "sha256:${"a".repeat(64)}" } # mine
  codex: { key: env:B_KEY, model: some-model }
`;
const OLD = '{\n    "permissions": { "allow": [] },\n    "env": {\n        "OTHER": "1"\n    }\n}';

type Answer = readonly [question: RegExp, typed: string | (() => string)];

/** A home with config.yaml, in which the clients' settings are, too. */
async function prepare(t: Test, env: Record<string, string> = {}) {
  const home = await newHome(t);
  const config = await saveConfig(home, CONFIG);
  const path = (name: string) => join(home, name);
  const put = (name: string, text: string, mode = 0o600) => {
    mkdirSync(dirname(path(name)), { recursive: true });
    writeFileSync(path(name), text);
    chmodSync(path(name), mode);
    return path(name);
  };
  const use = (client: string, ...options: string[]) => {
    const tool = client === "codex" ? "codex" : "claude-code";
    return command(t, home, ["use", tool, "--for", client, ...options], { env });
  };
  return {
    home,
    config,
    path,
    put,
    use,
    undoFiles: () => readdirSync(path("state/undo")).toSorted(),
    /** Types the answers at a terminal. */
    async useAtTerminal(client: string, option: string, answers: readonly Answer[]) {
      const running = atScreen(t, home, ["use", "claude-code", "--for", client, option]);
      for (const [question, typed] of answers) {
        await running.says(question);
        running.type(`${typeof typed === "string" ? typed : typed()}\r`);
      }
      const { code, stdout } = await running.ended;
      return { code, text: stripVTControlCharacters(stdout) };
    },
  };
}

const read = (file: string) => readFileSync(file, "utf8");
const mode = (file: string) => statSync(file).mode & 0o777;

t.test("--write shows the settings, asks and writes them, and --undo restores the file", async (t) => {
  const { put, use, useAtTerminal, config, undoFiles, path } = await prepare(t);
  const file = put(".claude/settings.json", OLD, 0o644);
  const { code, text } = await useAtTerminal("claude-code", "--write", [[/write this to/, "y"]]);
  t.equal(code, 0, text);
  const { env, permissions } = JSON.parse(read(file));
  const token = env.ANTHROPIC_AUTH_TOKEN;
  t.match(env, { OTHER: "1", ANTHROPIC_BASE_URL: "http://localhost:5397", ANTHROPIC_MODEL: "some-model" });
  t.same(permissions, { allow: [] });
  t.ok(read(file).startsWith(OLD.slice(0, OLD.indexOf('"1"') + 3)), "what was there stays to the byte");
  t.match(
    read(config),
    new RegExp(
      `\\["sha256:a{64}", \\{ name: claude-code, hash: sha256:${hashToken(token)}, created: \\S+ \\}\\] \\} # mine`,
    ),
    "beside the other token",
  );
  t.match(text, `+        "ANTHROPIC_AUTH_TOKEN": "${token.slice(0, 6)}…"`);
  t.notOk(text.includes(token));
  t.match(text, `chmod 600 ${file}`);
  t.equal(mode(file), 0o644, "its mode stays");
  const [record = "", ...others] = undoFiles();
  t.match(record, /^claude-code-\d{4}-\d\d-\d\dT.*\.json$/);
  t.same(others, [], "no copy of the file is kept");
  const folder = path("state/undo");
  t.same([mode(folder), mode(join(folder, record))], [0o700, 0o600]);
  t.notMatch(
    read(join(folder, record)),
    /permissions|kb_/,
    "what was not changed is not in it, nor the token",
  );

  const again = await use("claude-code", "--write");
  t.match(again, { code: 0, stdout: /already; nothing changed/ }, "the token in it works, so it stays");

  const back = await useAtTerminal("claude-code", "--undo", [[/put .* back\?/s, "yes"]]);
  t.equal(back.code, 0, back.text);
  t.match(back.text.replace(/\s+/g, " "), "the token that was made for it (claude-code) has ended");
  t.notOk(back.text.includes(token));
  t.equal(read(file), OLD);
  t.equal(mode(file), 0o644);
  t.match(read(config), `token: ["sha256:${"a".repeat(64)}"] } # mine`, "the other token stays");
  t.notMatch(read(config), hashToken(token));
  t.same(undoFiles(), []);
  t.match(await use("claude-code", "--undo", "--yes"), { code: 1, stderr: /nothing to undo/ });
});

t.test("a token that the client has in its environment is used, and outlives --undo", async (t) => {
  const token = makeToken();
  const { use, path, home } = await prepare(t, { ANTHROPIC_AUTH_TOKEN: token });
  const config = await saveConfig(home, CONFIG.replace("a".repeat(64), hashToken(token)));
  const before = read(config);
  t.match(await use("claude-code", "--write", "--yes"), { code: 0 });
  t.equal(JSON.parse(read(path(".claude/settings.json"))).env.ANTHROPIC_AUTH_TOKEN, token);
  t.match(await use("claude-code", "--undo", "--yes"), {
    code: 0,
    stdout: /was there before, and still works/,
  });
  t.equal(read(config), before);
});

t.test("the diff keeps tabs, has one setting on a line, and says what is removed", async (t) => {
  const { put, use } = await prepare(t);
  put(".claude/settings.json", '{\n\t"env": {\n\t\t"ANTHROPIC_API_KEY": "sk-old-key-123456"\n\t}\n}\n');
  const tabs = await use("claude-code", "--write", "--yes");
  t.match(tabs.stdout, /^\+\t\t"ANTHROPIC_BASE_URL": "http:\/\/localhost:5397"/m);
  t.match(tabs.stdout, /^removed: env\.ANTHROPIC_API_KEY$/m);
  put(".claude/settings.json", '{"env":{"OTHER":"1"},"permissions":{"allow":[]}}');
  const packed = await use("claude-code", "--write", "--yes");
  t.match(packed.stdout, "shown one per line");
  t.match(packed.stdout, /^\+ {4}"ANTHROPIC_BASE_URL": "http:\/\/localhost:5397",?$/m);
  const codex = put(".codex/config.toml", '[model_providers.keybearer]\nenv_key = "KEYBEARER_TOKEN"\n');
  const toml = await use("codex", "--write", "--yes");
  t.match(toml.stdout, /^removed: model_providers\.keybearer\.env_key$/m);
  t.notMatch(read(codex), "env_key");
});

t.test("without a known model, a note says how to get one", async (t) => {
  const { use, home } = await prepare(t);
  const known = await use("codex", "--write", "--yes");
  t.notMatch(known.stdout, /no model/);
  await saveConfig(home, CONFIG.replaceAll(" model: some-model,", "").replace(", model: some-model", ""));
  for (const client of ["claude-code", "codex"]) {
    const { code, stdout } = await use(client, "--write", "--yes");
    t.equal(code, 0);
    t.match(
      stdout,
      new RegExp(`no model is written.* model: below tools: ${client}: .*models --tool ${client}`),
    );
  }
  t.match(await use("opencode", "--write", "--yes"), { code: 1, stderr: /write model:/ });
});

t.test("the next --write deletes what a killed one left beside the file, and nothing else", async (t) => {
  const { put, use, home } = await prepare(t);
  put(".claude/settings.json", OLD);
  const hour = new Date(Date.now() - 3_600_000);
  const old = (name: string) => utimesSync(put(`.claude/${name}`, "x"), hour, hour);
  const left = `.settings.json.${"0a".repeat(12)}.tmp`;
  const atWork = `.settings.json.${"0b".repeat(12)}.tmp`;
  for (const name of [left, ".settings.json.mine.tmp", "settings.json.bak"]) old(name);
  put(`.claude/${atWork}`, "x");
  t.equal((await use("claude-code", "--write", "--yes")).code, 0);
  const names = readdirSync(join(home, ".claude")).toSorted();
  t.same(names, [atWork, ".settings.json.mine.tmp", "settings.json", "settings.json.bak"]);
});

t.test(
  "Enter writes what was asked for, no changes nothing, and without a terminal it needs --yes",
  async (t) => {
    const { put, use, useAtTerminal, config, home } = await prepare(t);
    const file = put(".claude/settings.json", OLD);
    const alone = await use("claude-code", "--write");
    t.match(alone, { code: 2, stdout: /^--- /, stderr: /use claude-code --for claude-code --write --yes/ });
    const { code, text } = await useAtTerminal("claude-code", "--write", [[/write this to/, "n"]]);
    t.equal(code, 1);
    t.match(text, /not written; nothing changed/);
    t.equal(read(file), OLD);
    t.equal(read(config), CONFIG, "no token was made");
    t.same(readdirSync(home).toSorted(), [".claude", "config.yaml"]);
    t.equal((await useAtTerminal("claude-code", "--write", [[/write this to .*\[Y\/n\]/s, ""]])).code, 0);
    t.not(read(file), OLD);
  },
);

t.test("files that do not exist are made with their folders, and removed again", async (t) => {
  const { use, path } = await prepare(t);
  for (const [client, file] of [
    ["claude-code", path(".claude/settings.json")],
    ["codex", path(".codex/config.toml")],
    ["opencode", path(".config/opencode/opencode.json")],
  ] as const) {
    t.match(await use(client, "--write", "--yes"), { code: 0, stdout: /^--- \/dev\/null/ });
    t.equal(mode(file), 0o600);
    t.equal(mode(dirname(file)), 0o700);
    t.match(await use(client, "--undo"), { code: 2 }, "undo asks, too");
    t.match(await use(client, "--undo", "--yes"), { code: 0, stdout: /is removed/ });
    t.same(readdirSync(dirname(file)), []);
  }
});

t.test("a key beside the token is removed only if the person agrees", async (t) => {
  const { put, useAtTerminal } = await prepare(t);
  const text = OLD.replace('"OTHER": "1"', '"ANTHROPIC_API_KEY": "sk-ant-very-real-key-123"');
  const file = put(".claude/settings.json", text);
  const answers = (typed: string): Answer[] => [
    [/remove ANTHROPIC_API_KEY as well\?/, typed],
    [/write this to/, typed],
  ];
  const kept = await useAtTerminal("claude-code", "--write", answers("n"));
  t.match(kept.text, /foreign-key/);
  t.match(kept.text, /^\+.*ANTHROPIC_API_KEY": "\[hidden\]",$/m, "it stays, with a comma behind it now");
  t.equal(read(file), text);
  const removed = await useAtTerminal("claude-code", "--write", answers("y"));
  t.match(removed.text, /^- +"ANTHROPIC_API_KEY": "\[hidden\]"/m);
  t.notMatch(removed.text, /^\+.*ANTHROPIC_API_KEY/m);
  t.equal(JSON.parse(read(file)).env.ANTHROPIC_API_KEY, undefined);
});

t.test(
  "--write names a second credential in the environment and in shell files, never its value",
  async (t) => {
    const key = "sk-ant-Zq81LmW0Trc5Vx92";
    const { put, use } = await prepare(t, { ANTHROPIC_API_KEY: key, OPENAI_API_KEY: key });
    put(".zshrc", `\nexport ANTHROPIC_API_KEY=${key}\n`);
    const claude = await use("claude-code", "--write", "--yes");
    t.match(
      claude.stdout,
      /ANTHROPIC_API_KEY in the environment and ~\/\.zshrc:2: Claude Code sends it beside the token.* → remove it there, then: unset ANTHROPIC_API_KEY\n/,
    );
    const codex = await use("codex", "--write", "--yes");
    t.match(codex.stdout, /OPENAI_API_KEY in the environment: Codex .* → unset OPENAI_API_KEY\n/);
    t.notMatch(codex.stdout, "ANTHROPIC_API_KEY", "Codex does not read it");
    for (const { stdout, stderr } of [claude, codex]) t.notMatch(stdout + stderr, /Zq81|Vx92/);
  },
);

t.test("a link to the file stays a link, and its target is written", async (t) => {
  const { put, use, path } = await prepare(t);
  const real = put("dotfiles/config.toml", "# mine\nmodel = 'x' # y\n", 0o640);
  mkdirSync(path(".codex"));
  symlinkSync(real, path(".codex/config.toml"));
  t.match(await use("codex", "--write", "--yes"), { code: 0 });
  t.equal(readlinkSync(path(".codex/config.toml")), real);
  t.match(
    read(real),
    /^# mine\nmodel = 'some-model' # y\nmodel_provider = "keybearer"\n\n\[model_providers\.keybearer\]\n/,
  );
  t.equal(mode(real), 0o640);
  t.match(await use("codex", "--undo", "--yes"), { code: 0 });
  t.equal(read(real), "# mine\nmodel = 'x' # y\n");
  symlinkSync(path("nowhere"), path("gone"));
  const other = await prepare(t, { OPENCODE_CONFIG: path("gone") });
  t.match(await other.use("opencode", "--write", "--yes"), { code: 1, stderr: /does not exist/ });
});

t.test("a file that cannot be parsed is left as it is, and no token is made", async (t) => {
  const { put, use, config } = await prepare(t);
  for (const [client, name, text, why] of [
    ["claude-code", ".claude/settings.json", '{\n  "env": {\n', /line 3: close brace expected/],
    ["claude-code", ".claude/settings.json", "{\n  // why\n}\n", /line 2: invalid comment token/],
    ["codex", ".codex/config.toml", "model = 'x'\nmodel = 'y'\n", /line 2: .*redefine/],
    ["opencode", ".config/opencode/opencode.jsonc", "{ // c\n  nope }", /line 2/],
  ] as const) {
    const file = put(name, text);
    t.match(await use(client, "--write", "--yes"), { code: 1, stderr: why });
    t.equal(read(file), text);
  }
  t.equal(read(config), CONFIG);
});

t.test("a file that changes while the question is open is left as it is", async (t) => {
  const { put, useAtTerminal, config, undoFiles } = await prepare(t);
  const file = put(".claude/settings.json", OLD);
  const changeAndAgree = () => {
    writeFileSync(file, "{}");
    return "y";
  };
  const { code, text } = await useAtTerminal("claude-code", "--write", [[/write this to/, changeAndAgree]]);
  t.equal(code, 1);
  t.match(text.replace(/\s+/g, " "), /changed by another program meanwhile/);
  t.equal(read(file), "{}");
  t.equal(read(config), CONFIG, "the token that was made for it is taken back");
  t.same(undoFiles(), []);
  t.same(readdirSync(dirname(file)), ["settings.json"], "nothing is left behind");
});

const notRoot = process.getuid?.() === 0 ? false : "only root can give a file away";

t.test("a file of another user is not touched", { skip: notRoot }, async (t) => {
  const { put, use } = await prepare(t);
  const file = put(".claude/settings.json", OLD, 0o666);
  chownSync(file, 12_345, 12_345);
  t.match(await use("claude-code", "--write", "--yes"), { code: 1, stderr: /belongs to another user/ });
  t.equal(read(file), OLD);
});

t.test("changes since the write are not lost by --undo", async (t) => {
  const { put, use } = await prepare(t);
  const file = put(".claude/settings.json", OLD);
  await use("claude-code", "--write", "--yes");
  writeFileSync(file, read(file).replace('"OTHER": "1"', '"OTHER": "2"').replace("some-model", "mine"));
  const { code, stdout } = await use("claude-code", "--undo", "--yes");
  t.equal(code, 0);
  t.match(stdout, /env\.ANTHROPIC_MODEL was changed since, and stays as it is/);
  t.same(JSON.parse(read(file)), {
    permissions: { allow: [] },
    env: { OTHER: "2", ANTHROPIC_MODEL: "mine" },
  });
  put(".claude/settings.json", OLD);
  await use("claude-code", "--write", "--yes");
  writeFileSync(file, read(file).replace("some-model", "mine"));
  t.match(await use("claude-code", "--undo", "--yes", "--force"), { code: 0 });
  t.same(JSON.parse(read(file)), JSON.parse(OLD), "--force takes back what was changed, too");
});

t.test("an undo record holds no key, and the key goes back to the byte", async (t) => {
  const key = `sk-${"Zx8vTn4RbW6yHc1DsJ5gEa0UoX".repeat(2)}`;
  const helper = "echo sk-Kx7Qm2LpZ8vTn4RbW6yHc1DsJ5gEa0Uo";
  const files = [
    [
      "claude-code",
      ".claude/settings.json",
      `{"env":{"ANTHROPIC_API_KEY" : "${key}","A":1,\n"ANTHROPIC_BASE_URL":"https://gw.example.com"},\r\n"apiKeyHelper":"${helper}" }`,
    ],
    [
      "codex",
      ".codex/config.toml",
      `# mine\n[model_providers.keybearer]\nexperimental_bearer_token = '${key}' # old\nrequires_openai_auth = true\nenv_key="X"\n\n[other]\na = 1`,
    ],
    [
      "opencode",
      ".config/opencode/opencode.jsonc",
      `{ // why\n\t"provider": {"keybearer": {"options": {"apiKey": "${key}"}}}, /* last */\n}\n`,
    ],
    ["codex", ".codex/config.toml", "\n"],
    ["claude-code", ".claude/settings.json", ""],
  ] as const;
  for (const [client, name, text] of files) {
    const { put, use, undoFiles, path } = await prepare(t);
    const file = put(name, text);
    t.match(await use(client, "--write", "--yes"), { code: 0 });
    t.not(read(file), text);
    for (const record of undoFiles())
      t.equal(scanned(read(path(`state/undo/${record}`)), key, helper.slice(5)), 0, client);
    if (text.includes(key)) {
      const stored = path(`keys/undo-${client}`);
      t.equal(read(stored), `${key}\n`, "it is in keybearer's own file, as there is no keychain");
      t.equal(mode(stored), 0o600);
    }
    const { code, stdout } = await use(client, "--undo", "--yes");
    t.equal(code, 0, stdout);
    t.equal(scanned(stdout, key, helper.slice(5)), 0);
    t.equal(read(file), text, client);
    t.same(undoFiles(), []);
    t.notOk(existsSync(path(`keys/undo-${client}`)), "it is not kept longer than it is needed");
  }
});

/** How many of these keys are in a text, whole or in part. */
function scanned(text: string, ...keys: readonly string[]): number {
  return keys.filter((key) => new Secret(key).isIn(text)).length;
}

t.test("a key that a tool has already is not stored twice, and stays with the tool", async (t) => {
  const { put, use, path, home } = await prepare(t);
  const key = "sk-0123456789abcdefghijklmnop";
  mkdirSync(path("keys"));
  const stored = put("keys/claude-code", `${key}\n`);
  await saveConfig(home, CONFIG.replace("env:A_KEY", `file:${stored}`));
  const text = `{"env":{"ANTHROPIC_AUTH_TOKEN":"${key}"}}`;
  const file = put(".claude/settings.json", text);
  t.match(await use("claude-code", "--write", "--yes"), { code: 0 });
  t.same(readdirSync(path("keys")), ["claude-code"]);
  t.match(await use("claude-code", "--undo", "--yes"), { code: 0 });
  t.equal(read(file), text);
  t.equal(read(stored), `${key}\n`);
});

t.test(
  "a record that was changed moves no key, and reaches no other file and no other setting",
  async (t) => {
    const key = "sk-0123456789abcdefghijklmnop";
    const old = `{"env":{"ANTHROPIC_BASE_URL":"https://gw.example.com","ANTHROPIC_AUTH_TOKEN":"${key}"}}`;
    const { put, use, undoFiles, path } = await prepare(t);
    const file = put(".claude/settings.json", old);
    const profile = put(".profile", "# mine\n");
    await use("claude-code", "--write", "--yes");
    const written = read(file);
    const [name = ""] = undoFiles();
    const record = path(`state/undo/${name}`);
    const text = read(record);
    const changed = (edit: (parsed: ReturnType<typeof JSON.parse>) => void) => {
      const parsed = JSON.parse(text);
      edit(parsed);
      writeFileSync(record, JSON.stringify(parsed));
    };
    const forgeries: [string, (parsed: ReturnType<typeof JSON.parse>) => void][] = [
      ["another file", (it) => Object.assign(it.files[0], { file: profile })],
      [
        "another address for the key",
        (it) =>
          Object.assign(it.files[0].change.fields[0], { before: { value: "https://evil.example.com" } }),
      ],
      [
        "a setting that a write never changes",
        (it) => Object.assign(it.files[0].change.fields[0], { path: ["hooks"] }),
      ],
      [
        "a key from elsewhere",
        (it) =>
          Object.assign(it.files[0].change.fields[1].before.key, { place: { kind: "file", path: profile } }),
      ],
    ];
    for (const [what, edit] of forgeries) {
      changed(edit);
      t.match(await use("claude-code", "--undo", "--yes"), { code: 1 }, what);
      t.equal(read(file), written, what);
      t.equal(read(profile), "# mine\n", what);
    }
    changed((it) => {
      it.files[0].change.layout = [{ keep: 0, drop: written.length, insert: ['{"hooks":{"a":"evil"}}'] }];
    });
    t.match(await use("claude-code", "--undo", "--yes"), { code: 0 });
    t.same(JSON.parse(read(file)), JSON.parse(old), "a layout changes how it is written, not what it says");
  },
);

t.test("an old key does not go back beside an address that was changed since", async (t) => {
  const key = "sk-0123456789abcdefghijklmnop";
  const old = `{"env":{"ANTHROPIC_BASE_URL":"https://gw.example.com","ANTHROPIC_AUTH_TOKEN":"${key}"}}`;
  const { put, use, path } = await prepare(t);
  const file = put(".claude/settings.json", old);
  await use("claude-code", "--write", "--yes");
  const evil = read(file).replace("http://localhost:5397", "https://evil.example.com");
  writeFileSync(file, evil);
  const { code, stderr } = await use("claude-code", "--undo", "--yes");
  t.equal(code, 1);
  t.match(stderr, /another env\.ANTHROPIC_BASE_URL since.*--undo --force/s);
  t.equal(read(file), evil);
  t.match(await use("claude-code", "--undo", "--yes", "--force"), { code: 0 });
  t.same(JSON.parse(read(file)), JSON.parse(old));
  // A key that is lost meanwhile is said to be.
  await use("claude-code", "--write", "--yes");
  rmSync(path("keys/undo-claude-code"));
  t.match(await use("claude-code", "--undo", "--yes"), { code: 1, stderr: /not stored any more/ });
});

t.test("five records of a client are kept, and each undo leads to the one before", async (t) => {
  const { use, undoFiles, path, home } = await prepare(t);
  const texts: string[] = [];
  for (let at = 0; at < 7; at += 1) {
    const config = readFileSync(join(home, "config.yaml"), "utf8");
    await saveConfig(home, config.replace(/(codex: .*model: )[\w-]+/, `$1model-${at}`));
    await use("codex", "--write", "--yes");
    texts.push(read(path(".codex/config.toml")));
  }
  t.equal(new Set(texts).size, 7);
  t.equal(undoFiles().length, 5);
  for (let at = 5; at > 0; at -= 1) {
    t.match(await use("codex", "--undo", "--yes"), { code: 0 });
    t.equal(read(path(".codex/config.toml")), texts[at]);
  }
  t.match(await use("codex", "--undo", "--yes"), { code: 1, stderr: /nothing to undo/ });
});

t.test("a record that is damaged, or a link, is not used", async (t) => {
  const { put, use, undoFiles, path } = await prepare(t);
  const file = put(".claude/settings.json", OLD);
  await use("claude-code", "--write", "--yes");
  const written = read(file);
  const [name = ""] = undoFiles();
  const record = path(`state/undo/${name}`);
  const elsewhere = put("elsewhere.json", read(record));
  writeFileSync(record, "{");
  t.match(await use("claude-code", "--undo", "--yes"), { code: 1, stderr: /is damaged, and was not used/ });
  rmSync(record);
  symlinkSync(elsewhere, record);
  t.match(await use("claude-code", "--undo", "--yes"), { code: 1, stderr: /is a link/ });
  t.equal(read(file), written);
});

/** A PATH with this version of Claude Code. */
function installClaude(t: Test, version: string): Record<string, string> {
  const folder = t.testdir({
    bin: { claude: t.fixture("symlink", "../lib/node_modules/@anthropic-ai/claude-code/cli.js") },
    lib: {
      node_modules: {
        "@anthropic-ai": { "claude-code": { "cli.js": "", "package.json": JSON.stringify({ version }) } },
      },
    },
  });
  return { PATH: join(folder, "bin") };
}

t.test(
  "--write keeps Claude Code from keybearer's folders if it knows how, and --undo takes that back",
  async (t) => {
    const { put, use, home } = await prepare(t, installClaude(t, "2.1.200"));
    const own = '{ "permissions": { "deny": ["Read(~/.ssh/**)"] } }\n';
    const file = put(".claude/settings.json", own);
    const written = await use("claude-code", "--write", "--yes");
    t.equal(written.code, 0, written.stderr);
    const rules = [`Read(/${home}/**)`, "Read(~/state/**)"];
    const { permissions, sandbox } = JSON.parse(read(file));
    t.match(written.stdout, /\+ .*Read\(~\/state/, "the difference shows it");
    t.same(permissions.deny, ["Read(~/.ssh/**)", ...rules]);
    t.same(sandbox.credentials.files, [
      { path: home, mode: "deny" },
      { path: "~/state", mode: "deny" },
    ]);
    t.match(written.stdout + written.stderr, /sandbox\.enabled is not set/);
    const again = await use("claude-code", "--write", "--yes");
    t.match(again.stdout, /nothing changed/);
    t.match(await use("claude-code", "--undo", "--yes"), { code: 0 });
    t.equal(read(file), own);
  },
);

t.test("--write offers no entry that the installed Claude Code does not know", async (t) => {
  const { put, use } = await prepare(t, installClaude(t, "2.1.9"));
  const file = put(".claude/settings.json", "{}\n");
  t.match(await use("claude-code", "--write", "--yes"), { code: 0 });
  t.notMatch(read(file), /sandbox|permissions/);
});
