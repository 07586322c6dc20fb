import { chooseModels, isModelMissing, type Target } from "../../clients/snippets.ts";
import type { Client } from "../../clients/table.ts";
import { setAskUsage } from "../../config/edit-tools.ts";
import { formatProblems } from "../../config/problems.ts";
import type { Listen, Token } from "../../config/schema.ts";
import { askDaemon, startCommand } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { ToolModels } from "../../doctor/models.ts";
import { isSameFile } from "../config-change.ts";
import { changeHere, loadHere } from "../config-here.ts";
import { failNull, type Note, notice } from "../ui/messages.ts";

/** A tool, as far as a client's settings need it. */
export interface FoundTool {
  readonly name: string;
  readonly model: string | null;
  readonly tokens: readonly Token[];
  readonly tokenInUrl: boolean;
  /** Where keybearer can be reached, without a slash at the end. */
  readonly origin: string;
  /** The running daemon uses this file, so it can be asked about the tool. */
  readonly isServed: boolean;
  /** There is no config.yaml: this is the sandbox's tool, whose token `run` printed. */
  readonly isSandbox: boolean;
}

/** A daemon may be busy, but a person who only reads does not wait longer. */
const TIMEOUT_MS = 3000;

/** null: there is no such tool, and the problem was printed. */
export async function findTool(paths: Paths, name: string): Promise<FoundTool | null> {
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, TIMEOUT_MS);
  const status = asked.ok ? asked.value : null;
  const { found, config, problems } = await loadHere(paths, { strict: false });
  if (config === null) {
    if (!found && status?.sandbox === true && !paths.explicit) return sandboxTool(status, name);
    const problem = found
      ? formatProblems(paths.config, problems)
      : { problem: `there is no ${paths.config}`, next: advice.init() };
    return failNull(problem, EXIT.badConfig);
  }
  const tool = config.tools[name];
  if (tool === undefined) {
    const known = Object.keys(config.tools).join(", ");
    const problem = `there is no tool ${name} in ${paths.config}; its tools are ${known}`;
    const gateway = Object.keys(config.gateways).length > 1 ? "<gateway>" : null;
    return failNull({ problem, next: advice.addTool(name, gateway) }, EXIT.failed);
  }
  const isServed = status !== null && (await isSameFile(status.config.path, paths.config));
  if (!isServed && config.listen.port === 0)
    return failNull(
      { problem: "listen: has port 0, a new one at each start. start it first", next: startCommand(paths) },
      EXIT.failed,
    );
  const { model, tokens, tokenInUrl } = tool;
  // A daemon keeps its port until it is restarted, even if config.yaml has another one now.
  const origin = buildOrigin(config.listen, isServed ? portOf(status) : null);
  return { name, model, tokens, tokenInUrl, origin, isServed, isSandbox: false };
}

function sandboxTool(status: Status, name: string): FoundTool | null {
  const names = status.tools.map((tool) => tool.name);
  if (!names.includes(name))
    return failNull(
      {
        problem: "there is no config.yaml yet",
        next: `${advice.init()}. the sandbox's tool is ${names.join(", ")}`,
      },
      EXIT.failed,
    );
  const origin = buildOrigin({ host: "localhost", port: 5397 }, portOf(status));
  return { name, model: null, tokens: [], tokenInUrl: true, origin, isServed: true, isSandbox: true };
}

function buildOrigin({ host, port }: Listen, runningPort: number | null): string {
  return `http://${host === "::1" ? "[::1]" : host}:${runningPort ?? port}`;
}

/** The port of 127.0.0.1:5397 or [::1]:5397. */
function portOf({ listen }: Status): number | null {
  const port = /:(\d+)$/.exec(listen[0] ?? "")?.[1];
  return port === undefined ? null : Number(port);
}

/** What a client is pointed at, without a token, and why no model is known. */
export interface FoundTarget {
  readonly target: Target;
  /** null: a model is known, or none is needed. */
  readonly noModel: Note | null;
}

/** The model is the tool's, otherwise one that the gateway lists. */
export async function targetFor(paths: Paths, tool: FoundTool, client: Client): Promise<FoundTarget> {
  const { origin } = tool;
  if (client.unusable !== null) return { target: { origin, token: null, model: tool.model }, noModel: null };
  const { models, problem } = await listModels(paths, tool);
  const target = { origin, token: null, ...chooseModels(client, models, tool.model) };
  return { target, noModel: isModelMissing(client, target) ? noModelNote(tool, problem) : null };
}

function noModelNote({ name, model }: FoundTool, problem: Note | null): Note {
  const what = "no model is filled in";
  const setting = `tools.${name}.model in config.yaml`;
  if (model !== null)
    return {
      what: `${what}: write ${setting} in by hand, since it has characters a shell may act on`,
      next: null,
    };
  if (problem === null)
    return { what: `${what}: the gateway lists none to chat with. set ${setting}`, next: null };
  return { what: `${what}: ${problem.what}. or set ${setting}`, next: problem.next };
}

interface Listed {
  readonly models: readonly string[];
  /** Why the list is not known; null: it is. */
  readonly problem: Note | null;
}

async function listModels(paths: Paths, { name, isServed }: FoundTool): Promise<Listed> {
  if (!isServed) {
    const what = "keybearer does not run, so the gateway cannot be asked";
    return { models: [], problem: { what, next: startCommand(paths) } };
  }
  const path = `/models/${encodeURIComponent(name)}`;
  const asked = await askDaemon<readonly ToolModels[]>(paths, "GET", path, undefined, TIMEOUT_MS);
  const next = advice.models(name);
  if (!asked.ok) return { models: [], problem: { what: asked.problem, next: asked.next ?? next } };
  const failed = asked.value.find(({ problem }) => problem !== null)?.problem ?? null;
  const models = asked.value.flatMap((each) => each.models.filter((model) => model.in_group));
  return {
    models: models.map(({ id }) => id),
    problem: failed === null ? null : { what: failed.why, next: failed.next ?? next },
  };
}

/** Without usage in its streams, keybearer could count neither tokens nor money of this client. */
export async function askUsage(paths: Paths, tool: string, client: Client): Promise<void> {
  const edited = await changeHere(paths, (text) => setAskUsage(text, tool));
  const problem = `${client.name} does not ask streams for their usage`;
  const setting = `tools.${tool}.ask_usage`;
  if (!edited.ok) notice(`${problem}; set ${setting}: true in config.yaml (${edited.problem})`);
  else if (edited.changed) notice(`${problem}, so ${setting}: true is set now: keybearer asks for it`);
}
