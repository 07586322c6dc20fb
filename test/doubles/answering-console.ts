// For tests of the console adapters: a console that gives the answers of the test, over a real socket.
import { once } from "node:events";
import { Agent, createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import type { ConsoleAdapter, Page } from "../../src/mirror/consoles/console.ts";
import {
  type AdapterDeps,
  CallHistory,
  type ConsoleClient,
  HttpClient,
} from "../../src/mirror/consoles/http.ts";

export interface ConsoleCall {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
}

/** What a test answers: a value as JSON, or a text as it is. */
export type ConsoleReply = ({ readonly json: unknown } | { readonly text: string }) & {
  readonly status?: number;
  readonly headers?: Record<string, string>;
};

export interface AnsweringConsole {
  readonly url: string;
  readonly calls: readonly ConsoleCall[];
  /** How long the adapter paused, each time. */
  readonly pauses: readonly number[];
  /** The adapter's clock, milliseconds. A pause moves it on. */
  time: number;
  /** How far the console's clock is ahead, milliseconds. */
  skew: number;
  readonly deps: AdapterDeps;
}

/** A console that answers each call as the test says, over a real socket. */
export async function answeringConsole(
  t: Test,
  answer: (call: ConsoleCall) => ConsoleReply,
): Promise<AnsweringConsole> {
  const calls: ConsoleCall[] = [];
  const pauses: number[] = [];
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://console");
    const call = { path: pathname, query: searchParams, headers: request.headers };
    calls.push(call);
    const reply = answer(call);
    const json = "json" in reply;
    response.writeHead(reply.status ?? 200, {
      "content-type": json ? "application/json" : "text/plain",
      date: new Date(console.time + console.skew).toUTCString(),
      ...reply.headers,
    });
    response.end(json ? JSON.stringify(reply.json) : reply.text);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const console: AnsweringConsole = {
    url,
    calls,
    pauses,
    time: Date.UTC(2026, 7, 21, 12),
    skew: 0,
    deps: {
      client: startClient(t, url),
      calls: new CallHistory(),
      now: () => console.time,
      pause: async (milliseconds: number) => {
        pauses.push(milliseconds);
        console.time += milliseconds;
      },
    },
  };
  return console;
}

/** What an adapter asks a console with, until the test ends. */
export function startClient(t: Test, url: string): ConsoleClient {
  const agent = new Agent({ keepAlive: true });
  const stop = new AbortController();
  t.teardown(() => {
    stop.abort();
    agent.destroy();
  });
  return new HttpClient({
    url,
    clock: systemClock,
    agent: () => agent,
    signal: stop.signal,
    onSkew: () => {},
  });
}

/** The pages of a walk, all or the first `most`. */
export async function walked(
  adapter: ConsoleAdapter,
  cursor: string | null,
  since: number,
  most = Number.POSITIVE_INFINITY,
): Promise<Page[]> {
  const pages: Page[] = [];
  for await (const page of adapter.walk(cursor, since)) {
    pages.push(page);
    if (pages.length >= most) break;
  }
  return pages;
}
