import { once } from "node:events";
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { askDaemon } from "../../src/control/client.ts";
import type { OpenAnswer } from "../../src/control/routes.ts";
import type { Now } from "../../src/dashboard/api.ts";

/** An answer of the dashboard's port. */
export interface Said {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Its body as JSON. */
  json<T>(): T;
}

export interface Asking {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Sends a request as a page does, with any headers, Host and Origin included. */
export async function say(url: string, path: string, asking: Asking = {}): Promise<Said> {
  const answer = await begin(url, path, asking);
  const chunks: Buffer[] = [];
  for await (const chunk of answer as AsyncIterable<Buffer>) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString("utf8");
  return { status: answer.statusCode ?? 0, headers: answer.headers, text, json: () => JSON.parse(text) };
}

async function begin(
  url: string,
  path: string,
  { method = "GET", headers = {}, body }: Asking,
): Promise<IncomingMessage> {
  const { hostname, port } = new URL(url);
  const asking: ClientRequest = request({
    hostname,
    port,
    path,
    method,
    headers: { host: `localhost:${port}`, connection: "close", ...headers },
  });
  asking.end(body);
  const [answer] = (await once(asking, "response")) as [IncomingMessage];
  return answer;
}

/** Opens the dashboard as `keybearer open` does. */
export async function openDashboard(socket: string): Promise<OpenAnswer> {
  const asked = await askDaemon<OpenAnswer>(
    { mode: "user", socket, config: "", explicit: false },
    "POST",
    "/open",
    {},
  );
  if (!asked.ok) throw new Error(asked.problem);
  return asked.value;
}

export function trade(url: string, code: string): Promise<Said> {
  const headers = { "content-type": "application/json" };
  return say(url, "/api/session", { method: "POST", headers, body: JSON.stringify({ code }) });
}

/** A visitor with a session. */
export interface Visit {
  readonly url: string;
  readonly token: string;
  get(path: string): Promise<Said>;
  post(path: string, body: unknown): Promise<Said>;
  /** Follows the events until `end` is called. */
  follow(): Promise<Followed>;
}

export interface Followed {
  readonly events: readonly FollowedEvent[];
  /** The newest state; undefined: there was none. */
  last(name: "now"): Now | undefined;
  /** The response; a test may pause it. */
  readonly answer: IncomingMessage;
  readonly ended: Promise<unknown>;
  end(): void;
}

export type FollowedEvent = { readonly name: string; readonly data: unknown };

export async function visit(socket: string): Promise<Visit> {
  return visitWith(await openDashboard(socket));
}

export async function visitWith({ url, code }: Pick<OpenAnswer, "url" | "code">): Promise<Visit> {
  const { token } = (await trade(url, code)).json<{ token: string }>();
  const authorization = `Bearer ${token}`;
  const headers = { authorization, "content-type": "application/json" };
  return {
    url,
    token,
    get: (path) => say(url, path, { headers: { authorization } }),
    post: (path, body) => say(url, path, { method: "POST", headers, body: JSON.stringify(body) }),
    async follow() {
      const answer = await begin(url, "/api/events", { headers: { authorization } });
      if (answer.statusCode !== 200) throw new Error(`events: ${answer.statusCode}`);
      return followed(answer);
    },
  };
}

function followed(answer: IncomingMessage): Followed {
  const events: FollowedEvent[] = [];
  let rest = "";
  answer.setEncoding("utf8");
  answer.on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines)
      for (const [name, data] of Object.entries(JSON.parse(line))) events.push({ name, data });
  });
  answer.on("error", () => {});
  return {
    events,
    answer,
    last: (name) => events.findLast((event) => event.name === name)?.data as Now | undefined,
    ended: new Promise((resolve) => answer.once("close", resolve)),
    end: () => answer.destroy(),
  };
}
