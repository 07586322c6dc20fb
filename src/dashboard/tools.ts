import { readAssigned } from "../config/assignments.ts";
import { readEffective } from "../config/load.ts";
import { describeSource } from "../config/schema.ts";
import { HttpError } from "../core/errors.ts";
import { DAY_MS } from "../core/units.ts";
import { authority } from "../proxy/server.ts";
import { readTokenUses } from "../proxy/token-uses.ts";
import type { Ask } from "../usage/index/indexer.ts";
import type { DashboardDeps } from "./deps.ts";
import { listSessions } from "./session-list.ts";
import { SETTING_NAMES } from "./settings.ts";

const MAX_SESSIONS = 100;

export type ToolAnswer = Awaited<ReturnType<typeof readTool>>;

/** What the page of one tool shows beside its status. Throws an HttpError if there is no such tool. */
export async function readTool(
  { paths, isSandbox, controls, clock, reload, port }: DashboardDeps,
  name: string,
  ask: Ask,
  signal: AbortSignal,
) {
  const { tools, listen } = reload.snapshot.config;
  // hasOwn, because a name such as __proto__ is not a tool.
  const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
  if (tool === undefined) throw new HttpError(404, `there is no tool ${name}`);
  // Only this page needs the descriptions of all clients.
  const { WRITABLE } = await import("../clients/settings-files.ts");
  const file = isSandbox() ? null : (await readEffective(paths)).text;
  const uses = readTokenUses(paths.tokenUses);
  const query = { since: clock.now() - DAY_MS, tools: [name], projects: [] };
  const logged = await ask("sessions", [query], signal).catch((error) => {
    // The daemon's own counts are shown without the log.
    if (error instanceof HttpError) return [];
    throw error;
  });
  const known = controls().sessions();
  return {
    enabled: tool.enabled,
    model: tool.model,
    /** Never the key. */
    source: describeSource(tool.key),
    /** Its token may be in the URL: /t/<token>/… */
    token_in_url: tool.tokenInUrl,
    /** Those of config.yaml, by name, as `keybearer tools set` takes them. What is missing has its default. */
    settings: file === null ? {} : readAssigned(file, name, SETTING_NAMES),
    tokens: tool.tokens.map(({ name, created, hash }) => ({ name, created, last_use: uses[hash] ?? null })),
    /** Of the last 24 hours, and those that the daemon counts; those that run first, then the latest. */
    sessions: listSessions(
      logged,
      known.filter((one) => one.tool === name),
    ).slice(0, MAX_SESSIONS),
    /** The address `use` names, too; the port stays bound until a restart. */
    origin: `http://${authority(listen.host, port.port)}`,
    /** The clients whose own files `keybearer use --write` can change. */
    writable: WRITABLE,
  };
}
