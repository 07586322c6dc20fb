import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import t, { type Test } from "tap";
import type { Status } from "../src/control/status.ts";
import { advice } from "../src/core/advice.ts";
import {
  bareEnv,
  builtProgram,
  command,
  newHome,
  runProgram,
  saveConfig,
  startProgram,
} from "./doubles/command.ts";
import { freshToken, serveIn } from "./doubles/daemon-under-test.ts";
import { ROOT } from "./doubles/paths.ts";
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
  /** At a terminal: what is typed after which question. */
  readonly answers?: readonly (readonly [question: RegExp, answer: string | ((world: World) => string)])[];
  /** Not at a terminal: what is piped in. */
  readonly input?: (world: World) => string;
  /** What is different now, or for a command that only shows something: what it says about the situation. */
  readonly after: (world: World, typed: Typed) => Promise<unknown>;
}

/** A case that needs what this daemon does not have. The test there has the command. */
interface ElsewhereCase {
  readonly test: string;
  readonly has: string;
  readonly because: string;
}

const YES = [[/\[(?:y\/N|Y\/n)\]/, "y\r"]] as const;
const ok = ({ t }: World, { code, text }: Typed) => t.equal(code, 0, text);

const CASES: Readonly<Record<keyof typeof advice, Case | ElsewhereCase>> = {
  run: {
    test: "advice.test.ts",
    has: "keybearer run",
    because: "a daemon that ends its process needs one: see the last test of this file",
  },
  start: {
    test: "cli/start.test.ts",
    has: '"start"',
    because: "it leaves a daemon in the background",
  },
  editConfig: { test: "cli/config-edit.test.ts", has: '"edit"', because: "it opens an editor" },
  stop: { test: "cli/start.test.ts", has: '"stop"', because: "the same" },
  logs: { test: "cli/start.test.ts", has: '"logs"', because: "the same" },
  runWithout: { test: "advice.test.ts", has: "env -u", because: "the same" },
  init: {
    test: "cli/init.test.ts",
    has: '"init"',
    because: "it is a dialog, and asks for a key of a real gateway",
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
      world.t.equal((await toolStatus(world, "piped")).state, "active");
    },
  },
  createKey: {
    printed: advice.createKey("<tool>"),
    typed: () => `${advice.createKey("made")} --gateway main --group default --yes`,
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
    test: "shared/limits.test.ts",
    has: "release",
    because: "it needs a second machine and their store",
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
    test: "journeys/config-trust.test.ts",
    has: "trust --all",
    because: "it needs a start without trust.json",
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
  usage: { test: "advice.test.ts", has: "keybearer usage", because: "only the sandbox's start prints it" },
  usageByModel: {
    test: "cli/usage-report.test.ts",
    has: '"--by"',
    because: "it needs requests of many models without a price",
  },
  usageTail: {
    test: "cli/usage-tail.test.ts",
    has: '"tail"',
    because: "it goes on until it is interrupted",
  },
  usageExport: {
    test: "cli/usage-tail.test.ts",
    has: "keybearer usage export --since",
    because: "it is printed when a tail missed many records",
  },
  usageRebuild: {
    test: "cli/usage-index.test.ts",
    has: '"rebuild"',
    because: "it needs a damaged index",
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
  mirror: {
    test: "advice.test.ts",
    has: "keybearer mirror",
    because: "only the sandbox's start and the log print it",
  },
  mirrorDiff: {
    test: "cli/mirror.test.ts",
    has: "keybearer mirror diff",
    because: "it needs rows that differ",
  },
  mirrorShow: { test: "cli/mirror.test.ts", has: "keybearer mirror show", because: "the same" },
  mirrorSync: {
    test: "cli/mirror.test.ts",
    has: '["mirror", "sync"',
    because: "a login prints it, and a console that was not read yet",
  },
  mirrorAck: {
    test: "cli/mirror.test.ts",
    has: '["mirror", "ack"]',
    because: "an alarm needs a row that is older than half a minute",
  },
  mirrorLogin: {
    test: "cli/mirror-login.test.ts",
    has: '"login"',
    because: "it is a dialog, and asks for a password",
  },
  mirrorRefreshToken: {
    test: "cli/mirror-login.test.ts",
    has: "--refresh-token",
    because: "the token comes from a browser that has solved the captcha",
  },
  serviceInstall: service("install"),
  serviceInstallAnyway: service("install"),
  serviceRestart: service("restart"),
  serviceStatus: service("status"),
  serviceLogs: service("logs"),
  serviceUninstall: service("uninstall"),
  servicePurge: service("purge"),
  servicePurgeAnyway: service("purge"),
};

function service(has: string): ElsewhereCase {
  const test = has === "uninstall" || has === "purge" ? "cli/service-removal.test.ts" : "cli/service.test.ts";
  return { test, has, because: "it changes the services of the person that runs the tests" };
}

async function toolStatus({ status }: World, name: string): Promise<Status["tools"][number]> {
  const found = (await status()).tools.find((tool) => tool.name === name);
  if (found === undefined) throw new Error(`there is no tool ${name}`);
  return found;
}

/** Lines are broken where the screen ends. */
function flat(text: string): string {
  return stripVTControlCharacters(text).replaceAll(/\s+/g, " ");
}

async function person(world: World, typed: string, answers: NonNullable<Case["answers"]>): Promise<Typed> {
  const { t, home } = world;
  const at = atScreen(t, home, typed.split(" ").slice(1), { columns: 200 });
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
    async said(...args) {
      const { stdout, stderr } = await command(t, home, args, { env: { COLUMNS: "1000" } });
      return flat(`${stdout} ${stderr}`);
    },
    status: () => daemon.status(),
  };
}

t.test("every command that a message advises works in the situation that prints it", async (t) => {
  const world = await startWorld(t);
  for (const [name, one] of Object.entries(CASES)) {
    await t.test(name, async (t) => {
      if (!("printed" in one)) {
        t.ok(one.because);
        return void t.match(readFileSync(join(ROOT, "test", one.test), "utf8"), one.has);
      }
      const here = { ...world, t };
      t.match(await one.situation(here), one.printed, "the message has the command");
      const typed = one.typed?.(here) ?? one.printed;
      await one.after(here, await type(here, typed, one));
    });
  }
});

async function type(world: World, typed: string, { answers, input }: Case): Promise<Typed> {
  if (answers !== undefined) return person(world, typed, answers);
  const { t, home } = world;
  const args = typed.split(" ").slice(1);
  const env = { COLUMNS: "1000", DISPLAY: undefined, WAYLAND_DISPLAY: undefined };
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
    const stopped = flat((await command(t, home, ["status"])).stderr);
    t.match(stopped, advice.run(), "keybearer run");
    const unsafe = { env: { NODE_DEBUG: "http" } };
    const refused = flat((await runProgram(t, home, ["run"], unsafe)).stderr);
    const typed = advice.runWithout("NODE_DEBUG");
    t.match(refused, typed, "env -u NODE_DEBUG keybearer run");
    const args = typed.split(" ").slice(1).with(-2, builtProgram()).toSpliced(2, 0, process.execPath);
    const running = startProgram(t, "env", args, bareEnv(home, unsafe.env));
    await running.says(/Your own gateway: keybearer init/);
    t.equal((await command(t, home, ["status"])).code, 0, "it runs");
    for (const next of [advice.usage(), advice.mirror()]) {
      t.match(running.stdout(), next, "keybearer usage, keybearer mirror");
      t.equal((await command(t, home, next.split(" ").slice(1))).code, 0, next);
    }
  },
);

/** Help texts show examples; the others' messages are their own commands' texts, or rewritten by hand. */
const OWN_COMMANDS =
  /^src\/(?:core\/advice|cli\/(?:init|program|help\/.*|tools\/(?:command|rotate))|dashboard\/page\/messages\/.*)\.ts$/;
const COMMAND =
  /keybearer (?:init|run|start|stop|logs|check|status|doctor|open|tools|trust|use|models|keys|usage|mirror|service|help)\b(?! (?:answers|refused))/;

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
    return [make(), make("_"), make("_", "_"), make("_", "_", "_")];
  });
  for (const language of ["en", "zh"]) {
    const text = readFileSync(join(ROOT, `src/dashboard/page/messages/${language}.ts`), "utf8");
    for (const [, found = ""] of text.matchAll(/`(keybearer [^`]+)`/g)) {
      const shown = found.replaceAll(/\{\w+\}|<\w+>/g, "_").replace("lift _ _", "lift _ --_");
      t.ok(any.includes(shown), `${language}: ${found}`);
    }
  }
  t.end();
});
