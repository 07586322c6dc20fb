import type { BrowsersAnswer } from "../../../control/browsers.ts";
import type { EventsAnswer } from "../../../control/routes.ts";
import type { Action } from "../../actions/action.ts";
import type {
  ChallengeAnswer,
  Failure,
  MirrorAnswer,
  ModelsAnswer,
  MonthBill,
  Now,
  PlanAnswer,
  Proof,
  RecordAnswer,
  RecordsPage,
  RunAnswer,
  SessionAnswer,
  ToolAnswer,
  ToolsAnswer,
  UsageChart,
} from "../../api.ts";
import { Failed, isAbort, wordsOf } from "./failed.ts";
import type { Session } from "./session.ts";

/** What each address of the dashboard's port answers. */
export interface Answers {
  readonly "/api/now": Now;
  readonly "/api/usage": UsageChart;
  readonly "/api/records": RecordsPage;
  readonly "/api/tools": ToolsAnswer;
  readonly "/api/models": ModelsAnswer;
  readonly "/api/mirror": MirrorAnswer;
  readonly "/api/bill": MonthBill;
  readonly "/api/history": EventsAnswer;
  readonly "/api/browsers": BrowsersAnswer;
}

/** Throws Failed, or an AbortError where the signal was pulled. */
export interface Client {
  trade(code: string): Promise<SessionAnswer>;
  challenge(publicKey: string): Promise<ChallengeAnswer>;
  prove(proof: Proof): Promise<SessionAnswer>;
  get<P extends keyof Answers>(path: P, query?: URLSearchParams, signal?: AbortSignal): Promise<Answers[P]>;
  tool(name: string, signal?: AbortSignal): Promise<ToolAnswer>;
  record(id: string, signal?: AbortSignal): Promise<RecordAnswer>;
  /** To be saved as a file. */
  csv(query: URLSearchParams, signal?: AbortSignal): Promise<Blob>;
  plan(action: Action): Promise<PlanAnswer>;
  run(id: string, digits: string | null): Promise<RunAnswer>;
  /** An event stream, at its beginning. */
  events(signal: AbortSignal): Promise<ReadableStream<Uint8Array>>;
}

export function createClient(session: Session): Client {
  const ask = (path: string, init: RequestInit = {}) => request(session, path, init);
  const json = async <T>(path: string, init?: RequestInit) => (await parsed(await ask(path, init))) as T;
  const post = <T>(path: string, body: unknown) =>
    json<T>(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const stop = (signal: AbortSignal | undefined) => (signal === undefined ? {} : { signal });
  return {
    trade: (code) => post("/api/session", { code }),
    challenge: (publicKey) => post("/api/challenge", { public_key: publicKey }),
    prove: (proof) => post("/api/session", proof),
    get: (path, query, signal) => json(withQuery(path, query), stop(signal)),
    tool: (name, signal) => json(`/api/tools/${encodeURIComponent(name)}`, stop(signal)),
    record: (id, signal) => json(`/api/records/${encodeURIComponent(id)}`, stop(signal)),
    csv: async (query, signal) => (await ask(withQuery("/api/csv", query), stop(signal))).blob(),
    plan: (action) => post("/api/plan", action),
    run: (id, digits) => post("/api/run", { id, digits }),
    async events(signal) {
      const { body } = await ask("/api/events", { signal, headers: { accept: "text/event-stream" } });
      if (body === null) throw new Failed("gone", "the event stream is empty");
      return body;
    },
  };
}

async function request(session: Session, path: string, init: RequestInit): Promise<Response> {
  const token = session.token();
  const headers = new Headers(init.headers);
  if (token !== null) headers.set("authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await fetch(path, {
      ...init,
      headers,
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Failed("gone", wordsOf(error));
  }
  if (response.ok) return response;
  const failure = (await parsed(response).catch(() => null)) as Partial<Failure> | null;
  const words = typeof failure?.error === "string" ? failure.error : `HTTP ${response.status}`;
  throw new Failed(response.status === 401 ? "session" : "refused", words, response.status);
}

async function parsed(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch (error) {
    if (isAbort(error)) throw error;
    // The daemon stopped in the middle of its answer.
    throw new Failed("gone", wordsOf(error));
  }
}

function withQuery(path: string, query: URLSearchParams | undefined): string {
  const text = query?.toString() ?? "";
  return text === "" ? path : `${path}?${text}`;
}
