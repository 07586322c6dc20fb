import { once } from "node:events";
import { Agent, createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";
import { systemClock } from "../../src/clock.ts";
import type { AdapterMeans, ConsoleAdapter, Page } from "../../src/mirror/consoles/console.ts";
import { createWire } from "../../src/mirror/consoles/wire.ts";

export interface ConsoleCall {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
}

/** What a test answers: JSON from an object, or what is told word by word. */
export type ConsoleReply =
  | { readonly json: unknown; readonly status?: number; readonly headers?: Record<string, string> }
  | { readonly text: string; readonly status?: number; readonly headers?: Record<string, string> };

export interface AnsweringConsole {
  readonly url: string;
  readonly calls: readonly ConsoleCall[];
  /** How long the adapter waited, each time. */
  readonly pauses: readonly number[];
  /** The time that the adapter is told, milliseconds; a pause moves it on. */
  time: number;
  /** How far the console's clock is ahead of that, milliseconds. */
  skew: number;
  readonly means: AdapterMeans;
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
      date: new Date(told.time + told.skew).toUTCString(),
      ...reply.headers,
    });
    response.end(json ? JSON.stringify(reply.json) : reply.text);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const agent = new Agent({ keepAlive: true });
  const stop = new AbortController();
  t.teardown(async () => {
    stop.abort();
    agent.destroy();
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const wire = createWire({
    ...{ url, clock: systemClock, agent: () => agent, signal: stop.signal, onSkew: () => {} },
  });
  const told: AnsweringConsole = {
    ...{ url, calls, pauses, time: Date.UTC(2026, 7, 21, 12), skew: 0 },
    means: {
      ...{ url, wire, now: () => told.time },
      pause: async (milliseconds: number) => {
        pauses.push(milliseconds);
        told.time += milliseconds;
      },
    },
  };
  return told;
}

/** All pages of a walk. */
export async function walked(
  adapter: ConsoleAdapter,
  mark: string | null,
  since: number,
  most = Number.POSITIVE_INFINITY,
): Promise<Page[]> {
  const pages: Page[] = [];
  for await (const page of adapter.walk(mark, since)) {
    pages.push(page);
    if (pages.length >= most) break;
  }
  return pages;
}
