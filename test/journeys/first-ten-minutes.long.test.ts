import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { APIError } from "openai";
import t, { type Test } from "tap";
import { textWidth } from "../../src/cli/ui/text.ts";
import { journalFiles } from "../../src/usage/journal/files.ts";
import { newHome, PROGRAM } from "../doubles/command.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { hasShell, openShell } from "../doubles/terminal.ts";
import { until } from "../doubles/until.ts";
import { startWireTap } from "../doubles/wire-tap.ts";

const CONFIG = ".config/keybearer";
const STATE = ".local/state/keybearer";
const TOKEN = /\bkb_[A-Za-z0-9_-]{40,}/;
const HIDDEN = /\(not shown\):\s/;

/** The program's path, byte for character. */
const BYTES = Buffer.from(PROGRAM).toString("latin1");

/** A new user with a home, a shell and three keys from the console of a gateway. */
async function arrive(t: Test) {
  const sandbox = await startSandbox(t, { wordDelay: 3 });
  const gateway = await startWireTap(t, Number(new URL(sandbox.origin).port));
  const home = await newHome(t);
  const shell = await openShell(t, home);
  const [first, second, next] = [newKey(sandbox), newKey(sandbox), newKey(sandbox)];
  const parts: Record<string, string> = {};
  let seen = 0;
  return {
    sandbox,
    gateway,
    home,
    shell,
    keys: { first, second, next, mistyped: { text: first.text.slice(0, -4) } },
    parts,
    /** What the screen showed since the last part, under a name. */
    part(name: string): string {
      const text = shell.screen().slice(seen);
      seen += text.length;
      parts[name] = text;
      return text;
    },
  };
}

type Walk = Awaited<ReturnType<typeof arrive>>;

function secretsOf({ keys }: Walk): Record<string, string> {
  return Object.fromEntries(Object.entries(keys).map(([name, { text }]) => [`the ${name} key`, text]));
}

/** Arguments of every process here, and the environment of those that are ours. */
function processes(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const argv = readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ");
      found[`the arguments of ${pid}`] = argv;
      if (argv.includes(BYTES))
        found[`the environment of ${pid}`] = readFileSync(`/proc/${pid}/environ`, "latin1");
    } catch {
      // It has ended, or is another user's.
    }
  }
  return found;
}

/** By path, byte for character. */
function filesOf({ home }: Walk): Record<string, string> {
  const texts = Object.entries(textsOf(filesBelow(home)));
  return Object.fromEntries(texts.map(([path, text]) => [relative(home, path), text]));
}

/**
 * Lines of more than 80 columns, except commands, what is to be copied whole, answers, which are drawn key by key, and a
 * single word, such as a long path.
 */
function tooWide({ parts }: Walk): string[] {
  return Object.values(parts)
    .flatMap((text) => text.split("\n"))
    .filter((line) => !/^\[\d+\] \$ |^ *→ |kb_|: http:|[█▪]/.test(line))
    .filter((line) => textWidth(line) > 80 && /\S\s+\S/.test(line));
}

async function init(t: Test, walk: Walk): Promise<string> {
  const { shell, gateway, keys } = walk;
  shell.enter("keybearer init --store file");
  await shell.says(/ends in \/v1\):\s/);
  shell.enter(`${gateway.origin}/v1/chat/completions`);
  await shell.says(/endpoint path \/chat\/completions[\s\S]*\[Y\/n\]/);
  shell.enter("");
  await shell.says(/name of the first tool.*:\s/);
  shell.enter("codex");
  await shell.says(HIDDEN);
  shell.enter(keys.mistyped.text);
  await shell.says(/incomplete key: [\s\S]*→ copy the key whole[\s\S]*\[k\]:\s/);
  const running = processes();
  t.ok(
    Object.values(running).some((argv) => argv.includes(`${BYTES} init`)),
    "it waits",
  );
  t.strictSame(scan(running, secretsOf(walk)), [], "what was typed is in no process's arguments");
  shell.enter("");
  await shell.says(HIDDEN);
  shell.enter(keys.first.text);
  await shell.says(
    /accepts the key and lists \d+ models[\s\S]*daily budget of codex in dollars, or none \[10\]:\s/,
  );
  shell.enter("");
  await shell.says(/no price is known for [\s\S]*sandbox-small[\s\S]* are\s+refused\n[\s\S]*\[r\]:\s/);
  shell.enter("");
  await shell.says(/requests per day of codex \[500\]:\s/);
  shell.enter("1000");
  await shell.says(/start keybearer now, in the background\? \[Y\/n\]\s/);
  shell.enter("n");
  const { code, text } = await shell.done();
  t.equal(code, 0, text);
  t.match(text, /keybearer start\n[\s\S]*keybearer use codex\n/);
  return TOKEN.exec(walk.part("init"))?.[0] ?? "none";
}

/** In the background of the shell. On a free port, because the usual one may be taken. */
async function serve(t: Test, { home, shell }: Walk): Promise<void> {
  const file = join(home, CONFIG, "config.yaml");
  writeFileSync(file, `listen: localhost:0\n${readFileSync(file, "utf8")}`);
  const { text } = await shell.run("keybearer run > daemon.log 2>&1 &");
  const pid = Number(/\[1\] (\d+)/.exec(text)?.[1]);
  t.teardown(() => {
    // A background job outlives its shell.
    if (processes()[`the arguments of ${pid}`]?.includes(`${BYTES} run`)) process.kill(pid, "SIGKILL");
  });
  const log = join(home, "daemon.log");
  await until("it serves", () => existsSync(log) && /serves http/.test(readFileSync(log, "utf8")));
}

async function addSecond(t: Test, walk: Walk): Promise<string> {
  const { shell, keys } = walk;
  shell.enter("keybearer tools add claude-code --requests 60/minute --concurrent 2 --store file");
  await shell.says(HIDDEN);
  shell.enter(keys.second.text);
  const { code, text } = await shell.done();
  t.equal(code, 0, text);
  t.match(text, /next: keybearer use claude-code\n/);
  return TOKEN.exec(walk.part("tools add"))?.[0] ?? "none";
}

/** The settings as they are on the screen. */
async function use(t: Test, walk: Walk) {
  const { text: plain } = await walk.shell.run("keybearer use codex");
  t.match(plain, /KEYBEARER_TOKEN='<token>'[\s\S]*→ keybearer use codex --new-token\n/);
  t.notMatch(walk.part("use, plain"), TOKEN);
  const printed = async (tool: string, baseUrl: string, token: string, model: string) => {
    const { code, text } = await walk.shell.run(`keybearer use ${tool} --new-token`);
    t.equal(code, 0, text);
    walk.part(`use ${tool}`);
    const after = (start: string) =>
      new RegExp(`^${start}([^"\n]+)"?$`, "m").exec(text)?.[1] ?? `no ${start}`;
    return { baseURL: after(baseUrl), token: after(token), model: after(model) };
  };
  return {
    codex: await printed("codex", 'base_url = "', "export KEYBEARER_TOKEN=", 'model = "'),
    claude: await printed(
      "claude-code",
      "export ANTHROPIC_BASE_URL=",
      "export ANTHROPIC_AUTH_TOKEN=",
      "export ANTHROPIC_MODEL=",
    ),
  };
}

type Printed = Awaited<ReturnType<typeof use>>;

async function callBoth(t: Test, { sandbox, keys }: Walk, { codex, claude }: Printed) {
  const openai = new OpenAI({ baseURL: codex.baseURL, apiKey: codex.token });
  const say = () => openai.responses.create({ model: codex.model, input: "hello there" });
  t.match((await say()).output_text, /You wrote: hello there$/);
  const anthropic = new Anthropic({ baseURL: claude.baseURL, authToken: claude.token, apiKey: null });
  const messages = [{ role: "user" as const, content: "good morning" }];
  const { content } = await anthropic.messages.create({ model: claude.model, max_tokens: 300, messages });
  t.match(content[0]?.type === "text" ? content[0].text : "", /You wrote: good morning$/);
  t.strictSame(usedKeys(sandbox), [keys.first.id, keys.second.id], "each with its own key");
  return { openai, say };
}

/** Which keys paid for what was said, in turn. */
function usedKeys(sandbox: Walk["sandbox"]): (number | null)[] {
  return sandbox
    .requests()
    .filter(({ method }) => method === "POST")
    .map(({ keyId }) => keyId);
}

async function rotateWhileStreaming(
  t: Test,
  walk: Walk,
  { openai, say }: Awaited<ReturnType<typeof callBoth>>,
  model: string,
): Promise<void> {
  const { shell, gateway, sandbox, keys } = walk;
  gateway.hold();
  const stream = await openai.responses.create({ model, input: "good night", stream: true });
  let [words, last] = ["", ""];
  const whole = (async () => {
    for await (const event of stream) {
      last = event.type;
      if (event.type === "response.output_text.delta") words += event.delta;
    }
  })();
  await until("the stream stands still", () => gateway.held() === 1);
  shell.enter("keybearer tools rotate codex");
  await shell.says(HIDDEN);
  shell.enter(keys.next.text);
  const { code, text } = await shell.done();
  t.equal(code, 0, text);
  const [was, is] = [keys.first, keys.next].map((key) => key.text.slice(-4));
  t.match(text, new RegExp(`codex: key …${was} → …${is}, [\\s\\S]*delete the old key …${was}`));
  walk.part("tools rotate");
  t.match((await say()).output_text, /hello there$/, "the next request does not wait");
  t.not(last, "response.completed", "while the stream is in flight");
  gateway.release();
  await whole;
  t.equal(last, "response.completed");
  t.match(words, /^Hello from .*You wrote: good night$/, "the stream is complete");
  sandbox.deleteKey(keys.first.id);
  await say();
  const { first, second, next } = keys;
  t.strictSame(usedKeys(sandbox), [first.id, second.id, first.id, next.id, next.id]);
}

async function lookAround(t: Test, walk: Walk): Promise<void> {
  const { shell } = walk;
  const looks: [string, RegExp][] = [
    ["models", /codex \(key …\w{4}\) and claude-code \(key …\w{4}\)[\s\S]*\nsandbox-large /],
    ["doctor", /tool codex\n +ok [\s\S]*tool claude-code\n +ok /],
    ["usage", /\ncodex +4 [\s\S]*\nclaude-code +1 |\nclaude-code +1 [\s\S]*\ncodex +4 /],
  ];
  for (const [verb, words] of looks) {
    const { code, text } = await shell.run(`keybearer ${verb}`);
    t.equal(code, 0, text);
    t.match(text, words);
    walk.part(verb);
  }
}

async function takeAway(t: Test, walk: Walk, say: () => Promise<unknown>): Promise<void> {
  const { shell } = walk;
  const refused = async () => {
    const error = await say().then(
      () => null,
      (reason: unknown) => reason,
    );
    return error instanceof APIError ? error.message : String(error);
  };
  t.match(await shell.run("keybearer tools disable codex"), { code: 0, text: /codex is disabled\n$/ });
  t.match(await refused(), /keybearer tools enable codex/, "the tool shows what to type");
  for (const [answer, code, words] of [
    ["no", 1, /not removed; nothing changed\n$/],
    ["yes", 0, /its key stays in [\s\S]*delete it/],
  ] as const) {
    shell.enter("keybearer tools remove codex");
    await shell.says(/remove codex from .*\? \[y\/N\]/);
    shell.enter(answer);
    if (answer === "yes") {
      await shell.says(/codex is removed from [\s\S]*delete its key from [\s\S]*\[y\/N\]/);
      shell.enter("");
    }
    t.match(await shell.done(), { code, text: words });
  }
  t.match(await refused(), /token/, "its token no longer works");
  walk.part("disable and remove");
}

async function leave({ shell, home }: Walk): Promise<void> {
  await shell.run("kill %1; wait");
  shell.enter("exit");
  await shell.ended;
  await until("the history is written", () => filesBelow(home).includes(join(home, ".bash_history")));
}

function nothingSecretIsLeft(t: Test, walk: Walk, tokens: Readonly<Record<string, string>>): void {
  const { parts, shell, home } = walk;
  const screen = shell.screen();
  t.strictSame(scan({ screen, "the screen, lines joined": screen.replace(/\s/g, "") }, secretsOf(walk)), []);
  for (const [where, token] of Object.entries(tokens)) {
    t.match(token, TOKEN);
    const shows = Object.keys(parts).filter((name) => parts[name]?.includes(token));
    t.strictSame(shows, [where], "a token is on the screen only where it is created");
  }
  const files = filesOf(walk);
  t.match(files[".bash_history"], /keybearer init[\s\S]*keybearer tools rotate codex\n/);
  t.match(files["daemon.log"], /tool codex: removed/);
  const stored = Object.keys(files).filter((name) => name.startsWith(`${CONFIG}/keys/`));
  t.strictSame(
    stored.sort(),
    [`${CONFIG}/keys/claude-code`, `${CONFIG}/keys/codex-2`],
    "the old key is gone",
  );
  const rest = Object.fromEntries(Object.entries(files).filter(([name]) => !stored.includes(name)));
  const journal = journalFiles(join(home, STATE, "usage")).map(({ path }) => relative(home, path));
  t.ok(journal.length > 0);
  for (const name of [`${CONFIG}/config.yaml`, ...journal]) t.ok(rest[name], `${name} is looked at`);
  t.strictSame(scan(rest, { ...secretsOf(walk), ...tokens }), [], "nor in any other file");
  for (const folder of [CONFIG, STATE].map((name) => join(home, name)))
    for (const name of ["", ...readdirSync(folder, { recursive: true, encoding: "utf8" })]) {
      const found = statSync(join(folder, name));
      t.equal(found.mode & 0o777, found.isDirectory() ? 0o700 : 0o600, join(folder, name));
    }
}

t.test("the first ten minutes at a terminal work, and leave no secret behind", async (t) => {
  if (!hasShell(t)) return;
  const walk = await arrive(t);
  const first = await init(t, walk);
  await serve(t, walk);
  const second = await addSecond(t, walk);
  const printed = await use(t, walk);
  const called = await callBoth(t, walk, printed);
  await rotateWhileStreaming(t, walk, called, printed.codex.model);
  await lookAround(t, walk);
  t.strictSame(scan(processes(), secretsOf(walk)), [], "a list of processes shows no key");
  await takeAway(t, walk, called.say);
  await leave(walk);
  const { codex, claude } = printed;
  nothingSecretIsLeft(t, walk, {
    init: first,
    "tools add": second,
    "use codex": codex.token,
    "use claude-code": claude.token,
  });
  t.strictSame(tooWide(walk), [], "no line is longer than the terminal is wide");
});
