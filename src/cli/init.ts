import { createConfig } from "../config/edit-file.ts";
import { setToken } from "../config/edit-tools.ts";
import { readText } from "../config/load.ts";
import { planTool } from "../config/new-tool.ts";
import { gatewayFromUrl, parseConfig } from "../config/parse.ts";
import { formatProblems } from "../config/problems.ts";
import { type Config, describeSource, type Gateway, type Tool } from "../config/schema.ts";
import { baseUrl } from "../config/values.ts";
import { askDaemon } from "../control/client.ts";
import type { Status } from "../control/status.ts";
import { advice, withConfig } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { type Store, sourceText } from "../keys/stored-keys.ts";
import { offerAdopt } from "./adopt/offer.ts";
import { askBudget, BUDGET_HELP, readBudget } from "./budget.ts";
import { editConfig, waitUntilActive } from "./config-change.ts";
import { loadHere } from "./config-here.ts";
import { newConfig } from "./first-config.ts";
import { isSafeStart, noteIneffective } from "./safe-start.ts";
import { offerService } from "./service/offer.ts";
import { add } from "./tools/add.ts";
import { readOwn } from "./tools/key-source.ts";
import { rotateKey } from "./tools/rotate.ts";
import { type Inputs, readInputs } from "./tools/secret-inputs.ts";
import { chooseStore, storeNamedKey } from "./tools/store-key.ts";
import { type NewKey, newKey } from "./tools/take-key.ts";
import { newToken } from "./tools/token.ts";
import { canceled, fail, failNull, notice } from "./ui/messages.ts";
import { confirm, type Prompter } from "./ui/prompts.ts";
import { commandPaths, stdio } from "./ui/stdio.ts";
import { isInteractive } from "./ui/terminal.ts";
import { setUpClients } from "./use/set-up.ts";

interface InitOptions {
  readonly gateway?: string;
  readonly tool?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
  readonly budget?: string;
  readonly yes?: boolean;
  readonly probe?: boolean;
  readonly config?: string;
}

/** `keybearer init` */
export async function init(options: InitOptions): Promise<void> {
  if (!isSafeStart()) return;
  noteIneffective();
  if (options.budget !== undefined && readBudget(options.budget) === null)
    return fail(`--budget: ${BUDGET_HELP}`, EXIT.usage);
  const paths = commandPaths(options.config);
  const { found } = await readText(paths.config);
  if (found) return completeConfig(paths, options);
  const isComplete = options.gateway !== undefined && options.tool !== undefined && options.keyStdin;
  if (stdio().stdin.isTTY !== true && !isComplete)
    return fail(
      `there is no terminal to ask at. name everything, and pipe the key in: ${advice.initWithKey()}`,
      EXIT.usage,
    );
  const inputs = await readInputs({ key: true, token: false }, { key: true, token: false }, "");
  if (inputs === null) return;
  try {
    await makeConfig(paths, options, inputs);
  } finally {
    inputs.prompter?.close();
  }
}

async function makeConfig(paths: Paths, options: InitOptions, inputs: Inputs): Promise<void> {
  if (inputs.prompter !== null) notice(`this makes ${paths.config}. Ctrl-C stops, and leaves nothing behind`);
  const first = await askFirstTool(paths, options, inputs);
  if (first === null) return;
  const { name, gateway, taken } = first;
  const { models } = taken;
  const budget = await askBudget({ tool: name, models, prompter: inputs.prompter }, options);
  if (budget === null) return;
  const source = sourceText(taken.place, paths);
  const token = newToken(name);
  const text = newConfig({ baseUrl: gateway.baseUrl, tool: name, key: source, token: token.entry, budget });
  // Asked now: a running daemon takes the file over as soon as it is there.
  const before = await askDaemon<Status>(paths, "GET", "/status");
  const wasSandbox = before.ok && before.value.sandbox;
  const isSaved = await storeNamedKey(paths, taken, async () => {
    const made = await createConfig(paths.config, text);
    if (!made.ok) fail(made, EXIT.failed);
    return made.ok;
  });
  if (!isSaved) return;
  notice(`${paths.config} is written; the key of ${name} is ${source}`);
  stdio().stdout.write(`${token.made}\n`);
  notice("the line above is its token, shown this once; config.yaml holds its hash");
  // With --yes nothing is asked, and nothing else is changed: the same as without a terminal.
  const mayAsk = isInteractive() && !options.yes;
  // First, because the settings of a client that is set up hold its old key no more.
  await offerAdopt(paths, mayAsk);
  if (mayAsk) {
    await setUpClients(paths, name, token.made);
    await offerService(paths);
  }
  await printNextSteps(paths, name, wasSandbox);
}

interface FirstKey {
  readonly name: string;
  readonly gateway: Gateway;
  readonly taken: NewKey;
}

/** Asks for the address again if the person says that it was wrong. null: the reason was printed. */
async function askFirstTool(paths: Paths, options: InitOptions, inputs: Inputs): Promise<FirstKey | null> {
  const { prompter } = inputs;
  let given = options.gateway;
  let name = options.tool ?? null;
  let store: Store | null = null;
  for (;;) {
    const address = await askAddress(given, prompter);
    if (address === null) return null;
    name = await askTool(name ?? undefined, prompter);
    if (name === null) return null;
    const gateway = gatewayFromUrl("main", address);
    store ??= await chooseStore(options, prompter);
    if (store === null) return null;
    const origins = [gateway.baseUrl, gateway.messagesUrl];
    const probe = options.probe ?? true;
    const request = { paths, tool: name, gateway, tools: {}, origins, inputs, store, probe };
    const taken = await newKey(request, true);
    if (taken === null) return null;
    if (taken !== "address") return { name, gateway, taken };
    given = undefined;
  }
}

/** There is a config.yaml: it is never overwritten, and what is missing in it is added. */
async function completeConfig(paths: Paths, options: InitOptions): Promise<void> {
  const { config, problems, text } = await loadHere(paths, { strict: false });
  notice(`${paths.config} is there already; nothing in it is overwritten`);
  if (config === null) {
    // A file that only lacks tools has that one problem, which adding a tool solves.
    const lacksTools = text !== null && planTool(text, paths.home, options.tool ?? "first", {}).ok;
    if (lacksTools) return addTool(options);
    return fail(formatProblems(paths.config, problems), EXIT.badConfig);
  }
  if (options.gateway !== undefined && !hasGateway(config, options.gateway))
    return fail(
      `config.yaml names another gateway. change base_url there, or add a second one: ${advice.addGateway()}`,
      EXIT.usage,
    );
  if (options.tool !== undefined && config.tools[options.tool] === undefined) return addTool(options);
  const tools = Object.values(config.tools).filter(({ name }) => (options.tool ?? name) === name);
  if (options.budget !== undefined)
    notice({
      problem: "--budget changes no tool that is there already",
      next: advice.limitSpend("<tool>", "<dollars>"),
    });
  for (const tool of tools) if (!(await completeTool(paths, config, tool, options))) return;
  const [first] = tools;
  if (first === undefined) return;
  if (tools.length === 1) notice(`${first.name} has its key and its token`);
  else notice(`all ${tools.length} tools have a key and a token`);
  await printNextSteps(paths, first.name, false);
}

/** This command does not change an address: that would send a known key elsewhere. */
function hasGateway({ gateways }: Config, address: string): boolean {
  const bare = address.trim().replace(/\/+$/, "");
  return Object.values(gateways).some((gateway) => gateway.baseUrl === bare);
}

async function addTool({ gateway: _address, tool, budget, ...options }: InitOptions): Promise<void> {
  const none = { key: false, token: false };
  const inputs = tool === undefined && stdio().stdin.isTTY === true ? await readInputs(none, none, "") : null;
  const name = await askTool(tool, inputs?.prompter ?? null);
  const spend = budget === undefined ? null : readBudget(budget);
  if (name !== null) await add(name, spend === null || spend === "none" ? options : { ...options, spend });
}

/** Gives a tool the key or token it lacks. False: it could not, and the reason was printed. */
async function completeTool(
  paths: Paths,
  config: Config,
  tool: Tool,
  options: InitOptions,
): Promise<boolean> {
  const { name } = tool;
  const found = await readOwn(tool.key, paths);
  if (found === null) notice(`${name}: its key was not checked (${describeSource(tool.key)})`);
  // A variable may be set for the daemon alone.
  else if (!found.ok && tool.key.kind !== "env") {
    notice({ ...found, problem: `${name} has no key yet: ${found.problem}` });
    if (!(await giveKey(paths, config, tool, options))) return false;
  }
  if (tool.tokens.length > 0 || tool.process !== null || tool.watchOnly) return true;
  const token = newToken(name);
  const edited = await editConfig(paths, (text) => setToken(text, name, token.entry, "add"));
  if (edited === null) return false;
  stdio().stdout.write(`${token.made}\n`);
  notice(`the line above is the token of ${name}, shown this once; config.yaml holds its hash`);
  return true;
}

async function giveKey(paths: Paths, config: Config, tool: Tool, options: InitOptions): Promise<boolean> {
  const gateway = config.gateways[tool.gateway];
  const flags = { key: options.keyStdin ?? false, token: false };
  const next = advice.rotateWithKey(tool.name);
  const inputs = await readInputs({ key: true, token: false }, flags, next);
  if (inputs === null || gateway === undefined) return false;
  const { config: _file, gateway: _address, tool: _tool, budget: _budget, ...rest } = options;
  try {
    return await rotateKey({ paths, config, tool, gateway, options: rest }, inputs);
  } finally {
    inputs.prompter?.close();
  }
}

/** The base URL as the gateway's setting has it. null: the reason was printed. */
async function askAddress(given: string | undefined, prompter: Prompter | null): Promise<string | null> {
  const question = "base URL of the gateway, from its console (it ends in /v1): ";
  let answer = await ask(given, prompter, question, "--gateway https://gateway.example.com/v1", () => null);
  while (answer !== null) {
    const result = baseUrl(answer);
    if ("value" in result) return result.value;
    if (prompter?.interactive !== true) return failNull(result, EXIT.usage);
    if (result.suggestion === undefined) notice(result);
    else if (await confirm(`${result.problem}. use ${result.suggestion}?`, "yes")) return result.suggestion;
    answer = await ask(undefined, prompter, question, "", () => null);
  }
  return null;
}

function askTool(given: string | undefined, prompter: Prompter | null): Promise<string | null> {
  return ask(
    given,
    prompter,
    "name of the first tool that will call, such as claude-code or codex: ",
    "--tool codex",
    findNameProblem,
  );
}

/** By the rules of config.yaml itself. */
function findNameProblem(name: string): string | null {
  const trial = `gateway: https://gateway.example.com/v1\ntools: { ${JSON.stringify(name)}: {} }\n`;
  const error = parseConfig(trial, "/").problems.find(({ severity }) => severity === "error");
  return error === undefined ? null : `${error.message}: ${error.hint ?? "choose another"}`;
}

/** The value of an option, or the person's answer, asked until it is valid. null: the reason was printed. */
async function ask(
  given: string | undefined,
  prompter: Prompter | null,
  question: string,
  option: string,
  findProblem: (text: string) => string | null,
): Promise<string | null> {
  if (given === undefined && prompter === null)
    return failNull(`there is no terminal to ask at. name it: ${option}`, EXIT.usage);
  for (let text = given; ; text = undefined) {
    const answer = text ?? (await prompter?.text(question)) ?? null;
    if (answer === null) return canceled();
    const problem = findProblem(answer.trim());
    if (problem === null) return answer.trim();
    if (prompter === null) return failNull(problem, EXIT.usage);
    notice(problem);
  }
}

/** What to type next, and whether a running daemon uses the file. */
export async function printNextSteps(paths: Paths, tool: string, wasSandbox: boolean): Promise<void> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (!asked.ok && !asked.running) {
    const { config } = await loadHere(paths, { strict: false });
    const port = config?.listen.port ?? 5397;
    notice(
      "next:",
      `  ${withConfig(advice.start(), paths)}`,
      `    serves http://localhost:${port} in the background; in this terminal: ${withConfig(advice.run(), paths)}`,
    );
  } else {
    const effect = await waitUntilActive(paths, tool, (found) => found !== undefined);
    if (effect.state === "not in force")
      notice({ ...effect, problem: `a keybearer runs, but ${effect.problem}` });
    else if (wasSandbox) notice("the running keybearer uses it now, and its sandbox has ended", "next:");
    else notice("the running keybearer uses it", "next:");
    if (effect.state === "in force" && effect.tool?.why && effect.tool.next !== null)
      notice(`  ${effect.tool.next}`, `    because ${effect.tool.why}`);
  }
  notice(
    `  ${withConfig(advice.use(tool), paths)}`,
    "    the settings to paste into it",
    `  ${withConfig(advice.addTool("<tool>"), paths)}`,
    "    another one",
  );
}
