import { Command } from "commander";
import { setToken } from "../config/edit/splice.ts";
import { writeConfig } from "../config/edit/write.ts";
import { loadConfig, readText } from "../config/load.ts";
import { problemsInWords } from "../config/problem.ts";
import { askDaemon } from "../control/client.ts";
import { type Status, type ToolStatus, toolStatusOffline } from "../control/status.ts";
import { hashToken, makeToken } from "../identity/token.ts";
import { findPlaces } from "../places.ts";
import { EXIT } from "../start-failure.ts";
import { fail } from "./fail.ts";
import { toolTable } from "./status.ts";
import { visible } from "./table.ts";

export function toolsCommand(): Command {
  const tools = new Command("tools").description("list the tools, or make a token for one");
  tools
    .command("list", { isDefault: true })
    .description("every tool with its state")
    .option("--json", "for programs")
    .action(list);
  tools
    .command("token")
    .description("make a local token, print it once, and write its hash into config.yaml")
    .argument("<tool>", "the tool it is for")
    .option("--add", "beside the tokens the tool has, instead of in their place")
    .option("-c, --config <file>", "another file than your own config.yaml")
    .action(token);
  return tools;
}

async function list(options: { json?: boolean }): Promise<void> {
  const places = findPlaces();
  const asked = await askDaemon<Status>(places.socket, "GET", "/status");
  let tools: readonly ToolStatus[];
  if (asked.ok) tools = asked.value.tools;
  else {
    const { config, problems } = await loadConfig(places.config, { home: places.home, strict: false });
    if (config === null) return fail(problemsInWords(places.config, problems), EXIT.badConfig);
    tools = Object.values(config.tools).map((tool) => toolStatusOffline(tool, Date.now()));
  }
  if (options.json) process.stdout.write(`${JSON.stringify(tools, null, 2)}\n`);
  else process.stdout.write(`${toolTable(tools, Date.now())}\n${nextSteps(tools)}`);
}

function nextSteps(tools: readonly ToolStatus[]): string {
  const steps = tools
    .filter(({ next }) => next !== null)
    .map(({ name, why, next }) => visible(`${name}: ${why} → ${next}`));
  return steps.length === 0 ? "" : `\n${steps.join("\n")}\n`;
}

/** Works on the file, so that it needs no daemon; a running one sees the save. */
async function token(tool: string, options: { add?: boolean; config?: string }): Promise<void> {
  const { config: file } = findPlaces({ config: options.config });
  const read = await readText(file);
  if (read.text === null) {
    const next = read.found ? "nothing was changed" : "write one first (see config.example.yaml)";
    return fail(`${read.fault}. ${next}`, EXIT.failed);
  }
  const before = read.text;
  const made = makeToken();
  const spliced = setToken(before, tool, `sha256:${hashToken(made)}`, options.add ? "add" : "replace");
  if (!spliced.ok) return fail(spliced.reason, EXIT.failed);
  const written = await writeConfig(file, before, spliced.text);
  if (!written.ok) return fail(written.reason, EXIT.failed);
  // Alone on stdout, so that it can be piped into the place where it belongs.
  process.stdout.write(`${made}\n`);
  const others = options.add ? "the tokens it had go on working" : "the tokens it had, if any, are dead";
  process.stderr.write(`token for ${tool}: shown this once; ${file} holds its hash, and ${others}\n`);
}
