import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import t, { type Test } from "tap";
import { bareEnv, builtProgram, command, newHome, saveConfig, startProgram } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { startModelList } from "../doubles/model-list.ts";
import { ROOT } from "../doubles/paths.ts";
import { canary, filesBelow } from "../doubles/secret-scan.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const KILLER = join(ROOT, "build", "test", "doubles", "kill-at-change.js");
const CONFIG =
  "listen: localhost:0\ngateways: { other: { base_url: https://gateway.example.com/v1 } }\ntools: {}\n";

/** How each file says where requests go, and with which credential. */
const CLIENTS: Readonly<Record<string, readonly [address: RegExp, key: RegExp]>> = {
  ".claude/settings.json": [/"ANTHROPIC_BASE_URL": "([^"]+)"/, /"ANTHROPIC_AUTH_TOKEN": "([^"]+)"/],
  ".codex/config.toml": [/base_url = "([^"]+)"/, /experimental_bearer_token = "([^"]+)"/],
  ".config/io.datasette.llm/extra-openai-models.yaml": [/api_base: (\S+)/, /api_key_name: (\S+)/],
  ".zshrc": [/ANTHROPIC_BASE_URL=(\S+)/, /ANTHROPIC_AUTH_TOKEN=(\S+)/],
};

async function prepare(t: Test) {
  const home = await newHome(t);
  const claude = canary();
  const codex = canary();
  const llm = canary();
  const gateway = await startModelList(t, claude, codex, llm);
  const { origin } = gateway;
  const files = {
    ".claude/settings.json": `{ "env": { "ANTHROPIC_BASE_URL": "${origin}", "ANTHROPIC_AUTH_TOKEN": "${claude}" } }\n`,
    ".codex/config.toml": `model_provider = "gw"\n\n[model_providers.gw]\nbase_url = "${origin}/v1"\nexperimental_bearer_token = "${codex}"\n`,
    ".config/io.datasette.llm/keys.json": `{\n  "gw": "${llm}"\n}\n`,
    ".config/io.datasette.llm/extra-openai-models.yaml": `- model_id: gw-x\n  model_name: x\n  api_base: ${origin}/v1\n  api_key_name: gw\n`,
    ".zshrc": `export ANTHROPIC_BASE_URL=${origin}\nexport ANTHROPIC_AUTH_TOKEN=${claude}\n`,
  };
  await saveConfig(home, CONFIG);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text, { mode: 0o600 });
  }
  return { home, keys: [claude, codex, llm] };
}

/** Why a client does not work with its file as it is; null: its credential is accepted at its address. */
async function findProblem(home: string, name: string): Promise<string | null> {
  const [address, key] = CLIENTS[name] ?? [/^$/, /^$/];
  const text = readFileSync(join(home, name), "utf8");
  const base = (address.exec(text)?.[1] ?? "").replace(/\/v1$/, "");
  const authorization = `Bearer ${keyNamed(home, name, key.exec(text)?.[1] ?? "")}`;
  const response = await fetch(`${base}/v1/models`, { headers: { authorization } });
  return response.ok ? null : `${base} ${response.status} ${await response.text()}`;
}

/** llm's models only name their key. */
function keyNamed(home: string, name: string, key: string): string {
  if (!name.includes("llm")) return key;
  return JSON.parse(readFileSync(join(home, dirname(name), "keys.json"), "utf8"))[key];
}

t.test("whenever adopt --write is killed, every client works, and the next run finishes", async (t) => {
  const args = ["adopt", "--write", "--yes", "--store", "file"];
  // 1: at each moment, which takes minutes.
  const step = repeats("KEYBEARER_ADOPT_STEP", 17, 4);
  let rounds = 0;
  for (let moment = 1; ; moment += step) {
    const { home, keys } = await prepare(t);
    const { daemon } = await serveIn(t, home);
    const env = { ...bareEnv(home), KILL_AT: String(moment) };
    const killed = startProgram(t, process.execPath, ["--import", KILLER, builtProgram(), ...args], env);
    const { signal, stderr } = await killed.ended;
    for (const name of Object.keys(CLIENTS))
      t.equal(await findProblem(home, name), null, `${name} works after a kill at ${moment}`);
    const again = await command(t, home, args);
    t.equal(again.code, 0, `${moment}: ${again.stdout}${again.stderr}${stderr}`);
    for (const name of Object.keys(CLIENTS))
      t.equal(await findProblem(home, name), null, `${name} works at the end, killed at ${moment}`);
    const left = filesBelow(home).filter((file) => keys.some((key) => readFileSync(file).includes(key)));
    t.same(
      left.map((file) => relative(home, file)).filter((file) => !file.startsWith("keys/")),
      [],
    );
    const leftovers = filesBelow(home).filter((file) =>
      /\.(?:claude|codex)\/.*\.tmp$|\.zshrc\..*\.tmp$/.test(file),
    );
    t.same(leftovers, [], "nothing half-written is left beside the clients' files");
    await daemon.stop();
    rounds += 1;
    if (signal === null) break;
  }
  t.ok(rounds > 2, `it was killed ${rounds - 1} times`);
});
