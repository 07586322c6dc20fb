import { setToken } from "../../config/edit-tools.ts";
import { loadConfig } from "../../config/load.ts";
import { formatProblems } from "../../config/problems.ts";
import { type Config, describeSource, type Tool } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { add } from "../tools/add.ts";
import { editConfig } from "../tools/edit.ts";
import { readOwn } from "../tools/from.ts";
import { rotateKey } from "../tools/rotate.ts";
import { readInputs } from "../tools/stdin.ts";
import { newToken } from "../tools/token.ts";
import { planTool } from "../tools/tool-settings.ts";
import { fail, notice } from "../ui/messages.ts";
import { tellNext } from "./next.ts";
import { askTool, type InitOptions } from "./questions.ts";

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
