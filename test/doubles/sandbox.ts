import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { inspect } from "node:util";
import type { Test } from "tap";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import type { KeyStatus, NewKey, SandboxKey, UsageRow } from "../../src/sandbox/account.ts";
import { Sandbox } from "../../src/sandbox/sandbox.ts";

/** What a request gets instead of the sandbox's response. */
export type Fault =
  /** No response. */
  | { readonly kind: "silence" }
  /** The connection closes, after `body` as the beginning of a stream if there is one. */
  | { readonly kind: "cut"; readonly body?: string }
  /** Any other response. An object is sent as JSON. */
  | {
      readonly kind: "refuse";
      readonly status: number;
      readonly body?: string | object;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** Bytes that are not HTTP. */
  | { readonly kind: "garbage" }
  /** An error whose body repeats the request's headers, including the key. */
  | { readonly kind: "echo"; readonly status: number };

/** A request as it reached the gateway. The last two fields change while it is served. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  /** Names and values in turn, as on the wire. */
  readonly rawHeaders: readonly string[];
  readonly keyId: number | null;
  body: string;
  /** The connection closed before the whole response was sent. */
  isAborted: boolean;
}

export interface TestKey {
  readonly id: number;
  readonly key: Secret;
}

export interface TestGatewayOptions {
  readonly clock?: Clock;
  /** Milliseconds before each word of a stream. Default 0. */
  readonly wordDelay?: number;
}

/** The sandbox as the upstream of tests: it keeps every request and can be told to fail. */
export class TestGateway extends Sandbox {
  readonly #clock: Clock;
  readonly #requests: SeenRequest[] = [];
  readonly #faults = new Map<number, { readonly fault: Fault; left: number }[]>();
  readonly #consoleFaults: { readonly request: RegExp; readonly fault: Fault; left: number }[] = [];

  constructor(options: TestGatewayOptions = {}, onError: (error: unknown) => void = () => {}) {
    const clock = options.clock ?? systemClock;
    super(clock, { error: onError });
    this.#clock = clock;
    this.gateway.wordDelay = options.wordDelay ?? 0;
  }

  createKey(fields: NewKey): TestKey {
    const { key, text } = this.account.createKey(fields);
    return { id: key.id, key: new Secret(text) };
  }

  deleteKey(id: number): void {
    this.account.deleteKey(this.#key(id));
  }

  disableKey(id: number): void {
    this.#key(id).disabled = true;
  }

  enableKey(id: number): void {
    this.#key(id).disabled = false;
  }

  setGroupEnabled(name: string, enabled: boolean): void {
    for (const group of this.account.groups) if (group.name === name) group.enabled = enabled;
  }

  keyStatus(id: number): KeyStatus {
    return this.account.statusOf(this.#key(id));
  }

  usage(): readonly UsageRow[] {
    return this.account.usage();
  }

  /** Oldest first. */
  requests(): readonly SeenRequest[] {
    return this.#requests;
  }

  clearRequests(): void {
    this.#requests.length = 0;
  }

  /** The key's next requests fail: this many, or all from now on. Several orders are served in turn. */
  order(keyId: number, fault: Fault, times = Number.POSITIVE_INFINITY): void {
    const queue = this.#faults.get(keyId) ?? [];
    queue.push({ fault, left: times });
    this.#faults.set(keyId, queue);
  }

  /** The console's next requests of this kind fail, such as /^POST .*\/keys$/. */
  orderAtConsole(request: RegExp, fault: Fault, times: number): void {
    this.#consoleFaults.push({ request, fault, left: times });
  }

  protected override async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Node would send the real time.
    response.setHeader("date", new Date(this.#clock.now()).toUTCString());
    const key = this.account.keyWithText(keyIn(request.headers));
    this.#record(request, response, key);
    const fault = key === null ? this.#takeConsoleFault(request) : this.#takeFault(key.id);
    if (fault === null) return await super.serve(request, response);
    // A client that disconnects raises errors on both streams.
    request.on("error", () => {});
    response.on("error", () => {});
    await new Promise((resolve) => request.once("close", resolve));
    sendFault(fault, request, response);
  }

  #key(id: number): SandboxKey {
    const key = this.account.keyWithId(id);
    if (key === null) throw new Error(`no key ${id}`);
    return key;
  }

  #record(request: IncomingMessage, response: ServerResponse, key: SandboxKey | null): void {
    const seen: SeenRequest = {
      method: request.method ?? "",
      path: request.url ?? "",
      rawHeaders: request.rawHeaders,
      keyId: key?.id ?? null,
      body: "",
      isAborted: false,
    };
    this.#requests.push(seen);
    request.on("data", (chunk: Buffer) => {
      seen.body += chunk.toString("latin1");
    });
    response.once("close", () => {
      seen.isAborted = !response.writableFinished;
    });
  }

  #takeConsoleFault({ method, url }: IncomingMessage): Fault | null {
    const found = this.#consoleFaults.find(
      ({ request, left }) => left > 0 && request.test(`${method} ${url}`),
    );
    if (found === undefined) return null;
    found.left -= 1;
    return found.fault;
  }

  #takeFault(keyId: number): Fault | null {
    const queue = this.#faults.get(keyId) ?? [];
    const [first] = queue;
    if (first === undefined) return null;
    first.left -= 1;
    if (first.left < 1) queue.shift();
    return first.fault;
  }
}

function keyIn(headers: IncomingHttpHeaders): string {
  const bearer = headers.authorization?.replace(/^bearer /i, "");
  return bearer ?? String(headers["x-api-key"] ?? headers["x-goog-api-key"] ?? "");
}

function sendFault(fault: Fault, request: IncomingMessage, response: ServerResponse): void {
  switch (fault.kind) {
    case "silence":
      return;
    case "cut":
      if (fault.body === undefined) {
        response.destroy();
        return;
      }
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      // Destroyed once the bytes have left.
      response.write(fault.body, () => response.destroy());
      return;
    case "refuse": {
      const { status, body = "", headers = {} } = fault;
      const isText = typeof body === "string";
      const contentType = isText ? "text/plain; charset=utf-8" : "application/json; charset=utf-8";
      response.writeHead(status, { "Content-Type": contentType, ...headers });
      response.end(isText ? body : JSON.stringify(body));
      return;
    }
    case "garbage":
      response.socket?.end("\u0000\u0001 this is not an HTTP response\r\n\r\n");
      return;
    case "echo":
      response.writeHead(fault.status, { "Content-Type": "application/json; charset=utf-8" });
      response.end(
        JSON.stringify({ error: { message: request.rawHeaders.join(" "), headers: request.headers } }),
      );
  }
}

/** A sandbox on a free port, stopped when the test ends. An error inside it fails the test. */
export async function startSandbox(t: Test, options: TestGatewayOptions = {}): Promise<TestGateway> {
  const sandbox = new TestGateway(options, (error) => t.fail(inspect(error)));
  await sandbox.start();
  t.teardown(() => sandbox.stop());
  return sandbox;
}

export interface KeyText {
  readonly id: number;
  /** The key as it goes into a header. */
  readonly text: string;
  /** What keybearer may show of it. */
  readonly fingerprint: string;
}

export function newKey(sandbox: TestGateway, group = "default"): KeyText {
  const { id, key } = sandbox.createKey({ name: "test", group });
  return { id, text: key.reveal(), fingerprint: key.fingerprint };
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed text; null: it is not JSON. */
  readonly json: unknown;
}

export async function ask(url: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, init);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: parsed(text) };
}

export function post(
  url: string,
  key: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return ask(url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

export function get(url: string, key: string): Promise<Answer> {
  return ask(url, { headers: { authorization: `Bearer ${key}` } });
}

export function hello(model = "sandbox-small"): {
  model: string;
  messages: { role: string; content: string }[];
} {
  return { model, messages: [{ role: "user", content: "hello" }] };
}

/** Time passes only by `pass`. */
export function heldClock(): Clock & { pass(milliseconds: number): void } {
  let passed = 0;
  return {
    now: () => Date.UTC(2026, 10, 15, 12) + passed,
    elapsed: () => passed,
    pass(milliseconds) {
      passed += milliseconds;
    },
  };
}

/** Logs in at the console. */
export async function atConsole(sandbox: TestGateway) {
  const { email, password } = sandbox.account;
  const url = `${sandbox.origin}/api/v1`;
  const answer = await post(`${url}/auth/login`, "", { email, password: password.reveal() });
  const session = JSON.parse(answer.text).data;
  const headers = { authorization: `Bearer ${session.access_token}`, "content-type": "application/json" };
  return {
    session,
    call: async (method: string, path: string, body?: unknown) => {
      const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) };
      const { status, text } = await ask(`${url}${path}`, init);
      const { data, ...rest } = JSON.parse(text);
      return { status, data, ...rest };
    },
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
