import { readAssigned } from "../config/assignments.ts";
import { readText } from "../config/load.ts";
import { describeSource } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Controls } from "../control/routes.ts";
import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { DAY_MS } from "../core/units.ts";
import type { Prober } from "../doctor/tool-probes.ts";
import type { Mirror } from "../mirror/mirror.ts";
import { authority, type Port } from "../proxy/server.ts";
import { readTokenUses } from "../proxy/token-uses.ts";
import type { Ask } from "../usage/index/indexer.ts";
import type { SessionRow } from "../usage/reports/sessions.ts";
import type {
  GroupSettings,
  ModelsAnswer,
  ToolAnswer,
  ToolSession,
  ToolSettings,
  ToolsAnswer,
  ToolToken,
} from "./api.ts";

/* What the page of the tools shows, and the page of one tool. */

interface ToolsDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly isSandbox: () => boolean;
  readonly status: () => Promise<Pick<Status, "tools">>;
  readonly mirror: Pick<Mirror, "canChangeKeys">;
  readonly prober: Pick<Prober, "models">;
  /** The port that tools call. */
  readonly port: Pick<Port, "port">;
  readonly controls: () => Pick<Controls, "sessions">;
}

const MAX_SESSIONS = 100;

/** What a form of the page can change. */
const SETTINGS = [
  "limits.spend",
  "limits.requests",
  "limits.tokens",
  "limits.concurrent",
  "limits.session.spend",
  "limits.session.requests",
  "limits.session.tokens",
  "quota",
  "expires",
  "group",
];

export async function listTools({
  status,
  snapshot,
  port,
  isSandbox,
  mirror,
}: ToolsDeps): Promise<ToolsAnswer> {
  // Only this page needs the descriptions of all clients.
  const [{ tools }, { WRITABLE }] = await Promise.all([status(), import("../clients/settings-files.ts")]);
  const { config } = snapshot();
  const gateways = Object.values(config.gateways);
  return {
    tools: tools.flatMap((shown): ToolSettings[] => {
      const tool = config.tools[shown.name];
      // It may have been removed since the status was read.
      if (tool === undefined) return [];
      return [
        {
          ...shown,
          enabled: tool.enabled,
          model: tool.model,
          source: describeSource(tool.key),
          token_in_url: tool.tokenInUrl,
          watch_only: tool.watchOnly,
        },
      ];
    }),
    // The address `use` names, too; the port stays bound until a restart.
    origin: `http://${authority(config.listen.host, port.port)}`,
    groups: gateways.flatMap(({ name: gateway, groups }) =>
      Object.entries(groups).map(
        ([name, { multiplier, models, enabled }]): GroupSettings => ({
          gateway,
          name,
          multiplier,
          models,
          enabled,
        }),
      ),
    ),
    gateways: gateways.map(({ name, console }) => ({
      name,
      makes_keys: console !== null && mirror.canChangeKeys(name),
    })),
    writable: WRITABLE,
    sandbox: isSandbox(),
  };
}

/** Throws an HttpError if there is no such tool. */
export async function readTool(
  name: string,
  deps: ToolsDeps,
  ask: Ask,
  signal: AbortSignal,
): Promise<ToolAnswer> {
  const { paths, snapshot, isSandbox, controls, clock } = deps;
  requireTool(deps, name);
  const uses = readTokenUses(paths.tokenUses);
  const tokens = (snapshot().config.tools[name]?.tokens ?? []).map(
    ({ name, created, hash }): ToolToken => ({ name, created, last_use: uses[hash] ?? null }),
  );
  const file = isSandbox() ? null : (await readText(paths.config)).text;
  const since = clock.now() - DAY_MS;
  const rows = await ask("sessions", [{ since, tools: [name], projects: [] }], signal).catch(
    noneIfUnavailable,
  );
  const known = controls()
    .sessions()
    .filter(({ tool }) => tool === name);
  return {
    settings: file === null ? {} : readAssigned(file, name, SETTINGS),
    tokens,
    sessions: joinSessions(name, rows, known).slice(0, MAX_SESSIONS),
  };
}

/** Asks the gateway, unless the tool is disabled. */
export async function readModels(name: string, deps: ToolsDeps): Promise<ModelsAnswer> {
  requireTool(deps, name);
  const [models = null] = (await deps.prober.models(name)) ?? [];
  return { models };
}

function requireTool({ snapshot }: ToolsDeps, name: string): void {
  // hasOwn, because a name such as __proto__ is not a tool.
  if (!Object.hasOwn(snapshot().config.tools, name)) throw new HttpError(404, `there is no tool ${name}`);
}

function noneIfUnavailable(error: unknown): SessionRow[] {
  // The daemon's own counts are shown without the log.
  if (error instanceof HttpError) return [];
  throw error;
}

function joinSessions(
  tool: string,
  rows: readonly SessionRow[],
  known: readonly SessionStatus[],
): ToolSession[] {
  const sessions = new Map<string, ToolSession>();
  for (const { session, project, last_at, requests, cost_microdollars, unknown_cost } of rows) {
    const used = { tool, session, project, last_at, requests, cost_microdollars, unknown_cost };
    sessions.set(session, { ...used, running: 0, stopped: false, limits: [] });
  }
  for (const status of known) {
    const found = sessions.get(status.session);
    const unread = { project: null, last_at: null, requests: null, cost_microdollars: null, unknown_cost: 0 };
    sessions.set(status.session, { ...unread, ...found, ...status });
  }
  return [...sessions.values()].sort((a, b) => b.running - a.running || (b.last_at ?? 0) - (a.last_at ?? 0));
}
