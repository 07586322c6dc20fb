import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { Status } from "../src/control/status.ts";
import { advice } from "../src/core/advice.ts";
import type { UsageRecord } from "../src/usage/record.ts";
import {
  advised,
  bareEnv,
  builtProgram,
  command,
  flat,
  newHome,
  runProgram,
  saveConfig,
  start,
  startProgram,
} from "./doubles/command.ts";
import { freshToken, serveIn } from "./doubles/daemon-under-test.ts";
import { writeJournal } from "./doubles/journal.ts";
import { ROOT } from "./doubles/paths.ts";
import { record } from "./doubles/records.ts";
import {
  type Answer,
  get,
  hello,
  type KeyText,
  newKey,
  post,
  startSandbox,
  type TestGateway,
} from "./doubles/sandbox.ts";
import { atScreen } from "./doubles/screen.ts";
import { until } from "./doubles/until.ts";

/*
 * Every command that a message advises, typed in the situation that prints it. One daemon serves the cases, each with tools
 * of its own.
 */

interface Tool {
  readonly token: string;
  readonly hash: string;
  readonly key: KeyText;
}

interface World {
  readonly t: Test;
  readonly home: string;
  readonly url: string;
  /** With a console, and without one. */
  readonly gateway: TestGateway;
  readonly bare: TestGateway;
  tool(name: string): Tool;
  /** A chat request with the tool's token. */
  chat(tool: string, body?: unknown): Promise<Answer>;
  /** Everything that a command prints, on one line. */
  said(...args: string[]): Promise<string>;
  status(): Promise<Status>;
}

interface Typed {
  readonly code: number | null;
  readonly text: string;
  readonly stdout: string;
}

interface Case {
  /** Settings of the tools that it needs, in YAML's flow style. */
  readonly tools?: Readonly<Record<string, string>>;
  /** The command as it is printed. */
  readonly printed: string;
  /** The same with its placeholders filled in. */
  readonly typed?: (world: World) => string;
  /** Brings the situation about. Returns what is printed in it. */
  readonly situation: (world: World) => Promise<string>;
  /** It has a folder of its own, at first empty and without a daemon. */
  readonly own?: true;
  readonly env?: (world: World) => NodeJS.ProcessEnv;
  /** At a terminal: what is typed after which question. */
  readonly answers?: readonly (readonly [question: RegExp, answer: string | ((world: World) => string)])[];
  /** Not at a terminal: what is piped in. */
  readonly input?: (world: World) => string;
  /** What is different now, or for a command that only shows something: what it says about the situation. */
  readonly after: (world: World, typed: Typed) => Promise<unknown>;
}

/** A case that needs another set-up. The test with this title types the command with `advised`, from the message that has it. */
interface ElsewhereCase {
  readonly file: string;
  readonly title: string;
}

const YES = [[/\[(?:y\/N|Y\/n)\]/, "y\r"]] as const;
const ok = ({ t }: World, { code, text }: Typed) => t.equal(code, 0, text);

/** So that no client and no service manager of this machine is found. */
const BARE_PATH = { PATH: "/usr/bin:/bin" };

const PROGRAM_START: ElsewhereCase = {
  file: "advice.long.test.ts",
  title: "a start that is refused names a command that starts it, and the sandbox names what to try",
};
const BACKGROUND: ElsewhereCase = {
  file: "cli/start.test.ts",
  title: "start runs it in the background; status, logs and stop work for it",
};
const ALARM: ElsewhereCase = {
  file: "journeys/mirror-program.long.test.ts",
  title: "mirror shows matched rows, and exits 1 in words and JSON until an alarm is acknowledged",
};
const SESSIONS: ElsewhereCase = {
  file: "cli/sessions-change.test.ts",
  title: "each command that a session's refusal and its answer advise works where it is printed",
};
const CONFIRM: ElsewhereCase = {
  file: "dashboard/actions.test.ts",
  title: "keybearer confirm is for a person, and says when nothing waits",
};
const BROWSERS: ElsewhereCase = {
  file: "dashboard/bookmarks.test.ts",
  title: "each command about remembered browsers works where it is printed",
};
const UNDONE: ElsewhereCase = {
  file: "dashboard/actions.test.ts",
  title: "the command that undoes a change does so",
};
const CAPTCHA: ElsewhereCase = {
  file: "journeys/mirror-login.long.test.ts",
  title: "a login that needs a captcha says so, and a refresh token works instead",
};
const SERVICE: ElsewhereCase = {
  file: "cli/service.test.ts",
  title: "each command that the service commands advise works where it is printed",
};
const PURGE: ElsewhereCase = {
  file: "cli/service-removal.test.ts",
  title: "a purge removes the service's files, and nothing if this shell has others",
};

const SYSTEM: ElsewhereCase = {
  file: "service/system.long.test.ts",
  title: "an owner calls and steers the system service, and what widens needs root",
};

const MAC: ElsewhereCase = {
  file: "service/launch-daemon.test.ts",
  title: "on a Mac, a system service is shown and never installed",
};

const CASES: Readonly<Record<keyof typeof advice, Case | ElsewhereCase>> = {
  run: PROGRAM_START,
  runWithout: PROGRAM_START,
  start: BACKGROUND,
  stop: BACKGROUND,
  logs: BACKGROUND,
  confirm: CONFIRM,
  browsers: BROWSERS,
  revokeBrowser: BROWSERS,
  init: {
    own: true,
    printed: advice.init(),
    situation: ({ said }) => said("tools", "add", "codex"),
    answers: [
      [/ends in \/v1\): /, ({ gateway }) => `${gateway.baseUrl}\r`],
      [/name of the first tool.*: /, "codex\r"],
      [/\(not shown\): /, ({ gateway }) => `${newKey(gateway).text}\r`],
      [/daily budget.*: /, "none\r"],
      [/start keybearer now.*\[Y\/n\]/, "n\r"],
    ],
    env: () => BARE_PATH,
    after: async (world, typed) => {
      ok(world, typed);
      world.t.match(await world.said("tools"), /\bcodex\b/);
    },
  },
  initWithKey: {
    own: true,
    printed: advice.initWithKey(),
    typed: ({ gateway }) => advice.initWithKey().replace("https://gateway.example.com/v1", gateway.baseUrl),
    situation: ({ said }) => said("init"),
    input: ({ gateway }) => newKey(gateway).text,
    after: async (world, typed) => {
      ok(world, typed);
      world.t.match(await world.said("tools"), /\bcodex\b/);
    },
  },
  editConfig: {
    own: true,
    printed: advice.editConfig(),
    async situation({ t, home, gateway }) {
      const args = [...advice.initWithKey().split(" ").slice(1), "--budget", "2.50"];
      const typed = args.map((one) => (one.startsWith("https:") ? gateway.baseUrl : one));
      return flat((await command(t, home, typed, { input: newKey(gateway).text })).stderr);
    },
    env({ home }) {
      const editor = join(home, "editor.sh");
      const line = "prices: { sandbox-small: { input: 1, output: 1 } }";
      writeFileSync(editor, `#!/bin/sh\necho '${line}' >> "$1"\n`, { mode: 0o700 });
      return { EDITOR: editor };
    },
    answers: [],
    after: async ({ t, home }) =>
      t.match(readFileSync(join(home, "config.yaml"), "utf8"), "prices: { sandbox-small:"),
  },
  addGateway: {
    own: true,
    printed: advice.addGateway(),
    typed: ({ bare }) => advice.addGateway().replace("<name>", "second").replace("<url>", bare.baseUrl),
    async situation({ home, said, gateway, bare }) {
      await saveConfig(home, `gateway: ${gateway.baseUrl}\ntools: { codex: {} }\n`);
      return said("init", "--gateway", bare.baseUrl);
    },
    after: async (world, typed) => {
      ok(world, typed);
      world.t.match(await world.said("gateways"), `second ${world.bare.baseUrl}`);
    },
  },
  check: {
    printed: advice.check(),
    async situation({ home, said }) {
      const file = join(home, "config.yaml");
      const text = readFileSync(file, "utf8");
      writeFileSync(file, `${text}wrong: 1\n`);
      return said("tools", "set", "codex", "quota=5");
    },
    async after({ t, home }, { code, text }) {
      t.equal(code, 78);
      t.match(text, /wrong/);
      const file = join(home, "config.yaml");
      writeFileSync(file, readFileSync(file, "utf8").replace("wrong: 1\n", ""));
    },
  },
  checkHelp: {
    printed: advice.checkHelp(),
    async situation({ t }) {
      const home = await newHome(t);
      await saveConfig(home, 'gateway: "a\\q"\n');
      return flat((await command(t, home, ["check"])).stderr);
    },
    after: async (world, typed) => {
      ok(world, typed);
      world.t.match(typed.text, /check a config\.yaml/);
    },
  },
  status: {
    printed: advice.status(),
    situation: ({ said }) => said("use", "codex"),
    after: async ({ t }, { text }) => t.match(text, /\bcodex\b/),
  },
  doctor: {
    tools: { lost: "gateway: nowhere" },
    printed: advice.doctor(),
    async situation({ chat, said }) {
      for (let tries = 0; tries < 3; tries += 1) await chat("lost");
      return said("status");
    },
    after: async ({ t }, { text }) => t.match(text, /gateway nowhere/),
  },
  open: {
    printed: advice.open(),
    situation: async ({ url }) => (await fetch(url, { headers: { accept: "text/html" } })).text(),
    async after(world, typed) {
      ok(world, typed);
      world.t.ok((await world.status()).dashboard.address, "the dashboard is open");
    },
  },
  tools: {
    printed: advice.tools(),
    async situation({ t }) {
      const home = await newHome(t);
      await saveConfig(
        home,
        "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { a: { enabled: false } }\n",
      );
      await serveIn(t, home);
      return flat((await command(t, home, ["models"])).stdout);
    },
    after: async ({ t }, { text }) => t.match(text, /\bcodex\b/),
  },
  addTool: {
    printed: advice.addTool("fresh", "<gateway>"),
    typed: () => advice.addTool("fresh", "main"),
    situation: ({ said }) => said("use", "fresh"),
    answers: [[/key/, ({ gateway }) => `${newKey(gateway).text}\r`]],
    after: async (world, typed) => {
      ok(world, typed);
      world.t.equal((await toolStatus(world, "fresh")).state, "active");
    },
  },
  addToolWithKey: {
    printed: advice.addToolWithKey("piped", "main"),
    situation: ({ said }) => said("tools", "add", "piped", "--gateway", "main"),
    input: ({ gateway }) => newKey(gateway).text,
    after: async (world, typed) => {
      ok(world, typed);
      // On a machine that stalls, the daemon is still reading the key's file.
      await until("it is active", async () => (await toolStatus(world, "piped")).state === "active");
    },
  },
  createKey: {
    printed: advice.createKey("<tool>", "main", "<group>"),
    typed: () => advice.createKey("made", "main", "default"),
    situation: ({ said }) => said("keys"),
    async after(world, typed) {
      ok(world, typed);
      world.t.ok(world.gateway.account.keys.some(({ name }) => name.startsWith("made-")));
    },
  },
  enable: {
    tools: { asleep: "enabled: false" },
    printed: advice.enable("asleep"),
    situation: async ({ chat }) => (await chat("asleep")).text,
    after: async ({ t, chat }) => t.equal((await chat("asleep")).status, 200),
  },
  disable: {
    tools: { consoleless: "gateway: bare" },
    printed: advice.disable("consoleless"),
    situation: ({ said }) => said("tools", "disable", "consoleless", "--at-gateway", "--yes"),
    after: async ({ t, chat }) => t.match((await chat("consoleless")).text, /is disabled/),
  },
  disableNow: {
    tools: { busy: "" },
    printed: advice.disableNow("busy"),
    async situation(world) {
      const { gateway, tool, chat, said, t } = world;
      gateway.order(tool("busy").key.id, { kind: "silence" }, 1);
      const hanging = chat("busy");
      t.teardown(() => hanging.catch(() => {}));
      hanging.catch(() => {});
      await until("it is in flight", async () => (await toolStatus(world, "busy")).running === 1);
      return said("tools", "disable", "busy");
    },
    after: (world) => until("it was cut", async () => (await toolStatus(world, "busy")).running === 0),
  },
  remove: {
    tools: { plain: "gateway: bare" },
    printed: advice.remove("plain"),
    situation: ({ said }) => said("tools", "remove", "plain", "--at-gateway", "--yes"),
    answers: YES,
    after: async ({ t, status }) =>
      t.notOk(
        (await status()).tools.some(({ name }) => name === "plain"),
        "it is removed",
      ),
  },
  changeAtGateway: {
    tools: { held: "" },
    printed: advice.changeAtGateway("disable", "held"),
    situation: ({ said, tool }) => said("keys", "disable", `id:${tool("held").key.id}`),
    answers: YES,
    after: async ({ t, gateway, tool }) => t.equal(gateway.keyStatus(tool("held").key.id), "disabled"),
  },
  newToken: {
    tools: { tokenless: "token: []" },
    printed: advice.newToken("tokenless"),
    async situation({ t, url, said }) {
      const { text } = await post(`${url}/v1/chat/completions`, "", hello());
      t.match(text, advice.newToken("<tool>"), "a refusal does not know the tool");
      return said("status");
    },
    after: async ({ t, url }, { stdout }) =>
      t.equal((await get(`${url}/v1/models`, stdout.trim())).status, 200),
  },
  tokens: {
    printed: advice.tokens("claude-code"),
    tools: { "claude-code": "" },
    async situation({ t, home, tool, said }) {
      const env = { ANTHROPIC_AUTH_TOKEN: tool("claude-code").token };
      await command(t, home, ["use", "claude-code", "--write", "--yes"], { env });
      return said("use", "claude-code", "--undo", "--yes");
    },
    after: async ({ t, tool }, { text }) =>
      t.match(text, tool("claude-code").hash.slice("sha256:".length).slice(0, 8)),
  },
  revoke: {
    tools: { twice: "" },
    printed: advice.revoke("twice", "laptop"),
    async situation({ said }) {
      await said("tools", "token", "twice", "--name", "laptop");
      return said("tools", "token", "twice", "--name", "laptop");
    },
    answers: YES,
    after: async ({ t, said }) =>
      t.match(await said("tools", "token", "twice", "--name", "laptop"), /token laptop of twice/),
  },
  rotate: {
    tools: { old: "" },
    printed: advice.rotate("old"),
    async situation({ gateway, tool, chat, said }) {
      gateway.disableKey(tool("old").key.id);
      await chat("old");
      return said("status");
    },
    answers: YES,
    after: async ({ t, chat }) => t.equal((await chat("old")).status, 200),
  },
  rotateInto: {
    tools: { absent: "key: file:/nowhere/key" },
    printed: advice.rotateInto("absent", "file"),
    situation: ({ said }) => said("check"),
    answers: [[/key/, ({ gateway }) => `${newKey(gateway).text}\r`]],
    after: async ({ t, chat }) => t.equal((await chat("absent")).status, 200),
  },
  rotateByHand: {
    tools: { gone: "gateway: bare" },
    printed: advice.rotateByHand("gone"),
    async situation({ bare, tool, chat, said }) {
      bare.deleteKey(tool("gone").key.id);
      await chat("gone");
      return said("status");
    },
    answers: [[/\(not shown\): /, ({ bare }) => `${newKey(bare).text}\r`]],
    after: async ({ t, chat }) => t.equal((await chat("gone")).status, 200),
  },
  rotateAnyway: {
    tools: { shared: "keys_elsewhere: true" },
    printed: advice.rotateAnyway("shared"),
    situation: ({ said }) => said("tools", "rotate", "shared", "--yes"),
    answers: YES,
    after: async ({ t, gateway, tool }) =>
      t.equal(gateway.account.keyWithId(tool("shared").key.id)?.deletedAt === null, false),
  },
  rotateWithKey: {
    tools: { byhand: "gateway: bare" },
    printed: advice.rotateWithKey("byhand"),
    situation: ({ said }) => said("tools", "rotate", "byhand"),
    input: ({ bare }) => newKey(bare).text,
    after: async ({ t, chat, bare }) => {
      t.equal((await chat("byhand")).status, 200);
      t.equal(bare.requests().at(-1)?.keyId, bare.account.keys.at(-1)?.id, "with the new key");
    },
  },
  sessions: SESSIONS,
  liftSession: SESSIONS,
  takeBackSessionLift: SESSIONS,
  allowSession: SESSIONS,
  lift: {
    tools: { poor: "limits: { spend: $0.000001/day }" },
    printed: advice.lift("poor", "spend", "0.01"),
    async situation({ chat }) {
      await chat("poor");
      return (await chat("poor")).text;
    },
    answers: YES,
    after: async ({ t, chat }) => t.equal((await chat("poor")).status, 200),
  },
  setTool: UNDONE,
  limitSpend: {
    printed: advice.limitSpend("codex"),
    situation: ({ said }) => said("check"),
    async after({ t, said, chat }) {
      t.notMatch(await said("check"), /no limit for codex\b/);
      t.equal((await chat("codex")).status, 200, "and its requests pass");
    },
  },
  takeBackLift: {
    tools: { given: "limits: { requests: 1/day }" },
    printed: advice.takeBackLift("given"),
    async situation(world) {
      const { chat, t, said } = world;
      await chat("given");
      await chat("given");
      t.match(await said("tools"), advice.lift("given", "requests"), "without an amount it works, too");
      return (await person(world, advice.lift("given", "requests"), YES)).text;
    },
    answers: YES,
    after: async (world) => world.t.match((await toolStatus(world, "given")).limits, [{ extra: 0 }]),
  },
  releaseMachine: {
    file: "shared/limits.test.ts",
    title: "the owner of a refused tool can type the command that releases a lost machine",
  },
  trust: {
    tools: { moved: "" },
    printed: advice.trust("moved"),
    async situation(world) {
      await world.said("tools", "set", "moved", "gateway=bare");
      return (await world.chat("moved")).text;
    },
    answers: YES,
    after: async (world) =>
      world.t.not((await toolStatus(world, "moved")).state, "needs-trust", "it may go there now"),
  },
  trustAll: {
    file: "journeys/config-trust.test.ts",
    title: "without trust.json beside other state every key is held until trust --all, over restarts",
  },
  models: {
    tools: { picky: "group: default, model: sandbox-large" },
    printed: advice.models("picky"),
    situation: ({ said }) => said("doctor"),
    after: async ({ t }, { text }) => t.match(text, /sandbox-small/),
  },
  clients: {
    printed: advice.clients(),
    situation: ({ said }) => said("use"),
    after: async ({ t }, { text }) => t.match(text, /claude-code .*Claude Code/),
  },
  use: {
    printed: advice.use("scripts", "<client>"),
    typed: () => advice.use("scripts", "openai-python"),
    tools: { scripts: "" },
    situation: ({ said }) => said("use", "scripts"),
    after: async ({ t }, { text }) => t.match(text, /http:\/\/localhost:\d+\/v1/),
  },
  useNewToken: {
    printed: advice.useNewToken("codex", null),
    situation: ({ said }) => said("use", "codex"),
    async after({ t, url }, { text }) {
      const [token = ""] = /kb_[\w-]+/.exec(text) ?? [];
      t.equal((await get(`${url}/v1/models`, token)).status, 200);
    },
  },
  useWrite: {
    printed: advice.useWrite("codex", null),
    async situation({ home, said }) {
      mkdirSync(join(home, ".codex"));
      writeFileSync(join(home, ".codex/config.toml"), 'openai_base_url = "https://api.example.com/v1"\n');
      return said("doctor");
    },
    answers: YES,
    after: async ({ t, said }) => t.notMatch(await said("doctor"), advice.useWrite("codex", null)),
  },
  useUndo: {
    tools: { opencode: "model: sandbox-small" },
    printed: advice.useUndo("opencode", "opencode"),
    situation: ({ said }) => said("use", "opencode", "--write", "--yes"),
    answers: YES,
    after: async ({ t }, { text }) => t.match(text, /is removed, as it was not there before/),
  },
  adopt: {
    printed: advice.adopt(),
    async situation({ home, bare, said }) {
      writeFileSync(join(home, ".xprofile"), `export OPENAI_API_KEY=${newKey(bare).text}\n`, { mode: 0o600 });
      return said("doctor");
    },
    async after({ t, home }, { code, text }) {
      t.equal(code, 1, text);
      t.match(text, /~\/\.xprofile.*delete the line, then log in again/);
      rmSync(join(home, ".xprofile"));
    },
  },
  adoptWrite: {
    printed: advice.adoptWrite(),
    async situation({ home, bare, said }) {
      writeFileSync(join(home, ".zshrc"), exportedKey(bare), { mode: 0o600 });
      return said("doctor");
    },
    answers: [[/move it into keybearer\? \[Y\/n\]/, "y\r"]],
    async after({ t, home, said }, { text }) {
      t.match(text, /a request went through keybearer/);
      t.match(readFileSync(join(home, ".zshrc"), "utf8"), /^export ANTHROPIC_AUTH_TOKEN=kb_/m);
      await said("adopt", "--undo", "--yes");
      rmSync(join(home, ".zshrc"));
    },
  },
  adoptUndo: {
    printed: advice.adoptUndo(),
    situation({ home, bare, said }) {
      writeFileSync(join(home, ".bashrc"), exportedKey(bare), { mode: 0o600 });
      return said("adopt", "--write", "--yes");
    },
    answers: YES,
    async after({ t, home }) {
      t.notMatch(readFileSync(join(home, ".bashrc"), "utf8"), /kb_|localhost/);
      rmSync(join(home, ".bashrc"));
    },
  },
  notifyTest: {
    file: "journeys/alerts.test.ts",
    title: "status says how to try a receiver that fails again",
  },
  usage: PROGRAM_START,
  usageByModel: {
    own: true,
    printed: advice.usageByModel(),
    async situation({ home, said }) {
      const models = Array.from({ length: 12 }, (_, number) => record(number, unpriced(`house-${number}`)));
      writeJournal(join(home, "state", "usage"), models);
      return said("usage");
    },
    async after({ t }, { text }) {
      for (let number = 0; number < 12; number += 1) t.match(text, `house-${number} `);
    },
  },
  usageTail: {
    file: "cli/usage-tail.test.ts",
    title: "tail begins with the last records, then follows live, and Ctrl-C ends it with code 0",
  },
  usageExport: {
    file: "cli/usage-tail.test.ts",
    title:
      "if tail missed more records than it prints later, it shows the newest and says how to get the rest",
  },
  acknowledgeModel: {
    file: "cli/usage-models.test.ts",
    title: "usage names the models that answered instead of others, until they are acknowledged",
  },
  metricsToken: {
    file: "metrics/token.test.ts",
    title: "the token that metrics token makes is printed once, and reads the metrics",
  },
  usageRebuild: {
    file: "cli/usage-index.test.ts",
    title: "damage that a running daemon does not notice is reported, and usage rebuild repairs it",
  },
  events: {
    printed: advice.events(),
    situation: ({ said }) => said("events", "mute", "tool", "codex", "--for", "8h"),
    after: async (world, typed) => {
      ok(world, typed);
      world.t.match(typed.text, /muted until .*: tool codex/);
    },
  },
  unmute: {
    printed: advice.unmute("tool codex"),
    situation: ({ said }) => said("events"),
    after: async (world, typed) => {
      ok(world, typed);
      world.t.notMatch(await world.said("events"), "muted until");
    },
  },

  keys: {
    printed: advice.keys(),
    situation: ({ said }) => said("keys", "delete", "nothing", "--yes"),
    after: async ({ t, tool }, { text }) => t.match(text, tool("codex").key.fingerprint),
  },
  deleteKey: {
    tools: { left: "" },
    printed: advice.deleteKey("<key>"),
    typed: ({ tool }) => advice.deleteKey(`id:${tool("left").key.id}`),
    situation: ({ said }) => said("tools", "remove", "left", "--yes"),
    answers: YES,
    after: async ({ t, gateway, tool }) =>
      t.notOk(gateway.account.keyWithId(tool("left").key.id)?.deletedAt === null, "it is deleted"),
  },
  mirror: PROGRAM_START,
  mirrorDiff: ALARM,
  mirrorShow: ALARM,
  mirrorAck: ALARM,
  mirrorLogin: {
    file: "journeys/mirror-login.long.test.ts",
    title: "a login with a second factor lasts over a restart, for the same address only",
  },
  mirrorRefreshToken: CAPTCHA,
  mirrorSync: CAPTCHA,
  serviceInstall: SERVICE,
  serviceRestart: SERVICE,
  serviceStatus: SERVICE,
  serviceLogs: SERVICE,
  serviceInstallAnyway: {
    file: "cli/service.test.ts",
    title: "keys that a service cannot read are reported; without any key, install asks first",
  },
  serviceUninstall: PURGE,
  servicePurge: PURGE,
  systemService: SYSTEM,
  showLaunchDaemon: MAC,
  asRoot: SYSTEM,
  servicePurgeAnyway: PURGE,
};

/** A key as a person exports it for Claude Code. */
function exportedKey(gateway: TestGateway): string {
  return `export ANTHROPIC_AUTH_TOKEN=${newKey(gateway).text}\nexport ANTHROPIC_BASE_URL=${gateway.origin}\n`;
}

async function toolStatus({ status }: World, name: string): Promise<Status["tools"][number]> {
  const found = (await status()).tools.find((tool) => tool.name === name);
  if (found === undefined) throw new Error(`there is no tool ${name}`);
  return found;
}

/** Of a record whose model has no price. */
function unpriced(model: string): Partial<UsageRecord> {
  return {
    model,
    model_answered: model,
    cost_microdollars: null,
    list_microdollars: null,
    started_at: Date.now(),
  };
}

async function person(
  world: World,
  typed: string,
  answers: NonNullable<Case["answers"]>,
  env: NodeJS.ProcessEnv = {},
): Promise<Typed> {
  const { t, home } = world;
  const at = atScreen(t, home, typed.split(" ").slice(1), { columns: 200, env });
  for (const [question, answer] of answers) {
    await at.says(question);
    at.type(typeof answer === "string" ? answer : answer(world));
  }
  const { code, stdout } = await at.ended;
  return { code, stdout, text: flat(stdout) };
}

async function startWorld(t: Test): Promise<World> {
  const gateway = await startSandbox(t);
  const bare = await startSandbox(t);
  const { email, password } = gateway.account;
  const tools = new Map<string, Tool>();
  const lines: string[] = [];
  const add = (name: string, settings: string) => {
    const at = settings.includes("gateway: bare") ? bare : gateway;
    const tool = { ...freshToken(), key: newKey(at) };
    tools.set(name, tool);
    const all = [
      ...(settings.includes("gateway:") ? [] : ["gateway: main"]),
      ...(settings.includes("key:") ? [] : [`key: ${tool.key.text}`]),
      ...(settings.includes("token:") ? [] : [`token: "${tool.hash}"`]),
      ...(settings === "" ? [] : [settings]),
    ];
    lines.push(`  ${name}: { ${all.join(", ")} }`);
  };
  add("codex", "");
  for (const one of Object.values(CASES))
    if ("printed" in one) for (const [name, settings] of Object.entries(one.tools ?? {})) add(name, settings);
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0
dashboard: { listen: localhost:0 }
gateways:
  main:
    base_url: ${gateway.baseUrl}
    groups: { default: { models: [sandbox-small] } }
    console: { kind: sub2api, url: ${gateway.origin}, login: { email: ${email}, password: ${password.reveal()} } }
  bare: { base_url: ${bare.baseUrl} }
  nowhere: { base_url: http://127.0.0.1:9/v1 }
prices: { sandbox-small: { input: 1, output: 1 } }
tools:
${lines.join("\n")}
`,
  );
  const { url, daemon } = await serveIn(t, home);
  const tool = (name: string) => {
    const found = tools.get(name);
    if (found === undefined) throw new Error(`there is no tool ${name}`);
    return found;
  };
  return {
    t,
    home,
    url,
    gateway,
    bare,
    tool,
    chat: (name, body = hello()) => post(`${url}/v1/chat/completions`, tool(name).token, body),
    said: sayer(t, home),
    status: () => daemon.status(),
  };
}

function sayer(t: Test, home: string): World["said"] {
  return async (...args) => {
    const { stdout, stderr } = await command(t, home, args, { env: { COLUMNS: "1000" } });
    return flat(`${stdout} ${stderr}`);
  };
}

/** Whether the test with this title types the command, from the message that has it. */
function isTypedIn({ file, title }: ElsewhereCase, name: string): boolean {
  const tests = readFileSync(join(ROOT, "test", file), "utf8").split(/^(?:t\.test\(|longTest\(\s*t,)/m);
  const body = tests.find((one) => one.trimStart().startsWith(JSON.stringify(title))) ?? "";
  return new RegExp(`advised\\([^;]*advice\\.${name}\\(`).test(body);
}

t.test("every command that a message advises works in the situation that prints it", async (t) => {
  t.same(new Set(Object.keys(CASES)), new Set(Object.keys(advice)), "each has a case");
  const world = await startWorld(t);
  for (const [name, one] of Object.entries(CASES)) {
    await t.test(name, async (t) => {
      if (!("printed" in one)) return void t.ok(isTypedIn(one, name), `${one.file}: ${one.title}`);
      const home = one.own ? await newHome(t) : world.home;
      const here = { ...world, t, home, said: sayer(t, home) };
      t.match(await one.situation(here), one.printed, "the message has the command");
      const typed = one.typed?.(here) ?? one.printed;
      await one.after(here, await type(here, typed, one));
    });
  }
});

async function type(world: World, typed: string, { answers, input, env: more }: Case): Promise<Typed> {
  if (answers !== undefined) return person(world, typed, answers, more?.(world));
  const { t, home } = world;
  const args = typed.split(" ").slice(1);
  const env = { COLUMNS: "1000", DISPLAY: undefined, WAYLAND_DISPLAY: undefined, ...more?.(world) };
  const { code, stdout, stderr } = await command(t, home, args, {
    env,
    ...(input && { input: input(world) }),
  });
  return { code, stdout, text: flat(`${stdout} ${stderr}`) };
}

t.test(
  "a start that is refused names a command that starts it, and the sandbox names what to try",
  async (t) => {
    const home = await newHome(t);
    const stopped = await command(t, home, ["status"]);
    const first = start(t, home, advised(t, stopped.stderr, advice.run()));
    await first.says(/Your own gateway/);
    for (const next of [
      advised(t, first.stdout(), advice.usage()),
      advised(t, first.stdout(), advice.mirror()),
    ])
      t.equal((await command(t, home, next)).code, 0, next.join(" "));
    first.child.kill("SIGTERM");
    await first.ended;

    const unsafe = { NODE_DEBUG: "http" };
    const refused = await runProgram(t, home, ["run"], { env: unsafe });
    const [unset = "", variable = ""] = advised(t, refused.stderr, advice.runWithout("NODE_DEBUG"));
    const args = [unset, variable, process.execPath, builtProgram(), "run"];
    await startProgram(t, "env", args, bareEnv(home, unsafe)).says(/Your own gateway/);
    t.equal((await command(t, home, ["status"])).code, 0, "it runs");
  },
);

/** Help texts show examples. The page's messages are compared by the test below. */
const OWN_COMMANDS =
  /^src\/(?:core\/advice|cli\/(?:program|help\/.*|tools\/command|service\/command)|dashboard\/page\/messages\/.*)\.ts$/;
const COMMAND =
  /keybearer (?:init|run|start|stop|logs|check|status|doctor|open|config|gateways|tools|trust|use|models|keys|usage|mirror|notify|service|help)\b(?! (?:answers|refused))/;

t.test("no message has a command of its own", (t) => {
  const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
    .map((file) => `src/${file}`)
    .filter((file) => /\.tsx?$/.test(file) && !OWN_COMMANDS.test(file));
  const inline = files.flatMap((file) =>
    readFileSync(join(ROOT, file), "utf8")
      .split("\n")
      .filter((line) => COMMAND.test(line) && !/^\s*(?:\/\/|\/?\*)/.test(line))
      .map((line) => `${file}: ${line.trim()}`),
  );
  t.strictSame(inline, [], "take it from core/advice.ts");
  t.end();
});

t.test("the commands on the dashboard's page are the same", (t) => {
  const any = Object.values<unknown>(advice).flatMap((value) => {
    const make = value as (...args: string[]) => string;
    const all = [[], ["_"], ["_", "_"], ["_", "_", "_"]];
    return all.filter((args) => args.length >= make.length).map((args) => make(...args));
  });
  for (const language of ["en", "zh"]) {
    const text = readFileSync(join(ROOT, `src/dashboard/page/messages/${language}.ts`), "utf8");
    for (const [, found = ""] of text.matchAll(/`(keybearer [^`]+)`/g)) {
      const named = found.replaceAll(/\{\w+\}|<\w+>/g, "_");
      const shown = named.replace(/lift _ --(?:requests|tokens|spend)$/, "lift _ --_");
      t.ok(any.includes(shown), `${language}: ${found}`);
    }
  }
  t.end();
});
