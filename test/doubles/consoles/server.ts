import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Test } from "tap";
import { type Book, type BookedRow, createBook } from "./book.ts";
import type { Asked, ConsoleDouble, DoubleOptions, Fault, Use } from "./console-double.ts";
import { type DataPlaneMeans, serveGateway } from "./data-plane.ts";
import {
  type Ids,
  INDEX_HTML,
  type Kind,
  type KindMeans,
  type Question,
  type Reply,
  shownIn,
} from "./kind.ts";
import { listen, startThief } from "./thief.ts";

/** The server that all kinds share: what the test can turn, who asked what, and faults. */
export async function startDouble(
  t: Test,
  options: DoubleOptions,
  build: (means: KindMeans) => Kind,
): Promise<ConsoleDouble> {
  const clock = options.now ?? Date.now;
  const turned = {
    skew: 0,
    fault: null as Fault | null,
    logging: true,
    onAsk: null as ConsoleDouble["onAsk"],
  };
  const now = () => clock() + turned.skew;
  const book = createBook(now, options.balance ?? 50);
  const kind = build({ book, now, limits: options.limits ?? true });
  const thief = await startThief(t);
  const asked: Asked[] = [];
  const waiting: (() => void)[] = [];
  let reached = 0;
  const send = (res: ServerResponse, reply: Reply, headers: Readonly<Record<string, string>>) =>
    write(res, reply, headers);
  const bills = createBills(kind, book, () => ({ ...turned, now: clock }));
  const gateway: DataPlaneMeans = { kind, book, send, ...bills };

  async function serveConsole(question: Question, req: IncomingMessage, res: ServerResponse): Promise<void> {
    const entry = askedOf(question, req, clock());
    asked.push(entry);
    turned.onAsk?.(entry);
    if (turned.fault === "slow") await new Promise<void>((resolve) => waiting.push(resolve));
    const headers = kind.headers(kind.ids(false), question, false);
    const fault = turned.fault === "slow" ? null : turned.fault;
    const reply = fault === null ? null : faulty(fault, kind, `${thief.url}${req.url}`);
    if (fault === "cut") return cut(res, headers);
    send(res, reply ?? kind.console(question) ?? kind.elsewhere(question), headers);
  }

  const server = createServer((req, res) => {
    // Node's own date would be that of the real clock.
    res.setHeader("date", new Date(now()).toUTCString());
    req.on("error", () => {});
    res.on("error", () => {});
    void read(req).then((question) => {
      if (kind.isConsole(question.path)) return serveConsole(question, req, res);
      reached += 1;
      return serveGateway(question, res, gateway);
    });
  });
  const url = await listen(t, server);
  return {
    kind: kind.kind,
    url,
    config: [`kind: ${kind.kind}`, `url: ${url}`, ...kind.config],
    login: kind.login,
    addKey(options) {
      if (kind.keyText(options.key) !== options.key) {
        throw new Error(`${kind.kind} cuts keys at a hyphen: ${options.name} needs one as sk-abc123`);
      }
      return { id: book.addKey(options).id };
    },
    bill(use) {
      const ids = kind.ids(use.stream, use.requestId);
      bills.bill(use, ids);
      return { requestId: ids.handed };
    },
    hold: book.hold,
    release: book.release,
    get logging() {
      return turned.logging;
    },
    set logging(logging) {
      turned.logging = logging;
    },
    get skew() {
      return turned.skew;
    },
    set skew(skew) {
      turned.skew = skew;
    },
    get fault() {
      return turned.fault;
    },
    set fault(fault) {
      turned.fault = fault;
      if (fault !== "slow") for (const go of waiting.splice(0)) go();
    },
    get onAsk() {
      return turned.onAsk;
    },
    set onAsk(onAsk) {
      turned.onAsk = onAsk;
    },
    thief,
    asked,
    reached: () => reached,
    rows: () => book.rows.length,
    endSessions: kind.endSessions,
  };
}

interface Turned {
  readonly skew: number;
  readonly logging: boolean;
  readonly now: () => number;
}

/** Money moves whether or not anything is listed. */
function createBills(kind: Kind, book: Book, turned: () => Turned): Pick<DataPlaneMeans, "bill" | "fail"> {
  function put(type: BookedRow["type"], use: Use, ids: Ids): void {
    const { skew, logging, now } = turned();
    const key = book.find(use.key);
    if (key === null) throw new Error(`${kind.kind} has no such key to bill`);
    const multiplier = book.groups.find(({ name }) => name === key.group)?.multiplier ?? 1;
    const createdAt = (use.at ?? now()) + skew;
    const listDollars = use.listDollars ?? use.dollars / multiplier;
    if (type === "use") {
      key.usedDollars += use.dollars;
      key.lastUsedAt = createdAt;
      book.balance -= use.dollars;
    }
    if (type === "refund") book.balance += use.dollars;
    if (!logging) return;
    if (kind.others.includes(type)) {
      const nobody = { key: null, use: null, requestId: "", upstreamId: null };
      book.write({ createdAt, type, multiplier: 1, listDollars: 0, ...nobody });
      return;
    }
    const { own: requestId, upstream: upstreamId } = ids;
    book.write({ createdAt, type, key, use, requestId, upstreamId, multiplier, listDollars });
  }
  let uses = 0;
  const fail = (use: Use, ids: Ids, rows: number) => {
    for (let n = 0; n < rows && kind.listsErrors; n += 1) put("error", use, ids);
  };
  return {
    fail,
    bill(use, ids) {
      fail(use, ids, use.errors ?? 0);
      put(use.refund === true ? "refund" : "use", use, ids);
      const other = kind.others[Math.floor(uses / 4) % kind.others.length];
      if (uses % 4 === 0 && other !== undefined) put(other, use, ids);
      uses += 1;
    },
  };
}

function faulty(fault: Fault, kind: Kind, elsewhere: string): Reply {
  switch (fault) {
    case "html":
      return INDEX_HTML;
    case "empty":
      return { status: 200, headers: { "content-type": "application/json" }, body: "" };
    case "shape":
      return { status: 200, body: { status: "ok", result: { list: [] } } };
    case "redirect":
      return { status: 302, headers: { location: elsewhere }, body: "" };
    case "401":
    case "429":
    case "500":
    case "data":
      return kind.refuse(fault);
    case "slow":
    case "cut":
      return { status: 200, body: "" };
  }
}

function cut(res: ServerResponse, headers: Readonly<Record<string, string>>): void {
  res.writeHead(200, { ...headers, "content-type": "application/json", "content-length": "4096" });
  res.write('{"code":0,"success":true,"data":{"items":[', () => res.destroy());
}

function write(res: ServerResponse, reply: Reply, headers: Readonly<Record<string, string>>): void {
  if (res.destroyed) return;
  const json = typeof reply.body === "object";
  const text = json ? JSON.stringify(reply.body) : (reply.body as string);
  res.writeHead(reply.status, {
    ...(json ? { "content-type": "application/json; charset=utf-8" } : {}),
    ...headers,
    ...reply.headers,
    "content-length": Buffer.byteLength(text),
  });
  res.end(text);
}

const CREDENTIALS = ["authorization", "x-api-key", "x-goog-api-key", "cookie"];

function askedOf(question: Question, req: IncomingMessage, at: number): Asked {
  const headers = Object.entries(req.headers).map(([name, value]) => [
    name,
    CREDENTIALS.includes(name) ? "(shown)" : String(value),
  ]);
  return {
    method: question.method,
    path: req.url ?? "",
    at,
    credential: shownIn(req.headers) !== "",
    headers: Object.fromEntries(headers),
  };
}

async function read(req: IncomingMessage): Promise<Question> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of req as AsyncIterable<Buffer>) chunks.push(chunk);
  } catch {
    // Whoever left in the middle of a question gets no answer anyhow.
  }
  const { pathname, searchParams } = new URL(req.url ?? "/", "http://console");
  return {
    method: req.method ?? "",
    path: pathname,
    query: searchParams,
    headers: req.headers,
    body: objectIn(Buffer.concat(chunks).toString("utf8")),
  };
}

function objectIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
