/*
 * The steps of real-clients.sh, which says what they need and how to call them.
 *
 *   node real-clients.mjs run <client> <folder>   runs the steps that have no result yet
 *   node real-clients.mjs table <folder>          prints all results
 *
 * Each step has a new home folder, a new keybearer on port 5397 and a new gateway double.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { GATEWAY_401, GatewayDouble, MODELS, TEXT } from "./real-clients-gateway.mjs";

export const PROGRAM = join(dirname(fileURLToPath(import.meta.url)), "../../dist/cli/main.js");
/** From the first request on. */
const LIMIT_MS = 90_000;
/** Some clients look for their makers' servers first, which cannot be reached here. */
const START_LIMIT_MS = 60_000;
/** A client that goes on after it showed the text is stopped after this long. */
const AFTER_TEXT_MS = 10_000;
const TOOL = "mine";
const KEY = "sk-double-first-0123456789abcdef";
const NEXT_KEY = "sk-double-second-0123456789abcdef";
/** The model of requests that only use up a limit. */
const FILLER = "filler";
export const PROMPT = "Reply with one short sentence. Use no tool.";
/** More than an argument of a program may have on Linux (128 KB), so it goes in as a file or standard input. */
const BIG_PROMPT = `${PROMPT}\n${"Ignore this line; it only makes the prompt long.\n".repeat(6200)}`;

/**
 * bin: below the client's folder. args: with a prompt; bigArgs: with the long prompt on standard input, or in the file
 * $BIG. written: the settings come from `use --write`, else from what `use` prints.
 */
export const CLIENTS = {
  "claude-code": {
    bin: "node_modules/.bin/claude",
    args: ["-p", PROMPT],
    bigArgs: ["-p"],
    written: true,
  },
  codex: {
    bin: "node_modules/.bin/codex",
    args: ["exec", "--skip-git-repo-check", PROMPT],
    bigArgs: ["exec", "--skip-git-repo-check", "-"],
    written: true,
  },
  opencode: { bin: "node_modules/.bin/opencode", args: ["run", PROMPT], bigArgs: ["run"], written: true },
  "qwen-code": { bin: "node_modules/.bin/qwen", args: ["-p", PROMPT], bigArgs: [] },
  "gemini-cli": {
    bin: "node_modules/.bin/gemini",
    args: ["--skip-trust", "-p", PROMPT],
    bigArgs: ["--skip-trust"],
  },
  "copilot-cli": { bin: "node_modules/.bin/copilot", args: ["-p", PROMPT], bigArgs: [] },
  "cline-cli": { bin: "node_modules/.bin/cline", args: [PROMPT], bigArgs: [PROMPT] },
  continue: { bin: "node_modules/.bin/cn", args: ["-p", PROMPT], bigArgs: ["-p"] },
  pi: {
    bin: "node_modules/.bin/pi",
    args: ["--provider", "keybearer", "--model", "$MODEL", "-p", PROMPT],
    bigArgs: ["--provider", "keybearer", "--model", "$MODEL", "-p"],
  },
  aider: {
    bin: "bin/aider",
    args: ["--no-git", "--yes-always", "--no-check-update", "--message", PROMPT],
    bigArgs: ["--no-git", "--yes-always", "--no-check-update", "--message-file", "$BIG"],
  },
  llm: { bin: "bin/llm", args: ["-m", "keybearer-$MODEL", PROMPT], bigArgs: ["-m", "keybearer-$MODEL"] },
  goose: {
    bin: "node_modules/.bin/goose-binary-linux-x64",
    args: ["run", "--no-session", "-t", PROMPT],
    bigArgs: ["run", "--no-session", "-i", "-"],
    written: true,
  },
  "kilo-code": { bin: "node_modules/.bin/kilo", args: ["run", PROMPT], bigArgs: ["run"] },
};

/**
 * text: what the user needs to see; null: the answer. tool: settings of the tool in config.yaml. before: runs when the
 * settings are in place, during: while the client runs. Both get the step's Surroundings.
 */
const STEPS = {
  happy: { text: null },
  "wrong token": {
    text: /keybearer: .{0,80}token/,
    before: (around) => around.writeConfig({ withToken: false }),
  },
  "gateway's 401": {
    text: new RegExp(GATEWAY_401),
    before(around) {
      around.gateway.isRefusing = true;
    },
  },
  "gateway down 10 s": {
    text: null,
    before: (around) => around.gateway.stop(),
    async during(around) {
      while (!around.journal().includes('"kind":"sent"')) await sleep(50);
      await sleep(10_000);
      await around.gateway.start();
    },
  },
  "gateway down": { text: /keybearer: .{0,120}cannot be reached/, before: (around) => around.gateway.stop() },
  "2 a minute": {
    text: null,
    tool: "limits: { requests: 2/minute }",
    // Windows begin with the minute, and a client may start slowly, so the window is used up until the client is there.
    async during(around) {
      while (around.requests().length === 0) {
        await around.call(FILLER);
        await sleep(500);
      }
    },
  },
  "spend used up": {
    text: /keybearer: .{0,80}at its limit/,
    tool: "limits: { spend: $1/month }",
    async before(around) {
      around.gateway.reportedInput = 5_000_000;
      await around.call();
    },
  },
  "300 KB prompt": { text: null, isBig: true },
  "key rotated": {
    text: null,
    async during(around) {
      await around.untilHeld();
      await around.writeConfig({ key: NEXT_KEY });
      around.gateway.release();
    },
    isHeld: true,
    // The next request has the new key.
    async after(around) {
      await around.call();
      return around.gateway.calls.at(-1).credential.includes(NEXT_KEY)
        ? null
        : "the next request had the old key";
    },
  },
  "restart, drained": {
    text: null,
    isHeld: true,
    async during(around) {
      await around.untilHeld();
      const stopped = around.stopDaemon();
      around.gateway.release();
      await stopped;
      await around.startDaemon();
    },
  },
  "restart, cut": {
    text: null,
    isHeld: true,
    drain: "1s",
    async during(around) {
      await around.untilHeld();
      await around.stopDaemon();
      around.gateway.release();
      await around.startDaemon();
    },
  },
};

/** What one step needs: folders, keybearer and a gateway. */
export class Surroundings {
  gateway = new GatewayDouble();
  folder = mkdtempSync(join(tmpdir(), "kb-client-"));
  home = join(this.folder, "home");
  work = join(this.home, "work");
  model = null;
  #step;
  #address = null;
  #daemon = null;
  #token = null;
  #tokenLine = "";

  constructor(step) {
    this.#step = step;
  }

  async start() {
    mkdirSync(this.work, { recursive: true });
    mkdirSync(join(this.folder, "kb"), { mode: 0o700 });
    this.#address = await this.gateway.start();
    this.#writeConfigFile({});
    await this.startDaemon();
  }

  async stop() {
    await this.stopDaemon();
    this.gateway.stop();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  /** Writes config.yaml, and waits until keybearer uses it. */
  async writeConfig(options) {
    const before = this.#loads();
    this.#writeConfigFile(options);
    while (this.#loads() === before) await sleep(20);
  }

  #writeConfigFile({ key = KEY, withToken = true }) {
    const { tool = "", drain = "10s" } = this.#step;
    const lines = [
      `gateway: ${this.#address}`,
      `drain: ${drain}`,
      "prices:",
      ...MODELS.map((model) => `  ${model}: { input: 1, output: 4 }`),
      "tools:",
      `  ${TOOL}:`,
      `    key: ${key}`,
      "    keys_elsewhere: true",
      ...(tool === "" ? [] : [`    ${tool}`]),
      ...(withToken && this.#tokenLine !== "" ? [this.#tokenLine] : []),
    ];
    const path = join(this.folder, "kb/config.yaml");
    writeFileSync(path, `${lines.join("\n")}\n`, { mode: 0o600 });
  }

  #loads() {
    return this.#log().filter(({ msg }) => msg === "configuration loaded").length;
  }

  #log() {
    const lines = readFileSync(join(this.folder, "kb.log"), "utf8").split("\n");
    return lines.filter((line) => line.startsWith("{") && line.endsWith("}")).map((line) => JSON.parse(line));
  }

  /** The usage log. */
  journal() {
    const folder = join(this.folder, "kb/state/usage");
    return readdirSync(folder)
      .map((name) => readFileSync(join(folder, name), "latin1"))
      .join("");
  }

  /** The requests that reached keybearer, without the list of models. */
  requests() {
    return this.#posts().filter(({ model }) => model !== FILLER);
  }

  #posts() {
    return this.#log().filter(({ method, endpoint }) => method === "POST" && endpoint !== undefined);
  }

  async startDaemon() {
    const log = join(this.folder, "kb.log");
    this.#daemon = spawn(
      "/bin/sh",
      ["-c", `exec "$0" "$1" run >>"$2" 2>&1`, process.execPath, PROGRAM, log],
      {
        env: this.#keybearerEnv(),
      },
    );
    const ready = () => existsSync(log) && readFileSync(log, "utf8").split(" serves http://").length;
    const before = ready() || 1;
    while ((ready() || 1) <= before) {
      if (this.#daemon.exitCode !== null) throw new Error(readFileSync(log, "utf8"));
      await sleep(20);
    }
  }

  async stopDaemon() {
    const daemon = this.#daemon;
    if (daemon === null || daemon.exitCode !== null) return;
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGTERM");
    await ended;
  }

  async keybearer(...args) {
    const { status, output } = await runProgram(process.execPath, [PROGRAM, ...args], {
      env: this.#keybearerEnv(),
    });
    if (status !== 0) throw new Error(`keybearer ${args.join(" ")}: ${output}`);
    return output;
  }

  #keybearerEnv() {
    return {
      PATH: process.env.PATH,
      HOME: this.home,
      KEYBEARER_HOME: join(this.folder, "kb"),
      SHELL: "/bin/sh",
    };
  }

  /** Puts the settings where the client reads them, exactly as keybearer writes or prints them. */
  async placeSettings(id, client, clientFolder) {
    const settings = JSON.parse(await this.keybearer("use", TOOL, "--for", id, "--new-token", "--json"));
    this.#token = settings.token;
    this.model = settings.model.replace(/^(?:keybearer|openai)\//, "");
    let variables = "";
    if (client.written) await this.keybearer("use", TOOL, "--for", id, "--write", "--yes");
    else
      for (const { way, kind, format, path, text } of settings.snippets) {
        if (way !== 0) continue;
        if (kind === "env" && format === "sh") variables = text;
        if (kind === "file") this.#placeFile(path, text);
        if (kind === "command") await this.#runCommand(text, clientFolder);
      }
    const config = readFileSync(join(this.folder, "kb/config.yaml"), "utf8");
    this.#tokenLine = config.slice(config.indexOf("    token:")).trimEnd();
    return variables;
  }

  #placeFile(path, text) {
    // llm names only the file; this is its folder on Linux.
    const full = path.startsWith("~/")
      ? join(this.home, path.slice(2))
      : join(this.home, ".config/io.datasette.llm", path);
    mkdirSync(dirname(full), { recursive: true });
    writeFileSync(full, `${text}\n`);
  }

  async #runCommand(text, clientFolder) {
    const path = `${join(clientFolder, "bin")}:${join(clientFolder, "node_modules/.bin")}:${process.env.PATH}`;
    const options = { env: { PATH: path, HOME: this.home, TERM: "dumb" }, cwd: this.work };
    // `llm keys set` asks for the token.
    const { status, output } = await runProgram("/bin/sh", ["-c", text], options, `${this.#token}\n`);
    if (status !== 0) throw new Error(`${text}: ${output}`);
  }

  /** One request with the client's token. */
  async call(model = this.model) {
    const before = this.#posts().length;
    const response = await fetch("http://127.0.0.1:5397/v1/chat/completions", {
      method: "POST",
      headers: { authorization: `Bearer ${this.#token}`, "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "hi" }] }),
    });
    await response.text();
    // Its line is in the log a moment after the response.
    while (this.#posts().length === before) await sleep(20);
    return response;
  }

  async untilHeld() {
    while (this.gateway.heldStreams === 0) await sleep(50);
  }
}

/** Not spawnSync: the gateway double runs in this process, and must be able to answer. */
export async function runProgram(program, args, options, input = "") {
  const child = spawn(program, args, { ...options, timeout: 60_000 });
  let output = "";
  let errors = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  const status = await new Promise((resolve) => child.once("close", resolve));
  return { status, output: status === 0 ? output : `${output}${errors}` };
}

async function runStep(id, stepName, folder) {
  const step = STEPS[stepName];
  const client = CLIENTS[id];
  const around = new Surroundings(step);
  try {
    await around.start();
    const clientFolder = join(folder, id);
    const variables = await around.placeSettings(id, client, clientFolder);
    await step.before?.(around);
    if (step.isHeld) around.gateway.hold();
    const before = around.requests().length;
    const callsBefore = around.gateway.calls.length;
    const running = runClient(around, client, clientFolder, variables, step);
    await Promise.race([step.during?.(around), running]);
    const run = await running;
    const made = around.requests().slice(before);
    const requests = made.length;
    const refusals = made.filter(({ refusal }) => refusal !== null).length;
    const fault = (await step.after?.(around)) ?? null;
    const calls = around.gateway.calls.slice(callsBefore);
    const largestBody = Math.max(0, ...calls.map(({ bytes }) => bytes));
    const asksUsage = calls.every(
      ({ stream, path, asksUsage }) => asksUsage || !stream || !path.endsWith("/chat/completions"),
    );
    return { ...run, requests, refusals, fault, largestBody, asksUsage };
  } finally {
    await around.stop();
  }
}

/** Runs the client, and watches what it shows. */
export async function runClient(around, client, clientFolder, variables, { text, isBig = false }) {
  const big = join(around.folder, "big.txt");
  writeFileSync(big, BIG_PROMPT);
  writeFileSync(join(around.folder, "env.sh"), `${variables}\n`);
  const args = (isBig ? client.bigArgs : client.args).map((arg) =>
    arg.replace("$MODEL", around.model).replace("$BIG", big),
  );
  const input = isBig && !client.bigArgs.includes("$BIG") ? 'cat "$1"' : ":";
  const started = Date.now();
  const child = spawn(
    "/bin/sh",
    // A real pipe: some clients read standard input only from one, and Node would give them a socket.
    [
      "-c",
      `. "$0"; ${input} | { shift; "$@"; }`,
      join(around.folder, "env.sh"),
      big,
      join(clientFolder, client.bin),
      ...args,
    ],
    {
      cwd: around.work,
      env: {
        PATH: process.env.PATH,
        HOME: around.home,
        TERM: "dumb",
        NO_COLOR: "1",
        LANG: "C.UTF-8",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    },
  );
  let output = "";
  let shownAt = null;
  const firstRequest = () =>
    Math.min(
      ...around
        .requests()
        .map(startOf)
        .filter((at) => at >= started),
    );
  const timer = setInterval(() => {
    const now = Date.now();
    const isOver =
      (shownAt !== null && now - shownAt > AFTER_TEXT_MS) ||
      now - Math.min(firstRequest(), started + START_LIMIT_MS) > LIMIT_MS;
    if (isOver) stopGroup(child);
  }, 1000);
  const read = (chunk) => {
    output += chunk;
    if (shownAt !== null || !isShown(output, text)) return;
    shownAt = Date.now();
  };
  child.stdout.on("data", read);
  child.stderr.on("data", read);
  const exitCode = await new Promise((resolve) => child.once("exit", resolve));
  clearInterval(timer);
  // Background processes of the client may keep its pipes open.
  await sleep(200);
  stopGroup(child);
  // A client may take long to start, which says nothing about keybearer.
  const begin = Math.min(firstRequest(), Date.now());
  const seconds = (at) => Math.round((at - begin) / 100) / 10;
  return {
    shownAfter: shownAt === null ? null : seconds(shownAt),
    endedAfter: seconds(Date.now()),
    exitCode,
    output: plain(output).slice(-4000),
  };
}

/** When a logged request began. */
function startOf({ time, ms }) {
  return Date.parse(time) - ms;
}

function stopGroup({ pid }) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}

function isShown(output, text) {
  const seen = plain(output);
  return text === null ? seen.includes(TEXT) : text.test(seen);
}

/** Without colors and line breaks, because a client may break a line anywhere between two words. */
function plain(output) {
  return stripVTControlCharacters(output).replace(/[\s│┃|]+/g, " ");
}

export function versionOf(id, folder) {
  const bin = join(folder, id, CLIENTS[id].bin);
  if (!existsSync(bin)) return null;
  const { stdout, stderr } = spawnSync(bin, ["--version"], {
    env: { PATH: process.env.PATH, HOME: mkdtempSync(join(tmpdir(), "kb-client-")), TERM: "dumb" },
    encoding: "utf8",
    timeout: 60_000,
  });
  return /\d+\.\d+(?:\.\d+)?/.exec(`${stdout}${stderr}`)?.[0] ?? "?";
}

async function runAll(id, folder) {
  if (CLIENTS[id] === undefined)
    throw new Error(`no client ${id}; there are ${Object.keys(CLIENTS).join(", ")}`);
  const file = join(folder, "results", `${id}.json`);
  mkdirSync(dirname(file), { recursive: true });
  const version = versionOf(id, folder);
  const old = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : null;
  const results = { client: id, version, steps: old?.version === version ? old.steps : {} };
  for (const name of Object.keys(STEPS)) {
    const isDone = results.steps[name] !== undefined && !results.steps[name].fault;
    if (version === null || isDone) continue;
    try {
      results.steps[name] = await runStep(id, name, folder);
    } catch (error) {
      results.steps[name] = { fault: String(error.message).slice(0, 2000) };
    }
    results.date = new Date().toISOString().slice(0, 10);
    process.stderr.write(`${id}: ${name}: ${cell(name, results.steps[name])}\n`);
    writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
  }
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
}

/** What one field of the table says. */
function cell(name, result) {
  if (result === undefined) return "not run";
  const { shownAfter, requests, fault, largestBody } = result;
  if (fault !== undefined && fault !== null) return `fault: ${fault.split("\n")[0].slice(0, 80)}`;
  if (name === "300 KB prompt" && largestBody < 300_000) return `no: ${largestBody} bytes`;
  // Then the figure would say nothing about the limit.
  if (name === "2 a minute" && result.refusals === 0) return "limit not reached";
  const what = STEPS[name].text === null ? "whole" : "shown";
  if (shownAfter === null) return `not ${what} (${requests})`;
  const silent = name === "2 a minute" && !/keybearer:/.test(result.output) ? ", silent" : "";
  return `${shownAfter} s (${requests})${silent}`;
}

function table(folder) {
  const names = Object.keys(STEPS);
  const lines = [`| client | ${names.join(" | ")} |`, `|---|${names.map(() => "---|").join("")}`];
  for (const id of Object.keys(CLIENTS)) {
    const file = join(folder, "results", `${id}.json`);
    if (!existsSync(file)) continue;
    const { version, steps } = JSON.parse(readFileSync(file, "utf8"));
    const cells = names.map((name) => cell(name, steps[name]));
    lines.push(`| ${id} ${version ?? "(not installed)"} | ${cells.join(" | ")} |`);
  }
  process.stdout.write(`${lines.join("\n")}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , command, ...rest] = process.argv;
  if (command === "run") await runAll(rest[0], rest[1]);
  else if (command === "table") table(rest[0]);
  else throw new Error("real-clients.mjs run <client> <folder>, or table <folder>");
  // A step that was cut off may still wait for something.
  process.exit(0);
}
