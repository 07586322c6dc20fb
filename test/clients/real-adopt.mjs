/*
 * The steps of real-adopt.sh, which says what they need and how to call them.
 *
 *   node real-adopt.mjs <folder of the clients> <client>…
 *
 * All clients share one home folder, one keybearer on port 5397 and one gateway double, as on a person's machine.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CLIENTS, PROGRAM, PROMPT, runClient, runProgram, versionOf } from "./real-clients.mjs";
import { GatewayDouble } from "./real-clients-gateway.mjs";

const MODEL = "claude-sonnet-4-5";

/**
 * For each client what a person has before: files by their path below the home folder, with the key in them. `root` is the
 * gateway's address, `v1` the same with its version segment. command: what stores the key instead, with the client's own
 * program. args: instead of those of real-clients.mjs.
 */
const SETUPS = {
  "claude-code": {
    model: MODEL,
    // No last newline, and settings of other kinds around the key.
    files: ({ root, key }) => ({
      ".claude/settings.json": `{
  "permissions": { "allow": ["Bash(ls:*)"], "deny": [] },
  "env": {
    "ANTHROPIC_BASE_URL": "${root}",
    "ANTHROPIC_AUTH_TOKEN": "${key}",
    "ANTHROPIC_MODEL": "${MODEL}"
  },
  "includeCoAuthoredBy": false
}`,
    }),
  },
  codex: {
    model: "gpt-5.1",
    files: ({ v1, key }) => ({
      ".codex/config.toml": `# my settings
model = "gpt-5.1"   # the good one
model_provider = "gw"

[model_providers.gw]
name = "work"
base_url = "${v1}"
wire_api = "responses"
experimental_bearer_token = "${key}"

[tui]
notifications = false
`,
    }),
  },
  opencode: {
    model: MODEL,
    // With comments, a trailing comma and the line ends of Windows.
    files: ({ v1, key }) => ({
      ".config/opencode/opencode.json": openCodeConfig("https://opencode.ai/config.json", v1, key)
        .replaceAll("\n", "\r\n")
        .replace("{", "{ // mine"),
    }),
  },
  "kilo-code": {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".config/kilo/kilo.json": openCodeConfig("https://app.kilo.ai/config.json", v1, key),
    }),
  },
  "qwen-code": {
    model: "qwen3-coder-plus",
    files: ({ v1, key }) => ({
      ".qwen/.env": `# of the team\nOPENAI_API_KEY=${key}\nOPENAI_BASE_URL="${v1}"\nOPENAI_MODEL=qwen3-coder-plus\n`,
      ".qwen/settings.json": '{ "security": { "auth": { "selectedType": "openai" } } }\n',
    }),
  },
  "gemini-cli": {
    model: "gemini-2.5-pro",
    files: ({ root, key }) => ({
      ".gemini/.env": `GEMINI_API_KEY="${key}"\nGOOGLE_GEMINI_BASE_URL=${root}\nGEMINI_MODEL=gemini-2.5-pro\n`,
      ".gemini/settings.json": '{ "security": { "auth": { "selectedType": "gemini-api-key" } } }\n',
    }),
  },
  "copilot-cli": {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".bashrc": `alias ll='ls -l'
export COPILOT_PROVIDER_TYPE=openai COPILOT_PROVIDER_BASE_URL=${v1}
# of the team
export COPILOT_PROVIDER_API_KEY='${key}'
export COPILOT_MODEL=${MODEL}
`,
    }),
  },
  "cline-cli": {
    model: MODEL,
    files: () => ({}),
    command: ({ v1, key }) => ["auth", "-p", "openai", "-b", v1, "-m", MODEL, "-k", key],
  },
  continue: {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".continue/config.yaml": `name: mine
version: 1.0.0
schema: v1
models:
  # the gateway of the team
  - name: work
    provider: openai
    model: "${MODEL}"
    apiBase: ${v1}
    apiKey: ${key}   # until June
`,
    }),
  },
  aider: {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".aider.conf.yml": `openai-api-base: ${v1}
openai-api-key: "${key}"
model: openai/${MODEL}
weak-model: openai/${MODEL}
`,
    }),
  },
  llm: {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".config/io.datasette.llm/keys.json": `{\n  "// Note": "This file stores secret API credentials. Do not share!",\n  "gw": "${key}"\n}`,
      ".config/io.datasette.llm/extra-openai-models.yaml": `- api_base: ${v1}
  api_key_name: gw
  model_id: gw-${MODEL}
  model_name: ${MODEL}
`,
    }),
    args: ["-m", "gw-$MODEL", PROMPT],
  },
  goose: {
    model: MODEL,
    files: ({ root, key }) => ({
      ".config/goose/config.yaml": `# mine\nGOOSE_PROVIDER: openai\nGOOSE_MODEL: ${MODEL}\nOPENAI_HOST: ${root}\nGOOSE_DISABLE_KEYRING: true\nGOOSE_TELEMETRY_ENABLED: false\nextensions: {}\n`,
      ".config/goose/secrets.yaml": `OPENAI_API_KEY: ${key}\n`,
    }),
  },
  pi: {
    model: MODEL,
    files: ({ v1, key }) => ({
      ".pi/agent/models.json": `${JSON.stringify(
        {
          providers: {
            gw: { baseUrl: v1, api: "openai-completions", apiKey: key, models: [{ id: MODEL }] },
          },
        },
        null,
        2,
      )}\n`,
    }),
    args: ["--provider", "gw", "--model", "$MODEL", "-p", PROMPT],
  },
};

function openCodeConfig(schema, v1, key) {
  return `{
  "$schema": "${schema}",
  "model": "gw/${MODEL}",
  "small_model": "gw/${MODEL}",
  "provider": {
    "gw": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "work",
      "options": { "baseURL": "${v1}", "apiKey": "${key}" },
      "models": { "${MODEL}": {} },
    },
  },
}
`;
}

/** Keys beside those of the clients: one in a start-up file, and one more that stays behind in a history. */
const SHELL = "shell";

class Machine {
  gateway = new GatewayDouble();
  folder = mkdtempSync(join(tmpdir(), "kb-adopt-"));
  home = join(this.folder, "home");
  work = join(this.home, "work");
  /** By client. */
  keys = new Map();
  /** What failed, for the exit code. */
  faults = [];
  /** Everything that keybearer printed. */
  #printed = "";
  #clients;
  #clientFolder;
  #address = "";
  #daemon = null;

  constructor(clientFolder, clients) {
    this.#clientFolder = clientFolder;
    this.#clients = clients;
    for (const name of [...clients, SHELL]) this.keys.set(name, `sk-${randomBytes(32).toString("hex")}`);
  }

  fail(text) {
    this.faults.push(text);
    process.stderr.write(`FAULT: ${text}\n`);
  }

  async setUp() {
    mkdirSync(this.work, { recursive: true });
    this.#address = await this.gateway.start();
    for (const id of this.#clients) {
      const { files, command } = SETUPS[id];
      for (const [path, text] of Object.entries(files(this.#about(id)))) this.#place(path, text);
      if (command === undefined) continue;
      const program = join(this.#clientFolder, id, CLIENTS[id].bin);
      const { status, output } = await runProgram(program, command(this.#about(id)), {
        env: { PATH: process.env.PATH, HOME: this.home, TERM: "dumb" },
        cwd: this.work,
      });
      if (status !== 0) this.fail(`${id} could not be set up: ${output.slice(0, 500)}`);
    }
    const { v1, key } = this.#about(SHELL);
    this.#place(
      ".zshrc",
      `setopt autocd\nexport OPENAI_BASE_URL=${v1}\n  export OPENAI_API_KEY=${key} # work\n`,
    );
    this.#place(".bash_history", `ls\nexport OPENAI_API_KEY=${key}\n`);
  }

  #about(id) {
    const v1 = this.#address;
    return { root: v1.replace(/\/v1$/, ""), v1, key: this.keys.get(id) };
  }

  #place(path, text) {
    mkdirSync(dirname(join(this.home, path)), { recursive: true });
    if (existsSync(join(this.home, path))) appendFileSync(join(this.home, path), text);
    else writeFileSync(join(this.home, path), text);
  }

  /** Nobody has keybearer's files yet but for another gateway and tool, which must stay as they are. */
  async startKeybearer() {
    const folder = join(this.home, ".config/keybearer");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const config = `gateway: http://127.0.0.1:9/v1\ntools:\n  unrelated:\n    key: sk-${randomBytes(24).toString("hex")}\n`;
    writeFileSync(join(folder, "config.yaml"), config, { mode: 0o600 });
    const log = join(this.folder, "kb.log");
    this.#daemon = spawn(
      "/bin/sh",
      ["-c", `exec "$0" "$1" run >>"$2" 2>&1`, process.execPath, PROGRAM, log],
      {
        env: this.#env(),
      },
    );
    while (!existsSync(log) || !readFileSync(log, "utf8").includes(" serves http://")) {
      if (this.#daemon.exitCode !== null) throw new Error(readFileSync(log, "utf8"));
      await sleep(50);
    }
  }

  async stop() {
    if (this.#daemon !== null && this.#daemon.exitCode === null) {
      const ended = new Promise((resolve) => this.#daemon.once("exit", resolve));
      this.#daemon.kill("SIGTERM");
      await ended;
    }
    this.gateway.stop();
    if (process.env.KEYBEARER_KEEP !== "1")
      rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  #env() {
    return { PATH: process.env.PATH, HOME: this.home, SHELL: "/bin/bash", TERM: "dumb", LANG: "C.UTF-8" };
  }

  /** Runs `keybearer adopt …` where a person would, and expects this exit code. Returns what it printed. */
  async adopt(expected, ...args) {
    const name = ["keybearer adopt", ...args].join(" ");
    const { status, output } = await runProgram(process.execPath, [PROGRAM, "adopt", ...args], {
      env: this.#env(),
      cwd: this.work,
    });
    this.#printed += output;
    process.stderr.write(`$ ${name}\n${output}(exit ${status})\n`);
    if (status !== expected) this.fail(`${name} ended with ${status}, not ${expected}`);
    return output;
  }

  /** What runClient() of real-clients.mjs needs of its surroundings. */
  around(id) {
    return {
      folder: this.folder,
      home: this.home,
      work: this.work,
      model: SETUPS[id].model,
      requests: () => [],
    };
  }

  /** One prompt of a client. null: it was answered, each of its requests had its own key, and took this way. */
  async prompt(id, way) {
    const setup = SETUPS[id];
    const args = setup.args;
    const client = args === undefined ? CLIENTS[id] : { ...CLIENTS[id], args };
    const before = this.gateway.calls.length;
    const lines = this.#requests().length;
    const run = await runClient(
      this.around(id),
      client,
      join(this.#clientFolder, id),
      '[ ! -e "$HOME/.bashrc" ] || . "$HOME/.bashrc"',
      { text: null },
    );
    // Its line is in the log a moment after the response.
    await sleep(500);
    const calls = this.gateway.calls.slice(before);
    const passed = this.#requests().length - lines;
    const others = calls.filter(({ credential }) => !credential?.includes(this.keys.get(id)));
    if (run.shownAfter === null) return `no answer: ${run.output.slice(-300)}`;
    if (others.length > 0) return `${others.length} of ${calls.length} requests had another key`;
    if (way === "through keybearer" && passed < calls.length) return "a request went past keybearer";
    if (way === "bare" && passed > 0) return "a request went through keybearer";
    return null;
  }

  /** The requests that keybearer has answered, by its usage log. */
  #requests() {
    const folder = join(this.home, ".local/state/keybearer/usage");
    if (!existsSync(folder)) return [];
    return readdirSync(folder)
      .filter((name) => name.endsWith(".jsonl"))
      .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n"))
      .filter((line) => line.includes('"close"') && line.includes('"method":"POST"'));
  }

  #log() {
    const log = join(this.folder, "kb.log");
    return existsSync(log) ? readFileSync(log, "utf8") : "";
  }

  /** The content of every file in the home folder, by its path. */
  snapshot() {
    const files = new Map();
    for (const name of readdirSync(this.home, { recursive: true, encoding: "utf8" })) {
      const path = join(this.home, name);
      const stats = lstatSync(path, { throwIfNoEntry: false });
      if (stats?.isFile()) files.set(name, { mode: stats.mode & 0o777, bytes: readFileSync(path) });
    }
    return files;
  }

  /** The files outside keybearer's own folders that have any of the keys, in any of the usual forms. */
  filesWithKeys(files = this.snapshot()) {
    const forms = [...this.keys.values()].flatMap(formsOf);
    return [...files]
      .filter(([name]) => !/^\.(?:config|local\/state)\/keybearer\//.test(name))
      .filter(([, { bytes }]) => forms.some((form) => bytes.includes(form)))
      .map(([name]) => name);
  }

  /** Whether keybearer itself ever printed or logged a key. */
  checkOutput() {
    const text = Buffer.from(this.#printed + this.#log());
    for (const [name, key] of this.keys)
      if (formsOf(key).some((form) => text.includes(form))) this.fail(`keybearer printed the key of ${name}`);
  }

  /** keybearer's own store: every key is in it, and nobody else may read it. */
  checkStore(files = this.snapshot()) {
    const own = [...files].filter(([name]) => name.startsWith(".config/keybearer/"));
    for (const [client, key] of this.keys)
      if (!own.some(([, { bytes }]) => bytes.includes(key)))
        this.fail(`the key of ${client} is not in the store`);
    for (const [name, { mode }] of own)
      if ((mode & 0o077) !== 0) this.fail(`${name} has mode ${mode.toString(8)}`);
  }
}

function formsOf(key) {
  const base64 = [0, 1, 2].map((before) =>
    Buffer.concat([Buffer.alloc(before), Buffer.from(key)])
      .toString("base64")
      .slice(4, -4),
  );
  return [key, Buffer.from(key).toString("hex"), ...base64];
}

async function run(clientFolder, clients) {
  const unknown = clients.filter((id) => SETUPS[id] === undefined);
  if (unknown.length > 0) throw new Error(`no client ${unknown.join(", ")}`);
  const versions = new Map(clients.map((id) => [id, versionOf(id, clientFolder)]));
  const installed = clients.filter((id) => versions.get(id) !== null);
  const machine = new Machine(clientFolder, installed);
  const results = Object.fromEntries(installed.map((id) => [id, { version: versions.get(id) }]));
  const step = async (name, work) => {
    process.stderr.write(`== ${name}\n`);
    await work();
  };
  const promptAll = async (way, field) => {
    for (const id of installed) {
      const problem = await machine.prompt(id, way);
      results[id][field] = problem ?? "yes";
      process.stderr.write(`${id}, ${way}: ${problem ?? "answered"}\n`);
      if (problem !== null) machine.fail(`${id}, ${way}: ${problem.split("\n")[0]}`);
    }
  };
  let before = new Map();
  let adopted = new Map();
  let used = new Map();
  /** Files that only a rotation helps against: the history, and what clients wrote about their bare key. */
  let traces = [];
  try {
    await machine.setUp();
    const settings = machine.filesWithKeys();
    await step("each client answers with its bare key", () => promptAll("bare", "bare"));
    await step("keybearer finds the keys and changes nothing", async () => {
      await machine.startKeybearer();
      before = machine.snapshot();
      traces = machine
        .filesWithKeys(before)
        .filter((name) => name === ".bash_history" || !settings.includes(name));
      const output = await machine.adopt(1);
      for (const name of [".bash_history"])
        if (!output.includes(name)) machine.fail(`adopt does not mention ${name}`);
      for (const name of changed(before, machine.snapshot())) machine.fail(`adopt changed ${name}`);
    });
    await step("adopt moves them", async () => {
      await machine.adopt(0, "--write", "--yes", "--store", "file");
      adopted = machine.snapshot();
      machine.checkStore(adopted);
      reportKeys(machine, traces, adopted, "after adopt");
    });
    await step("each client answers through keybearer", () => promptAll("through keybearer", "adopted"));
    await step("nothing is left to adopt", async () => {
      used = machine.snapshot();
      reportKeys(machine, traces, used, "after the clients ran");
      await machine.adopt(0);
    });
    await step("undo gives every file back", async () => {
      await machine.adopt(0, "--undo", "--yes");
      const after = machine.snapshot();
      for (const id of installed) results[id].undone = "yes";
      for (const name of changed(before, adopted)) {
        const problem = undoProblem(name, before, adopted, used, after);
        if (problem === null) continue;
        const id = clientOf(name);
        if (id !== null && results[id] !== undefined) results[id].undone = problem;
        machine.fail(`${name}: ${problem}`);
      }
    });
    machine.checkOutput();
  } catch (error) {
    machine.fail(String(error.stack ?? error));
  } finally {
    await machine.stop();
  }
  mkdirSync(join(clientFolder, "results"), { recursive: true });
  const file = join(clientFolder, "results/adopt.json");
  const date = new Date().toISOString().slice(0, 10);
  const { faults } = machine;
  writeFileSync(file, `${JSON.stringify({ date, results, traces, faults }, null, 2)}\n`);
  printTable(clients, versions, results);
  process.stdout.write(`${faults.map((fault) => `- ${fault.split("\n")[0]}\n`).join("")}`);
  process.stdout.write(`${faults.length === 0 ? "all is well" : `${faults.length} faults`}\n`);
  return faults.length === 0 ? 0 : 1;
}

/** Names of files that differ, that are new, or that are gone; without keybearer's own. */
function changed(before, after) {
  return [...new Set([...before.keys(), ...after.keys()])].filter((name) => {
    if (/^\.(?:config|local\/state)\/keybearer\//.test(name)) return false;
    const [old, now] = [before.get(name), after.get(name)];
    return old === undefined || now === undefined || old.mode !== now.mode || !old.bytes.equals(now.bytes);
  });
}

function reportKeys(machine, traces, files, when) {
  for (const name of machine.filesWithKeys(files))
    if (!traces.includes(name)) machine.fail(`${when}, ${name} has a key`);
}

/** null: the file is as it was before adopt, or as far as its client did not change it in between. */
function undoProblem(name, before, adopted, used, after) {
  const [old, now] = [before.get(name), after.get(name)];
  if (old === undefined) return now === undefined ? null : "still there";
  if (now === undefined) return "gone";
  if (old.bytes.equals(now.bytes)) return old.mode === now.mode ? null : `mode ${now.mode.toString(8)}`;
  const wasChanged = !(adopted.get(name)?.bytes ?? old.bytes).equals(
    used.get(name)?.bytes ?? Buffer.alloc(0),
  );
  return wasChanged ? "not the same; its client changed it in between" : "not the same";
}

function clientOf(name) {
  const found = Object.entries(SETUPS).find(([, { files }]) =>
    Object.keys(files({ root: "", v1: "", key: "" })).includes(relative(".", name)),
  );
  if (found !== undefined) return found[0];
  return name.startsWith(".cline/") ? "cline-cli" : null;
}

function printTable(clients, versions, results) {
  const lines = ["| client | bare key | adopted | undone |", "|---|---|---|---|"];
  for (const id of clients) {
    const cell = (text) => (text ?? "not run").split("\n")[0].replaceAll("|", "/").slice(0, 80);
    const { bare, adopted, undone } = results[id] ?? {};
    lines.push(
      `| ${id} ${versions.get(id) ?? "(not installed)"} | ${cell(bare)} | ${cell(adopted)} | ${cell(undone)} |`,
    );
  }
  process.stdout.write(`${lines.join("\n")}\n`);
}

const [, , folder, ...clients] = process.argv;
if (folder === undefined || clients.length === 0) throw new Error("real-adopt.mjs <folder> <client>…");
// A client that was cut off may still wait for something.
process.exit(await run(folder, clients));
