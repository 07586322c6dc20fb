// What the doubles of all consoles share: the account with its keys and rows, the gateway beside it, and faults to order.
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import type { Test } from "tap";
import { hasTest, sendAnswer, testNumber, upstreamError, useOf } from "./gateway.ts";

/** A test, or another program that uses a double until its own end. */
export type User = Pick<Test, "teardown">;

export interface DoubleOptions {
  readonly now?: () => number;
  /** true: new-api limits how often a key may ask about itself. Default false. */
  readonly limits?: boolean;
  /** Dollars in the account. Default 50. */
  readonly balance?: number;
}

export interface KeyOptions {
  readonly name: string;
  /** The whole key, as a tool sends it to the gateway. */
  readonly key: string;
  /** Default `default`. */
  readonly group?: string;
  /** Of the group. Default 1, or what the group had. */
  readonly multiplier?: number;
  /** Dollars. Default unlimited. */
  readonly quota?: number;
  readonly disabled?: boolean;
  /** Milliseconds by the console's clock. Default never. */
  readonly expiresAt?: number;
  /** Belongs to the second account of the console. */
  readonly second?: boolean;
  /** Settings under the console's own names, which it lists and otherwise ignores. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

export interface Use {
  readonly key: string;
  readonly model: string;
  readonly stream: boolean;
  /** Without cache, as keybearer counts. */
  readonly input: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  readonly output: number;
  /** What the account pays. */
  readonly dollars: number;
  /** Default: dollars without the group's multiplier. */
  readonly listDollars?: number;
  /** When it ended, by the test's clock. Default now. */
  readonly at?: number;
  /** Default: a new id. */
  readonly requestId?: string;
  /** Failed attempts before it, which new-api lists under the same id. */
  readonly errors?: number;
  readonly ip?: string;
  /** Default /v1/chat/completions. */
  readonly endpoint?: string;
  /** Milliseconds. Default 900. */
  readonly duration?: number;
  /** Money that came back, as a row of its own. Only new-api has these. */
  readonly refund?: boolean;
}

/**
 * 401 and 429: the refusals of this kind of console; some have HTTP status 200. shape: JSON that no console sends.
 * data: the right envelope around the wrong data. slow: no response until the fault ends. cut: the connection ends in the
 * middle of the response. redirect: to the thief.
 */
export type Fault = "html" | "401" | "429" | "empty" | "shape" | "data" | "slow" | "cut" | "redirect" | "500";

/** A request that the console received. */
export interface Asked {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  /** Whether it carried a credential, valid or not. */
  readonly credential: boolean;
}

export interface AccountKey extends KeyOptions {
  /** An owner may change these in the console. */
  disabled?: boolean;
  expiresAt?: number;
  fields?: Readonly<Record<string, unknown>>;
  readonly id: number;
  readonly group: string;
  readonly createdAt: number;
  usedDollars: number;
  lastUsedAt: number | null;
}

export interface Group {
  readonly id: number;
  readonly name: string;
  multiplier: number;
}

export type RowType = "use" | "error" | "refund" | "topup" | "manage" | "login" | "test";

/** One row of the log, before a console gives it its own shape. */
export interface Row {
  readonly id: number;
  /** Milliseconds by the console's clock. */
  readonly createdAt: number;
  readonly type: RowType;
  /** The key and the use are null in rows that are no usage. */
  readonly key: AccountKey | null;
  readonly use: Use | null;
  readonly requestId: string;
  readonly multiplier: number;
  readonly listDollars: number;
}

/** A request to the console or to the gateway. */
export interface Call {
  readonly method: string;
  /** Without its query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** {} unless the body is a JSON object. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** An object is sent as JSON. */
  readonly body: object | string;
}

export const LOGIN = {
  email: "owner@gateway.example",
  password: "correct-horse-battery",
  /** The second factor. */
  code: "246810",
  /** For new-api and one-api. */
  accessToken: "pat9f2c7e51b04d48a6",
  user: "7",
};

/** Another account at the same console. */
export const SECOND_LOGIN: typeof LOGIN = {
  ...LOGIN,
  email: "second@gateway.example",
  accessToken: "pat0b7d3c96e25f41a8",
  user: "8",
};

export const INDEX_HTML: Reply = {
  status: 200,
  headers: { "content-type": "text/html; charset=utf-8" },
  body: '<!doctype html><html lang="en"><head><title>Console</title></head><body><div id="app"></div></body></html>',
};

/** A console with its gateway, as a real server. A subclass per kind adds what differs between consoles. */
export abstract class ConsoleDouble {
  abstract readonly kind: "sub2api" | "new-api" | "one-api" | "litellm";
  /** Origin of the console and of its gateway. */
  url = "";
  readonly login = LOGIN;
  readonly keys: AccountKey[] = [];
  readonly groups: Group[] = [];
  /** The rows that the console lists, in the order in which it wrote them. */
  readonly rows: Row[] = [];
  balance: number;
  /** The operator has banned the account. */
  banned = false;
  /** false: requests are billed but not listed. */
  logging = true;
  /** How far its clock is ahead, in milliseconds. Affects the Date header and rows written from now on. */
  skew = 0;
  /** How the console fails. The gateway goes on. */
  fault: Fault | null = null;
  /** Called with every console request before it is answered. */
  onAsk: ((asked: Asked) => void) | null = null;
  readonly asked: Asked[] = [];
  /** Replaces a response after the request was executed. null cuts the connection. */
  onReply: ((call: Call, reply: Reply) => Reply | null) | null = null;
  /** Another origin, to which redirects lead: the text of all it received. */
  readonly thief = { url: "", seen: [] as string[] };

  /** Whether failed attempts are rows. */
  protected readonly listsErrors: boolean = false;
  /** Types of rows that the console lists although they are no usage. */
  protected readonly otherTypes: readonly RowType[] = [];
  /** What POST requests the gateway serves. */
  protected readonly endpoints: readonly string[] = [
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
  ];

  private readonly clock: () => number;
  private heldRows: Row[] | null = null;
  private billed = 0;
  private gatewayRequests = 0;
  private billedRequests = 0;
  private lastKeyId = 10;

  constructor(options: DoubleOptions) {
    this.clock = options.now ?? Date.now;
    this.balance = options.balance ?? 50;
  }

  /** The lines below `console:` that hold the login. */
  protected abstract loginConfig(): string[];
  /** null: there is no such path. */
  protected abstract answerConsole(call: Call): Reply | null;
  protected abstract faultReply(fault: "401" | "429" | "500" | "data"): Reply;
  protected abstract notFound(call: Call): Reply;
  protected abstract newRequestId(): string;
  /** Headers of every response. */
  protected abstract responseHeaders(requestId: string, call: Call): Record<string, string>;
  /** null: the gateway serves the key. */
  protected abstract refuseKey(key: AccountKey | null, requestId: string, call: Call): Reply | null;

  /** Everything else goes to the gateway. */
  protected isConsolePath(path: string): boolean {
    return path.startsWith("/api/");
  }

  /** Of a request to the gateway. */
  protected requestIdOf(_call: Call): string {
    return this.newRequestId();
  }

  /** null: the account can pay, or this gateway serves it anyway. A list of models is free. */
  protected refuseUnpaid(_requestId: string): Reply | null {
    return null;
  }

  /** The id of a request as its row has it. */
  protected rowRequestId(requestId: string): string {
    return requestId;
  }

  /** The whole key, as this console reads what a request sends. */
  protected keyText(sent: string): string {
    return sent;
  }

  /** Starts the console and the thief, until the test ends. */
  async listen(t: User): Promise<void> {
    const server = createServer((req, res) => {
      // Node would send the real time.
      res.setHeader("date", new Date(this.now()).toUTCString());
      req.on("error", () => {});
      res.on("error", () => {});
      void this.serve(req, res);
    });
    this.url = await listenOn(t, server);
    const thief = createServer((req, res) => {
      this.thief.seen.push(`${req.method} ${req.url} ${JSON.stringify(req.rawHeaders)}`);
      req.on("data", (chunk: Buffer) => this.thief.seen.push(chunk.toString("latin1")));
      sendReply(res, { status: 200, body: { code: 0, success: true, data: { items: [], total: 0 } } });
    });
    this.thief.url = await listenOn(t, thief);
  }

  /** YAML lines for `console:` below a gateway, without indentation; secrets as literals. */
  get config(): string[] {
    return [`kind: ${this.kind}`, `url: ${this.url}`, ...this.loginConfig()];
  }

  /** Requests that the gateway received so far, answered or not. */
  reached(): number {
    return this.gatewayRequests;
  }

  /** Requests that were billed so far. */
  bills(): number {
    return this.billedRequests;
  }

  /** By the console's clock. */
  now(): number {
    return this.clock() + this.skew;
  }

  addKey(options: KeyOptions): AccountKey {
    if (this.keyText(options.key) !== options.key) {
      throw new Error(`${this.kind} cuts keys at a hyphen: ${options.name} needs one like sk-abc123`);
    }
    const name = options.group ?? "default";
    const group = this.groups.find((one) => one.name === name);
    if (group === undefined) {
      this.groups.push({ id: this.groups.length + 3, name, multiplier: options.multiplier ?? 1 });
    } else if (options.multiplier !== undefined) {
      group.multiplier = options.multiplier;
    }
    this.lastKeyId += 1;
    const key = {
      ...options,
      id: this.lastKeyId,
      group: name,
      createdAt: this.now(),
      usedDollars: 0,
      lastUsedAt: null,
    };
    this.keys.push(key);
    return key;
  }

  /** Ids are not used again. */
  deleteKey(key: AccountKey): void {
    this.keys.splice(this.keys.indexOf(key), 1);
  }

  /** What an account sees. */
  protected keysOf(isSecond: boolean): AccountKey[] {
    return this.keys.filter(({ second = false }) => second === isSecond);
  }

  protected rowsOf(isSecond: boolean): Row[] {
    return this.rows.filter(({ key }) => (key?.second ?? false) === isSecond);
  }

  groupOf(key: AccountKey): Group {
    const found = this.groups.find(({ name }) => name === key.group);
    if (found === undefined) throw new Error(`there is no group ${key.group}`);
    return found;
  }

  /** Bills a request and lists it. Returns its id. */
  bill(use: Use): string {
    this.billedRequests += 1;
    const requestId = use.requestId ?? this.newRequestId();
    for (let n = 0; n < (use.errors ?? 0); n += 1) this.writeError(use, requestId);
    const key = this.keyOf(use);
    const type = use.refund === true ? "refund" : "use";
    if (type === "refund") {
      this.balance += use.dollars;
    } else {
      this.balance -= use.dollars;
      key.usedDollars += use.dollars;
      key.lastUsedAt = this.timeOf(use);
    }
    this.writeUse(type, use, requestId);
    this.writeOther(use);
    return requestId;
  }

  /** Rows written from now on are not listed until release(), and then as the newest, whatever their time. */
  hold(): void {
    this.heldRows ??= [];
  }

  release(): void {
    const held = this.heldRows ?? [];
    this.heldRows = null;
    for (const row of held) this.list(row);
  }

  private keyOf(use: Use): AccountKey {
    const key = this.keys.find((one) => one.key === use.key);
    if (key === undefined) throw new Error(`${this.kind} has no such key to bill`);
    return key;
  }

  private timeOf(use: Use): number {
    return (use.at ?? this.clock()) + this.skew;
  }

  protected writeError(use: Use, requestId: string): void {
    if (this.listsErrors) this.writeUse("error", use, requestId);
  }

  private writeUse(type: RowType, use: Use, requestId: string): void {
    const key = this.keyOf(use);
    const { multiplier } = this.groupOf(key);
    this.write({
      id: 0,
      createdAt: this.timeOf(use),
      type,
      key,
      use,
      requestId: this.rowRequestId(requestId),
      multiplier,
      listDollars: use.listDollars ?? use.dollars / multiplier,
    });
  }

  /** After every fourth request the console lists something that is no usage, of each type in turn. */
  private writeOther(use: Use): void {
    const before = this.billed;
    this.billed += 1;
    const type = this.otherTypes[Math.floor(before / 4) % this.otherTypes.length];
    if (before % 4 !== 0 || type === undefined) return;
    const empty = { key: null, use: null, requestId: "", multiplier: 1, listDollars: 0 };
    this.write({ id: 0, createdAt: this.timeOf(use), type, ...empty });
  }

  private write(row: Row): void {
    if (!this.logging) return;
    if (this.heldRows === null) this.list(row);
    else this.heldRows.push(row);
  }

  private list(row: Row): void {
    // Other accounts have rows too, so ids neither start at 1 nor follow one another.
    const last = this.rows.at(-1)?.id ?? 4000;
    this.rows.push({ ...row, id: last + 1 + (last % 3) });
  }

  private async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const call = await readCall(req);
    if (this.isConsolePath(call.path)) return this.serveConsole(call, req.url ?? "", res);
    this.gatewayRequests += 1;
    return this.serveGateway(call, res);
  }

  private async serveConsole(call: Call, url: string, res: ServerResponse): Promise<void> {
    const asked = { method: call.method, path: url, credential: credentialIn(call.headers) !== "" };
    this.asked.push(asked);
    this.onAsk?.(asked);
    while (this.fault === "slow" && !res.destroyed) await wait(5);
    const headers = this.responseHeaders(this.newRequestId(), call);
    if (this.fault === "cut") {
      res.writeHead(200, { ...headers, "content-type": "application/json", "content-length": "4096" });
      res.write('{"code":0,"success":true,"data":{"items":[', () => res.destroy());
      return;
    }
    const reply = this.replyOfFault(url) ?? this.answerConsole(call) ?? this.notFound(call);
    const sent = this.onReply === null ? reply : this.onReply(call, reply);
    if (sent === null) res.destroy();
    else sendReply(res, sent, headers);
  }

  private replyOfFault(url: string): Reply | null {
    switch (this.fault) {
      case "html":
        return INDEX_HTML;
      case "empty":
        return { status: 200, headers: { "content-type": "application/json" }, body: "" };
      case "shape":
        return { status: 200, body: { status: "ok", result: { list: [] } } };
      case "redirect":
        return { status: 302, headers: { location: `${this.thief.url}${url}` }, body: "" };
      case "401":
      case "429":
      case "500":
      case "data":
        return this.faultReply(this.fault);
      default:
        return null;
    }
  }

  private async serveGateway(call: Call, res: ServerResponse): Promise<void> {
    const requestId = this.requestIdOf(call);
    const headers = this.responseHeaders(requestId, call);
    const send = (reply: Reply) => sendReply(res, reply, headers);
    const isModels = call.method === "GET" && call.path === "/v1/models";
    const isServed = call.method === "POST" && this.endpoints.includes(call.path);
    if (!isModels && !isServed) return send(this.notFound(call));

    const text = this.keyText(credentialIn(call.headers));
    const key = this.keys.find((one) => one.key === text) ?? null;
    const refusal = this.refuseKey(key, requestId, call);
    if (refusal !== null || key === null) return send(refusal ?? this.notFound(call));
    if (isModels) {
      return send({ status: 200, body: { object: "list", data: [{ id: "gpt-5.1", object: "model" }] } });
    }
    const unpaid = this.refuseUnpaid(requestId);
    if (unpaid !== null) return send(unpaid);
    if (call.path.endsWith("/count_tokens")) return send({ status: 200, body: { input_tokens: 12 } });

    const use = useOf(call, key, this.groupOf(key).multiplier, requestId);
    const status = testNumber(call, "status");
    if (status !== null) {
      this.writeError(use, requestId);
      return send(upstreamError(status, call.path));
    }
    const began = this.now();
    await sendAnswer(call, use, res, headers, () => {
      const output = testNumber(call, "row-output") ?? use.output;
      const duration = this.now() - began;
      if (!hasTest(call, "no-row")) this.bill({ ...use, output, duration });
    });
  }
}

/** The key, or the console's credential, that a request carries. */
export function credentialIn(headers: IncomingHttpHeaders): string {
  const bearer = headers.authorization?.replace(/^Bearer\s+/i, "").trim();
  return bearer ?? String(headers["x-api-key"] ?? "");
}

/** A whole number of a query. */
export function numberIn(query: URLSearchParams, name: string, otherwise: number): number {
  const text = query.get(name) ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : otherwise;
}

function sendReply(res: ServerResponse, reply: Reply, headers: Record<string, string> = {}): void {
  if (res.destroyed) return;
  const isText = typeof reply.body === "string";
  const text = typeof reply.body === "string" ? reply.body : JSON.stringify(reply.body);
  res.writeHead(reply.status, {
    ...(isText ? {} : { "content-type": "application/json; charset=utf-8" }),
    ...headers,
    ...reply.headers,
    "content-length": Buffer.byteLength(text),
  });
  res.end(text);
}

async function readCall(req: IncomingMessage): Promise<Call> {
  let text = "";
  try {
    for await (const chunk of req.setEncoding("utf8")) text += chunk;
  } catch {
    // The client left, so nothing reads the response.
  }
  const { pathname, searchParams } = new URL(req.url ?? "/", "http://console");
  return {
    method: req.method ?? "",
    path: pathname,
    query: searchParams,
    headers: req.headers,
    body: jsonObject(text),
  };
}

function jsonObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Starts a server on a free port until the test ends. Returns its origin. */
async function listenOn(t: User, server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
