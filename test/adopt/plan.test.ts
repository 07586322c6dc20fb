import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { makeInventory } from "../../src/adopt/inventory.ts";
import { planTools } from "../../src/adopt/plan.ts";
import { findSettings } from "../../src/clients/find.ts";
import { Secret } from "../../src/core/secret.ts";
import { newHome } from "../doubles/command.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { canary } from "../doubles/secret-scan.ts";

const GATEWAY = "https://gateway.example.com/v1";
const KEY = canary();
const OTHER = canary();

const codex = (key: string) =>
  `model_provider = "gw"\n[model_providers.gw]\nbase_url = "${GATEWAY}"\nexperimental_bearer_token = "${key}"\n`;
const variables = (key: string) => `OPENAI_BASE_URL=${GATEWAY}\nOPENAI_API_KEY=${key}\n`;

/** The tools of the keys in these files, each with its places. @param tools those in config.yaml, with their keys */
async function plan(
  t: Test,
  files: Readonly<Record<string, string>>,
  tools: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, readonly string[]>>> {
  const home = await newHome(t);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text, { mode: 0o600 });
  }
  const folders = ["work/Shop App", "work/api", "work/no"].map((name) => join(home, name));
  const found = await findSettings({ env: {}, home, cwd: home, platform: "linux", folders });
  const { pairs } = makeInventory(found, () => false);
  const names = Object.keys(tools).map((name) => `${name}: { key: env:NONE }`);
  const config = configOf(`gateways: { main: { base_url: "${GATEWAY}" } }\ntools: { ${names.join(", ")} }\n`);
  const keys = new Map(Object.entries(tools).map(([name, key]) => [name, new Secret(key)]));
  const plans = planTools(pairs, [], { gateways: config.gateways, tools: config.tools, keys });
  return Object.fromEntries(
    plans.map(({ name, places }) => [name, places.map(({ file }) => file.path.slice(home.length + 1))]),
  );
}

t.test("clients with one key each get a tool, named after them", async (t) => {
  const files = {
    ".codex/config.toml": codex(KEY),
    ".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"https://gateway.example.com","ANTHROPIC_AUTH_TOKEN":"${KEY}"}}`,
  };
  t.same(await plan(t, files), { codex: [".codex/config.toml"], "claude-code": [".claude/settings.json"] });
});

t.test("a variable of the shell belongs to the client that has the same key", async (t) => {
  const files = { ".codex/config.toml": codex(KEY), ".zshrc": variables(KEY) };
  t.same(await plan(t, files), { codex: [".codex/config.toml", ".zshrc"] });
});

t.test("a project's key gets the name of its folder, also if a client has the same key", async (t) => {
  const files = {
    ".codex/config.toml": codex(KEY),
    "work/Shop App/.env": variables(KEY),
    "work/Shop App/.env.local": variables(KEY),
    "work/api/.env": `ANTHROPIC_BASE_URL=https://gateway.example.com\nANTHROPIC_API_KEY=${KEY}\n`,
    "work/no/.env": variables(KEY),
  };
  t.same(await plan(t, files), {
    codex: [".codex/config.toml"],
    "shop-app": ["work/Shop App/.env", "work/Shop App/.env.local"],
    api: ["work/api/.env"],
    "env-file": ["work/no/.env"],
  });
});

t.test(
  "the .env of the home folder belongs to the client that has the same key, or that is meant",
  async (t) => {
    t.same(await plan(t, { ".codex/config.toml": codex(KEY), ".env": variables(KEY) }), {
      codex: [".codex/config.toml", ".env"],
    });
    t.same(await plan(t, { ".env": `GEMINI_API_KEY=${KEY}\n` }), { "gemini-cli": [".env"] });
  },
);

t.test("a second key of a client gets the gateway's name behind it", async (t) => {
  const both = `${codex(KEY)}[model_providers.b]\nbase_url = "${GATEWAY}"\nexperimental_bearer_token = "${OTHER}"\n`;
  t.same(Object.keys(await plan(t, { ".codex/config.toml": both })), ["codex", "codex-main"]);
});

t.test("a tool that holds the key is used again, and one with another key is not", async (t) => {
  const files = { ".codex/config.toml": codex(KEY) };
  t.same(Object.keys(await plan(t, files, { codex: KEY })), ["codex"]);
  t.same(Object.keys(await plan(t, files, { codex: OTHER })), ["codex-main"]);
  t.same(Object.keys(await plan(t, files, { "my-codex": KEY })), ["my-codex"]);
  t.same(Object.keys(await plan(t, files, { "claude-code": KEY })), ["codex"], "it is another client's");
});
