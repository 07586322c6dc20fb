import type { BrowsersAnswer } from "../../../control/browsers.ts";
import type { EventsAnswer } from "../../../control/routes.ts";
import type { Action } from "../../actions/actions.ts";
import type * as api from "../../api.ts";
import type { MirrorAnswer, MonthBill } from "../../bill.ts";
import type { Failure, FailureCode } from "../../failure.ts";
import type { ModelsAnswer, RecordAnswer } from "../../routes.ts";
import type { ToolAnswer } from "../../tools.ts";
import type { RecordsPage } from "../../usage-api.ts";
import type { Stored } from "../stored.ts";

/**
 * Why an answer did not come. gone: nothing answers at the port. session: the daemon does not know this session, or there is
 * none. refused: it said no, in words.
 */
export class Failed extends Error {
  readonly kind: "gone" | "session" | "refused";
  readonly status: number;
  /** null: only the words say what happened. */
  readonly code: FailureCode | null;

  constructor(kind: Failed["kind"], message: string, status = 0, code: Failed["code"] = null) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.code = code;
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** What each address of the dashboard's port answers. */
export interface Answers {
  readonly "/api/usage": api.UsageChart;
  readonly "/api/records": RecordsPage;
  readonly "/api/mirror": MirrorAnswer;
  readonly "/api/bill": MonthBill;
  readonly "/api/history": EventsAnswer;
  readonly "/api/browsers": BrowsersAnswer;
  readonly [path: `/api/models/${string}`]: ModelsAnswer;
  readonly [path: `/api/tools/${string}`]: ToolAnswer;
  readonly [path: `/api/records/${string}`]: RecordAnswer;
}

/** The dashboard's port. Every method throws Failed, or an AbortError once its signal is aborted. */
export class Client {
  readonly #session: Stored;

  constructor(session: Stored) {
    this.#session = session;
  }

  challenge(publicKey: string): Promise<{ challenge: string }> {
    return this.#post("/api/challenge", { public_key: publicKey });
  }

  open(request: { readonly code: string } | api.Proof): Promise<{ token: string }> {
    return this.#post("/api/session", request);
  }

  /** @param query such as `tool=codex`; empty: none */
  get<Path extends keyof Answers>(path: Path, query: string, signal: AbortSignal): Promise<Answers[Path]> {
    return this.#json(query === "" ? path : `${path}?${query}`, { signal });
  }

  /** To be saved as a file. */
  async csv(query: string): Promise<Blob> {
    return (await this.#ask(`/api/csv?${query}`, {})).blob();
  }

  plan(action: Action): Promise<api.PlanAnswer> {
    return this.#post("/api/plan", action);
  }

  run(id: string, digits: string | null): Promise<api.RunAnswer> {
    return this.#post("/api/run", { id, digits });
  }

  /** A stream of LiveLine, at its beginning. */
  async events(signal: AbortSignal): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    const { body } = await this.#ask("/api/events", { signal });
    if (body === null) throw new Failed("gone", "the event stream is empty");
    return body;
  }

  #post<T>(path: string, body: unknown): Promise<T> {
    const headers = { "content-type": "application/json" };
    return this.#json(path, { method: "POST", headers, body: JSON.stringify(body) });
  }

  async #json<T>(path: string, init: RequestInit): Promise<T> {
    return (await readJson(await this.#ask(path, init))) as T;
  }

  async #ask(path: string, init: RequestInit): Promise<Response> {
    const token = this.#session.read();
    const headers = new Headers(init.headers);
    if (token !== null) headers.set("authorization", `Bearer ${token}`);
    const request = fetch(path, { ...init, headers, credentials: "omit", redirect: "error" });
    const response = await request.catch(noAnswer);
    if (response.ok) return response;
    const failure = (await readJson(response).catch(() => null)) as Partial<Failure> | null;
    const problem = typeof failure?.error === "string" ? failure.error : `HTTP ${response.status}`;
    const kind = response.status === 401 ? "session" : "refused";
    const code = (failure?.code ?? null) as Failed["code"];
    throw new Failed(kind, problem, response.status, code);
  }
}

function readJson(response: Response): Promise<unknown> {
  // The daemon can stop in the middle of its answer.
  return response.json().catch(noAnswer);
}

function noAnswer(error: unknown): never {
  throw isAbort(error) ? error : new Failed("gone", messageOf(error));
}
