import { readAssigned } from "../config/assignments.ts";
import { readEffective } from "../config/load.ts";
import { describeSource, type Tool } from "../config/schema.ts";
import { HttpError } from "../core/errors.ts";
import { DAY_MS } from "../core/units.ts";
import { authority } from "../proxy/server.ts";
import { readTokenUses } from "../proxy/token-uses.ts";
import type { Ask } from "../usage/index/indexer.ts";
import type { ModelsAnswer, ToolAnswer, ToolSettings, ToolsAnswer } from "./api.ts";
import type { DashboardDeps } from "./deps.ts";
import { listSessions } from "./session-list.ts";

/* What the page of the tools shows, and the page of one tool. */

const MAX_SESSIONS = 100;

/** What a form of the page can change. */
const SETTINGS = [
  "limits.spend",
  "limits.requests",
  "limits.tokens",
  "limits.concurrent",
  "limits.wait",
  "limits.session.spend",
  "limits.session.requests",
  "limits.session.tokens",
  "quota",
  "expires",
  "group",
  "model",
];

export async function listTools(deps: DashboardDeps): Promise<ToolsAnswer> {
  const { status, snapshot, port, isSandbox, mirror } = deps;
  // Only this page needs the descriptions of all clients.
  const [{ tools }, { WRITABLE }] = await Promise.all([status(), import("../clients/settings-files.ts")]);
  const { config } = snapshot();
  const gateways = Object.values(config.gateways);
  return {
    tools: tools.flatMap((shown): ToolSettings[] => {
      const tool = config.tools[shown.name];
      // It may have been removed since the status was read.
      if (tool === undefined) return [];
      const { enabled, model, tokenInUrl: token_in_url, watchOnly: watch_only } = tool;
      return [{ ...shown, enabled, model, source: describeSource(tool.key), token_in_url, watch_only }];
    }),
    // The address `use` names, too; the port stays bound until a restart.
    origin: `http://${authority(config.listen.host, port.port)}`,
    groups: gateways.flatMap(({ name: gateway, groups }) =>
      Object.keys(groups).map((name) => ({ gateway, name })),
    ),
    gateways: gateways.map(({ name }) => ({ name, makes_keys: mirror.canChangeKeys(name) })),
    writable: WRITABLE,
    sandbox: isSandbox(),
  };
}

/** Throws an HttpError if there is no such tool. */
export async function readTool(
  name: string,
  deps: DashboardDeps,
  ask: Ask,
  signal: AbortSignal,
): Promise<ToolAnswer> {
  const { paths, isSandbox, controls, clock } = deps;
  const { tokens } = requireTool(deps, name);
  const uses = readTokenUses(paths.tokenUses);
  const file = isSandbox() ? null : (await readEffective(paths)).text;
  const query = { since: clock.now() - DAY_MS, tools: [name], projects: [] };
  // The daemon's own counts are shown without the log.
  const logged = await ask("sessions", [query], signal).catch(noneIfUnavailable);
  const known = controls().sessions();
  return {
    settings: file === null ? {} : readAssigned(file, name, SETTINGS),
    tokens: tokens.map(({ name, created, hash }) => ({ name, created, last_use: uses[hash] ?? null })),
    sessions: listSessions(
      logged,
      known.filter(({ tool }) => tool === name),
    ).slice(0, MAX_SESSIONS),
  };
}

/** Asks the gateway, unless the tool is disabled. */
export async function readModels(name: string, deps: DashboardDeps): Promise<ModelsAnswer> {
  requireTool(deps, name);
  const [models = null] = (await deps.prober.models(name)) ?? [];
  return { models };
}

function requireTool({ snapshot }: DashboardDeps, name: string): Tool {
  const { tools } = snapshot().config;
  // hasOwn, because a name such as __proto__ is not a tool.
  const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
  if (tool === undefined) throw new HttpError(404, `there is no tool ${name}`);
  return tool;
}

function noneIfUnavailable(error: unknown): [] {
  if (error instanceof HttpError) return [];
  throw error;
}
