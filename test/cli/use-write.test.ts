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
import t, { type Test } from "tap";
import type { WriteDeps } from "../../src/cli/use/means.ts";
import { undoSettings } from "../../src/cli/use/undo.ts";
import { type WriteAsked, writeSettings } from "../../src/cli/use/write.ts";
import type { Writable } from "../../src/clients/settings-files.ts";
import { loadConfig } from "../../src/config/load.ts";
import { systemClock } from "../../src/core/clock.ts";
import { findPaths } from "../../src/core/paths.ts";
import { hashToken } from "../../src/core/token.ts";
import { newHome, saveConfig } from "../doubles/command.ts";

const CONFIG = `gateway: http://127.0.0.1:9/v1
tools:
  claude-code: { key: env:A_KEY, token: "sha256:${"a".repeat(64)}" } # mine
  codex: { key: env:B_KEY }
`;
const OLD = '{\n    "permissions": { "allow": [] },\n    "env": {\n        "OTHER": "1"\n    }\n}';

/** A person's machine: `answers` are what they say to the questions, in turn; none: nobody is there. */
async function scene(t: Test, env: Record<string, string> = {}) {
  const home = await newHome(t);
  const config = await saveConfig(home, CONFIG);
  const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
  const path = (name: string) => join(home, name);
  const put = (name: string, text: string, mode = 0o600) => {
    mkdirSync(dirname(path(name)), { recursive: true });
    writeFileSync(path(name), text);
    chmodSync(path(name), mode);
    return path(name);
  };
  const heard = () => ({
    said: [] as string[],
    asked: [] as string[],
    failed: null as string | null,
    code: 0,
  });
  const depsFor = (
    into: ReturnType<typeof heard>,
    answers: readonly (boolean | (() => boolean))[],
  ): WriteDeps => ({
    ...{ env, home, cwd: home, clock: systemClock },
    there: () => answers.length > 0,
    confirm: async (question) => {
      const answer = answers[into.asked.length];
      into.asked.push(question);
      return typeof answer === "function" ? answer() : (answer ?? false);
    },
    print: (...lines) => void into.said.push(...lines),
    note: ({ what, next }) => void into.said.push(next === null ? what : `${what} → ${next}`),
    fail: (message, code) => void Object.assign(into, { failed: message, code }),
  });
  const ask = async (client: Writable): Promise<WriteAsked> => {
    const { config: loaded } = await loadConfig(config, { home, strict: false });
    const name = client === "codex" ? "codex" : "claude-code";
    const tool = { name, tokens: loaded?.tools[name]?.tokens ?? [] };
    const origin = "http://localhost:5397";
    return { paths, tool, client, clientName: client, origin, model: "some-model", small: null, yes: false };
  };
  return {
    home,
    config,
    path,
    put,
    undone: () => readdirSync(join(paths.state, "undo")).toSorted(),
    async write(
      client: Writable,
      answers: readonly (boolean | (() => boolean))[],
      more: Partial<WriteAsked> = {},
    ) {
      const into = heard();
      await writeSettings({ ...(await ask(client)), ...more }, depsFor(into, answers));
      return { ...into, text: into.said.join("\n") };
    },
    async undo(client: Writable, answers: readonly boolean[], more: { yes?: boolean; force?: boolean } = {}) {
      const into = heard();
      const asked = { paths, tool: "claude-code", client, clientName: client, yes: false, force: false };
      await undoSettings({ ...asked, ...more }, depsFor(into, answers));
      return { ...into, text: into.said.join("\n") };
    },
  };
}

const read = (file: string) => readFileSync(file, "utf8");
const mode = (file: string) => statSync(file).mode & 0o777;

t.test("settings are shown, asked about and written, and come back as they were", async (t) => {
  const { put, write, undo, config, undone, home } = await scene(t);
  const file = put(".claude/settings.json", OLD, 0o644);
  const { text, failed, asked } = await write("claude-code", [true]);
  t.equal(failed, null);
  t.same(asked, [`write this to ${file}?`]);
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
  t.equal(mode(file), 0o644, "its mode is its owner's business");
  const [about = "", old = ""] = undone();
  t.match(old, /^claude-code-\d{4}-\d\d-\d\dT.*\.old$/);
  const kept = join(home, "state", "undo");
  t.same([mode(kept), mode(join(kept, old)), mode(join(kept, about))], [0o700, 0o600, 0o600]);
  t.equal(read(join(kept, old)), OLD);

  const again = await write("claude-code", [true]);
  t.match(
    again,
    { failed: null, asked: [], text: /already; nothing changed/ },
    "the token in it works, so it stays",
  );

  const before = read(config);
  const back = await undo("claude-code", [true]);
  t.match(back, {
    failed: null,
    text: /its token still works.*keybearer tools revoke claude-code <name>/,
  });
  t.notOk(back.text.includes(token));
  t.equal(read(file), OLD);
  t.equal(mode(file), 0o644);
  t.equal(read(config), before);
  t.same(undone(), [], "what may hold a key is not kept longer than it is needed");
  t.match(await undo("claude-code", [true]), { code: 1, failed: /nothing to undo/ });
});

t.test("where no model is known, that is said with the way to one", async (t) => {
  const { write } = await scene(t);
  for (const client of ["claude-code", "codex"] as const) {
    const { text, failed } = await write(client, [true], { model: null });
    t.equal(failed, null);
    t.match(
      text,
      new RegExp(`no model is written.* model: below tools: ${client}: .*models --tool ${client}`),
    );
  }
  t.notMatch((await write("codex", [true])).text, /no model/);
});

t.test("what a killed --write left beside the file goes with the next, and nothing else", async (t) => {
  const { put, write, home } = await scene(t);
  put(".claude/settings.json", OLD);
  const hour = new Date(Date.now() - 3_600_000);
  const old = (name: string) => utimesSync(put(`.claude/${name}`, "x"), hour, hour);
  const left = `.settings.json.${"0a".repeat(12)}.tmp`;
  const atWork = `.settings.json.${"0b".repeat(12)}.tmp`;
  for (const name of [left, ".settings.json.mine.tmp", "settings.json.bak"]) old(name);
  put(`.claude/${atWork}`, "x");
  t.equal((await write("claude-code", [true])).failed, null);
  const names = readdirSync(join(home, ".claude")).toSorted();
  t.same(names, [atWork, ".settings.json.mine.tmp", "settings.json", "settings.json.bak"]);
});

t.test("without a yes nothing changes, and where nobody can be asked it is wrong usage", async (t) => {
  const { put, write, config, home } = await scene(t);
  const file = put(".claude/settings.json", OLD);
  t.match(await write("claude-code", [false]), { code: 1, failed: "not written; nothing changed" });
  const alone = await write("claude-code", []);
  t.match(alone, { code: 2, failed: /use claude-code --for claude-code --write --yes/, text: /^--- / });
  t.equal(read(file), OLD);
  t.equal(read(config), CONFIG, "no token was made");
  t.same(readdirSync(home).toSorted(), [".claude", "config.yaml"]);
  t.match(await write("claude-code", [], { yes: true }), { failed: null, asked: [] });
  t.not(read(file), OLD);
});

t.test("files that are not there are made with their folders, and go again", async (t) => {
  const { write, undo, path } = await scene(t);
  for (const [client, file] of [
    ["claude-code", path(".claude/settings.json")],
    ["codex", path(".codex/config.toml")],
    ["opencode", path(".config/opencode/opencode.json")],
  ] as const) {
    t.match(await write(client, [true]), { failed: null, text: /^--- \/dev\/null/ });
    t.equal(mode(file), 0o600);
    t.equal(mode(dirname(file)), 0o700);
    t.match(await undo(client, [], {}), { code: 2 }, "going back is asked about too");
    t.match(await undo(client, [true]), { failed: null, text: /removed/ });
    t.same(readdirSync(dirname(file)), []);
  }
});

t.test("a key beside the token is offered to go, and stays where the person wants it", async (t) => {
  const { put, write } = await scene(t);
  const text = OLD.replace('"OTHER": "1"', '"ANTHROPIC_API_KEY": "sk-ant-very-real-key-123"');
  const file = put(".claude/settings.json", text);
  const kept = await write("claude-code", [false, false]);
  t.match(kept.asked, [/remove ANTHROPIC_API_KEY/, /write this/]);
  t.match(kept.text, /foreign-key/);
  t.match(kept.text, /^\+.*ANTHROPIC_API_KEY": "\[hidden\]",$/m, "it stays, with a comma behind it now");
  const gone = await write("claude-code", [true, true]);
  t.match(gone.text, /^- +"ANTHROPIC_API_KEY": "\[hidden\]"/m);
  t.notMatch(gone.text, /^\+.*ANTHROPIC_API_KEY/m);
  t.equal(JSON.parse(read(file)).env.ANTHROPIC_API_KEY, undefined);
});

t.test("a link to the file stays a link, and the file it leads to is written", async (t) => {
  const { put, write, undo, path } = await scene(t, {});
  const real = put("dotfiles/config.toml", "# mine\r\nmodel = 'x' # y\r\n", 0o640);
  mkdirSync(path(".codex"));
  symlinkSync(real, path(".codex/config.toml"));
  t.match(await write("codex", [true]), { failed: null });
  t.equal(readlinkSync(path(".codex/config.toml")), real);
  t.match(
    read(real),
    /^# mine\r\nmodel = "some-model" # y\r\nmodel_provider = "keybearer"\r\n\r\n\[model_providers\.keybearer\]\r\n/,
  );
  t.equal(mode(real), 0o640);
  t.match(await undo("codex", [], { yes: true }), { failed: null });
  t.equal(read(real), "# mine\r\nmodel = 'x' # y\r\n");
  symlinkSync(path("nowhere"), path("gone"));
  t.match(await (await scene(t, { OPENCODE_CONFIG: path("gone") })).write("opencode", [true]), {
    code: 1,
    failed: /leads nowhere/,
  });
});

t.test(
  "a file that cannot be understood, or changed meanwhile, is left as it is, and no token is made",
  async (t) => {
    const { put, write, config, undone } = await scene(t);
    for (const [client, name, text, why] of [
      ["claude-code", ".claude/settings.json", '{\n  "env": {\n', /line 3: close brace expected/],
      ["claude-code", ".claude/settings.json", "{\n  // why\n}\n", /line 2: invalid comment token/],
      ["codex", ".codex/config.toml", "model = 'x'\nmodel = 'y'\n", /line 2: .*redefine/],
      ["opencode", ".config/opencode/opencode.jsonc", "{ // c\n  nope }", /line 2/],
    ] as const) {
      const file = put(name, text);
      t.match(await write(client, [true]), { code: 1, failed: why, asked: [] });
      t.equal(read(file), text);
    }
    const file = put(".claude/settings.json", OLD);
    const meddle = () => {
      writeFileSync(file, "{}");
      return true;
    };
    t.match(await write("claude-code", [meddle]), { code: 1, failed: /changed by something else meanwhile/ });
    t.equal(read(file), "{}");
    t.equal(read(config), CONFIG, "the token that was made for it is taken back");
    t.same(undone(), []);
    t.same(readdirSync(dirname(file)), ["settings.json"], "nothing is left lying about");
    t.match(await write("opencode", [true], { model: null }), { code: 1, failed: /write model:/ });
  },
);

const notRoot = process.getuid?.() === 0 ? false : "only root can give a file away";

t.test("a file of another user is left alone", { skip: notRoot }, async (t) => {
  const { put, write } = await scene(t);
  const file = put(".claude/settings.json", OLD, 0o666);
  chownSync(file, 12_345, 12_345);
  t.match(await write("claude-code", [true]), { code: 1, failed: /belongs to another user/, asked: [] });
  t.equal(read(file), OLD);
});

t.test("what was changed since is not lost by going back, unless the person insists", async (t) => {
  const { put, write, undo } = await scene(t);
  const file = put(".claude/settings.json", OLD);
  await write("claude-code", [true]);
  writeFileSync(file, read(file).replace('"OTHER": "1"', '"OTHER": "2"'));
  const changed = read(file);
  t.match(await undo("claude-code", [true]), {
    code: 1,
    failed: /changed since.*--undo --force/,
    text: /^--- /,
  });
  t.equal(read(file), changed);
  t.match(await undo("claude-code", [true], { force: true }), { failed: null });
  t.equal(read(file), OLD);
});

t.test("five old files of a client are kept, and each way back leads to the one before", async (t) => {
  const { write, undo, undone, path } = await scene(t);
  const texts: string[] = [];
  for (let at = 0; at < 7; at += 1) {
    await write("codex", [true], { model: `model-${at}` });
    texts.push(read(path(".codex/config.toml")));
  }
  t.equal(undone().length, 10, "five, and what is known of each");
  for (let at = 5; at > 0; at -= 1) {
    t.match(await undo("codex", [], { yes: true }), { failed: null });
    t.equal(read(path(".codex/config.toml")), texts[at]);
  }
  t.match(await undo("codex", [], { yes: true }), { code: 1, failed: /nothing to undo/ });
});
