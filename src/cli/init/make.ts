import { createConfig } from "../../config/edit-file.ts";
import { formatScalar } from "../../config/edit-layout.ts";
import { type NewToken, setToken } from "../../config/edit-tools.ts";
import { loadConfig, readText } from "../../config/load.ts";
import { gatewayFromUrl, parseConfig } from "../../config/parse.ts";
import { formatProblems } from "../../config/problems.ts";
import { type Config, describeSource, type Tool } from "../../config/schema.ts";
import { baseUrl } from "../../config/values.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { add } from "../tools/add.ts";
import { editConfig, waitUntilActive } from "../tools/config-change.ts";
import { holdOf } from "../tools/hold.ts";
import { type Inputs, newKey, readInputs } from "../tools/key-input.ts";
import { chooseStore, freePlace, keepKey, readOwn, type Store, sourceText } from "../tools/key-store.ts";
import { rotateKey } from "../tools/rotate.ts";
import { newToken } from "../tools/token.ts";
import { planTool } from "../tools/tool-settings.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";

export async function init(options: InitOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const { found } = await readText(paths.config);
  if (found) return resume(paths, options);
  const complete = options.gateway !== undefined && options.tool !== undefined;
  if (process.stdin.isTTY !== true && !(complete && options.keyStdin)) {
    const flags = "--gateway https://gateway.example.com/v1 --tool codex --key-stdin";
    failNull(
      `nobody is here to ask. name everything, and pipe the key in: keybearer init ${flags}`,
      EXIT.usage,
    );
    return;
  }
  const inputs = await readInputs({ key: true, token: false }, { key: true, token: false }, "");
  if (inputs === null) return;
  try {
    await make(paths, options, inputs);
  } finally {
    inputs.person?.close();
  }
}

async function make(paths: Paths, options: InitOptions, { person, key: given }: Inputs): Promise<void> {
  if (person !== null) notice(`this makes ${paths.config}. Ctrl-C stops, and leaves nothing behind`);
  let named = options.gateway;
  let tool = options.tool;
  let store: Store | null = null;
  for (;;) {
    const address = await askAddress(named, person);
    if (address === null) return;
    const name = await askTool(tool, person);
    if (name === null) return;
    const reading = baseUrl(address);
    if ("fault" in reading) return;
    const gateway = gatewayFromUrl("main", reading.value);
    store ??= await chooseStore(options, person);
    if (store === null) return;
    const placeOf = (key: Secret) => freePlace(store ?? "file", name, { tools: {} }, paths, key);
    const origins = [gateway.baseUrl, gateway.messagesUrl];
    const holdOn = async (key: Secret) =>
      holdOf(paths, { tool: name, source: await placeOf(key), origins }, key);
    const wish = { tool: name, gateway, person, given, probe: options.probe ?? true, holdOn };
    const found = await newKey(wish, true);
    if (found === null) return;
    if (found === "address") {
      named = undefined;
      tool = name;
      continue;
    }
    const place = await placeOf(found.key);
    const source = sourceText(place, paths);
    const token = newToken(name);
    const text = newConfig({ baseUrl: reading.value, tool: name, key: source, token: token.entry });
    const done = await keepKey(paths, place, found.key, async () => {
      const made = await createConfig(paths.config, text);
      if (!made.ok) failNull(made.reason, EXIT.failed);
      return made.ok;
    });
    if (!done) return;
    notice(`${paths.config} is written; the key of ${name} is ${source}`);
    process.stdout.write(`${token.made}\n`);
    notice("the line above is its token, shown this once; config.yaml holds its hash");
    return tellNext(paths, name);
  }
}

/** There is a config.yaml: it is never overwritten, and what it lacks is added. */
export async function resume(paths: Paths, options: InitOptions): Promise<void> {
  const { config, problems, text } = await loadConfig(paths.config, { home: paths.home, strict: false });
  notice(`${paths.config} is there already; nothing in it is overwritten`);
  if (config === null) {
    // Without tools a file is no configuration yet, and that is all that may be wrong with it.
    const lacksTools = text !== null && planTool(text, paths.home, options.tool ?? "first", {}).ok;
    if (lacksTools) return addFirst(options);
    return fail(formatProblems(paths.config, problems), EXIT.badConfig);
  }
  const fault = otherGateway(config, options.gateway);
  if (fault !== null) return fail(fault, EXIT.usage);
  if (options.tool !== undefined && config.tools[options.tool] === undefined) return addFirst(options);
  const tools = Object.values(config.tools).filter(({ name }) => (options.tool ?? name) === name);
  for (const tool of tools) if (!(await complete(paths, config, tool, options))) return;
  const [first] = tools;
  if (first === undefined) return;
  const { length } = tools;
  notice(
    length === 1 ? `${first.name} has its key and its token` : `all ${length} tools have a key and a token`,
  );
  await tellNext(paths, first.name);
}

/** An address is changed by hand: a key that is known must not be moved by a command that only wants to help. */
function otherGateway({ gateways }: Config, given: string | undefined): string | null {
  const address = given?.trim().replace(/\/+$/, "");
  if (address === undefined || Object.values(gateways).some(({ baseUrl }) => baseUrl === address))
    return null;
  return `config.yaml names another gateway. change base_url there, or write a second one below gateways:`;
}

async function addFirst(options: InitOptions): Promise<void> {
  const { gateway: _address, tool, ...rest } = options;
  const inputs =
    tool === undefined && process.stdin.isTTY === true ? await readInputs(NOTHING, NOTHING, "") : null;
  const name = await askTool(tool, inputs?.person ?? null);
  if (name !== null) await add(name, rest);
}

const NOTHING = { key: false, token: false };

/** Gives a tool what it lacks. false: it could not, and it has been told why. */
async function complete(paths: Paths, config: Config, tool: Tool, options: InitOptions): Promise<boolean> {
  const { name } = tool;
  const found = await readOwn(tool.key, paths);
  // A variable may be set for the daemon alone.
  if (found !== null && !found.ok && tool.key.kind !== "env") {
    notice(`${name} has no key yet: ${found.reason}`);
    const gateway = config.gateways[tool.gateway];
    const flags = { key: options.keyStdin ?? false, token: false };
    const next = `keybearer tools rotate ${name} --key-stdin`;
    const inputs = await readInputs({ key: true, token: false }, flags, next);
    if (inputs === null || gateway === undefined) return false;
    try {
      const { config: _file, gateway: _address, tool: _tool, ...rest } = options;
      if (!(await rotateKey({ paths, config, tool, gateway, options: rest }, inputs))) return false;
    } finally {
      inputs.person?.close();
    }
  } else if (found === null)
    notice(`${name}: whether its key is there was not looked at (${describeSource(tool.key)})`);
  if (tool.tokens.length > 0 || tool.process !== null || tool.watchOnly) return true;
  const token = newToken(name);
  const edited = await editConfig(paths.config, (text) => setToken(text, name, token.entry, "add"));
  if (edited === null) return false;
  process.stdout.write(`${token.made}\n`);
  notice(`the line above is the token of ${name}, shown this once; config.yaml holds its hash`);
  return true;
}

export interface InitOptions {
  readonly gateway?: string;
  readonly tool?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
  readonly yes?: boolean;
  readonly probe?: boolean;
  readonly config?: string;
}

/** The base URL, as it was given or as the person types it. null: told why there is none. */
export async function askAddress(given: string | undefined, person: Prompter | null): Promise<string | null> {
  return answered(
    given,
    person,
    "base URL of the gateway, from its console (it ends in /v1): ",
    "--gateway https://gateway.example.com/v1",
    (text) => {
      const reading = baseUrl(text);
      if ("value" in reading) return null;
      return `${reading.fault}${reading.hint === undefined ? "" : ` → ${reading.hint}`}`;
    },
  );
}

/** The first tool's name. */
export async function askTool(given: string | undefined, person: Prompter | null): Promise<string | null> {
  return answered(
    given,
    person,
    "name of the first tool that will call, such as claude-code or codex: ",
    "--tool codex",
    toolNameFault,
  );
}

/** Held against the same rules as config.yaml, which are written down in one place. */
export function toolNameFault(name: string): string | null {
  const trial = `gateway: https://gateway.example.com/v1\ntools: { ${JSON.stringify(name)}: {} }\n`;
  const problem = parseConfig(trial, "/").problems.find(({ severity }) => severity === "error");
  return problem === undefined ? null : `${problem.message}: ${problem.hint ?? "choose another"}`;
}

async function answered(
  given: string | undefined,
  person: Prompter | null,
  question: string,
  flag: string,
  faultOf: (text: string) => string | null,
): Promise<string | null> {
  if (given === undefined && person === null)
    return failNull(`nobody is here to ask. name it: ${flag}`, EXIT.usage);
  for (let text = given; ; text = undefined) {
    const said = text ?? (await person?.text(question)) ?? null;
    if (said === null) return canceled();
    const bare = said.trim();
    const fault = faultOf(bare);
    if (fault === null) return bare;
    if (person === null) return failNull(fault, EXIT.usage);
    notice(fault);
  }
}

/** What to type next, and what a daemon that runs already makes of the file. */
export async function tellNext(paths: Paths, tool: string): Promise<void> {
  const asked = await askDaemon<Status>(paths.socket, "GET", "/status");
  const file = paths.explicit ? ` --config ${paths.config}` : "";
  if (!asked.ok && !asked.running) {
    const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
    const port = config?.listen.port ?? 5397;
    notice(
      "next:",
      `  keybearer run${file}`,
      `    serves http://localhost:${port} until Ctrl-C; go on in another terminal`,
    );
  } else {
    const effect = await waitUntilActive(paths, tool, (found) => found !== undefined);
    if (effect.state === "not in force") notice(`a keybearer runs, but ${effect.reason}`);
    else if (asked.ok && asked.value.sandbox)
      notice("the running keybearer has taken it up by itself: its sandbox has ended", "next:");
    else notice("the running keybearer goes by it", "next:");
    if (effect.state === "in force" && effect.tool?.why && effect.tool.next !== null)
      notice(`  ${effect.tool.next}`, `    because ${effect.tool.why}`);
  }
  notice(
    `  keybearer use ${tool}${file}`,
    "    the settings to paste into it",
    `  keybearer tools add <tool>${file}`,
    "    another one",
  );
}

export interface FirstTool {
  readonly baseUrl: string;
  readonly tool: string;
  /** Where its key lies, as config.yaml writes it. */
  readonly key: string;
  readonly token: NewToken;
}

/** A first config.yaml: short, with what people need next switched off by a # that is right in front of it. */
export function newConfig({ baseUrl, tool, key, token }: FirstTool): string {
  return `# keybearer's configuration. Every save counts at once; a file with a mistake in it
# changes nothing, and \`keybearer check\` names the mistake.
# What has a # right in front of it is switched off.

gateways:
  main:
    # It ends in the version segment (/v1), never in an endpoint.
    base_url: ${formatScalar(baseUrl)}
    # Plan groups as the console shows them: the factor on the price, the models.
    #groups:
    #  coding: { multiplier: 1.5, models: ["claude-*", "gpt-5*"] }
    # Compare the console's usage log with ours; then: keybearer mirror login
    #console: { url: ${formatScalar(new URL(baseUrl).origin)} }

# One for each program that calls, each with a key of its own, so that a leak
# harms one tool and usage can be told apart. Another one: keybearer tools add <tool>
tools:
  ${formatScalar(tool)}:
    key: ${formatScalar(key)}
    token: [{ name: ${formatScalar(token.name)}, hash: ${token.hash}, created: ${token.created} }]
    #group: coding
    #limits: { requests: 60/minute, spend: [$5/day, $60/month], concurrent: 4 }
    #quota: $200
    #expires: 2027-03-31
    #model: claude-sonnet-4-5
`;
}
