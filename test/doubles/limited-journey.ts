// A daemon with one limited tool, and a gateway that plays what each request asks for.

import { cpSync, mkdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import type { Clock } from "../../src/core/clock.ts";
import { findPaths } from "../../src/core/paths.ts";
import {
  canaryKey,
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  type UnderTestOptions,
} from "./daemon-under-test.ts";
import { listen } from "./listen.ts";
import { until } from "./until.ts";

/** One request as it reached the gateway. */
export interface Arrival {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  /** What the gateway is to do with it, as its header `x-play` says. */
  readonly play: string;
  readonly res: ServerResponse;
  body: string;
  ended: boolean;
}

/** A gateway that records what reaches it, and does with each request what its header `x-play` says. */
export interface PlayGateway {
  readonly origin: string;
  readonly baseUrl: string;
  readonly arrivals: readonly Arrival[];
  /** Requests it has and has not ended. */
  running(): number;
  /** The most of them there ever were at once. */
  most(): number;
  /** Answers every request that hangs. */
  release(): void;
}

/** Tokens that every answer reports: 7 in, 5 out. */
export const REPORTED = 12;

export const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: REPORTED };

export async function startPlayGateway(t: Test): Promise<PlayGateway> {
  const arrivals: Arrival[] = [];
  let most = 0;
  // An answer that was handed over counts as ended: the next request may arrive before "finish".
  const running = () => arrivals.filter(({ ended, res }) => !ended && !res.writableEnded).length;
  const server = createServer((req, res) => {
    const play = String(req.headers["x-play"] ?? "finish");
    const arrival = { url: req.url ?? "", headers: req.headers, play, res, body: "", ended: false };
    arrivals.push(arrival);
    most = Math.max(most, running());
    const end = () => {
      arrival.ended = true;
    };
    res.once("close", end);
    res.once("finish", end);
    req.on("error", () => {});
    req.on("data", (chunk: Buffer) => {
      arrival.body += chunk.toString("latin1");
    });
    if (play === "early") refuse(res, 400);
    else req.once("end", () => playOut(play, res));
  });
  const { origin } = await listen(t, server);
  const release = () => {
    for (const { ended, play, res } of arrivals) if (!ended && play === "hang") finish(res);
  };
  return { origin, baseUrl: `${origin}/v1`, arrivals, running, most: () => most, release };
}

const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const WORD = event({ model: "penny", choices: [{ delta: { content: "one" } }] });

function playOut(play: string, res: ServerResponse): void {
  const plays: Record<string, () => void> = {
    finish: () => finish(res),
    hang: () => {},
    slow: () => void setTimeout(() => finish(res), 30),
    "no-usage": () => {
      res.writeHead(200, { "content-type": "application/json" });
      res.end('{"choices":[]}');
    },
    stream: () => stream(res, () => res.end(`${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`)),
    /** It begins and never goes on. */
    stall: () => stream(res, () => {}),
    "cut-stream": () => stream(res, () => res.destroy()),
    cut: () => void res.destroy(),
  };
  const known = plays[play];
  if (known === undefined) refuse(res, Number(play));
  else known();
}

function stream(res: ServerResponse, then: () => void): void {
  res.writeHead(200, { "content-type": "text/event-stream" });
  res.write(WORD, then);
}

function finish(res: ServerResponse): void {
  res.writeHead(200, { "content-type": "application/json", "x-ratelimit-limit-requests": "999999" });
  res.end(JSON.stringify({ model: "penny", choices: [], usage: USAGE }));
}

function refuse(res: ServerResponse, status: number): void {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify({ error: { message: "the gateway says no", type: "no" } }));
}

/** Its wall clock stands still until it is told to pass, so that no window ends by itself; the other one runs. */
export function heldWall(start = Date.UTC(2026, 10, 15, 12, 0, 10)): Clock & { pass(ms: number): void } {
  let wall = start;
  return {
    now: () => wall,
    elapsed: () => performance.now(),
    pass(ms) {
      wall += ms;
    },
  };
}

/** A model that costs a micro-dollar a token, so that money and tokens are the same number. */
export const PRICES = "prices: { penny: { input: 1, output: 1, cache_read: 1, cache_write: 1 } }\n";

export interface Answered {
  readonly status: number;
  /** The refusal's code; null: keybearer did not refuse. */
  readonly refusal: string | null;
  readonly headers: Headers;
  readonly text: string;
}

export interface Asking {
  readonly play?: string;
  readonly path?: string;
  /** null: a GET. */
  readonly body?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  readonly token?: string;
}

/** 10 tokens at most, told by the request itself. */
export const PENNY = JSON.stringify({ model: "penny", max_tokens: 10, messages: [] });

export function caller(url: string, token: string): (asking?: Asking) => Promise<Answered> {
  return async ({
    play = "finish",
    path = "/v1/chat/completions",
    body = PENNY,
    headers,
    signal,
    ...own
  } = {}) => {
    const answer = await fetch(`${url}${path}`, {
      method: body === null ? "GET" : "POST",
      headers: {
        authorization: `Bearer ${own.token ?? token}`,
        "content-type": "application/json",
        "x-play": play,
        ...headers,
      },
      body,
      ...(signal === undefined ? {} : { signal }),
    });
    return {
      status: answer.status,
      refusal: answer.headers.get("x-keybearer-refusal"),
      headers: answer.headers,
      text: await answer.text(),
    };
  };
}

export interface Journey extends DaemonUnderTest {
  readonly gateway: PlayGateway;
  readonly key: string;
  readonly token: string;
  readonly hash: string;
  /** The whole of config.yaml with other settings of the tool. */
  text(settings: string): string;
  /** Saves other settings of the tool and waits until they are in force. */
  change(settings: string): Promise<void>;
  readonly call: (asking?: Asking) => Promise<Answered>;
  /** The tool as `keybearer tools --json` tells it. */
  codex(): Promise<ToolStatus>;
  /** One of its limits as used, held and most. */
  level(limit: string, per?: string | null): Promise<readonly [number | null, number | null, number]>;
  /** Asks over the control socket. */
  control<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T>;
  /** Waits until nothing of the tool runs or waits. */
  quiet(): Promise<void>;
}

interface JourneyOptions extends UnderTestOptions {
  readonly gateway?: PlayGateway;
  readonly credentials?: { readonly key: string; readonly token: string; readonly hash: string };
  /** Lines of the gateway in config.yaml, such as `timeouts: { first_byte: 1s }`. */
  readonly gatewayLines?: string;
}

export function credentials() {
  return { key: canaryKey(), ...freshToken() };
}

/** A daemon with one tool, codex, before a gateway that records its requests. `settings` are the tool's, in flow style. */
export async function startLimited(
  t: Test,
  settings: string,
  options: JourneyOptions = {},
): Promise<Journey> {
  const gateway = options.gateway ?? (await startPlayGateway(t));
  const { key, token, hash } = options.credentials ?? credentials();
  const lines = options.gatewayLines === undefined ? "" : `, ${options.gatewayLines}`;
  const text = (own: string) =>
    `gateways: { main: { base_url: "${gateway.baseUrl}"${lines} } }\n${PRICES}tools:\n` +
    `  codex: { key: ${key}, token: "${hash}"${own === "" ? "" : `, ${own}`} }\n`;
  const under = await startUnderTest(t, text(settings), options);
  t.teardown(() => gateway.release());
  const codex = async () => {
    const found = (await under.daemon.status()).tools.find(({ name }) => name === "codex");
    if (found === undefined) throw new Error("there is no tool codex");
    return found;
  };
  return {
    ...under,
    gateway,
    key,
    token,
    hash,
    text,
    async change(own) {
      const before = under.daemon.snapshot().revision;
      await under.save(text(own));
      await until("the save is in force", () => under.daemon.snapshot().revision > before);
    },
    call: caller(under.url, token),
    codex,
    async level(limit, per = null) {
      const found = (await codex()).limits.find((one) => one.limit === limit && one.per === per);
      if (found === undefined) throw new Error(`there is no limit ${limit} ${per}`);
      return [found.used, found.held, found.most];
    },
    async control<T>(method: "GET" | "POST", path: string, body?: unknown) {
      const asked = await askDaemon<T>(under.paths, method, path, body);
      if (!asked.ok) throw new Error(asked.problem);
      return asked.value;
    },
    async quiet() {
      await until("nothing runs or waits", async () => {
        const { running, waiting } = await codex();
        return running === 0 && waiting === 0;
      });
      // The last records are written at the end of the turn.
      await turn();
    },
  };
}

/** A start after kill -9: a second daemon on the journal as it is now, while the first still runs. */
export async function startAfterCrash(
  t: Test,
  settings: string,
  first: Journey,
  options: Pick<JourneyOptions, "clock"> = {},
): Promise<Journey> {
  const home = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));
  const { usage, trust } = findPaths({ env: { KEYBEARER_HOME: home }, home });
  // The index is built from the journal. A process that reads its own databases as files loses its locks on them.
  // Before the copy, which would make it with the rights that the umask leaves.
  mkdirSync(dirname(usage), { recursive: true, mode: 0o700 });
  cpSync(first.paths.usage, usage, { recursive: true, filter: (path) => !/\.(?:db|tmp)/.test(path) });
  cpSync(first.paths.trust, trust);
  return startLimited(t, settings, { ...options, home, gateway: first.gateway, credentials: first });
}

/** How often each thing is there. */
export function tally(things: readonly (string | number | null)[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const thing of things) counts[String(thing)] = (counts[String(thing)] ?? 0) + 1;
  return counts;
}
