import type { IncomingMessage, ServerResponse } from "node:http";
import type { PeerLookup } from "../core/peer-user.ts";
import type { ToolModels } from "../doctor/models.ts";
import { readChart } from "../usage/reports/chart.ts";
import type { Access } from "./access.ts";
import { No, TAKEN } from "./answer.ts";
import type { ModelsAnswer, RecordAnswer, SessionAnswer } from "./api.ts";
import { hasOnly, readJson } from "./body.ts";
import type { Live } from "./live.ts";
import type { LogReader } from "./log-reader.ts";
import { type MirrorDeps, mirrorAnswer } from "./mirror-answer.ts";
import type { NowView } from "./now.ts";
import { chartQuery, csvQuery, recordsQuery } from "./query.ts";
import { oneRecord, recordsPage, sendCsv } from "./records.ts";
import { adviceFor } from "./refusal-advice.ts";
import { switchTool, type ToolsDeps, toolsAnswer } from "./tools.ts";
import { usageAnswer } from "./usage-answer.ts";

/** What the page can ask. It reads, and it switches a tool off and on; there is nothing else here to be found. */
export interface ApiDeps extends ToolsDeps, MirrorDeps {
  /** Reads the usage index. */
  readonly reader: LogReader;
  readonly version: string;
  readonly access: Access;
  readonly peers: PeerLookup;
  /** Told of each, so that the log can tell of some. */
  readonly oddities: { readonly wrongCode: () => void; readonly stranger: () => void };
  readonly view: NowView;
  readonly live: Live;
  /** null: there is no such tool. */
  readonly models: (tool: string) => Promise<ToolModels[] | null>;
}

interface Input {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly name: string;
  readonly query: URLSearchParams;
  /** Nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

type Route = (deps: ApiDeps, input: Input) => unknown;

const ROUTES: Readonly<Record<string, Route>> = {
  "GET /api/now": ({ view }) => view.now(),
  "GET /api/events": ({ live }, { res }) => live.follow(res),
  "GET /api/usage": usage,
  "GET /api/records": ({ reader, clock }, { query, signal }) => {
    const asked = recordsQuery(query);
    return asked instanceof No ? asked : reader.read(recordsPage(asked, clock.now()), signal);
  },
  "GET /api/records/:name": record,
  "GET /api/csv": async ({ reader }, { res, query }) => {
    const asked = csvQuery(query);
    return asked instanceof No ? asked : ((await sendCsv(res, reader, asked)) ?? TAKEN);
  },
  "GET /api/tools": (deps) => toolsAnswer(deps),
  "POST /api/tools/:name": async (deps, { req, name }) => {
    const body = await readJson(req);
    if (body instanceof No) return body;
    if (!hasOnly(body, ["enabled"]) || typeof body.enabled !== "boolean")
      return new No(400, "say whether it is enabled: true or false");
    return switchTool(name, body.enabled, deps);
  },
  "GET /api/models": async ({ models, snapshot }, { query }): Promise<ModelsAnswer | No> => {
    const tool = query.get("tool") ?? "";
    // A name such as __proto__ is no tool, whatever an object would say.
    const found = Object.hasOwn(snapshot().config.tools, tool) ? await models(tool) : null;
    return found === null ? new No(404, `there is no tool ${tool}`) : { models: found[0] ?? null };
  },
  "GET /api/mirror": (deps) => mirrorAnswer(deps),
};

async function usage({ reader, clock }: ApiDeps, { query, signal }: Input): Promise<unknown> {
  const asked = chartQuery(query);
  if (asked instanceof No) return asked;
  const chart = await reader.read((db) => readChart(db, asked, clock.now()), signal);
  if (chart === null)
    return new No(400, `so many ${asked.unit}s fit into no chart. choose a shorter period, or a longer unit`);
  if (chart instanceof No) return chart;
  return usageAnswer(asked, chart, Intl.DateTimeFormat().resolvedOptions().timeZone);
}

async function record({ reader, mirror }: ApiDeps, { name, signal }: Input): Promise<RecordAnswer | No> {
  if (!/^[0-9A-Z]{26}$/.test(name)) return new No(404, `there is no record ${name}`);
  const found = await reader.read(oneRecord(name), signal);
  if (found instanceof No) return found;
  const compared = mirror.compared(name).find((one) => one.record?.id === name) ?? null;
  return { record: found, refusal: adviceFor(found), compared };
}

/** Trades the code of the address for a session. The only thing that is answered without one. */
async function session({ access, version, oddities }: ApiDeps, { req }: Input): Promise<SessionAnswer | No> {
  const body = await readJson(req);
  if (body instanceof No) return body;
  if (!hasOnly(body, ["code"]) || typeof body.code !== "string") return new No(400, "say the code");
  const traded = access.trade(body.code);
  if (traded.ok) return { token: traded.token, version };
  oddities.wrongCode();
  return traded.why === "too many"
    ? new No(429, "too many wrong codes. wait a minute → keybearer open")
    : new No(401, "this code was used already, or is older than a minute → keybearer open");
}

const PATH = /^\/api\/([a-z]+)(?:\/([^/]+))?$/;

export async function answerApi(req: IncomingMessage, res: ServerResponse, deps: ApiDeps): Promise<unknown> {
  const [path = "", search = ""] = (req.url ?? "").split("?", 2);
  const [, first = "", encoded] = PATH.exec(path) ?? [];
  const leaving = new AbortController();
  res.once("close", () => leaving.abort());
  const name = decoded(encoded ?? "");
  const input = { req, res, name: name ?? "", query: new URLSearchParams(search), signal: leaving.signal };
  // Before a code is looked at, so that a stranger who read it cannot even use it up; and for what comes with a token as
  // well: while the daemon restarts its port is free, and a page may show its token to whoever sits there.
  if ((await deps.peers.of(req.socket)) !== "ours") {
    deps.oddities.stranger();
    return new No(403, "another user of this machine cannot look here: the connection is not of this user's");
  }
  if (req.method === "POST" && path === "/api/session") return session(deps, input);
  const token = tokenOf(req);
  if (token === null || !deps.access.admits(token))
    return new No(401, "this page has no session, or it is over → keybearer open");
  const leave = deps.access.hold(token);
  // Whoever was gone while we looked is not waited for.
  if (leaving.signal.aborted) leave();
  else res.once("close", leave);
  const route = ROUTES[`${req.method} /api/${first}${encoded === undefined ? "" : "/:name"}`];
  if (route === undefined || name === null) return new No(404, "there is nothing here");
  return route(deps, input);
}

function tokenOf({ headers }: IncomingMessage): string | null {
  return /^Bearer ([\w-]{1,200})$/.exec(headers.authorization ?? "")?.[1] ?? null;
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
