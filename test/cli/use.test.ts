import { readFileSync } from "node:fs";
import t from "tap";
import { formatSettings } from "../../src/cli/use/print.ts";
import { CLIENTS, findClient } from "../../src/clients/table.ts";
import type { Token } from "../../src/config/schema.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { ask, get, hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

const CONFIG = `listen: 127.0.0.1:7777
gateway: http://127.0.0.1:9/v1
tools:
  claude-code: { key: env:A_KEY, model: claude-sonnet-4-5 }   # mine
  codex-work: { key: env:B_KEY }
  scripts: { key: env:C_KEY }
  cursor: { key: env:D_KEY }
`;

const TOKEN = /kb_[A-Za-z0-9_-]{49}/;

t.test("without a daemon, use prints config.yaml's address, and a placeholder for the token", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const [claude, codex] = await Promise.all([
    command(t, home, ["use", "claude-code"]),
    command(t, home, ["use", "codex-work", "--shell", "fish"]),
  ]);
  t.match(claude, { code: 0, stderr: "" });
  t.match(claude.stdout, "export ANTHROPIC_BASE_URL=http://127.0.0.1:7777\n");
  t.match(claude.stdout, "export ANTHROPIC_AUTH_TOKEN='<token>'\n");
  t.match(claude.stdout, "export ANTHROPIC_MODEL=claude-sonnet-4-5\n");
  t.match(claude.stdout, "→ keybearer use claude-code --new-token\n");
  t.match(codex, { code: 0, stderr: "" });
  t.match(codex.stdout, 'base_url = "http://127.0.0.1:7777/v1"\n');
  t.match(codex.stdout, "set -gx KEYBEARER_TOKEN '<token>'\n");
  t.notMatch(codex.stdout, /<model>|^model =/m, "no model is made up");
  t.match(codex.stdout, /no model is filled in: keybearer does not run[\s\S]*→ keybearer start\n/);
  for (const { stdout } of [claude, codex])
    t.match(
      stdout.replace(/\s+/g, " "),
      'does not begin with "keybearer:" comes from the gateway → keybearer status',
    );
  t.equal(readFileSync(file, "utf8"), CONFIG, "and nothing is changed");
});

t.test("an unknown name gets the list of clients, and an unsupported client gets the reason", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const use = (...args: string[]) => command(t, home, ["use", ...args]);
  const [list, unsure, cursor, wrong, nobody, link] = await Promise.all([
    use("scripts", "--json"),
    use("scripts", "--new-token"),
    use("cursor"),
    use("scripts", "--for", "notepad"),
    use("nobody"),
    use("scripts", "--for", "zed", "--link"),
  ]);
  t.equal(JSON.parse(list.stdout).clients.length, CLIENTS.length);
  t.match(unsure, { code: 2, stdout: "", stderr: /keybearer use scripts --for <client>/ });
  t.match(cursor, { code: 0, stdout: /do not reach your localhost[\s\S]*watch_only: true/ });
  t.notMatch(cursor.stdout, "7777");
  t.match(wrong, { code: 2, stdout: "", stderr: /keybearer use --for list/ });
  t.match(nobody, {
    code: 1,
    stdout: "",
    stderr: /its tools are claude-code.* → keybearer tools add nobody/,
  });
  t.match(link, { code: 2, stdout: "", stderr: /cc-switch does not know Zed/ });
  t.equal(readFileSync(file, "utf8"), CONFIG, "no token was made for any of them");
});

t.test("the list of clients needs neither a tool nor a config.yaml", async (t) => {
  const home = await newHome(t);
  const [list, json, nothing] = await Promise.all([
    command(t, home, ["use", "--for", "list"]),
    command(t, home, ["use", "--for", "list", "--json"]),
    command(t, home, ["use"]),
  ]);
  t.match(list, { code: 0, stderr: "", stdout: /keybearer use <tool> --for <client>[\s\S]*claude-code/ });
  t.match(JSON.parse(json.stdout), { tool: null, client: null });
  t.equal(JSON.parse(json.stdout).clients.length, CLIENTS.length);
  t.match(nothing, { code: 2, stdout: "", stderr: /which tool\?/ });
});

t.test(
  "a client that does not ask streams for usage gets ask_usage, unless config.yaml says no",
  async (t) => {
    const home = await newHome(t);
    const file = await saveConfig(home, `${CONFIG}  silent: { key: env:E_KEY, ask_usage: false }\n`);
    const first = await command(t, home, ["use", "scripts", "--for", "aider"]);
    t.match(first, { code: 0, stderr: /Aider does not ask.* tools\.scripts\.ask_usage: true is set now/ });
    t.match(readFileSync(file, "utf8"), "  scripts: { key: env:C_KEY, ask_usage: true }\n");
    t.match(await command(t, home, ["use", "scripts", "--for", "aider"]), { code: 0, stderr: "" });
    t.match(await command(t, home, ["use", "silent", "--for", "aider"]), { code: 0, stderr: "" });
    t.match(readFileSync(file, "utf8"), "ask_usage: false");
  },
);

t.test(
  "a tool with a token is not given a second one, and lines for a shell come with a warning about its history",
  (t) => {
    const client = findClient("claude-code");
    if (client === null) throw new Error("there is no claude-code");
    const origin = "http://localhost:5397";
    const words = (tokens: readonly Token[]) => {
      const known = { model: "m", tokenInUrl: false, isServed: false, isSandbox: false };
      const tool = { name: "claude-code", tokens, origin, ...known };
      return formatSettings(
        { tool, client, target: { origin, token: null, model: "m" }, noModel: null },
        "sh",
        300,
      );
    };
    t.match(
      words([{ name: "laptop", hash: "a".repeat(64), created: null }]),
      /it was shown when it was created.* lost it, .* --new-token\n/,
    );
    t.match(words([]), /the tool has none yet → keybearer use claude-code --new-token\n/);
    t.match(words([]), /stay in its history, the token too/);
    t.end();
  },
);

t.test("--link prints only the link on stdout, with a new token of the tool in it", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const { code, stdout, stderr } = await command(t, home, ["use", "claude-code", "--link"]);
  t.equal(code, 0);
  const { searchParams } = new URL(stdout.trim());
  t.match(stdout, /^ccswitch:\/\/v1\/import\?\S+\n$/);
  t.match(Object.fromEntries(searchParams), {
    app: "claude",
    endpoint: "http://127.0.0.1:7777",
    apiKey: TOKEN,
  });
  t.notMatch(stderr, TOKEN);
  t.notMatch(readFileSync(file, "utf8"), TOKEN, "the file keeps its hash");
  t.match(
    readFileSync(file, "utf8"),
    /model: claude-sonnet-4-5, token: \[\{ name: claude-code, hash: sha256:[0-9a-f]{64}, created: \S+ \}\] \} {3}# mine\n/,
  );
});

t.test(
  "with a daemon, use prints its port, a model of the gateway, and tokens that work beside each other",
  async (t) => {
    const sandbox = await startSandbox(t);
    const home = await newHome(t);
    await saveConfig(
      home,
      `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools:\n  codex:\n    key: ${newKey(sandbox).text}\n    token_in_url: true\n`,
    );
    const early = await command(t, home, ["use", "codex"]);
    t.match(
      early,
      { code: 1, stdout: "", stderr: /port 0.*keybearer start/ },
      "rather no address than a wrong one",
    );
    const { port } = await serveIn(t, home);
    const made = async (...args: string[]) =>
      JSON.parse((await command(t, home, ["use", "codex", "--new-token", "--json", ...args])).stdout);
    // On a slow machine the first list of models may come too late for it.
    await until("it knows a model", async () => (await made()).model !== null);
    const codex = await made();
    t.match(codex, { base_url: `http://localhost:${port}/v1`, token: TOKEN, model: /^sandbox-/ });
    const claude = await made("--for", "claude-code");
    t.match(claude, { base_url: `http://localhost:${port}`, token: TOKEN, model: /^sandbox-/ });
    t.not(claude.token, codex.token);
    await until(
      "the second token works",
      async () => (await get(`${codex.base_url}/models`, claude.token)).status === 200,
    );
    const chat = await post(`${codex.base_url}/chat/completions`, codex.token, hello(codex.model));
    t.equal(chat.status, 200, "and so does the first one still");
    const messages = await post(`${claude.base_url}/v1/messages`, claude.token, {
      ...hello(claude.model),
      max_tokens: 20,
    });
    t.equal(messages.status, 200);
    const { base_url: url } = await made("--for", "url-only");
    await until(
      "the address with a token in it works",
      async () => (await ask(`${url}/models`)).status === 200,
    );
  },
);
