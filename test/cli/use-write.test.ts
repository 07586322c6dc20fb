import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import t, { type Test } from "tap";
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
  const [facts = "", old = ""] = undoFiles();
  t.match(old, /^claude-code-\d{4}-\d\d-\d\dT.*\.old$/);
  const folder = path("state/undo");
  t.same([mode(folder), mode(join(folder, old)), mode(join(folder, facts))], [0o700, 0o600, 0o600]);
  t.equal(read(join(folder, old)), OLD);

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
  t.same(undoFiles(), [], "a copy that may hold a key is not kept longer than it is needed");
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

t.test("without a yes nothing changes, and without a terminal it needs --yes", async (t) => {
  const { put, use, useAtTerminal, config, home } = await prepare(t);
  const file = put(".claude/settings.json", OLD);
  const alone = await use("claude-code", "--write");
  t.match(alone, { code: 2, stdout: /^--- /, stderr: /use claude-code --for claude-code --write --yes/ });
  const { code, text } = await useAtTerminal("claude-code", "--write", [[/write this to/, ""]]);
  t.equal(code, 1);
  t.match(text, /not written; nothing changed/);
  t.equal(read(file), OLD);
  t.equal(read(config), CONFIG, "no token was made");
  t.same(readdirSync(home).toSorted(), [".claude", "config.yaml"]);
  t.equal((await use("claude-code", "--write", "--yes")).code, 0);
  t.not(read(file), OLD);
});

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

t.test("a link to the file stays a link, and its target is written", async (t) => {
  const { put, use, path } = await prepare(t);
  const real = put("dotfiles/config.toml", "# mine\nmodel = 'x' # y\n", 0o640);
  mkdirSync(path(".codex"));
  symlinkSync(real, path(".codex/config.toml"));
  t.match(await use("codex", "--write", "--yes"), { code: 0 });
  t.equal(readlinkSync(path(".codex/config.toml")), real);
  t.match(
    read(real),
    /^# mine\nmodel = "some-model" # y\nmodel_provider = "keybearer"\n\n\[model_providers\.keybearer\]\n/,
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

t.test("changes since the write are not lost by --undo, except with --force", async (t) => {
  const { put, use } = await prepare(t);
  const file = put(".claude/settings.json", OLD);
  await use("claude-code", "--write", "--yes");
  writeFileSync(file, read(file).replace('"OTHER": "1"', '"OTHER": "2"'));
  const changed = read(file);
  t.match(await use("claude-code", "--undo", "--yes"), {
    code: 1,
    stdout: /^--- /,
    stderr: /changed since.*--undo --force/,
  });
  t.equal(read(file), changed);
  t.match(await use("claude-code", "--undo", "--yes", "--force"), { code: 0 });
  t.equal(read(file), OLD);
});

t.test("five old files of a client are kept, and each undo leads to the one before", async (t) => {
  const { use, undoFiles, path, home } = await prepare(t);
  const texts: string[] = [];
  for (let at = 0; at < 7; at += 1) {
    const config = readFileSync(join(home, "config.yaml"), "utf8");
    await saveConfig(home, config.replace(/(codex: .*model: )[\w-]+/, `$1model-${at}`));
    await use("codex", "--write", "--yes");
    texts.push(read(path(".codex/config.toml")));
  }
  t.equal(new Set(texts).size, 7);
  t.equal(undoFiles().length, 10, "five, and the facts about each");
  for (let at = 5; at > 0; at -= 1) {
    t.match(await use("codex", "--undo", "--yes"), { code: 0 });
    t.equal(read(path(".codex/config.toml")), texts[at]);
  }
  t.match(await use("codex", "--undo", "--yes"), { code: 1, stderr: /nothing to undo/ });
});

t.test("an undo whose facts are damaged says where the old settings are", async (t) => {
  const { put, use, undoFiles, path } = await prepare(t);
  put(".claude/settings.json", OLD);
  await use("claude-code", "--write", "--yes");
  const [facts = "", old = ""] = undoFiles();
  writeFileSync(path(`state/undo/${facts}`), "{");
  const { code, stderr } = await use("claude-code", "--undo", "--yes");
  t.equal(code, 1);
  t.match(stderr, `the old settings are in ${path(`state/undo/${old}`)}`);
});
