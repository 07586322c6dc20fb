/**
 * Creates, rotates and deletes keys at a real gateway, and kills keybearer in the middle of it. See README.md.
 *
 *   node build/test/real/lifecycle.js litellm|new-api|sub2api PROGRAM
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createRandom } from "../doubles/random.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import type { Call, Gateway, ToolKey } from "./gateway.ts";
import { Keybearer } from "./keybearer.ts";
import { startLiteLlm } from "./litellm.ts";
import { startNewApi } from "./new-api.ts";
import { type Plan, planText, startProvider } from "./provider.ts";
import { startSub2api } from "./sub2api.ts";

const STARTERS = { litellm: startLiteLlm, "new-api": startNewApi, sub2api: startSub2api } as const;
/** new-api reveals 20 keys in 20 minutes, and keybearer leaves four of them to the owner. */
const ROUNDS_BETWEEN_RESTARTS = Number(process.env.REAL_RESTART ?? 5);
const PLAN: Plan = {
  ...{ marker: "o00001", input: 80, output: 80, cacheRead: 0, status: 200 },
  ...{ headDelay: 20, chunks: 2, chunkDelay: 5, cut: false },
};
const FINISHED_WITHIN_MS = 150_000;

const { env } = process;
const [, , kind = "", program = ""] = process.argv;
const rounds = Number(env.REAL_ROUNDS ?? 100);
const rate = Number(env.REAL_RATE ?? 20);
const random = createRandom(Number(env.REAL_SEED ?? 1));
const dist = resolve(env.KEYBEARER_DIST ?? "dist");

const failures: string[] = [];
/** Every key that ever existed here, to look for. */
const seenKeys = new Map<string, string>();
const printed: string[] = [];

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function check(holds: boolean, what: string): void {
  if (holds) return;
  failures.push(what);
  say(`MISSED ${what}`);
}

async function main(): Promise<boolean> {
  const start = STARTERS[kind as keyof typeof STARTERS];
  if (start === undefined || program === "")
    throw new Error("usage: lifecycle.js litellm|new-api|sub2api PROGRAM");
  const folder = mkdtempSync(join(tmpdir(), "kbl-"));
  const gatewayFolder = join(folder, "gateway");
  mkdirSync(gatewayFolder);
  const provider = await startProvider();
  const keybearer = new Keybearer(dist, join(folder, "home"));
  const options = { program: resolve(program), folder: gatewayFolder, provider: provider.origin };
  const gateway = await start(options);
  const sampler = setInterval(sampleArguments, 50);
  try {
    await keybearer.configure(gateway);
    await keybearer.start();
    await calmDay(gateway, keybearer);
    await underLoad(gateway, keybearer);
    await killed(gateway, keybearer);
    searchKeys(keybearer);
  } finally {
    clearInterval(sampler);
    await keybearer.stop();
    await gateway.stop();
    provider.close();
    if (failures.length === 0 && env.REAL_KEEP === undefined)
      rmSync(folder, { recursive: true, force: true });
    else say(`logs and databases: ${folder}`);
  }
  say(failures.length === 0 ? "\nreached" : `\nmissed ${failures.length}`);
  return failures.length === 0;
}

/** Its body is the same as that of /v1/messages. */
function callOf({ tool, calls }: ToolKey): Call {
  const call = calls.find(({ endpoint }) => endpoint !== "/v1/responses") ?? calls[0];
  if (call === undefined) throw new Error(`${tool} can call nothing`);
  return call;
}

/** One of each. */
async function calmDay(gateway: Gateway, keybearer: Keybearer): Promise<void> {
  const [tool] = gateway.tools;
  if (tool === undefined) throw new Error("there is no tool");
  const before = await gateway.keys();
  const call = callOf(tool);
  const limits = gateway.limitsModels === true ? ["--models", call.model] : [];
  await run(
    keybearer,
    "tools",
    "add",
    "made",
    "--create",
    ...inGroup(gateway, tool),
    ...limits,
    "--quota",
    "5",
    "--store",
    "file",
    "--yes",
  );
  check((await gateway.keys()).length === before.length + 1, "create: the console has one more key");
  await checkWorks(keybearer, gateway, "made", call.endpoint, "create");
  if (limits.length > 0) await checkModels(keybearer, gateway, call);
  const old = keyOf(keybearer, tool.tool) ?? tool.key;
  await rotate(keybearer, tool.tool);
  await checkDead(gateway, old, "rotate");
  await checkWorks(keybearer, gateway, tool.tool, call.endpoint, "rotate");
  const made = keyOf(keybearer, "made");
  await run(keybearer, "tools", "remove", "made", "--at-gateway", "--yes");
  check((await gateway.keys()).length === before.length, "delete: the console has the keys of the tools");
  if (made !== null) await checkDead(gateway, made, "delete");
  say(`create, rotate and delete: ${failures.length === 0 ? "as they should" : "missed"}`);
}

/** The new key may call no model but the one that it was limited to. */
async function checkModels({ origin, tokens }: Keybearer, gateway: Gateway, own: Call): Promise<void> {
  const other = gateway.tools.flatMap(({ calls }) => calls).find(({ model }) => model !== own.model);
  if (other === undefined) throw new Error("there is no second model");
  const status = await request(origin, other.endpoint, other.model, tokens.get("made") ?? "");
  check(status === 403, `create: a model that the key may not call got ${status}`);
}

/** Three rotations while requests are sent: none of them may fail. */
async function underLoad(gateway: Gateway, keybearer: Keybearer): Promise<void> {
  const [, tool] = gateway.tools;
  const call = tool === undefined ? undefined : callOf(tool);
  if (tool === undefined || call === undefined) throw new Error("there is no second tool");
  let sent = 0;
  let failed = 0;
  const running = new Set<Promise<void>>();
  const timer = setInterval(() => {
    sent += 1;
    const one = request(keybearer.origin, call.endpoint, call.model, keybearer.tokens.get(tool.tool) ?? "")
      .then((status) => {
        if (status === 200) return;
        failed += 1;
        check(false, `under load: a request got ${status}`);
      })
      .finally(() => running.delete(one));
    running.add(one);
  }, 1000 / rate);
  const begun = Date.now();
  await sleep(2000);
  for (let turn = 0; turn < 3; turn += 1) {
    const old = keyOf(keybearer, tool.tool) ?? tool.key;
    await rotate(keybearer, tool.tool);
    await checkDead(gateway, old, "under load");
  }
  await sleep(2000);
  clearInterval(timer);
  await Promise.all(running);
  const seconds = (Date.now() - begun) / 1000;
  say(
    `under load: ${sent} requests in ${seconds.toFixed(0)} s (${(sent / seconds).toFixed(1)}/s), ${failed} failed, 3 rotations`,
  );
}

/** keybearer is killed at a random moment of a change, and started again. */
async function killed(gateway: Gateway, keybearer: Keybearer): Promise<void> {
  const expected = gateway.tools.length;
  let unfinished = 0;
  for (let round = 1; round <= rounds; round += 1) {
    if (round % ROUNDS_BETWEEN_RESTARTS === 0) {
      await keybearer.stop();
      await gateway.restart();
      rmSync(join(keybearer.home, "state", "key-calls.json"), { force: true });
      await keybearer.start();
    }
    const tool = gateway.tools[Math.floor(random() * gateway.tools.length)];
    if (tool === undefined) throw new Error("there is no tool");
    const isCreation = round % 4 === 0;
    const isDeletion = round % 4 === 2;
    if (isDeletion) await run(keybearer, ...creation(gateway, tool));
    const old = keyOf(keybearer, tool.tool) ?? tool.key;
    let args = ["tools", "rotate", tool.tool, "--store", "file", "--yes"];
    if (isCreation) args = creation(gateway, tool);
    if (isDeletion) args = ["tools", "remove", "made", "--at-gateway", "--yes"];
    const command = run(keybearer, ...args);
    await begun(keybearer, command);
    await sleep(Math.floor(random() * 1600));
    await keybearer.stop("SIGKILL");
    if (intentsIn(keybearer) > 0) unfinished += 1;
    await command;
    await keybearer.start();
    await finished(keybearer, `round ${round}`);
    if (isCreation || isDeletion) await cleanUp(keybearer, gateway, round);
    const live = await gateway.keys();
    check(live.length === expected, `round ${round}: ${live.length} keys at the console: ${live.join(", ")}`);
    const now = keyOf(keybearer, tool.tool) ?? tool.key;
    if (now !== old) await checkDead(gateway, old, `round ${round}`);
    await checkWorks(keybearer, gateway, tool.tool, callOf(tool).endpoint, `round ${round}`);
    if (round % 10 === 0) say(`${round} rounds, ${unfinished} of them killed in the middle of a change`);
  }
}

function creation(gateway: Gateway, tool: ToolKey): string[] {
  return ["tools", "add", "made", "--create", ...inGroup(gateway, tool), "--store", "file", "--yes"];
}

function inGroup({ hasGroups = true }: Gateway, { group }: ToolKey): string[] {
  return hasGroups ? ["--group", group] : [];
}

/** Waits until the change is written down, or the command has ended without one. */
async function begun(keybearer: Keybearer, command: Promise<unknown>): Promise<void> {
  let hasEnded = false;
  const ended = command.finally(() => {
    hasEnded = true;
  });
  while (!hasEnded && intentsIn(keybearer) === 0) await Promise.race([ended, sleep(10)]);
}

/** Whatever was left of the tool is removed with its key. */
async function cleanUp(keybearer: Keybearer, gateway: Gateway, round: number): Promise<void> {
  const config = readFileSync(join(keybearer.home, "config.yaml"), "utf8");
  if (!/^ {2}made:/m.test(config)) return;
  const isMade = (await gateway.keys()).some((name) => name.startsWith("made-"));
  const { stderr } = await run(
    keybearer,
    "tools",
    "remove",
    "made",
    ...(isMade ? ["--at-gateway"] : []),
    "--yes",
  );
  const after = readFileSync(join(keybearer.home, "config.yaml"), "utf8");
  check(!/^ {2}made:/m.test(after), `round ${round}: the tool could not be removed: ${stderr}`);
  await finished(keybearer, `round ${round}`);
}

async function rotate(keybearer: Keybearer, tool: string): Promise<void> {
  const { stdout, stderr } = await run(keybearer, "tools", "rotate", tool, "--store", "file", "--yes");
  check(/ → …/.test(stdout), `rotate ${tool}: ${stderr}`);
  await finished(keybearer, `rotate ${tool}`);
}

async function run(keybearer: Keybearer, ...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const result = await keybearer.run(...args);
  printed.push(result.stdout, result.stderr);
  const token = /^kb_\S+/m.exec(result.stdout)?.[0];
  if (args[1] === "add" && token !== undefined) keybearer.tokens.set(args[2] ?? "", token);
  return result;
}

function intentsIn({ home }: Keybearer): number {
  const file = join(home, "state", "key-changes.json");
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).intents.length : 0;
}

async function finished(keybearer: Keybearer, when: string): Promise<void> {
  const end = Date.now() + FINISHED_WITHIN_MS;
  while (intentsIn(keybearer) > 0 && Date.now() < end) await sleep(50);
  check(intentsIn(keybearer) === 0, `${when}: the change is not finished`);
}

/** The tool's key from its file; null: it is in config.yaml itself, or there is none. */
function keyOf({ home }: Keybearer, tool: string): string | null {
  const lines = readFileSync(join(home, "config.yaml"), "utf8").split("\n");
  const at = lines.findIndex((line) => line.startsWith(`  ${tool}:`));
  const source = lines.slice(at + 1).find((line) => line.startsWith("    key: "));
  const file = /file:(\S+)/.exec(source ?? "")?.[1]?.replace(/^~/, process.env.HOME ?? "");
  for (const name of existsSync(join(home, "keys")) ? readdirSync(join(home, "keys")) : [])
    note(join(home, "keys", name));
  return file !== undefined && existsSync(file) ? readFileSync(file, "utf8").trim() : null;
}

function note(file: string): void {
  try {
    const key = readFileSync(file, "utf8").trim();
    if (key !== "") seenKeys.set(key, file);
  } catch {
    // It was deleted meanwhile.
  }
}

/** No key is in the arguments of any process. */
function sampleArguments(): void {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    let text = "";
    try {
      text = readFileSync(`/proc/${pid}/cmdline`, "latin1");
    } catch {
      continue;
    }
    for (const key of seenKeys.keys()) check(!text.includes(key), "a key is in the arguments of a process");
  }
}

function searchKeys({ home }: Keybearer): void {
  const files = filesBelow(home).filter((file) => !file.startsWith(join(home, "keys")));
  const secrets = Object.fromEntries([...seenKeys.keys()].map((key, at) => [`key ${at}`, key]));
  const found = scan({ ...textsOf(files), printed: printed.join("") }, secrets);
  for (const one of found) check(false, one);
  say(`${seenKeys.size} keys were made; searched in ${files.length} files and everything printed`);
}

async function checkWorks(
  keybearer: Keybearer,
  gateway: Gateway,
  tool: string,
  endpoint: string,
  when: string,
): Promise<void> {
  const call = gateway.tools.flatMap(({ calls }) => calls).find((one) => one.endpoint === endpoint);
  const status = await request(
    keybearer.origin,
    endpoint,
    call?.model ?? "",
    keybearer.tokens.get(tool) ?? "",
  );
  check(status === 200, `${when}: a request of ${tool} got ${status}`);
}

async function checkDead(gateway: Gateway, key: string, when: string): Promise<void> {
  seenKeys.set(key, "");
  const response = await fetch(`${gateway.origin}/v1/models`, {
    headers: { authorization: `Bearer ${key}` },
  });
  await response.arrayBuffer();
  check(response.status === 401, `${when}: the old key got ${response.status}`);
}

async function request(origin: string, endpoint: string, model: string, credential: string): Promise<number> {
  const content = `Say hello. ${planText(PLAN)}`;
  const body = { model, max_tokens: 64, messages: [{ role: "user", content }] };
  try {
    const response = await fetch(`${origin}${endpoint}`, {
      method: "POST",
      headers: { authorization: `Bearer ${credential}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    await response.arrayBuffer();
    return response.status;
  } catch {
    return 0;
  }
}

process.exitCode = (await main()) ? 0 : 1;
